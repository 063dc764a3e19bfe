"""Principal components and k-means in numpy alone, for any machine: of features, and of spectral embeddings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Real = TypeVar("Real", np.float32, np.float64)

FIT_ROWS = 10_000  # components are fitted on at most this many rows
BLOCK = 4_096  # rows scaled to float at a time, so that a large image set is never copied whole


@dataclass(frozen=True)
class Projection:
    mean: Floats  # [d]
    axes: Floats  # [d, components]
    scale: float

    def __call__(self, x: NDArray[np.generic]) -> Floats:
        """[m, ...] -> [m, components]"""
        return np.concatenate([self._part(x[i : i + BLOCK]) for i in range(0, len(x), BLOCK)])

    def _part(self, x: NDArray[np.generic]) -> Floats:
        floats = flat(x, self.scale)
        floats -= self.mean
        return floats @ self.axes


def flat(x: NDArray[np.generic], scale: float) -> Floats:
    floats = x.reshape(len(x), -1).astype(np.float32)
    floats *= np.float32(scale)
    return floats


def principal_components(
    x: NDArray[np.generic], components: int, rng: np.random.Generator, scale: float = 1.0
) -> Projection:
    """The leading components by randomised subspace iteration (Halko et al. 2011), fitted on at most FIT_ROWS
    rows.
    """
    rows = rng.permutation(len(x))[:FIT_ROWS]
    sample = flat(x[np.sort(rows)], scale)
    mean = sample.mean(0)
    sample -= mean
    count = min(components, *sample.shape)
    span = min(count + 10, sample.shape[1])
    basis = np.linalg.qr(rng.standard_normal((sample.shape[1], span), np.float32))[0]
    for _ in range(5):
        basis = np.linalg.qr(sample.T @ (sample @ basis))[0]
    _, _, turn = np.linalg.svd(sample @ basis, full_matrices=False)
    return Projection(mean, (basis @ turn.T)[:, :count].astype(np.float32), scale)


def k_means(
    points: NDArray[Real], k: int, rng: np.random.Generator, restarts: int = 4, steps: int = 100
) -> NDArray[Real]:
    """Centres [k, d] of the best of a few Lloyd runs, each started by k-means++."""
    best, centres = np.inf, points[:k]
    for _ in range(restarts):
        candidate = spread_start(points, k, rng)
        assigned = nearest_centre(points, candidate)
        for _ in range(steps):
            counts = np.bincount(assigned, minlength=k)
            member = np.zeros((k, len(points)), np.float32)
            member[assigned, np.arange(len(points))] = 1.0
            moved = member @ points / np.maximum(counts, 1)[:, None].astype(np.float32)
            candidate = np.where(counts[:, None] > 0, moved, candidate)  # an empty centre stays where it is
            again = nearest_centre(points, candidate)
            if (again == assigned).all():
                break
            assigned = again
        inertia = float(((points - candidate[assigned]) ** 2).sum())
        if inertia < best:
            best, centres = inertia, candidate
    return centres


def spread_start(points: NDArray[Real], k: int, rng: np.random.Generator) -> NDArray[Real]:
    """k-means++: each next centre with probability in proportion to its squared distance from those there
    are.
    """
    chosen = [int(rng.integers(len(points)))]
    gap = np.full(len(points), np.inf)
    for _ in range(k - 1):
        gap = np.minimum(gap, ((points - points[chosen[-1]]) ** 2).sum(1, dtype=np.float64))
        total = gap.sum()
        chosen.append(int(rng.choice(len(points), p=gap / total if total > 0 else None)))
    return points[chosen]


def nearest_centre(points: NDArray[Real], centres: NDArray[Real]) -> NDArray[np.int64]:
    # |p - c|² less |p|², which is the same for all centres
    gap = (centres**2).sum(1) - 2.0 * points @ centres.T
    return np.asarray(gap.argmin(1), np.int64)
