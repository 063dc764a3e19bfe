"""How many clusters are there? Three answers from rows alone, each with the curve that it was read from.

    silhouette   k-means for k = 2, 3, …; the k with the largest mean silhouette (Rousseeuw 1987); 1 where that is below 0.25, which
                 Kaufman and Rousseeuw call no substantial structure
    gap          the smallest k whose gap statistic is within one standard error of the largest (Tibshirani, Walther and Hastie
                 2001), against uniform rows in the box of the principal axes. Their own rule stops at the first k that the next
                 does not exceed, and says 1 where clusters are equally far apart, as label sets are
    eigengap     the largest gap between neighbouring eigenvalues of the normalised Laplacian, affinities scaled by each row's
                 distance to a near neighbour (Zelnik-Manor and Perona 2004), the seventh where clusters are that large

Limits: a handful of rows in many dimensions always looks clustered to some degree, and clusters of one or two rows are outliers to
all three. Of first updates of 20 clients silhouette was right far more often than the others (tests/clustering/test_count.py and
docs/algorithms/auto_k.md). Where the three disagree, nobody knows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from covey.clustering.features import k_means, nearest_centre
from covey.errors import CoveyError, meant

Floats = NDArray[np.float64]
SUBSTANTIAL = 0.25  # mean silhouette
REFERENCES = 20  # uniform draws of the gap statistic
NEIGHBOUR = 7


@dataclass(frozen=True)
class Count:
    """An answer, and what it was read from: a figure for each k from 1 on."""

    clusters: int
    curve: tuple[float, ...]


def check_estimator(name: str) -> None:
    if name not in ESTIMATORS:
        raise CoveyError(
            f"algorithm.estimator is '{name}': choose {', '.join(ESTIMATORS)}{meant(name, list(ESTIMATORS))}"
        )


def estimated(name: str, rows: Floats, most: int, rng: np.random.Generator) -> Count:
    """Of rows [n, p], between 1 and `most`; fewer than three rows are one cluster."""
    check_estimator(name)
    distinct = len(np.unique(np.round(rows, 9), axis=0))
    if len(rows) < 3 or most < 2 or distinct < 2:
        return Count(1, (0.0,))
    return ESTIMATORS[name](np.asarray(rows, np.float64), min(most, distinct, len(rows) - 1), rng)


def directions(updates: Tensor, most: int) -> Floats:
    """Updates [n, d] as rows [n, p], p at most `most`: their directions on the axes along which these differ most.

    By the products of all pairs, so that d may be anything; n² numbers.
    """
    units = updates / updates.norm(dim=1, keepdim=True).clamp(min=1e-30)
    centred = units - units.mean(0)
    products = (centred @ centred.T).double().cpu().numpy()
    values, vectors = np.linalg.eigh((products + products.T) / 2)
    kept = np.argsort(values)[::-1][: max(1, most)]
    return np.asarray(vectors[:, kept] * np.sqrt(np.maximum(values[kept], 0.0)))


def silhouette(rows: Floats, most: int, rng: np.random.Generator) -> Count:
    far = _distances(rows)
    curve = [0.0]
    for k in range(2, most + 1):
        labels = nearest_centre(rows, k_means(rows, k, rng))
        curve.append(mean_silhouette(far, labels))
    best = int(np.argmax(curve))
    return Count(best + 1 if curve[best] >= SUBSTANTIAL else 1, tuple(curve))


def mean_silhouette(far: Floats, labels: NDArray[np.int64]) -> float:
    """(b - a) / max(a, b) of each row: a is its mean distance to its own cluster, b to the nearest other; 0 of a row alone."""
    members = np.eye(int(labels.max()) + 1)[labels]  # [n, k]
    sizes = members.sum(0)
    if (sizes > 0).sum() < 2:
        return 0.0
    sums = far @ members  # [n, k]
    own = sizes[labels]
    a = sums[np.arange(len(labels)), labels] / np.maximum(own - 1, 1)
    others = np.where((members > 0) | (sizes == 0), np.inf, sums / np.maximum(sizes, 1))
    b = others.min(1)
    return float(np.mean(np.where(own > 1, (b - a) / np.maximum(np.maximum(a, b), 1e-30), 0.0)))


def gap(rows: Floats, most: int, rng: np.random.Generator) -> Count:
    turned = (rows - rows.mean(0)) @ np.linalg.svd(rows - rows.mean(0), full_matrices=False)[2].T
    low, high = turned.min(0), turned.max(0)
    logs = np.array([_log_inertia(turned, k, rng) for k in range(1, most + 1)])
    drawn = [low + (high - low) * rng.random(turned.shape) for _ in range(REFERENCES)]
    by_chance = np.array([[_log_inertia(one, k, rng) for k in range(1, most + 1)] for one in drawn])
    gaps = by_chance.mean(0) - logs
    errors = by_chance.std(0) * np.sqrt(1 + 1 / REFERENCES)
    best = int(np.argmax(gaps))
    enough = int(np.flatnonzero(gaps >= gaps[best] - errors[best])[0])
    return Count(enough + 1, tuple(gaps.tolist()))


def eigengap(rows: Floats, most: int, rng: np.random.Generator) -> Count:
    far = _distances(rows)
    near = max(1, min(NEIGHBOUR, len(rows) // most - 1))  # within a cluster, were there the most of them
    scale = np.sort(far, axis=1)[:, near]
    scale = np.maximum(scale, 1e-12 * max(far.max(), 1e-30))
    affinity = np.exp(-(far**2) / (scale[:, None] * scale))
    np.fill_diagonal(affinity, 0.0)
    root = 1 / np.sqrt(np.maximum(affinity.sum(1), 1e-30))
    values = np.linalg.eigvalsh(np.eye(len(rows)) - root[:, None] * affinity * root)
    gaps = np.diff(values)[:most]
    return Count(int(np.argmax(gaps)) + 1, tuple(gaps.tolist()))


def _distances(rows: Floats) -> Floats:
    squares = (rows**2).sum(1)
    return np.asarray(np.sqrt(np.maximum(squares[:, None] + squares - 2 * rows @ rows.T, 0.0)))


def _log_inertia(rows: Floats, k: int, rng: np.random.Generator) -> float:
    centres = rows.mean(0, keepdims=True) if k == 1 else k_means(rows, k, rng)
    within = ((rows - centres[nearest_centre(rows, centres)]) ** 2).sum()
    return float(np.log(max(within, 1e-300)))


ESTIMATORS: dict[str, Callable[[Floats, int, np.random.Generator], Count]] = {
    "silhouette": silhouette,
    "gap": gap,
    "eigengap": eigengap,
}
