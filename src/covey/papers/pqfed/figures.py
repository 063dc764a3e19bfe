"""PQFed's figures 3 and 5, which train nothing: distances over dissimilarity and noise, and what is selected."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from covey.clustering import collaborators
from covey.clustering.features import principal_components
from covey.data.partitions.feature_clusters import FeatureClusters
from covey.data.sources.load import load
from covey.papers.harness import Cell, Options, Reproduction, cell, claim
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
    cells: list[Cell] = []
    curves: dict[tuple[str, str, float], NDArray[np.float64]] = {}
    refused: dict[tuple[str, float], list[bool]] = {}
    clients = [Clients(options.dataset, seed) for seed in range(seeds)]
    for ground in collaborators.GROUNDS:
        for sensitivity in ("data", "public"):
            for epsilon in EPSILONS:
                options.say(f"{ground} ground, Δ from {sensitivity}, ε = {epsilon:g}")
                spreads = []
                for seed, one in enumerate(clients):
                    for r in range(1 if math.isinf(epsilon) else repeats):
                        rng = generator("fig3", seed, r, ground, sensitivity, str(epsilon))
                        distances, spread = one.distances(epsilon, sensitivity, ground, rng)
                        spreads.append(distances[1:])
                        if ground == "centroid":
                            refused.setdefault((sensitivity, epsilon), []).append(spread.drowned)
                curves[ground, sensitivity, epsilon] = np.array(spreads)
                printed = FIG3.get(options.dataset, {}) if (ground, sensitivity) == ("label", "data") else {}
                cells += [
                    cell(
                        f"r = {r:.1f}", _column(ground, sensitivity, epsilon), v.tolist(), printed.get((epsilon, r)), ""
                    )
                    for r, v in zip(RATES, np.array(spreads).T)
                ]
    bare, ten = curves["centroid", "data", math.inf].mean(0), curves["centroid", "data", 10.0].mean(0)
    order, ratio = _spearman(bare[1:]), float(bare[-1] / bare[1])
    share = {key: float(np.mean(v)) for key, v in refused.items()}
    flat = curves["centroid", "public", 0.1]
    trend = float(np.mean([_spearman(row) for row in flat]))
    return Reproduction(
        paper="pqfed",
        table="fig3",
        title="Distance to the target by dissimilarity rate and noise",
        dataset=options.dataset,
        settings={"partitions": seeds, "repetitions of the noise": repeats, "K": 4, "components": 50},
        cells=cells,
        claims=[
            claim(
                "Without noise the distance grows linearly with the dissimilarity.",
                order >= 0.99 and 8 <= ratio <= 12,
                f"Rank correlation {order:.3f} over r = 0.1 … 1, and distance(1) / distance(0.1) = {ratio:.2f}.",
            ),
            claim(
                "ε = 10 tracks it.",
                _spearman(ten) >= 0.99,
                f"Rank correlation {_spearman(ten):.3f}; at r = 1 it is {ten[-1] / bare[-1]:.2f} of the distance without noise.",
            ),
            claim(
                "ε = 0.1 flattens the curve.",
                abs(trend) < 0.3,
                f"With a public Δ the mean rank correlation is {trend:.2f}, and {100 * share['public', 0.1]:.0f} % of the "
                f"selections are refused (ε = 1: {100 * share['public', 1.0]:.0f} %, ε = 10: {100 * share['public', 10.0]:.0f} %). "
                f"With Δ read from the client's data {100 * share['data', 0.1]:.0f} % are: Δ itself tells clients apart.",
            ),
        ],
        notes=[
            "The paper's values are those of |label difference| as ground distance. Labels of k-means are arbitrary, so its "
            "level depends on which label the cluster outside the target happens to get; between centroids it does not."
        ],
    )


def fig5(options: Options) -> Reproduction:
    """Which dissimilarity rates the strict (30 %) and lenient (60 %) thresholds admit, with and without noise."""
    seeds, repeats = options.count(5), 4 if options.quick else 20
    clients = [Clients(options.dataset, seed) for seed in range(seeds)]
    cells: list[Cell] = []
    shares: dict[tuple[str, float], NDArray[np.float64]] = {}
    for epsilon in (math.inf, 10.0):
        for strategy, threshold in collaborators.THRESHOLDS.items():
            admitted = []
            for seed, one in enumerate(clients):
                for r in range(1 if math.isinf(epsilon) else repeats):
                    rng = generator("fig5", seed, r, strategy, str(epsilon))
                    distances, _ = one.distances(epsilon, "data", "centroid", rng)
                    kept = set(collaborators.select(distances, 0, threshold))
                    admitted.append([i in kept for i in range(1, len(distances))])
            shares[strategy, epsilon] = np.array(admitted, float)
            column = f"{strategy}, {_noise(epsilon)}"
            cells += [cell(f"r = {r:.1f}", column, v.tolist()) for r, v in zip(RATES, shares[strategy, epsilon].T)]
    strict, lenient = shares["strict", 10.0], shares["lenient", 10.0]
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
        claims=[
            claim(
                "At ε = 10 the strict threshold takes the clients up to r = 0.3.",
                bool((strict[:, :4] == 1).all()),
                f"Always r ≤ {_always(strict)}; r = 0.3 in {100 * strict[:, 3].mean():.0f} % of the selections.",
                partly=bool((strict[:, :3] == 1).all()),
            ),
            claim(
                "At ε = 10 the lenient threshold takes the clients up to r = 0.6.",
                bool((lenient[:, :7] == 1).all()),
                f"Always r ≤ {_always(lenient)}; r = 0.6 in {100 * lenient[:, 6].mean():.0f} % of the selections.",
                partly=bool((lenient[:, :6] == 1).all()),
            ),
        ],
    )


def _spearman(values: NDArray[np.float64]) -> float:
    """Rank correlation with the order of the values (no ties expected)."""
    ranks = np.argsort(np.argsort(values))
    return float(np.corrcoef(ranks, np.arange(len(values)))[0, 1])


def _always(admitted: NDArray[np.float64]) -> float:
    full = (admitted == 1).all(0)
    return RATES[int(np.argmin(full)) - 1] if not full.all() else RATES[-1]


def _noise(epsilon: float) -> str:
    return "no noise" if math.isinf(epsilon) else f"ε = {epsilon:g}"


def _column(ground: str, sensitivity: str, epsilon: float) -> str:
    return f"{ground}, Δ {sensitivity}, {_noise(epsilon)}"
