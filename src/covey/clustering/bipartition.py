"""Sattler's split of clients into two groups by the cosine similarity of their updates.

Sattler, Müller, Samek, "Clustered Federated Learning: Model-Agnostic Distributed Multitask Optimization Under Privacy
Constraints", IEEE TNNLS 2020. The best split makes the largest similarity across the cut as small as possible.

Exact and quadratic: every split cuts an edge of the maximum spanning tree of the similarities, so its largest
similarity across is at least that of the tree's weakest edge, and cutting just that edge attains it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from covey.errors import CoveyError


@dataclass(frozen=True)
class Bipartition:
    first: NDArray[np.int64]  # holds client 0; both sorted
    second: NDArray[np.int64]
    cross: float  # the largest similarity between the two


def cosine_similarities(updates: ArrayLike) -> NDArray[np.float64]:
    """[n, n] from updates [n, d]. A client that did not move is similar (0) to nobody."""
    rows = np.asarray(updates, np.float64)
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    units = rows / np.where(norms > 0, norms, 1.0)
    return np.clip(units @ units.T, -1.0, 1.0)


def bipartition(similarities: ArrayLike) -> Bipartition:
    """The split with the smallest largest similarity across it; the diagonal is not looked at."""
    similarity = np.asarray(similarities, np.float64)
    n = len(similarity)
    if n < 2 or similarity.shape != (n, n) or not np.all(np.isfinite(similarity)):
        raise CoveyError(f"expected finite similarities [n, n] of at least 2 clients, found shape {similarity.shape}")
    # Prim: grow from client 0, always by the client most similar to somebody inside.
    parent = np.zeros(n, np.int64)
    strength = similarity[0].copy()
    outside = np.ones(n, bool)
    outside[0] = False
    order = []
    for _ in range(n - 1):
        new = int(np.argmax(np.where(outside, strength, -np.inf)))
        outside[new] = False
        order.append(new)
        closer = outside & (similarity[new] > strength)
        strength[closer], parent[closer] = similarity[new][closer], new
    weakest = min(order, key=lambda client: strength[client])
    cut = np.zeros(n, bool)
    cut[weakest] = True
    for client in order:  # parents come before their children
        cut[client] |= cut[parent[client]]
    return Bipartition(np.flatnonzero(~cut), np.flatnonzero(cut), float(strength[weakest]))


def wants_split(updates: ArrayLike, weights: ArrayLike, eps1: float, eps2: float) -> bool:
    """Sattler's two norms: the mean update has come to rest (< eps1) while some client still pulls (> eps2)."""
    rows, share = np.asarray(updates, np.float64), np.asarray(weights, np.float64)
    mean = share / share.sum() @ rows
    return bool(np.linalg.norm(mean) < eps1 and np.linalg.norm(rows, axis=1).max() > eps2)


def is_separated(cross: float, gamma_max: float) -> bool:
    """True if the two groups differ by more than the clients' own noise: √((1 - cross) / 2) > gamma_max."""
    return bool(np.sqrt(max(1.0 - cross, 0.0) / 2.0) > gamma_max)
