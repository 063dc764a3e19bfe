"""Sticky clusters: IFCA whose clients leave their cluster only for one that is better by a margin."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from torch import Tensor

from covey import CoveyError, roles
from covey.algorithms.averaging import Averages
from covey.algorithms.contract import Client, Coroutine, Predictor, Server, Setting
from covey.learn.work import Losses, Train
from covey.measures import Measure
from covey.messages import message


@message
@dataclass(frozen=True)
class Centres:
    models: Annotated[Tensor, roles.Models]  # [k, d]


@message
@dataclass(frozen=True)
class Vote:
    model: Annotated[Tensor, roles.Model]  # [d]
    cluster: Annotated[int, roles.Identity]
    samples: Annotated[int, roles.Count]


@dataclass(frozen=True)
class StickyClusters:
    name: ClassVar[str] = "sticky"
    label: ClassVar[str] = "Sticky clusters"
    title: ClassVar[str] = "IFCA whose clients change their cluster only for one that is better by a margin"
    sends: ClassVar[tuple[type, ...]] = (Centres,)
    replies: ClassVar[tuple[type, ...]] = (Vote,)
    trains: ClassVar[str] = "clusters"
    measures: ClassVar[dict[str, Measure]] = {"smallest cluster": Measure("Clients in the smallest cluster")}

    margin: float = 0.05  # a client moves where the loss is lower by this share

    def __post_init__(self) -> None:
        if not 0 <= self.margin < 1:
            raise CoveyError(f"algorithm.margin is {self.margin}: a share of the loss, at least 0 and below 1")

    def start(self, setting: Setting) -> Centres:
        return Centres(setting.start)

    def broadcast(self, state: Centres, client: int) -> Centres:
        return state

    def client(self, me: Client, message: Centres) -> Coroutine:
        losses = yield Losses(message.models)  # [k]
        best, former = int(losses.argmin()), me.memory.get("cluster")
        stays = former is not None and float(losses[best]) > (1 - self.margin) * float(losses[former])
        cluster = me.memory["cluster"] = former if stays else best
        me.note("cluster", cluster)
        model = yield Train(message.models[cluster], me.plan)
        return Vote(model, cluster, me.samples)

    def aggregate(self, server: Server, state: Centres, replies: Iterator[tuple[int, Any]]) -> Centres:
        average = Averages(len(state.models), like=state.models)
        sizes = [0] * len(state.models)
        for _, vote in replies:
            average.add(vote.cluster, vote.model)
            sizes[vote.cluster] += 1
        server.note("smallest cluster", min(sizes))
        return Centres(average.means(state.models))

    def use(self, me: Client, message: Centres) -> Coroutine:
        losses = yield Losses(message.models)
        return Predictor(message.models, index=int(losses.argmin()))
