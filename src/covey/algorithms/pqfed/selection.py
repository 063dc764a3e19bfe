"""The server's part of PQFed's selection: noisy features of all clients become distances, these become groups."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from covey.clustering import collaborators
from covey.clustering.collaborators import Floats, Rows, Spread


@dataclass(frozen=True)
class Selected:
    groups: dict[int, list[int]]  # target -> itself and those near it, the nearest first
    distances: Floats  # of the target to everybody [n], or between all [n, n]; of the clients that answered
    spread: Spread | None  # None: a single client, nothing to compare


def select_groups(
    rows: Mapping[int, Rows],
    target: int,
    k: int,
    ground: str,
    share: float,
    at_most: int,
    rng: np.random.Generator,
) -> Selected:
    """Groups for one target (-1: for each client) among the clients that sent rows.

    `share` of the largest distance is near enough, and of these the `at_most` nearest are taken (0: all).
    """
    clients = sorted(rows)
    counts, centres = collaborators.cluster_counts([rows[i] for i in clients], k, rng)
    metric = collaborators.ground_distances(centres, ground)
    one = clients.index(target) if target >= 0 else None
    if one is None:
        distances = collaborators.distance_matrix(counts, metric)
        by_target = dict(enumerate(distances))
    else:
        distances = collaborators.earth_movers(counts[one].astype(float), counts.astype(float), metric)
        by_target = {one: distances}
    spread = collaborators.spread(counts, metric, one, rng) if len(clients) > 1 else None
    groups = {
        clients[t]: [clients[i] for i in [t, *collaborators.select(row, t, share, at_most)]]
        for t, row in by_target.items()
    }
    return Selected(groups, distances, spread)
