"""Per-FedAvg: Fallah, Mokhtari and Ozdaglar, Personalized Federated Learning with Theoretical Guarantees, NeurIPS 2020.

A model that is good after one more step of gradient descent on a client's own data (MAML), by its first-order variant:

    client i, every step:  w̃ = w − α ∇f_i(w; D);   w ← w − β ∇f_i(w̃; D')
    server:                w = mean w_i
    predict:               w − α ∇f_i(w; D)

β is `training.lr`. The Hessian term (1 − α ∇²f_i(w)) is left out, as in the paper's FO; its HF, which estimates that term from
differences of gradients, is not here.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from covey.algorithms.averaging import GlobalModel, LocalModel
from covey.algorithms.contract import Client, Coroutine, Messages, Predictor, Server, Setting
from covey.algorithms.personal.steps import batches, one_step, refuse_momentum
from covey.algorithms.robust.averages import check_average, mean_model
from covey.errors import CoveyError
from covey.learn.work import Train


@dataclass(frozen=True)
class PerFedAvg:
    name: ClassVar[str] = "perfedavg"
    label: ClassVar[str] = "Per-FedAvg"
    title: ClassVar[str] = "a model that adapts to a client in one step (Fallah et al. 2020, first order)"
    family: ClassVar[str] = "personalised"
    sends: ClassVar[Messages] = (GlobalModel,)
    replies: ClassVar[Messages] = (LocalModel,)
    trains: ClassVar[str] = "one"
    averages: ClassVar[bool] = False  # a meta-step adds the change of one model to another

    inner_lr: float = 0.01  # α
    adapt: int = 1  # steps on its own data that a client takes before it predicts
    weighting: str = "clients"  # or "samples"
    aggregation: str = "mean"  # or a rule that bears liars: see `robust.rules`
    min_group: int = 1  # fewest clients of an average that clients get; with fewer the model stays as it is

    def __post_init__(self) -> None:
        check_average(self.weighting, self.aggregation, self.min_group)
        if not (math.isfinite(self.inner_lr) and self.inner_lr > 0):
            raise CoveyError(f"algorithm.inner_lr is {self.inner_lr}: it must be a finite number above 0")
        if self.adapt < 0:
            raise CoveyError(f"algorithm.adapt is {self.adapt}: expected 0 steps or more")

    def start(self, setting: Setting) -> GlobalModel:
        refuse_momentum("Per-FedAvg", setting)
        return GlobalModel(setting.one_start())

    def broadcast(self, state: GlobalModel, client: int) -> GlobalModel:
        return state

    def client(self, me: Client, message: GlobalModel) -> Coroutine:
        w, inner, outer = message.model, one_step(me.plan, self.inner_lr), one_step(me.plan)
        steps = me.plan.steps_for(me.samples)
        first, second = batches(me, steps, "batches"), batches(me, steps, "second batches")
        for t in range(steps):
            adapted = yield Train(w, inner, on=first[t], purpose=f"adapt {t}")  # w̃
            moved = yield Train(adapted, outer, on=second[t], purpose=f"train {t}")
            w = (moved - adapted).add_(w)
        return LocalModel(w, me.samples)

    def aggregate(self, server: Server, state: GlobalModel, replies: Iterator[tuple[int, Any]]) -> GlobalModel:
        return mean_model(state, replies, self.weighting, self.aggregation, self.min_group)

    def use(self, me: Client, message: GlobalModel) -> Coroutine:
        if self.adapt == 0:
            return Predictor(message.model[None])
        plan = me.plan.but(lr=self.inner_lr, steps=self.adapt)
        model = yield Train(message.model, plan, purpose="adapt")
        return Predictor(model[None], index=None)
