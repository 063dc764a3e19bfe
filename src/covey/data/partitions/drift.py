"""Clusters that change while a federation trains: clients move to another cluster, or a cluster splits in two."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from covey.config import later
from covey.data.dataset import Dataset
from covey.data.federation import Federation, Phase
from covey.data.holdings import Rows
from covey.data.partitions.dealing import generator
from covey.data.partitions.label_sets import LabelSets
from covey.errors import CoveyError

CHANGES = ("move", "split")


@dataclass(frozen=True)
class Drift:
    """Label sets that change after round `after`: all clients are trained, tested and scored by what they hold then. The record
    of that round already tests on what follows: it shows the models before anybody has trained on it.

    "move": a share of the clients passes its samples on, each to the next such client of another cluster, so what is there
    stays there and who holds it changes. "split": in the beginning clusters 2j and 2j + 1 are one, of whose samples their
    clients hold half each; then every client has its own set only. With an odd number of clusters the last one does not change.
    """

    name: ClassVar[str] = "drift"
    label: ClassVar[str] = "Drifting clusters"
    title: ClassVar[str] = "label sets that change during training: clients move between clusters, or clusters split"
    stream: ClassVar[int] = 11

    change: str = "move"  # or "split"
    after: int = 10  # rounds
    share: float = 0.5  # of the clients that move
    public: int = 20  # rows per set that no client holds
    samples: int = later(0)  # per client; 0: all there is

    def __post_init__(self) -> None:
        if self.change not in CHANGES:
            raise CoveyError(f"partition.change is '{self.change}': choose {' or '.join(CHANGES)}.")
        if self.after < 1 or not 0 < self.share <= 1:
            raise CoveyError(
                f"partition.after is {self.after} and partition.share {self.share}: at least 1 round, and a share above 0 and "
                "at most 1."
            )

    def make(self, dataset: Dataset, clients: int, clusters: int, seed: int) -> Federation:
        if clusters < 2:
            raise CoveyError("clusters is 1: what moves or splits needs at least 2.")
        sets = LabelSets(public=self.public, in_turn=True, samples=self.samples).make(dataset, clients, clusters, seed)
        if self.change == "split":
            return united(sets, self.after)
        movers = self._movers(sets, generator(seed, self.stream))
        place = np.arange(clients)
        place[movers] = np.roll(movers, -1)
        later = Phase(
            self.after + 1,
            tuple(sets.clients[int(i)] for i in place),
            np.asarray(sets.clusters)[place],
            sets.distributions[place],
        )
        return replace(sets, phases=(later,), notes={**sets.notes, "moved": len(movers)})

    def _movers(self, sets: Federation, rng: np.random.Generator) -> Rows:
        """Clients in an order in which neighbours are of different clusters: as many of each cluster."""
        clusters = np.asarray(sets.clusters)
        k = int(clusters.max()) + 1
        members = [rng.permutation(np.flatnonzero(clusters == c)) for c in range(k)]
        each = max(1, round(self.share * min(map(len, members))))
        return np.concatenate([[members[c][turn] for c in range(k)] for turn in range(each)]).astype(np.int64)


def united(sets: Federation, after: int) -> Federation:
    """The federation before its clusters split in two: partners hold half of each other's samples."""
    clusters = np.asarray(sets.clusters)
    k = int(clusters.max()) + 1
    before: list[Rows] = list(sets.clients)
    for first in range(0, k - 1, 2):
        pairs = zip(np.flatnonzero(clusters == first), np.flatnonzero(clusters == first + 1))
        for a, b in pairs:
            halves = [np.array_split(sets.clients[i], 2) for i in (int(a), int(b))]
            before[int(a)], before[int(b)] = (np.concatenate([halves[0][h], halves[1][h]]) for h in (0, 1))
    one = np.where(clusters < k - k % 2, clusters // 2 * 2, clusters)  # of two that are one, the first
    mixed = np.stack([sets.distributions[one == c].mean(0) for c in one])
    later = Phase(after + 1, sets.clients, clusters, sets.distributions)
    return replace(sets, clients=tuple(before), clusters=one, distributions=mixed, phases=(later,))
