"""Which clients are evaluated, and listed one by one in the records: all of them, or of very many a sample that the seed draws.

A million clients in every record would be read by nobody, and evaluating them would cost a hundred times what their rounds do. The
sample is drawn once for a run, so that its records, its report and its models speak of the same clients throughout.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from covey.data.federation import Federation
from covey.errors import CoveyError
from covey.experiment.experiment import Experiment
from covey.randomness import generator


def listed(experiment: Experiment, federation: Federation) -> NDArray[np.int64]:
    """Numbers of the clients, in order: at most `evaluation.clients`, and the one that the partition is about, if any."""
    n, most = len(federation.clients), experiment.evaluation.clients
    if not 0 < most < n:
        return np.arange(n)
    drawn = generator(experiment.seed, "listed").choice(n, most, replace=False, shuffle=False)
    target = federation.notes.get("target")
    chosen = np.unique(np.append(drawn, target) if isinstance(target, int) else drawn).astype(np.int64)
    present = experiment.participation.joined(1, n)
    if chosen[0] >= present:
        raise CoveyError(
            f"evaluation.clients = {most} draws none of the {present} clients of the first round: raise it, or set 0 for all {n}"
        )
    return chosen


def places(of: NDArray[np.int64], clients: NDArray[np.int64]) -> NDArray[np.int64]:
    """Where each client stands among those that are listed; -1: it is not."""
    at = np.searchsorted(of, clients).clip(max=len(of) - 1)
    return np.where(of[at] == clients, at, -1)
