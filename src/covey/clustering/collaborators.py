"""Who should learn with whom: noisy feature rows of clients become histograms over common clusters, these become earth
mover's distances, these become groups (PQFed). Pure functions; nothing here knows a message or a model.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from covey.clustering.features import BLOCK, k_means, nearest_centre
from covey.errors import CoveyError
from covey.randomness import laplace_noised_by

Floats = NDArray[np.float64]
Rows = NDArray[np.float32]
Counts = NDArray[np.int64]

GROUNDS = ("centroid", "label")
THRESHOLDS = {"strict": 0.3, "lenient": 0.6}  # of the largest distance
CLEAR = 2.0  # times the range by chance that a range of distances must exceed
FIT_ROWS = 30_000  # k-means centres are fitted on at most this many rows; all rows are then counted


def laplace_noised(features: Rows, epsilon: float, width: Floats, rng: np.random.Generator) -> Rows:
    """Features [n, c] with Laplace noise of scale width_c / ε on coordinate c; ε = inf: as they are."""
    if not np.isfinite(epsilon):
        return features
    return laplace_noised_by(features, width / epsilon, rng)


def cluster_counts(rows: Sequence[Rows], k: int, rng: np.random.Generator) -> tuple[Counts, Rows]:
    """k-means over the rows of all clients: (rows of each client in each cluster [n, k], centres [k, c])."""
    sizes = [len(r) for r in rows]
    total = sum(sizes)
    if total < k:
        raise CoveyError(f"{total} feature rows in all cannot form {k} clusters: lower algorithm.k")
    if total <= FIT_ROWS:
        sample = np.concatenate(rows)
    else:  # the same share of every client
        sample = np.concatenate([r[rng.random(len(r)) < FIT_ROWS / total] for r in rows])
    centres = k_means(sample, k, rng)
    counts = [
        sum(np.bincount(nearest_centre(r[i : i + BLOCK], centres), minlength=k) for i in range(0, len(r), BLOCK))
        for r in rows
    ]
    return np.array(counts, np.int64).reshape(len(rows), k), centres


def ground_distances(centres: Rows, ground: str = "centroid") -> Floats:
    """[k, k]: between centroids, or |label difference| as the paper's figures have it (labels are arbitrary numbers)."""
    if ground == "label":
        labels = np.arange(len(centres), dtype=np.float64)
        return np.abs(labels[:, None] - labels[None, :])
    if ground != "centroid":
        raise CoveyError(f"ground is {ground!r}: choose 'centroid' or 'label'")
    c = centres.astype(np.float64)
    return np.asarray(np.sqrt(((c[:, None] - c[None, :]) ** 2).sum(2)), np.float64)


def earth_movers(one: Floats, others: Floats, ground: Floats) -> Floats:
    """Earth mover's distance of one histogram [k] to each of others [n, k]; each is scaled to sum to 1."""
    source = np.ascontiguousarray(one / one.sum(), np.float64)
    sinks = np.ascontiguousarray(others / others.sum(1, keepdims=True), np.float64)
    try:
        # POT's network simplex itself: its front door `emd2` spends nine tenths of its time on checks of such small problems.
        from ot.lp.emd_wrap import emd_c
    except ImportError:  # a bare GPU machine
        return earth_movers_by_duality(source, sinks, ground)
    cost = np.ascontiguousarray(ground, np.float64)
    # The two masses must agree to the last bit.
    return np.array([emd_c(source, sink * (source.sum() / sink.sum()), cost, 100_000, 1)[1] for sink in sinks])


def earth_movers_by_duality(source: Floats, sinks: Floats, ground: Floats) -> Floats:
    """The same without a solver, for a metric on few bins: the largest ⟨f, sink − source⟩ over 1-Lipschitz potentials f.

    Such a maximum lies at a vertex, and there the tight constraints |f_i − f_j| = d_ij hold a spanning tree: try them all.
    """
    k = len(source)
    if k > 6:
        raise CoveyError(
            f"distances between histograms over {k} clusters need the optimal-transport library: pip install POT"
        )
    signs = np.array(list(itertools.product((-1.0, 1.0), repeat=k - 1)))  # [2^(k-1), k-1]
    best = np.zeros(len(sinks))
    for parents in itertools.product(range(k), repeat=k - 1):  # of bins 1 … k-1; bin 0 is the root
        depth = _order(parents)
        if depth is None:
            continue
        f = np.zeros((len(signs), k))
        for i in depth:
            f[:, i] = f[:, parents[i - 1]] + signs[:, i - 1] * ground[i, parents[i - 1]]
        allowed = (np.abs(f[:, :, None] - f[:, None, :]) <= ground + 1e-9).all((1, 2))
        if allowed.any():
            best = np.maximum(best, ((sinks - source) @ f[allowed].T).max(1))
    return best


def _order(parents: Sequence[int]) -> list[int] | None:
    """Bins 1 … k-1 so that each comes after its parent; None: the parents form no tree."""
    order: list[int] = []
    while len(order) < len(parents):
        ready = [i for i, p in enumerate(parents, 1) if i not in order and (p == 0 or p in order)]
        if not ready:
            return None
        order += ready
    return order


def distance_matrix(counts: Counts, ground: Floats) -> Floats:
    """Distances between all clients, [n, n], symmetric with a zero diagonal."""
    n = len(counts)
    matrix = np.zeros((n, n))
    for i in range(n - 1):
        matrix[i, i + 1 :] = earth_movers(counts[i].astype(np.float64), counts[i + 1 :].astype(np.float64), ground)
    return matrix + matrix.T


@dataclass(frozen=True)
class Spread:
    """How far the distances range, and how far they would if all clients were alike and only sampling told them apart."""

    seen: float
    by_chance: float  # exceeded by chance with probability `alpha` only

    @property
    def drowned(self) -> bool:
        """Below twice what chance gives, "30 % of the largest distance" and what chance gives are of one size."""
        return not self.seen > CLEAR * self.by_chance


def spread(
    counts: Counts,
    ground: Floats,
    target: int | None,
    rng: np.random.Generator,
    repeats: int = 100,
    alpha: float = 0.01,
    most: int = 40,
) -> Spread:
    """The range of distances to the target (None: between all clients, at most `most` of them) against sampling noise.

    Under the hypothesis that noise has drowned all differences every client's rows come from one distribution, estimated by
    all rows together: histograms of the clients' sizes are drawn from it again and again.
    """
    if target is None and len(counts) > most:
        counts = counts[np.sort(rng.permutation(len(counts))[:most])]

    def reach(histograms: Counts) -> float:
        if target is None:
            distances = distance_matrix(histograms, ground)[np.triu_indices(len(histograms), 1)]
        else:
            others = np.delete(histograms, target, axis=0).astype(np.float64)
            distances = earth_movers(histograms[target].astype(np.float64), others, ground)
        return float(distances.max() - (distances.min() if target is None or len(distances) > 1 else 0.0))

    pooled = counts.sum(0) / counts.sum()
    sizes = counts.sum(1)
    chance = [reach(rng.multinomial(sizes, pooled)) for _ in range(repeats)]
    return Spread(reach(counts), float(np.quantile(chance, 1 - alpha)))


def refuse_drowned(spread: Spread, epsilon: float) -> None:
    """No threshold means anything among distances that sampling alone could give."""
    if spread.drowned:
        noised = np.isfinite(epsilon)
        why = f"the noise of epsilon = {epsilon:g} has drowned them, or " if noised else ""
        raise CoveyError(
            f"no selection: the distances between clients range over {spread.seen:.3g}, less than {CLEAR:g} times the "
            f"{spread.by_chance:.3g} that sampling alone gives: {why}the clients are alike; "
            f"{'raise algorithm.epsilon, ' if noised else ''}give clients more samples, or train with all "
            "(algorithm.strategy = 'all')"
        )


def nearest_first(distances: Floats, me: int) -> list[int]:
    """All others, the nearest first; ties by number."""
    return [int(i) for i in np.argsort(distances, kind="stable") if i != me]


def select(distances: Floats, me: int, threshold: float = 1.0, at_most: int = 0) -> list[int]:
    """Who collaborates with `me`: those within `threshold` of the largest distance, of these the `at_most` nearest (0: all)."""
    order = nearest_first(distances, me)
    largest = max((distances[i] for i in order), default=0.0)
    kept = [i for i in order if distances[i] <= threshold * largest * (1 + 1e-12)]
    return kept[:at_most] if at_most else kept
