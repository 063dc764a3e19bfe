"""FedAvg: McMahan et al., Communication-Efficient Learning of Deep Networks from Decentralized Data, AISTATS 2017.

One model, averaged by sample counts (`weighting = "samples"`, as in the paper) or per client.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

from covey.algorithms.averaging import GlobalModel, LocalModel, check_weighting, use_model
from covey.algorithms.contract import Client, Coroutine, Messages, Server, Setting
from covey.algorithms.robust.averages import check_aggregation, check_group, mean_model
from covey.algorithms.sums.contributions import Contribution
from covey.config import later
from covey.learn.work import Train


@dataclass(frozen=True)
class FedAvg:
    name: ClassVar[str] = "fedavg"
    label: ClassVar[str] = "FedAvg"
    title: ClassVar[str] = "one model, averaged by sample counts (McMahan et al. 2017)"
    surveyed: ClassVar[bool] = True
    sends: ClassVar[Messages] = (GlobalModel,)
    replies: ClassVar[Messages] = (LocalModel,)
    trains: ClassVar[str] = "one"
    counted: ClassVar[bool] = False

    weighting: str = "samples"  # or "clients"
    aggregation: str = later("mean")  # or a rule that bears liars: see `robust.rules`
    min_group: int = later(1)  # fewest clients of an average that clients get; with fewer the model stays as it is

    def __post_init__(self) -> None:
        check_weighting(self.weighting)
        check_aggregation(self.aggregation, self.weighting)
        check_group(self.min_group, self.aggregation)

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
        return use_model(me, message)
