"""FedAvg: McMahan et al., Communication-Efficient Learning of Deep Networks from Decentralized Data, AISTATS 2017.

One model, averaged by sample counts (`weighting = "samples"`, as in the paper) or per client. With `encryption = "secagg"` the
server learns the sum of models and of counts, and no client's: docs/deployment/secagg.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from torch import Tensor

from covey.algorithms.averaging import GlobalModel, LocalModel, moved_on, use_model
from covey.algorithms.contract import Client, Coroutine, Messages, Server, Setting
from covey.algorithms.robust.averages import check_average
from covey.algorithms.sums import masking, openings
from covey.algorithms.sums.contributions import Contribution
from covey.config import later
from covey.learn.work import Train


@dataclass(frozen=True)
class FedAvg(masking.Masked):
    name: ClassVar[str] = "fedavg"
    label: ClassVar[str] = "FedAvg"
    title: ClassVar[str] = "one model, averaged by sample counts (McMahan et al. 2017)"
    in_rows: ClassVar[bool] = True
    sends_alike: ClassVar[bool] = True
    surveyed: ClassVar[bool] = True
    sends: ClassVar[Messages] = (GlobalModel,)
    replies: ClassVar[Messages] = (LocalModel,)
    trains: ClassVar[str] = "one"
    counted: ClassVar[bool] = False
    masked: ClassVar[Messages] = (masking.MaskedModel,)

    weighting: str = "samples"  # or "clients"
    aggregation: str = later("mean")  # or a rule that bears liars: see `robust.rules`
    min_group: int = later(1)  # fewest clients of an average that clients get; with fewer the model stays as it is
    bound: float = later(16.0)  # largest weight under encryption = "secagg"
    quorum: int = later(0)  # clients that must help to unmask a sum, with encryption = "secagg"; 0: two thirds

    def __post_init__(self) -> None:
        check_average(self.weighting, self.aggregation, self.min_group)
        openings.check_quorum(self.quorum)

    def start(self, setting: Setting) -> GlobalModel:
        return GlobalModel(setting.one_start())

    def broadcast(self, state: GlobalModel, client: int) -> GlobalModel:
        return state

    def client(self, me: Client, message: GlobalModel) -> Coroutine:
        model = yield Train(message.model, me.plan)
        return (yield from masking.hidden(me, message, LocalModel(model, me.samples), self.weighting))

    def aggregate(self, server: Server, state: GlobalModel, replies: Iterator[tuple[int, Any]]) -> GlobalModel:
        return masking.mean_model(server, state, replies, self.weighting, self.aggregation, self.min_group)

    def rebased(self, sent: GlobalModel, state: GlobalModel, reply: LocalModel, scale: float) -> LocalModel:
        return replace(reply, model=moved_on(reply.model, sent.model, state.model, scale))

    def blocks(self, setting: Setting) -> int:
        return 1

    def contribution(self, me: Client, message: GlobalModel, reply: LocalModel) -> Contribution:
        return Contribution({0: reply.model - message.model})

    def moved(self, setting: Setting, state: GlobalModel, means: Tensor, share: float) -> GlobalModel:
        return GlobalModel(state.model + means[0])

    def use(self, me: Client, message: GlobalModel) -> Coroutine:
        return use_model(me, message)
