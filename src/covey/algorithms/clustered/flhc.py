"""FL+HC: Briggs, Fan and Andras, Federated Learning with Hierarchical Clustering of Local Updates, IJCNN 2020 (arXiv 2004.11791).

rounds 1 … n:  FedAvg
round n + 1:   every client trains the model so far; the server agglomerates the updates (metric, linkage) until clusters are
               further apart than a threshold
from then on:  FedAvg within each cluster
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

from covey.algorithms.averaging import LocalModel
from covey.algorithms.clustered.groups import (
    GIVES,
    MEASURES,
    Grouping,
    GroupModel,
    group_model,
    grouped_once,
    means,
    nearest_by_cosine,
    train_group,
    ungrouped,
    use_group,
)
from covey.algorithms.contract import Client, Coroutine, Messages, Server, Setting
from covey.algorithms.refusals import refuse_shared_layers
from covey.algorithms.robust.averages import check_average
from covey.clustering.agglomerative import agglomerated, apart, check_linkage, check_metric
from covey.errors import CoveyError
from covey.leaks import Given
from covey.measures import Measure


@dataclass(frozen=True)
class FLHC:
    name: ClassVar[str] = "flhc"
    label: ClassVar[str] = "FL+HC"
    title: ClassVar[str] = "clients grouped once by agglomeration of their updates (Briggs et al. 2020)"
    sends: ClassVar[Messages] = (GroupModel,)
    replies: ClassVar[Messages] = (LocalModel,)
    gives: ClassVar[tuple[Given, ...]] = GIVES
    measures: ClassVar[Mapping[str, Measure]] = MEASURES

    warm_up: int = 2  # n: rounds of FedAvg before
    metric: str = "euclidean"  # or "manhattan", "cosine"
    linkage: str = "ward"  # or "average", "complete", "single"; ward needs it euclidean
    threshold: float = 0.0  # clusters further apart than this stay apart; 0: as many as the experiment's clusters
    weighting: str = "samples"  # or "clients"
    aggregation: str = "mean"  # or a rule that bears liars, per cluster: see `robust.rules`
    min_group: int = 1  # fewest clients of an average that clients get; with fewer the model stays as it is

    def __post_init__(self) -> None:
        check_average(self.weighting, self.aggregation, self.min_group)
        check_metric(self.metric)
        check_linkage(self.linkage)
        if self.linkage == "ward" and self.metric != "euclidean":
            raise CoveyError(
                f"algorithm.linkage is 'ward' and algorithm.metric {self.metric!r}: set metric = 'euclidean'"
            )
        if self.warm_up < 0 or not 0 <= self.threshold < float("inf"):
            raise CoveyError(
                f"algorithm.warm_up is {self.warm_up} and algorithm.threshold {self.threshold}: neither may be negative"
            )

    def start(self, setting: Setting) -> Grouping:
        refuse_shared_layers("FL+HC", setting)
        return ungrouped(setting)

    def models(self, state: Grouping) -> int:
        return max(1, state.groups)

    def broadcast(self, state: Grouping, client: int) -> GroupModel:
        return group_model(state, client)

    def client(self, me: Client, message: GroupModel) -> Coroutine:
        return train_group(me, message)

    def aggregate(self, server: Server, state: Grouping, replies: Iterator[tuple[int, Any]]) -> Grouping:
        if server.round <= self.warm_up:
            (model,) = means(self, state.reference[None], ((0, reply) for _, reply in replies))
            return Grouping.of(model, state.directions, state.directions, state.place)

        def labels(updates: Tensor) -> Any:
            far = apart(updates, self.metric, server.random("sketch"))
            return agglomerated(far, self.linkage, self.threshold, server.setting.clusters)

        return grouped_once(self, server, state, replies, labels, self._nearest)

    def _nearest(self, update: Tensor, directions: Tensor) -> int:
        if self.metric == "cosine":
            return nearest_by_cosine(update, directions)
        return int((directions - update).norm(p=1 if self.metric == "manhattan" else 2, dim=1).argmin())

    def use(self, me: Client, message: GroupModel) -> Coroutine:
        return use_group(me, message)
