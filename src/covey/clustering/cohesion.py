"""How well groups hang together, without knowing the true ones: silhouettes, and FedGWC's score of label distributions."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from covey.errors import CoveyError

Matrix = NDArray[np.float64]


def silhouette(distances: Matrix, groups: ArrayLike) -> float:
    """Rousseeuw (1987): mean over members of (b - a) / max(a, b), with a the mean distance to one's own group and b to the next.

    1: groups far apart; 0: no groups; below: many are nearer to another group. Who is alone in its group counts 0; of one group it
    is NaN.
    """
    codes = np.unique(np.asarray(groups), return_inverse=True)[1]
    if distances.shape != (len(codes), len(codes)):
        raise CoveyError(f"expected distances between {len(codes)} members, found shape {list(distances.shape)}")
    k = int(codes.max()) + 1 if len(codes) else 0
    if k < 2:
        return float("nan")
    member = np.eye(k)[codes]  # [n, k]
    sizes = member.sum(0)
    sums = distances @ member  # [n, k]
    own = sizes[codes]
    within = sums[np.arange(len(codes)), codes] / np.maximum(own - 1, 1)
    others = np.where(member > 0, np.inf, sums / sizes)
    between = others.min(1)
    scale = np.maximum(np.maximum(within, between), np.finfo(np.float64).tiny)
    return float(np.where(own > 1, (between - within) / scale, 0.0).mean())


def ranked_distances(counts: ArrayLike) -> Matrix:
    """[n, n] Wasserstein-2 distances between sorted label shares: how unequal a client's labels are counts, not which they are."""
    held = np.asarray(counts, np.float64)
    if held.ndim != 2 or (held.sum(1) <= 0).any():
        raise CoveyError(f"expected label counts [clients, labels] with a sample each, found shape {list(held.shape)}")
    shares = np.sort(held / held.sum(1, keepdims=True), axis=1)
    squared = (shares**2).sum(1)
    apart = squared[:, None] + squared[None, :] - 2 * shares @ shares.T
    distances = np.sqrt(np.maximum(apart, 0.0) / shares.shape[1])
    np.fill_diagonal(distances, 0.0)
    return np.asarray(distances, np.float64)


def wasserstein_adjusted(counts: ArrayLike, groups: ArrayLike) -> float:
    """The Wasserstein adjusted silhouette of FedGWC (Licciardi et al., ICML 2025): the silhouette under `ranked_distances`.

    It asks whether clients of one group have labels that are equally unequal. Clients with different labels in the same
    proportions are alike to it: under label sets of equal size it is about 0 even for perfect clusters. Their repository has no
    code for it; this is our reading of the paper.
    """
    return silhouette(ranked_distances(counts), groups)
