"""FedAvg with fine-tuning: every client goes on from the final average on its own samples, and nothing more is sent.

The plainest personalisation, and hard to beat: Cheng, Chadha and Duchi, Fine-tuning is Fine in Federated Learning, 2021
(arXiv 2108.07313). What any clustering must do better than.
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
class FineTuned:
    name: ClassVar[str] = "fedavg_ft"
    label: ClassVar[str] = "FedAvg + fine-tuning"
    title: ClassVar[str] = "one averaged model, which every client trains on alone before it predicts"
    family: ClassVar[str] = "personalised"
    sends: ClassVar[Messages] = (GlobalModel,)
    replies: ClassVar[Messages] = (LocalModel,)
    trains: ClassVar[str] = "one"
    counted: ClassVar[bool] = False

    epochs: int = 1  # of fine-tuning
    lr: float = 0.0  # of fine-tuning; 0: that of training
    weighting: str = "samples"  # or "clients"
    aggregation: str = "mean"  # or a rule that bears liars: see `robust.rules`
    min_group: int = 1  # fewest clients of an average that clients get; with fewer the model stays as it is

    def __post_init__(self) -> None:
        check_average(self.weighting, self.aggregation, self.min_group)
        if self.epochs < 0:
            raise CoveyError(f"algorithm.epochs is {self.epochs}: fine-tuning takes 0 epochs or more")
        if not (math.isfinite(self.lr) and self.lr >= 0):
            raise CoveyError(f"algorithm.lr is {self.lr}: it must be a finite number, above 0, or 0 for training.lr")

    def start(self, setting: Setting) -> GlobalModel:
        return GlobalModel(setting.one_start())

    def broadcast(self, state: GlobalModel, client: int) -> GlobalModel:
        return state

    def client(self, me: Client, message: GlobalModel) -> Coroutine:
        model = yield Train(message.model, me.plan)
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
        if self.epochs == 0:
            return Predictor(message.model[None])
        plan = me.plan.but(epochs=self.epochs, steps=0, lr=self.lr or me.plan.lr)
        model = yield Train(message.model, plan, purpose="fine-tune")
        return Predictor(model[None], index=None)
