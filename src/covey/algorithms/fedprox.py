"""FedProx: Li et al., Federated Optimization in Heterogeneous Networks, MLSys 2020.

FedAvg whose clients minimise F_i(w) + μ/2 ‖w − w^t‖², w^t being the global model they were sent. The paper's second half,
clients that do different amounts of work, is `participation.slowest`. `encryption = "secagg"` as under FedAvg.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

from covey.algorithms.averaging import GlobalModel, LocalModel, use_model
from covey.algorithms.contract import Client, Coroutine, Messages, Server, Setting
from covey.algorithms.robust.averages import check_average
from covey.algorithms.sums import masking, openings
from covey.algorithms.sums.contributions import Contribution
from covey.config import later
from covey.errors import CoveyError
from covey.learn.work import Train


@dataclass(frozen=True)
class FedProx(masking.Masked):
    name: ClassVar[str] = "fedprox"
    label: ClassVar[str] = "FedProx"
    title: ClassVar[str] = "FedAvg with a pull back to the global model (Li et al. 2020)"
    in_rows: ClassVar[bool] = True
    sends_alike: ClassVar[bool] = True
    sends: ClassVar[Messages] = (GlobalModel,)
    replies: ClassVar[Messages] = (LocalModel,)
    trains: ClassVar[str] = "one"
    counted: ClassVar[bool] = False
    masked: ClassVar[Messages] = (masking.MaskedModel,)

    weighting: str = "samples"  # or "clients"
    aggregation: str = later("mean")  # or a rule that bears liars: see `robust.rules`
    min_group: int = later(1)  # fewest clients of an average that clients get; with fewer the model stays as it is
    mu: float = 0.1
    bound: float = later(16.0)  # largest weight under encryption = "secagg"
    quorum: int = later(0)  # clients that must help to unmask a sum, with encryption = "secagg"; 0: two thirds

    def __post_init__(self) -> None:
        check_average(self.weighting, self.aggregation, self.min_group)
        openings.check_quorum(self.quorum)
        if not (math.isfinite(self.mu) and self.mu >= 0):
            raise CoveyError(f"algorithm.mu is {self.mu}: the pull must be a finite number that is not negative")

    def start(self, setting: Setting) -> GlobalModel:
        return GlobalModel(setting.one_start())

    def broadcast(self, state: GlobalModel, client: int) -> GlobalModel:
        return state

    def client(self, me: Client, message: GlobalModel) -> Coroutine:
        model = yield Train(message.model, me.plan.but(proximal=self.mu), anchor=message.model)
        return (yield from masking.hidden(me, message, LocalModel(model, me.samples), self.weighting))

    def aggregate(self, server: Server, state: GlobalModel, replies: Iterator[tuple[int, Any]]) -> GlobalModel:
        return masking.mean_model(server, state, replies, self.weighting, self.aggregation, self.min_group)

    def blocks(self, setting: Setting) -> int:
        return 1

    def contribution(self, me: Client, message: GlobalModel, reply: LocalModel) -> Contribution:
        return Contribution({0: reply.model - message.model})

    def moved(self, setting: Setting, state: GlobalModel, means: Tensor, share: float) -> GlobalModel:
        return GlobalModel(state.model + means[0])

    def use(self, me: Client, message: GlobalModel) -> Coroutine:
        return use_model(me, message)
