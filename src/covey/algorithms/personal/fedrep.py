"""FedRep: Collins, Hassani, Mokhtari and Shakkottai, Exploiting Shared Representations for Personalized FL, ICML 2021.

client i:  its head h_i first, the representation φ held:   h_i ← SGD(h; φ^t), τ epochs
           then the representation, the new head held:      φ_i ← SGD(φ; h_i)
           sends φ_i
server:    φ = mean φ_i
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from covey.algorithms.contract import Client, Coroutine, Messages, Predictor, Server, Setting
from covey.algorithms.personal.layers import (
    SharedModel,
    TrainedLayers,
    keep_own,
    shared_part,
    shared_start,
    whole_model,
    with_own,
)
from covey.algorithms.robust.averages import check_average, mean_vector
from covey.errors import CoveyError
from covey.learn.work import Plan, Train


@dataclass(frozen=True)
class FedRep:
    name: ClassVar[str] = "fedrep"
    label: ClassVar[str] = "FedRep"
    title: ClassVar[str] = "a shared representation, and heads that are trained before it (Collins et al. 2021)"
    family: ClassVar[str] = "personalised"
    sends: ClassVar[Messages] = (SharedModel,)
    replies: ClassVar[Messages] = (TrainedLayers,)
    trains: ClassVar[str] = "one"
    personal_layers: ClassVar[int] = 1

    head_epochs: int = 0  # τ; 0: as many as training.epochs, which are those of the representation
    weighting: str = "clients"  # or "samples"
    aggregation: str = "mean"  # or a rule that bears liars: see `robust.rules`
    min_group: int = 1  # fewest clients of an average that clients get; with fewer the layers stay as they are

    def __post_init__(self) -> None:
        check_average(self.weighting, self.aggregation, self.min_group)
        if self.head_epochs < 0:
            raise CoveyError(f"algorithm.head_epochs is {self.head_epochs}: expected 0 (as training) or more")

    def start(self, setting: Setting) -> SharedModel:
        return shared_start("FedRep", setting)

    def broadcast(self, state: SharedModel, client: int) -> SharedModel:
        return state

    def client(self, me: Client, message: SharedModel) -> Coroutine:
        before = whole_model(me, message.model)
        headed = yield Train(before, self._head_plan(me.plan), moves=me.setting.personal, purpose="head")
        headed = with_own(me, headed, before)
        model = yield Train(headed, me.plan, moves=me.setting.shared)
        keep_own(me, headed)
        return TrainedLayers(shared_part(model, me.setting), me.samples)

    def _head_plan(self, plan: Plan) -> Plan:
        return plan.but(epochs=self.head_epochs, steps=0) if self.head_epochs else plan

    def aggregate(self, server: Server, state: SharedModel, replies: Iterator[tuple[int, Any]]) -> SharedModel:
        return SharedModel(mean_vector(state.model, replies, self.weighting, self.aggregation, self.min_group))

    def use(self, me: Client, message: SharedModel) -> Coroutine:
        return Predictor(whole_model(me, message.model)[None], index=None)
        yield
