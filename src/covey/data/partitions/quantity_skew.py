"""Quantity skew: some clients hold a hundred times the samples of others."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from covey.config import later
from covey.data.dataset import Dataset
from covey.data.federation import Federation
from covey.data.partitions.dealing import generator
from covey.data.partitions.dirichlet import log_dirichlet
from covey.data.partitions.label_sets import LabelSets
from covey.data.partitions.partitions import Iid
from covey.errors import CoveyError


@dataclass(frozen=True)
class QuantitySkew:
    """Clients as `label_sets` (or `iid`) makes them, each cut to a share of its rows that a Dirichlet draw gives it.

    The largest client keeps all of its rows, the others in proportion, none fewer than `minimum`; what is cut off nobody holds.
    What a client is tested on does not change: small clients are no easier.
    """

    name: ClassVar[str] = "quantity_skew"
    label: ClassVar[str] = "Quantity skew"
    title: ClassVar[str] = "sizes of clients drawn from a Dirichlet distribution, over label sets or uniform samples"
    stream: ClassVar[int] = 10

    beta: float = 0.5  # of the sizes: 0.1 is a few large clients, 100 nearly equal
    minimum: int = 10  # no client holds fewer rows
    label_sets: bool = True  # false: every client a uniform sample, and no true clusters
    public: int = 0  # rows (of each set) that no client holds
    samples: int = later(0)  # of the largest client; 0: all there is

    def __post_init__(self) -> None:
        if not (self.beta > 0 and np.isfinite(self.beta)):
            raise CoveyError(f"partition.beta is {self.beta}; it must be above 0 (0.1 is skewed, 100 nearly equal).")
        if self.minimum < 1:
            raise CoveyError(f"partition.minimum is {self.minimum}; a client holds at least 1 row.")

    def make(self, dataset: Dataset, clients: int, clusters: int, seed: int) -> Federation:
        kind = LabelSets if self.label_sets else Iid
        whole = kind(public=self.public, samples=self.samples)
        federation = whole.make(dataset, clients, clusters, seed)
        smallest = min(len(rows) for rows in federation.clients)
        if smallest < self.minimum:
            raise CoveyError(
                f"an equal share of {dataset.name} is {smallest} rows for {clients} clients, fewer than partition.minimum = "
                f"{self.minimum}: ask for fewer clients or a lower minimum."
            )
        draw = log_dirichlet(np.full(clients, self.beta), 1, generator(seed, self.stream))[0]
        share = np.exp(draw - draw.max())
        kept = tuple(
            rows[: max(self.minimum, round(float(part) * len(rows)))]  # rows are in random order: any prefix is fair
            for rows, part in zip(federation.clients, share)
        )
        unused = sum(map(len, federation.clients)) - sum(map(len, kept))
        return replace(federation, clients=kept, notes={**federation.notes, "cut_off": unused})
