"""What a server may believe of a client's cluster after the sets it has shown: pure functions from sets to weights.

A set says only that its members are possible, each equally: `P(CI | j)` depends on the size of the set, not on which `j` of
its members is the true one. So the weight of `j` is its prior, over the members that every set of the client contains.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

Sets = Sequence[Sequence[int]]  # of one client, by round
Weights = NDArray[np.float64]  # [k]
CONTROLS = ("largest cluster", "another client")


def last_set(sets: Sets, clusters: int) -> Weights:
    """All members of the set shown last, alike."""
    return _indicator(sets[-1], clusters)


def intersection(sets: Sets, clusters: int) -> Weights:
    """The members of every set shown; where none is left the client has changed its cluster, and counting starts anew."""
    left: set[int] = set()
    for shown in sets:
        left = (left & set(shown)) or set(shown)
    return _indicator(sorted(left), clusters)


def sizes_by_moments(groups: Sequence[int], clients: int, rate: float) -> Weights:
    """Clients per true cluster, from how many showed each: `E|G_j| = n_j + q (N − n_j)` at the effective rate q."""
    estimate = (np.asarray(groups, np.float64) - rate * clients) / max(1.0 - rate, 1e-9)
    return np.maximum(estimate, 0.5)  # a cluster that was shown is possible, however rarely


def sizes_by_likelihood(possible: Sequence[Weights], steps: int = 200) -> Weights:
    """Shares of the clusters that make all clients' possibilities jointly most likely (EM, from equal shares)."""
    table = np.stack(possible)  # [n, k]
    share = np.full(table.shape[1], 1.0 / table.shape[1])
    for _ in range(steps):
        posterior = table * share
        posterior /= posterior.sum(1, keepdims=True)
        share = (posterior.sum(0) + 0.5) / (len(table) + 0.5 * table.shape[1])  # half a client each: none is impossible
    return share


def hit(weights: Weights, truth: int) -> float:
    """How often the guess at the largest weight is right, ties drawn by lot."""
    best = np.flatnonzero(weights >= weights.max() - 1e-12)
    return 1.0 / len(best) if truth in best else 0.0


def score(beliefs: Mapping[int, Weights], truths: Mapping[int, int]) -> tuple[float, dict[str, float]]:
    """(mean hit over the clients, controls: the largest cluster for everyone; each belief held of all other clients)."""
    clients = sorted(set(beliefs) & set(truths))
    hits = [hit(beliefs[i], truths[i]) for i in clients]
    counts = np.bincount([truths[i] for i in clients])
    everyone = [sum(n * hit(beliefs[i], j) for j, n in enumerate(counts) if n) for i in clients]
    others = max(len(clients) - 1, 1)
    placebo = float(np.mean([(total - own) / others for total, own in zip(everyone, hits)]))
    return float(np.mean(hits)), dict(zip(CONTROLS, (float(counts.max() / len(clients)), placebo)))


def _indicator(members: Sequence[int], clusters: int) -> Weights:
    weights = np.zeros(clusters)
    weights[list(members)] = 1.0
    return weights
