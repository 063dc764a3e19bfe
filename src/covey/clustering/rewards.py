"""Gaussian rewards of losses, their interactions, and spectral splits: what FedGWC groups clients by."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from covey.clustering.agglomerative import Floats, Labels, in_order
from covey.clustering.features import k_means, nearest_centre

WHOLE = 1000  # rows up to which all eigenvectors are computed


def rewards(traces: Floats, counts: Floats) -> Floats:
    """r [m] of losses [m, S]: mean over the parts of exp(−(l − m)² / 2σ²), mean and variance weighted by counts [m]."""
    share = counts / counts.sum()
    mean = share @ traces
    variance = share @ (traces - mean) ** 2 + 1e-16
    return np.asarray(np.exp(-0.5 * (traces - mean) ** 2 / variance).mean(1))


def rewarded(weights: Floats, at: Sequence[int], traces: Floats, counts: Floats) -> tuple[Floats, float]:
    """P [n, n] after the clients at rows `at` took part, and the mean squared change of what changed."""
    new, r = weights.copy(), rewards(traces, counts)
    alpha = len(at) / len(weights)
    block = np.ix_(at, at)
    new[block] = (1 - alpha) * weights[block] + alpha * (r / r.sum())[:, None]
    return new, float(((new[block] - weights[block]) ** 2).mean())


def affinities(weights: Floats, gamma: float) -> Floats:
    """W [n, n]: exp(−γ ‖·‖²) of the columns of P, scaled to [0, 1], without the entries of the two clients themselves."""
    columns = weights.T
    scaled = (columns - columns.min()) / max(float(columns.max() - columns.min()), 1e-8)
    squares = np.einsum("ij,ij->i", scaled, scaled)
    # In place: of 10,000 clients a table is 800 MB.
    far = scaled @ scaled.T
    far *= -2
    far += squares
    far += squares[:, None]
    own = np.diag(scaled).copy()
    # What clients i and j themselves add: at column i (own_i − s_ji)², at column j (s_ij − own_j)².
    scaled -= own
    np.square(scaled, out=scaled)
    far -= scaled
    far -= scaled.T
    np.maximum(far, 0.0, out=far)
    far *= -gamma
    np.exp(far, out=far)
    np.fill_diagonal(far, 0.0)
    far += far.T.copy()
    far /= 2
    return np.asarray(far)


def best_split(alike: Floats, most: int, random: np.random.Generator) -> Labels | None:
    """Labels of the spectral clustering into 2 … `most` parts with the lowest Davies-Bouldin score; None where none is below 1."""
    inverse = 1 / np.sqrt(np.maximum(alike.sum(1), 1e-16))
    vectors = leading(inverse[:, None] * alike * inverse, min(most, len(alike) - 1))
    best, chosen = 1.0, None
    for count in range(2, min(most, len(alike) - 1) + 1):
        rows = vectors[:, -count:]
        rows = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)
        labels = in_order(nearest_centre(rows, k_means(rows, count, random)))
        if labels.max() and (score := davies_bouldin(rows, labels)) < best:
            best, chosen = score, labels
    return chosen


def leading(table: Floats, count: int) -> Floats:
    """Eigenvectors [n, count] of the largest eigenvalues of a symmetric table, the largest last; of many rows only these."""
    if len(table) <= WHOLE:
        return np.asarray(np.linalg.eigh(table)[1][:, -count:])
    from scipy.sparse.linalg import ArpackNoConvergence, eigsh

    first = np.random.default_rng(0).standard_normal(len(table))
    try:
        values, vectors = eigsh(table, k=count, which="LA", v0=first)
    except ArpackNoConvergence:
        return np.asarray(np.linalg.eigh(table)[1][:, -count:])
    return np.asarray(vectors[:, np.argsort(values)])


def davies_bouldin(rows: Floats, labels: Labels) -> float:
    """Davies and Bouldin 1979: how large clusters are beside how far they are apart; 0 is best."""
    count = int(labels.max()) + 1
    centres = np.stack([rows[labels == k].mean(0) for k in range(count)])
    width = np.array([np.linalg.norm(rows[labels == k] - centres[k], axis=1).mean() for k in range(count)])
    apart = np.linalg.norm(centres[:, None] - centres, axis=2)
    np.fill_diagonal(apart, np.inf)
    return float(((width[:, None] + width) / np.maximum(apart, 1e-12)).max(1).mean())
