"""A simulated federation written out as the folders of real silos, to rehearse a deployment on the same samples."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from covey.data.federation import Federation
from covey.engines.settle import cut
from covey.errors import CoveyError
from covey.experiment.experiment import Experiment


def export(experiment: Experiment, out: Path, names: Sequence[str] = ()) -> list[Path]:
    """One folder per name, the first for client 0: its rows in the simulation's order, and test rows of its distribution."""
    federation = cut(experiment)
    names = list(names) or [f"silo-{i}" for i in range(len(federation.clients))]
    if len(names) > len(federation.clients):
        raise CoveyError(f"{len(names)} silos for {len(federation.clients)} clients: name at most that many")
    folders = [Path(out) / name for name in names]
    for folder in folders:
        if folder.exists():
            raise CoveyError(f"{folder} is there already: remove it, or choose another folder with --out")
    data = federation.dataset
    for i, folder in enumerate(folders):
        held, tested = federation.clients[i], own_test_rows(federation, i)
        try:
            folder.mkdir(parents=True)
            np.savez(folder / "train.npz", x=data.x_train[held], y=data.y_train[held])
            np.savez(folder / "test.npz", x=data.x_test[tested], y=data.y_test[tested])
        except OSError as e:
            raise CoveyError(f"{folder} could not be written: {e.strerror}; choose another folder with --out") from e
    return folders


def own_test_rows(federation: Federation, client: int) -> NDArray[np.int64]:
    """As many test rows as there are in the proportions of a client's distribution over the groups, in order."""
    share = federation.distributions[client]
    there = np.bincount(federation.test_groups, minlength=len(share))[: len(share)]
    asked = (share > 0) & (there > 0)
    if not asked.any():
        raise CoveyError(f"there are no test samples of what client {client} holds: choose another partition")
    most = (there[asked] / share[asked]).min()
    counts = np.where(asked, np.rint(share * most), 0).astype(np.int64)
    kept = [np.flatnonzero(federation.test_groups == g)[:n] for g, n in enumerate(counts) if n]
    return np.sort(np.concatenate(kept)) if kept else np.flatnonzero(asked[federation.test_groups])[:1]
