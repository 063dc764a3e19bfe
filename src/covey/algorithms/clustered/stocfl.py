"""StoCFL: Zeng et al., Stochastic Clustered Federated Learning, 2023 (arXiv 2303.00897).

    first time:  client i trains the anchor (the common start) and sends how it moved, ψ_i; it is a cluster of its own
    server:      of the clusters that took part, those whose mean ψ have a cosine of τ or more are united, the most alike first
    client:      θ_i minimises F_i(θ) + λ/2 ‖θ − ω‖² from its cluster's θ_k; ω_i minimises F_i from the global ω
    server:      θ_k = mean of its clients' θ_i,  ω = mean of all ω_i

The number of clusters is found: it falls from one per client as clusters meet.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from covey import roles
from covey.algorithms.averaging import weight_of
from covey.algorithms.clustered.groups import GIVES, MEASURES
from covey.algorithms.contract import Client, Coroutine, Messages, Predictor, Server, Setting
from covey.algorithms.refusals import refuse_shared_layers
from covey.algorithms.robust.averages import averages, check_average
from covey.clustering.agglomerative import sketched
from covey.errors import CoveyError
from covey.leaks import Given
from covey.learn.work import Train, Work
from covey.measures import Measure
from covey.messages import message

Unions = list[tuple[int, int]]


@message
@dataclass(frozen=True)
class BothModels:
    model: Annotated[Tensor, roles.Model]  # [d] θ_k; of a client that has no cluster yet ω
    common: Annotated[Tensor, roles.Model]  # [d] ω
    cluster: Annotated[int, roles.Identity(bounded=False)]  # 0: none yet


@message
@dataclass(frozen=True)
class BothTrained:
    model: Annotated[Tensor, roles.Model]  # [d] θ_i
    common: Annotated[Tensor, roles.Model]  # [d] ω_i
    samples: Annotated[int, roles.Count]


@message
@dataclass(frozen=True)
class FirstTrained:
    model: Annotated[Tensor, roles.Model]  # [d] θ_i
    common: Annotated[Tensor, roles.Model]  # [d] ω_i
    moved: Annotated[Tensor, roles.Change]  # [d] ψ_i
    samples: Annotated[int, roles.Count]


@message
@dataclass(frozen=True)
class United:
    sent: dict[int, BothModels]  # by cluster, named after its first client, + 1; 0: who has none
    moves: dict[int, Tensor]  # client -> ψ_i
    place: dict[int, int]  # client -> cluster

    @classmethod
    def of(
        cls, common: Tensor, models: Mapping[int, Tensor], moves: dict[int, Tensor], place: dict[int, int]
    ) -> United:
        every = {0: common, **models}
        return cls({k: BothModels(model, common, k) for k, model in every.items()}, moves, place)

    @property
    def common(self) -> Tensor:
        """ω, [d]"""
        return self.sent[0].common

    @property
    def models(self) -> dict[int, Tensor]:
        """cluster -> θ_k"""
        return {k: one.model for k, one in self.sent.items() if k}


@dataclass(frozen=True)
class StoCFL:
    name: ClassVar[str] = "stocfl"
    label: ClassVar[str] = "StoCFL"
    title: ClassVar[str] = "clients' own clusters, united where their first moves are alike (Zeng et al. 2023)"
    sends: ClassVar[Messages] = (BothModels,)
    replies: ClassVar[Messages] = (BothTrained, FirstTrained)
    gives: ClassVar[tuple[Given, ...]] = GIVES
    measures: ClassVar[Mapping[str, Measure]] = MEASURES

    tau: float = 0.3  # τ: clusters whose mean moves have this cosine or more are united
    pull: float = 0.05  # λ, of cluster models to the global one
    weighting: str = "samples"  # or "clients"
    aggregation: str = "mean"  # or a rule that bears liars, per cluster: see `robust.rules`
    min_group: int = 1  # fewest clients of an average that clients get; with fewer the model stays as it is

    def __post_init__(self) -> None:
        check_average(self.weighting, self.aggregation, self.min_group)
        if not -1 <= self.tau <= 1:
            raise CoveyError(f"algorithm.tau is {self.tau}: it is a cosine, from -1 to 1")
        if not (math.isfinite(self.pull) and self.pull >= 0):
            raise CoveyError(f"algorithm.pull is {self.pull}: it must be a finite number that is not negative")

    def start(self, setting: Setting) -> United:
        refuse_shared_layers("StoCFL", setting)
        return United.of(setting.one_start(), {}, {}, {})

    def models(self, state: United) -> int:
        return max(1, len(state.models))

    def broadcast(self, state: United, client: int) -> BothModels:
        return state.sent[state.place.get(client, 0)]

    def client(self, me: Client, message: BothModels) -> Coroutine:
        me.note("cluster", message.cluster)
        anchor = me.setting.one_start()
        work: list[Work] = [
            Train(message.model, me.plan.but(proximal=self.pull), anchor=message.common),
            Train(message.common, me.plan, purpose="common"),
        ]
        if message.cluster == 0:
            work.append(Train(anchor, me.plan, purpose="anchor"))
        trained = yield work
        if message.cluster:
            return BothTrained(trained[0], trained[1], me.samples)
        return FirstTrained(trained[0], trained[1], trained[2] - anchor, me.samples)

    def aggregate(self, server: Server, state: United, replies: Iterator[tuple[int, Any]]) -> United:
        came = [(i, r) for i, r in replies if i in state.place or isinstance(r, FirstTrained)]
        if not came:
            return state
        moves = state.moves | {i: r.moved for i, r in came if i not in state.place}
        fresh = {i for i, _ in came if i not in state.place}
        place = state.place | {i: i + 1 for i in fresh}
        with server.phase("cluster"):
            unions = self._unions(server, {i: moves[i] for i, _ in came}, place)
        models, place = _unite(state.models, place, unions)
        groups: dict[int, list[Any]] = defaultdict(list)
        for i, reply in came:  # a newcomer trained ω: its model counts in clusters that have none yet
            if i not in fresh or place[i] not in models:
                groups[place[i]].append(reply)
        for cluster, members in groups.items():
            before = models.get(cluster, state.common)
            models[cluster] = self._mean(before, [(r.model, r) for r in members])
        common = self._mean(state.common, [(r.common, r) for _, r in came])
        server.note("clusters", len(models))
        return United.of(common, models, moves, place)

    def _unions(self, server: Server, moves: Mapping[int, Tensor], place: Mapping[int, int]) -> Unions:
        """Pairs of clusters to be united, the most alike first."""
        members: dict[int, list[Tensor]] = defaultdict(list)
        for i, moved in moves.items():
            members[place[i]].append(moved)
        names = sorted(members)
        rows = sketched(torch.stack([torch.stack(members[name]).mean(0) for name in names]), server.random("sketch"))
        units = rows / rows.norm(dim=1, keepdim=True).clamp(min=1e-30)
        alike = np.triu((units @ units.T).cpu().numpy(), 1)
        first, second = np.nonzero((alike >= self.tau) & np.triu(np.ones(alike.shape, bool), 1))
        order = np.argsort(-alike[first, second], kind="stable")
        return [(names[first[at]], names[second[at]]) for at in order]

    def _mean(self, before: Tensor, members: list[tuple[Tensor, Any]]) -> Tensor:
        average = averages(self.aggregation, before[None], self.min_group)
        for vector, reply in members:
            average.add(0, vector, weight_of(reply, self.weighting))
        return average.means(before[None])[0]

    def use(self, me: Client, message: BothModels) -> Coroutine:
        return Predictor(message.model[None])
        yield


def _unite(
    models: dict[int, Tensor], place: dict[int, int], unions: Unions
) -> tuple[dict[int, Tensor], dict[int, int]]:
    """The clusters after all unions: a union has the smaller name, and the model of the larger of the two."""
    into: dict[int, int] = {}

    def root(cluster: int) -> int:
        while cluster in into:
            cluster = into[cluster]
        return cluster

    sizes: dict[int, int] = defaultdict(int)
    for cluster in place.values():
        sizes[cluster] += 1
    for pair in unions:
        kept, gone = sorted((root(pair[0]), root(pair[1])))
        if kept == gone:
            continue
        if gone in models and (kept not in models or sizes[kept] < sizes[gone]):
            models[kept] = models[gone]
        models.pop(gone, None)
        sizes[kept] += sizes.pop(gone)
        into[gone] = kept
    return models, {client: root(cluster) for client, cluster in place.items()}
