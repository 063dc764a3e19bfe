"""The ways to cut a dataset over clients: one frozen dataclass each, found by name in `PARTITIONS`; the two simplest are here.

Each is a pure function of (dataset, clients, clusters, parameters, seed); clients are disjoint. `clusters` is
used by the partitions that have true clusters (`label_sets`) and ignored by the others.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np

from covey.data.dataset import Dataset
from covey.data.federation import Federation
from covey.data.partitions.dealing import check_clients, generator, hand_out, set_aside
from covey.errors import CoveyError


class Partition(Protocol):
    """Beside these it may declare `label` (how people write it), `from_label_sets = True` where every client draws from one of
    k sets of labels, `plants_property = True` where some samples have a property that the task is not about, `every_task = True`
    where it needs no classes, and `as_the_data_say = True` where it makes as many clients as the data have.
    """

    name: ClassVar[str]
    title: ClassVar[str]  # one line for lists

    def make(self, dataset: Dataset, clients: int, clusters: int, seed: int) -> Federation: ...


@dataclass(frozen=True)
class Iid:
    """Every client is a uniform sample; sizes differ by at most one."""

    name: ClassVar[str] = "iid"
    label: ClassVar[str] = "IID"
    title: ClassVar[str] = "every client a uniform sample, sizes equal up to one"
    every_task: ClassVar[bool] = True
    stream: ClassVar[int] = 4

    samples: int = 0  # per client; 0: all there is
    public: int = 0  # rows that no client holds

    def make(self, dataset: Dataset, clients: int, clusters: int, seed: int) -> Federation:
        check_clients(clients)
        rng = generator(seed, self.stream)
        public, rows = set_aside(np.arange(len(dataset.y_train)), self.public, rng)
        if self.samples < 0 or clients * max(self.samples, 1) > len(rows):
            raise CoveyError(
                f"{clients} clients with {self.samples or 'at least 1'} samples each do not fit in "
                f"{len(rows)} rows; "
                f"at most {len(rows) // clients} samples each, or {len(rows) // max(self.samples, 1)} "
                "clients."
            )
        used = clients * self.samples or len(rows)
        held = hand_out(rng.permutation(rows)[:used], np.arange(used) % clients, clients, rng)
        return Federation.by_label(dataset, held, public)


@dataclass(frozen=True)
class Shards:
    """Rows sorted by label, cut into clients · s shards of equal size (± 1), s random shards per client."""

    name: ClassVar[str] = "shards"
    label: ClassVar[str] = "Shards"
    title: ClassVar[str] = "rows sorted by label, cut into equal shards, s random ones for each client"
    stream: ClassVar[int] = 3

    s: int = 2
    public: int = 0  # rows that no client holds

    def __post_init__(self) -> None:
        if self.s < 1:
            raise CoveyError(f"partition.s is {self.s}; a client holds at least 1 shard.")

    def make(self, dataset: Dataset, clients: int, clusters: int, seed: int) -> Federation:
        check_clients(clients)
        rng = generator(seed, self.stream)
        public, rows = set_aside(np.arange(len(dataset.y_train)), self.public, rng)
        shards = clients * self.s
        if shards > len(rows):
            raise CoveyError(
                f"{clients} clients with {self.s} shards each are {shards} shards, but there are "
                f"{len(rows)} samples; "
                f"at most {len(rows) // clients} shards per client, or {len(rows) // self.s} clients, would "
                "work."
            )
        rows = rows[np.lexsort((rng.random(len(rows)), dataset.y_train[rows]))]
        shard = np.arange(len(rows)) * shards // len(rows)
        held = hand_out(rows, (rng.permutation(shards) // self.s)[shard], clients, rng)
        return Federation.by_label(dataset, held, public)
