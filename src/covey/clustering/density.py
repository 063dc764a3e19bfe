"""Clusters by density, with the scale read off the data: what FLUX groups clients by."""

from __future__ import annotations

import numpy as np

from covey.clustering.agglomerative import Floats, Labels, in_order
from covey.clustering.spectral import distances


def scaled_groups(kinds: list[Floats]) -> Floats:
    """Descriptions of several kinds [n, c] side by side, each scaled to mean 0 and deviation 1 over all its numbers."""
    scaled = [(kind - kind.mean()) / max(float(kind.std()), 1e-12) for kind in kinds]
    return np.concatenate(scaled, axis=1)


def knee(values: Floats) -> int:
    """Where rising values bend most: furthest below the line from the first to the last (Satopää et al. 2011)."""
    rising = np.sort(values)
    if len(rising) < 3 or rising[-1] - rising[0] <= 1e-5 * rising[-1]:  # equal up to rounding
        return len(rising) - 1
    height = (rising - rising[0]) / (rising[-1] - rising[0])
    return int((np.linspace(0, 1, len(rising)) - height).argmax())


def by_density(rows: Floats, scale: float = 1.0) -> Labels:
    """DBSCAN of rows [n, c] where two near each other are a cluster: its radius is the knee of the distances to the nearest
    neighbour, times `scale`. Who is near nobody is a cluster of its own.
    """
    if len(rows) < 2:
        return np.zeros(len(rows), np.int64)
    far = distances(rows)
    np.fill_diagonal(far, np.inf)
    closest = np.sort(far.min(1))
    radius = closest[knee(closest)] * scale * (1 + 1e-6)
    # With two to a cluster every point with a neighbour is a core point: clusters are connected components.
    from scipy.sparse import csr_matrix
    from scipy.sparse.csgraph import connected_components

    _, labels = connected_components(csr_matrix(far <= radius), directed=False)
    return in_order(labels)
