"""FeSEM: Xie et al., Multi-Center Federated Learning: Clients Clustering for Better Personalization, World Wide Web 2023 (arXiv
2005.01026).

    E-step:  client i belongs to the centre nearest to its own model, argmin_k ‖W_i − W̃_k‖²
    M-step:  W̃_k = mean of the models of its clients; they go on from there

The first centres are those of k-means on the models of the first round, which all clients train from the common start.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch

from covey.algorithms.averaging import LocalModel
from covey.algorithms.clustered.groups import (
    GIVES,
    MEASURES,
    Grouping,
    GroupModel,
    group_model,
    means,
    train_group,
    ungrouped,
    use_group,
)
from covey.algorithms.contract import Client, Coroutine, Messages, Server, Setting
from covey.algorithms.refusals import refuse_shared_layers
from covey.algorithms.robust.averages import check_average
from covey.clustering.agglomerative import in_order
from covey.clustering.features import k_means, nearest_centre
from covey.leaks import Given
from covey.measures import Measure


@dataclass(frozen=True)
class FeSEM:
    name: ClassVar[str] = "fesem"
    label: ClassVar[str] = "FeSEM"
    title: ClassVar[str] = "several centres, every client with the one nearest to its model (Xie et al. 2023)"
    sends: ClassVar[Messages] = (GroupModel,)
    replies: ClassVar[Messages] = (LocalModel,)
    gives: ClassVar[tuple[Given, ...]] = GIVES
    measures: ClassVar[Mapping[str, Measure]] = MEASURES

    weighting: str = "clients"  # or "samples"
    aggregation: str = "mean"  # or a rule that bears liars, per centre: see `robust.rules`
    min_group: int = 1  # fewest clients of an average that clients get; with fewer the centre stays as it is

    def __post_init__(self) -> None:
        check_average(self.weighting, self.aggregation, self.min_group)

    def start(self, setting: Setting) -> Grouping:
        refuse_shared_layers("FeSEM", setting)
        return ungrouped(setting)

    def models(self, state: Grouping) -> int:
        return max(1, state.groups)

    def broadcast(self, state: Grouping, client: int) -> GroupModel:
        return group_model(state, client)

    def client(self, me: Client, message: GroupModel) -> Coroutine:
        return train_group(me, message)

    def aggregate(self, server: Server, state: Grouping, replies: Iterator[tuple[int, Any]]) -> Grouping:
        came = list(replies)
        if not came:
            return state
        with server.phase("cluster"):
            models = torch.stack([reply.model for _, reply in came])  # [n, d]
            if state.groups:
                nearest = torch.cdist(models, state.models).argmin(1).cpu().numpy()
                centres = state.models
            else:
                points = models.cpu().numpy()
                count = min(server.setting.clusters, len(points))
                nearest = in_order(nearest_centre(points, k_means(points, count, server.random("k-means"))))
                centres = state.reference.expand(int(nearest.max()) + 1, -1)
        centres = means(self, centres, ((int(k), reply) for k, (_, reply) in zip(nearest, came)))
        place = state.place | {i: int(k) + 1 for k, (i, _) in zip(nearest, came)}
        server.note("clusters", len(np.unique(list(place.values()))))
        # Newcomers begin between the centres: no side of the first round is theirs.
        return Grouping.of(centres.mean(0), centres, state.directions, place)

    def use(self, me: Client, message: GroupModel) -> Coroutine:
        return use_group(me, message)
