"""Source inference: a record was trained on, but by whom? Hu et al., Source Inference Attacks in Federated Learning, ICDM 2021.

The guess is the client whose uploads fit the record best: by the confidence of its last model of those seen, as the paper has
it, and by how much the client's training raised it, summed over rounds.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
import torch

from covey.attacks.contract import Finding, Truth
from covey.attacks.membership.on_uploads import UploadReader, confidences
from covey.attacks.membership.scores import Floats
from covey.attacks.membership.strangers import Rows, samples_at
from covey.data.federation import Federation
from covey.errors import CoveyError
from covey.learn.machine import Machine
from covey.randomness import generator
from covey.statistics import student_interval

LARGEST = "largest client"


@dataclass
class SourceInference(UploadReader):
    name: ClassVar[str] = "source"
    label: ClassVar[str] = "Source inference"
    title: ClassVar[str] = "whose is this training record? the client whose upload fits it best (Hu et al. 2021)"
    means: ClassVar[str] = "share of training records whose client is named rightly; 1 is all"
    controls: ClassVar[tuple[str, ...]] = (LARGEST,)

    vantage: str = "server"
    rounds: int = 4  # uploads of a client that count, its first
    clients: int = 40  # that are looked at, at most
    cases: int = 50  # records of each client, at most
    memory: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if min(self.rounds, self.clients, self.cases) < 1:
            raise CoveyError(f"attack '{self.name}' needs rounds, clients and cases of at least 1")

    def finding(self, truth: Truth) -> Finding:
        watched = dict(self.uploads())
        metric = "records whose client is named"
        if len(watched) < 2:
            return self.nothing(metric, 1.0)
        federation, rng = truth.federation, generator(self.known.setting.seed, self.name)
        rows = [np.sort(rng.permutation(federation.clients[i])[: self.cases]) for i in watched]
        owner = np.repeat(np.arange(len(rows)), [len(own) for own in rows])
        machine = Machine(self.known.network, *samples_at(federation, np.concatenate(rows)), device=self.device())
        every = torch.arange(len(owner))
        last, raised = (list[Floats]() for _ in range(2))
        for uploads in watched.values():
            after = [confidences(machine, seen.end, every).mean(0) for _, seen in uploads]
            before = [confidences(machine, seen.start, every).mean(0) for _, seen in uploads]
            last.append(after[-1])
            raised.append(np.sum(after, axis=0) - np.sum(before, axis=0))
        share, n = float(np.bincount(owner).max() / len(owner)), len(rows)
        note = "" if federation.dataset.task != "classes" else _by_label(federation, list(watched), rows, owner)
        used = f"the first uploads of {n} clients, and {len(owner)} of their records with labels"

        def scored(name: str, fits: list[Floats], variants: list[Finding]) -> Finding:
            right = np.argmax(fits, axis=0) == owner
            low, high = student_interval([float(right[owner == i].mean()) for i in range(n)])  # clients are the trials
            numbers = (float(right.mean()), 1 / n, max(low, 0.0), min(high, 1.0), {LARGEST: share})
            return Finding(name, self.vantage, metric, *numbers, used, {}, variants=variants)

        return replace(scored(self.name, last, [scored(f"{self.name}_raised", raised, [])]), note=note)


def _by_label(federation: Federation, clients: list[int], rows: list[Rows], owner: Rows) -> str:
    """What part of the score may be the clients' label distributions, which another row is about."""
    largest = federation.histogram()[clients].argmax(0)
    right = float((largest[federation.dataset.y_train[np.concatenate(rows)]] == owner).mean())
    return (
        f"Who knew how many samples of each label every client has would name {right:.2f} of them by the label alone: part of the "
        "score may be the label distribution, another row."
    )
