"""Clusters by label: the labels are split into k sets and a client draws from one of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from covey.config import later
from covey.data.dataset import Dataset
from covey.data.federation import Federation
from covey.data.holdings import Rows
from covey.data.partitions.dealing import apportion, check_clients, generator, hand_out
from covey.errors import CoveyError

# (labels, clusters) -> labels per set in the papers' heterogeneous experiments
PAPER_RANGES = {(10, 5): (1, 3), (100, 5): (10, 30), (100, 10): (5, 20)}


@dataclass(frozen=True)
class LabelSets:
    """k label sets, each with its clients, its public rows and its test distribution.

    Homogeneous: sets as equal as possible, clients per set as equal as possible. Heterogeneous: the number of
    labels per set is drawn uniformly among all ways to cover the labels within `labels_per_set`, clients in
    proportion. A client's distribution is its set in the proportions of the test data, mixed with all labels
    by `iid_rate`.
    """

    name: ClassVar[str] = "label_sets"
    label: ClassVar[str] = "Label sets"
    title: ClassVar[str] = "true clusters: the labels are cut into k sets, a client draws from one of them"
    stream: ClassVar[int] = 1
    from_label_sets: ClassVar[bool] = True

    homogeneous: bool = True
    iid_rate: float = 0.0  # this share of each client's samples comes from all labels
    samples: int = 0  # per client; 0: all there is
    public: int = 200  # rows per set that no client holds, at most a fifth of the set: known to the server
    shuffled: bool = False  # False: a set is consecutive labels
    sizes: tuple[int, ...] = ()  # clients per cluster, e.g. (12, 12, 24, 36, 36); empty: by the rule above
    in_turn: bool = False  # clusters take turns in the order of clients, so that the first to join come from all
    labels_per_set: tuple[int, ...] = ()  # (fewest, most) of a heterogeneous set; empty: the papers' range
    iid_from: int = later(0)  # `iid_rate` is of the clients from this one on, in the order in which they join
    test_on_sets: bool = later(False)  # everybody is tested on its label set alone, whatever `iid_rate`

    def __post_init__(self) -> None:
        if not 0.0 <= self.iid_rate <= 1.0:
            raise CoveyError(f"partition.iid_rate is {self.iid_rate}; it is a share, from 0 to 1.")
        if self.iid_from < 0 or (self.iid_from and not self.samples):
            raise CoveyError(
                f"partition.iid_from is {self.iid_from}; it is the number of a client, 0 or more, and needs partition.samples."
            )
        if self.samples < 0 or self.public < 0:
            raise CoveyError(
                f"partition.samples is {self.samples} and partition.public {self.public}; both are 0 or more."
            )
        span = self.labels_per_set
        if span and (len(span) != 2 or not 1 <= span[0] <= span[1]):
            raise CoveyError(f"partition.labels_per_set is {tuple(span)}; it is (fewest, most), such as (1, 3).")

    def make(self, dataset: Dataset, clients: int, clusters: int, seed: int) -> Federation:
        check_clients(clients)
        if self.iid_from >= clients:
            raise CoveyError(
                f"partition.iid_from is {self.iid_from}, but the last of {clients} clients is {clients - 1}."
            )
        labels = len(dataset.classes)
        if not 1 <= clusters <= labels:
            raise CoveyError(f"clusters is {clusters}, but {dataset.name} has {labels} labels: at most {labels} sets.")
        rng = generator(seed, self.stream)

        widths = self._widths(labels, clusters, rng)
        order = rng.permutation(labels) if self.shuffled else np.arange(labels)
        set_of_label = np.empty(labels, np.int64)
        set_of_label[order] = np.repeat(np.arange(clusters), widths)
        members = self._members(clients, widths)  # [k] clients per cluster
        cluster = np.repeat(np.arange(clusters), members)  # [n]

        pools = [rng.permutation(np.flatnonzero(set_of_label[dataset.y_train] == j)) for j in range(clusters)]
        empty = [j for j, pool in enumerate(pools) if not len(pool)]
        if empty:
            raise CoveyError(f"label set {empty[0]} of {dataset.name} has no training samples; ask for fewer clusters.")
        public = tuple(pool[: min(self.public, len(pool) // 5)] for pool in pools)
        pools = [pool[len(known) :] for pool, known in zip(pools, public)]

        place = np.concatenate([np.arange(n) / n for n in members])  # how far along in its cluster a client stands
        joins = np.argsort(place, kind="stable") if self.in_turn else np.arange(clients)
        mixes = np.empty(clients, bool)  # whether a client, cluster by cluster, has samples of all labels
        mixes[joins] = np.arange(clients) >= self.iid_from

        own, shared = self._sizes(np.array([len(pool) for pool in pools]), cluster, mixes)
        common = apportion(int(shared.sum()), np.array([len(pool) for pool in pools], np.float64))
        drawn = np.concatenate([pool[:c] for pool, c in zip(pools, common)])
        needs = np.bincount(cluster, weights=own, minlength=clusters).astype(np.int64)
        kept = [pool[c : c + need] for pool, c, need in zip(pools, common, needs)]
        rows = np.concatenate([*kept, rng.permutation(drawn)])
        owner = np.concatenate([np.repeat(np.arange(clients), own), np.repeat(np.arange(clients), shared)])

        test = np.bincount(dataset.y_test, minlength=labels).astype(np.float64)
        within = np.where(set_of_label == np.arange(clusters)[:, None], test, 0.0)  # [k, labels]
        bare = np.flatnonzero(within.sum(1) == 0)
        if len(bare):
            raise CoveyError(f"label set {bare[0]} of {dataset.name} has no test samples; ask for fewer clusters.")
        within /= within.sum(1, keepdims=True)
        rate = self.iid_rate * (mixes & (not self.test_on_sets))[:, None]
        mixed = (1 - rate) * within[cluster] + rate * test / test.sum()
        held = hand_out(rows, owner, clients, rng)
        return Federation(
            dataset=dataset,
            clients=tuple(held[i] for i in joins),
            clusters=cluster[joins],
            test_groups=dataset.y_test,
            distributions=mixed[joins],
            public=public if self.public else (),
            notes={
                "label_sets": tuple(tuple(np.flatnonzero(set_of_label == j).tolist()) for j in range(clusters)),
                "public_per_set": tuple(len(known) for known in public),
                "unused": sum(len(pool) for pool in pools) - len(rows),
            },
        )

    def _widths(self, labels: int, clusters: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """Labels per set."""
        if self.homogeneous:
            return apportion(labels, np.ones(clusters))
        even = labels / clusters
        usual = (max(1, int(even / 2)), max(1, round(1.5 * even)))
        fewest, most = self.labels_per_set or PAPER_RANGES.get((labels, clusters), usual)
        if not clusters * fewest <= labels <= clusters * most:
            raise CoveyError(
                f"partition.labels_per_set is ({fewest}, {most}), but {labels} labels in {clusters} sets "
                "need "
                f"at most {labels // clusters} as the fewest and at least {-(-labels // clusters)} as the "
                "most."
            )
        return composition(labels, clusters, fewest, most, rng)

    def _members(self, clients: int, widths: NDArray[np.int64]) -> NDArray[np.int64]:
        """Clients per cluster."""
        clusters = len(widths)
        if self.sizes:
            if len(self.sizes) != clusters or sum(self.sizes) != clients or min(self.sizes) < 1:
                raise CoveyError(
                    f"partition.sizes is {tuple(self.sizes)}; it must list {clusters} numbers of at least 1 "
                    f"(one per cluster) that sum to the {clients} clients."
                )
            return np.array(self.sizes, np.int64)
        if clients < clusters:
            raise CoveyError(f"{clients} clients cannot fill {clusters} clusters; ask for at least {clusters} clients.")
        weights = np.ones(clusters) if self.homogeneous else widths.astype(np.float64)
        return apportion(clients, weights, least=1)

    def _sizes(
        self, pools: NDArray[np.int64], cluster: NDArray[np.int64], mixes: NDArray[np.bool_]
    ) -> tuple[Rows, Rows]:
        """How many rows each client takes from its own set and from all labels, [n] each. `mixes`: who takes of the latter."""
        members = np.bincount(cluster, minlength=len(pools))
        if self.samples:
            if not self._fits(self.samples, pools, cluster, mixes):
                even = int(pools.sum() // len(cluster))  # no more than that can fit
                least = min(self.samples, even)
                most = next(m for m in range(least, -1, -1) if self._fits(m, pools, cluster, mixes))
                raise CoveyError(
                    f"partition.samples is {self.samples}, but the smallest label set has too few rows for "
                    f"{members.tolist()} disjoint clients per set beside {self.public} public rows; "
                    f"{most} samples per client would fit."
                )
            return self._dealt(self.samples, mixes)
        common = apportion(round(self.iid_rate * pools.sum()), pools.astype(np.float64))
        own = np.concatenate([apportion(r, np.ones(n)) for r, n in zip((pools - common).tolist(), members)])
        weights = own if own.any() else np.ones_like(own)
        shared_rows = apportion(int(common.sum()), weights.astype(np.float64))
        if (own + shared_rows).min() < 1:
            raise CoveyError(
                f"{members.sum()} clients are more than the {pools.sum()} training samples can serve (per "
                "set: "
                f"{pools.tolist()} samples, {members.tolist()} clients); ask for fewer clients or fewer "
                "public rows."
            )
        return own, shared_rows

    def _dealt(self, samples: int, mixes: NDArray[np.bool_]) -> tuple[Rows, Rows]:
        shared = np.where(mixes, round(self.iid_rate * samples), 0)
        return samples - shared, shared

    def _fits(
        self, samples: int, pools: NDArray[np.int64], cluster: NDArray[np.int64], mixes: NDArray[np.bool_]
    ) -> bool:
        own, shared = self._dealt(samples, mixes)
        if shared.sum() > pools.sum():
            return False
        common = apportion(int(shared.sum()), pools.astype(np.float64))
        return bool((common + np.bincount(cluster, weights=own, minlength=len(pools)) <= pools).all())


def composition(total: int, parts: int, fewest: int, most: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """`parts` integers in [fewest, most] that sum to `total`, uniform among all such sequences.

    Counted, not rejected, so it always ends: `ways[p][s]` sequences of p parts sum to s.
    """
    ways = np.zeros((parts + 1, total + 1))
    ways[0, 0] = 1.0
    for p in range(1, parts + 1):
        for width in range(fewest, min(most, total) + 1):
            ways[p, width:] += ways[p - 1, : total + 1 - width]
        ways[p] /= ways[p].max()  # only ratios within a row matter
    widths = np.empty(parts, np.int64)
    for p in range(parts, 0, -1):
        options = np.arange(fewest, min(most, total) + 1)
        weights = ways[p - 1, total - options]
        widths[p - 1] = rng.choice(options, p=weights / weights.sum())
        total -= int(widths[p - 1])
    return widths
