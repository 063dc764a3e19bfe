"""PQFed's figures 3 and 5, which train nothing: distances over dissimilarity and noise, and what is selected."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from covey.clustering import collaborators
from covey.clustering.features import principal_components
from covey.data.partitions.feature_clusters import FeatureClusters
from covey.data.sources.load import load
from covey.papers.cells import Cell, cell
from covey.papers.harness import Options, Reproduction
from covey.randomness import generator

EPSILONS = (math.inf, 10.0, 1.0, 0.1)
RATES = tuple(i / 10 for i in range(11))
FIG3 = {  # (ε, r) -> the values that the text prints
    "mnist": {(math.inf, 0.1): 0.12, (math.inf, 1.0): 1.20, (10.0, 1.0): 1.10, (1.0, 0.1): 0.04, (1.0, 1.0): 0.17},
    "cifar10": {(math.inf, 0.1): 0.12, (math.inf, 1.0): 1.16, (10.0, 1.0): 0.93, (1.0, 0.1): 0.06, (1.0, 1.0): 0.28},
}

Features = NDArray[np.float32]


class Clients:
    """The target and clients of dissimilarity 0 … 1, as features on the public principal components."""

    def __init__(self, dataset: str, seed: int) -> None:
        data = load(dataset)
        federation = FeatureClusters(rates=RATES).make(data, len(RATES) + 1, 1, seed)
        public = data.x_train[federation.public[0]]
        project = principal_components(public, 50, generator(seed, "public features"), 1 / 255)
        spanned = project(public).astype(np.float64)
        self.bounds = (spanned.min(0), spanned.max(0))
        self.features = [project(data.x_train[rows]) for rows in federation.clients]

    def noised(self, epsilon: float, sensitivity: str, rng: np.random.Generator) -> list[Features]:
        sent = []
        for own in self.features:
            if sensitivity == "public":
                own = np.clip(own, *self.bounds).astype(np.float32)
                width = self.bounds[1] - self.bounds[0]
            else:
                width = np.asarray(own.max(0) - own.min(0), np.float64)
            sent.append(collaborators.laplace_noised(own, epsilon, width, rng))
        return sent

    def distances(
        self, epsilon: float, sensitivity: str, ground: str, rng: np.random.Generator
    ) -> tuple[NDArray[np.float64], collaborators.Spread]:
        """Of every client to the target, itself first, and what sampling alone would give."""
        counts, centres = collaborators.cluster_counts(self.noised(epsilon, sensitivity, rng), 4, rng)
        metric = collaborators.ground_distances(centres, ground)
        apart = collaborators.earth_movers(counts[0].astype(float), counts.astype(float), metric)
        return apart, collaborators.spread(counts, metric, 0, rng, repeats=30)


def fig3(options: Options) -> Reproduction:
    """Earth mover's distance to the target by dissimilarity rate, for four noise levels, two sensitivities, two grounds."""
    seeds, repeats = options.count(5), 2 if options.quick else 10
    options.alone()
    cells: list[Cell] = []
    clients = [Clients(options.dataset, seed) for seed in range(seeds)]
    for ground in collaborators.GROUNDS:
        for sensitivity in ("data", "public"):
            for epsilon in EPSILONS:
                options.say(f"{ground} ground, Δ from {sensitivity}, ε = {epsilon:g}")
                curves, refused = [], []  # partition by partition, means over the draws of noise
                for seed, one in enumerate(clients):
                    drawn = []
                    for r in range(1 if math.isinf(epsilon) else repeats):
                        rng = generator("fig3", seed, r, ground, sensitivity, str(epsilon))
                        drawn.append(one.distances(epsilon, sensitivity, ground, rng))
                    curves.append(np.mean([distances[1:] for distances, _ in drawn], axis=0))
                    refused.append(float(np.mean([spread.drowned for _, spread in drawn])))
                column = column_of(ground, sensitivity, epsilon)
                printed = FIG3.get(options.dataset, {}) if (ground, sensitivity) == ("label", "data") else {}
                cells += [
                    cell(f"r = {r:.1f}", column, v.tolist(), printed.get((epsilon, r)), "")
                    for r, v in zip(RATES, np.array(curves).T)
                ]
                cells.append(cell("selections refused", column, refused, unit=""))
    return Reproduction(
        paper="pqfed",
        table="fig3",
        title="Distance to the target by dissimilarity rate and noise",
        dataset=options.dataset,
        settings={"partitions": seeds, "repetitions of the noise": repeats, "K": 4, "components": 50},
        cells=cells,
        notes=[
            "The paper's values are those of |label difference| as ground distance. Labels of k-means are arbitrary, so its "
            "level depends on which label the cluster outside the target happens to get; between centroids it does not."
        ],
    )


def fig5(options: Options) -> Reproduction:
    """Which dissimilarity rates the strict (30 %) and lenient (60 %) thresholds admit, with and without noise."""
    seeds, repeats = options.count(5), 4 if options.quick else 20
    options.alone()
    clients = [Clients(options.dataset, seed) for seed in range(seeds)]
    cells: list[Cell] = []
    for epsilon in (math.inf, 10.0):
        for strategy, threshold in collaborators.THRESHOLDS.items():
            shares = []  # partition by partition
            for seed, one in enumerate(clients):
                admitted = []
                for r in range(1 if math.isinf(epsilon) else repeats):
                    rng = generator("fig5", seed, r, strategy, str(epsilon))
                    distances, _ = one.distances(epsilon, "data", "centroid", rng)
                    kept = set(collaborators.select(distances, 0, threshold))
                    admitted.append([i in kept for i in range(1, len(distances))])
                shares.append(np.mean(admitted, axis=0))
            column = f"{strategy}, {noise_of(epsilon)}"
            drawn = 1 if math.isinf(epsilon) else repeats
            cells += [cell(f"r = {r:.1f}", column, v.tolist(), trials=drawn) for r, v in zip(RATES, np.array(shares).T)]
    return Reproduction(
        paper="pqfed",
        table="fig5",
        title="How often each dissimilarity rate is admitted",
        dataset=options.dataset,
        settings={
            "partitions": seeds,
            "repetitions of the noise": repeats,
            "sensitivity": "data",
            "ground": "centroid",
        },
        cells=cells,
    )


def noise_of(epsilon: float) -> str:
    return "no noise" if math.isinf(epsilon) else f"ε = {epsilon:g}"


def column_of(ground: str, sensitivity: str, epsilon: float) -> str:
    return f"{ground}, Δ {sensitivity}, {noise_of(epsilon)}"
