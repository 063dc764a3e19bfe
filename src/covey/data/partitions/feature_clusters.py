"""PQFed's experiment: clients that differ from a target client by a chosen rate, in the space of image
features.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from covey.clustering.features import k_means, nearest_centre, principal_components
from covey.data.dataset import Dataset
from covey.data.federation import Federation
from covey.data.holdings import Rows, label_shares
from covey.data.partitions.dealing import apportion, generator, set_aside
from covey.errors import CoveyError


@dataclass(frozen=True)
class FeatureClusters:
    """The training rows are clustered (PCA, then k-means). Client 0 is the target T: `rows` from each of
    `picked` random feature clusters S. A client with dissimilarity r holds rows · (1 − r) from each of S and
    the rest of the same total from the clusters outside S.

    Test groups are the feature clusters of the test samples, so T is tested on all test samples of S,
    weighted equally per cluster: more than the 300 or 1,200 of the paper. Some of its experiments want more
    rows of one cluster than exist: then rows are dealt again from the start (never twice to one client), and
    `notes["overlap"]` says how many rows several clients hold; `overlap = false` refuses instead.
    """

    name: ClassVar[str] = "feature_clusters"
    label: ClassVar[str] = "Feature clusters"
    title: ClassVar[str] = "clients that differ from a target by chosen rates, in the space of image features (PQFed)"
    stream: ClassVar[int] = 6

    k: int = 4  # feature clusters
    components: int = 50
    picked: int = 3  # clusters of the target
    rows: int = 400  # of the target, from each of its clusters
    rates: tuple[float, ...] = ()  # r of clients 1, 2, ...; empty: evenly spaced from 0 to 1
    overlap: bool = True
    public: int = 500  # rows that no client holds: the server fits its PCA on them

    def __post_init__(self) -> None:
        if not 1 <= self.picked < self.k:
            raise CoveyError(
                f"partition.picked is {self.picked} of partition.k = {self.k} feature clusters; "
                "at least 1 and at least one fewer than k, since clients also draw from outside."
            )
        if any(not 0.0 <= r <= 1.0 for r in self.rates):
            raise CoveyError(f"partition.rates is {tuple(self.rates)}; each rate is from 0 to 1.")
        if self.rows < 1 or self.components < 1:
            raise CoveyError(f"partition.rows is {self.rows} and components {self.components}; both are 1 or more.")

    def make(self, dataset: Dataset, clients: int, clusters: int, seed: int) -> Federation:
        if dataset.kind == "tokens":
            raise CoveyError(f"feature_clusters needs images or features; {dataset.name} holds word numbers.")
        if clients < 2:
            raise CoveyError(f"feature_clusters needs a target and at least one more client, not {clients}.")
        if self.rates and len(self.rates) != clients - 1:
            raise CoveyError(
                f"partition.rates has {len(self.rates)} rates for {clients} clients; client 0 is the target, "
                f"so give {clients - 1}."
            )
        rates = np.array([0.0, *(self.rates or np.linspace(0.0, 1.0, clients - 1).round(6))])
        rng = generator(seed, self.stream)
        public, rows = set_aside(np.arange(len(dataset.y_train)), self.public, rng)

        scale = 1 / 255 if dataset.kind == "image" else 1.0
        project = principal_components(dataset.x_train, self.components, rng, scale)
        features = project(dataset.x_train)
        centres = k_means(features, self.k, rng)
        group = nearest_centre(features, centres)  # [m]
        target = np.sort(rng.permutation(self.k)[: self.picked])

        wanted = self._wanted(rates, target)  # [n, k]
        pools = [rng.permutation(rows[group[rows] == c]) for c in range(self.k)]
        self._check(wanted, np.array([len(pool) for pool in pools]))
        held = deal_round(pools, wanted)
        holders = np.bincount(np.concatenate(held), minlength=len(group))
        test_groups = nearest_centre(project(dataset.x_test), centres)
        untested = set(range(self.k)) - set(test_groups.tolist())
        if untested:
            raise CoveyError(f"no test sample falls into feature cluster {min(untested)}; lower partition.k.")
        return Federation(
            dataset=dataset,
            clients=tuple(rng.permutation(rows_held) for rows_held in held),
            clusters=None,
            test_groups=test_groups,
            distributions=label_shares(held, group, self.k),
            public=(public,) if self.public else (),
            notes={
                "target": 0,
                "rates": tuple(rates.tolist()),
                "target_clusters": tuple(target.tolist()),
                "feature_clusters": group,
                "overlap": int((holders > 1).sum()),
            },
        )

    def _wanted(self, rates: NDArray[np.float64], target: NDArray[np.int64]) -> NDArray[np.int64]:
        """Rows per client and feature cluster, [n, k]; every client has the same total."""
        outside = np.setdiff1d(np.arange(self.k), target)
        wanted = np.zeros((len(rates), self.k), np.int64)
        inside = np.rint(self.rows * (1 - rates)).astype(np.int64)
        wanted[:, target] = inside[:, None]
        for i, rest in enumerate((self.picked * (self.rows - inside)).tolist()):
            wanted[i, outside] = apportion(rest, np.ones(len(outside)))
        return wanted

    def _check(self, wanted: NDArray[np.int64], there: NDArray[np.int64]) -> None:
        asked = wanted.sum(0) if not self.overlap else wanted.max(0)
        short = np.flatnonzero(asked > there)
        if len(short):
            fits = int((self.rows * there[short] / asked[short]).min())
            raise CoveyError(
                f"feature cluster {short[0]} has {there[short[0]]} rows, but {asked[short[0]]} are asked for "
                f"({'by one client' if self.overlap else 'by disjoint clients'}); partition.rows = {fits} "
                "would fit."
            )


def deal_round(pools: list[Rows], wanted: NDArray[np.int64]) -> list[Rows]:
    """Each client's rows, taken from the pools in turn; a pool that ends starts again."""
    start = np.cumsum(wanted, axis=0) - wanted  # [n, k] where each client begins in each pool
    return [
        np.concatenate([pool[(s + np.arange(w)) % max(len(pool), 1)] for pool, s, w in zip(pools, begins, counts)])
        for begins, counts in zip(start.tolist(), wanted.tolist())
    ]
