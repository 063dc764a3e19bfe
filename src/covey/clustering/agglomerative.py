"""Clusters of clients by what they sent, once: distances of updates, agglomeration, density, and how many there are.

Exact up to `EXACT` products; beyond, updates are sketched to `SKETCH` numbers each first (Charikar et al. 2002: every coordinate is
added to one of them with a random sign), which keeps cosines and Euclidean distances within some 3 % of the norms. Ten thousand
clients then take seconds and not hours.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from covey.clustering.spectral import distances
from covey.errors import CoveyError, meant

Floats = NDArray[np.float64]
Labels = NDArray[np.int64]
METRICS = ("cosine", "euclidean", "manhattan")
LINKAGES = ("average", "complete", "single", "ward")
EXACT = 1e12  # n² d, from which on updates are sketched
SKETCH = 2_048


def check_linkage(linkage: str) -> None:
    if linkage not in LINKAGES:
        raise CoveyError(
            f"algorithm.linkage is {linkage!r}: choose one of {', '.join(LINKAGES)}{meant(linkage, LINKAGES)}"
        )


def check_metric(metric: str) -> None:
    if metric not in METRICS:
        raise CoveyError(f"algorithm.metric is {metric!r}: choose one of {', '.join(METRICS)}{meant(metric, METRICS)}")


def sketched(rows: Tensor, random: np.random.Generator) -> Tensor:
    """[n, d] as [n, SKETCH] where comparing all pairs would take too long; else as they are."""
    n, d = rows.shape
    if float(n) * n * d <= EXACT or d <= SKETCH:
        return rows
    place = torch.from_numpy(random.integers(SKETCH, size=d)).to(rows.device)
    sign = torch.from_numpy(random.integers(2, size=d) * 2.0 - 1.0).to(rows)
    out = torch.zeros(n, SKETCH, dtype=rows.dtype, device=rows.device)
    for low in range(0, n, 256):  # no second copy of all updates
        out[low : low + 256].index_add_(1, place, rows[low : low + 256] * sign)
    return out


def apart(rows: Tensor, metric: str, random: np.random.Generator) -> Floats:
    """Distances [n, n] of rows [n, d]; cosine: 1 − the cosine, 1 from a row of zeros."""
    if metric == "manhattan":
        from scipy.spatial.distance import cdist

        all_rows = rows.cpu().double().numpy()
        return np.asarray(cdist(all_rows, all_rows, "cityblock"), np.float64)
    points = sketched(rows, random)
    if metric == "euclidean":
        return distances(points.cpu().numpy())
    units = points / points.norm(dim=1, keepdim=True).clamp(min=1e-30)
    far = np.asarray((1 - (units @ units.T).clamp(-1, 1)).cpu().double().numpy(), np.float64)
    np.fill_diagonal(far, 0.0)
    return (far + far.T) / 2


def agglomerated(far: Floats, linkage: str, threshold: float, count: int) -> Labels:
    """Labels [n] of distances [n, n]: clusters merge while they are within `threshold`; 0: until there are `count`."""
    from scipy.cluster.hierarchy import fcluster
    from scipy.cluster.hierarchy import linkage as merges
    from scipy.spatial.distance import squareform

    if len(far) < 2:
        return np.zeros(len(far), np.int64)
    tree = merges(squareform(far, checks=False), linkage)
    labels = fcluster(tree, threshold, "distance") if threshold else fcluster(tree, count, "maxclust")
    return in_order(labels)


def in_order(labels: NDArray[np.generic]) -> Labels:
    """The same groups, numbered from 0 in the order in which they come."""
    _, first, place = np.unique(labels, return_index=True, return_inverse=True)
    rank = np.empty(len(first), np.int64)
    rank[np.argsort(first)] = np.arange(len(first))
    return rank[place]
