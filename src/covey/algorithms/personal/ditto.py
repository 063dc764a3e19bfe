"""Ditto: Li, Hu, Beirami and Smith, Ditto: Fair and Robust Federated Learning Through Personalization, ICML 2021.

    all:       w by FedAvg
    client i:  v_i minimises F_i(v) + λ/2 ‖v − w^t‖², from where it was, and never leaves the client

λ = 0 is local training beside FedAvg; λ → ∞ is FedAvg. The paper's solver takes s steps on v_i in every round that the client
takes part in: here as many as on w.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

from covey.algorithms.averaging import GlobalModel, LocalModel
from covey.algorithms.contract import Client, Coroutine, Messages, Predictor, Server, Setting
from covey.algorithms.robust.averages import check_average, mean_model
from covey.algorithms.sums.contributions import Contribution
from covey.errors import CoveyError
from covey.learn.work import Train


@dataclass(frozen=True)
class Ditto:
    name: ClassVar[str] = "ditto"
    label: ClassVar[str] = "Ditto"
    title: ClassVar[str] = "an averaged model, and one of each client's own that is pulled to it (Li et al. 2021)"
    family: ClassVar[str] = "personalised"
    sends: ClassVar[Messages] = (GlobalModel,)
    replies: ClassVar[Messages] = (LocalModel,)
    trains: ClassVar[str] = "one"
    counted: ClassVar[bool] = False

    pull: float = 0.1  # λ
    weighting: str = "samples"  # or "clients"
    aggregation: str = "mean"  # or a rule that bears liars: see `robust.rules`
    min_group: int = 1  # fewest clients of an average that clients get; with fewer the model stays as it is

    def __post_init__(self) -> None:
        check_average(self.weighting, self.aggregation, self.min_group)
        if not (math.isfinite(self.pull) and self.pull >= 0):
            raise CoveyError(f"algorithm.pull is {self.pull}: it must be a finite number that is not negative")

    def start(self, setting: Setting) -> GlobalModel:
        return GlobalModel(setting.one_start())

    def broadcast(self, state: GlobalModel, client: int) -> GlobalModel:
        return state

    def client(self, me: Client, message: GlobalModel) -> Coroutine:
        near = me.plan.but(proximal=self.pull)
        model, own = yield [
            Train(message.model, me.plan),
            Train(self._own(me), near, anchor=message.model, purpose="personal"),
        ]
        me.memory["model"] = own
        return LocalModel(model, me.samples)

    def aggregate(self, server: Server, state: GlobalModel, replies: Iterator[tuple[int, Any]]) -> GlobalModel:
        return mean_model(state, replies, self.weighting, self.aggregation, self.min_group)

    def blocks(self, setting: Setting) -> int:
        return 1

    def contribution(self, me: Client, message: GlobalModel, reply: LocalModel) -> Contribution:
        return Contribution({0: reply.model - message.model})

    def moved(self, setting: Setting, state: GlobalModel, means: Tensor, share: float) -> GlobalModel:
        return GlobalModel(state.model + means[0])

    def use(self, me: Client, message: GlobalModel) -> Coroutine:
        if "model" not in me.memory:  # it has not taken part yet
            return Predictor(message.model[None])
        return Predictor(self._own(me)[None], index=None)
        yield

    def _own(self, me: Client) -> Tensor:
        own: Tensor | None = me.memory.get("model")
        return me.setting.one_start() if own is None else own
