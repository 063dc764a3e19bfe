"""FedAvg: McMahan et al., Communication-Efficient Learning of Deep Networks from Decentralized Data, AISTATS 2017.

One model, averaged by sample counts (`weighting = "samples"`, as in the paper) or per client.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

from covey.algorithms.averaging import Averages, weight_of
from covey.algorithms.contract import Client, Coroutine, Server, Setting, Use
from covey.errors import CoveyError
from covey.learn.work import Train
from covey.messages import message


@message
@dataclass(frozen=True)
class GlobalModel:
    model: Tensor  # [d]


@message
@dataclass(frozen=True)
class LocalModel:
    model: Tensor  # [d]
    samples: int


@dataclass(frozen=True)
class FedAvg:
    name: ClassVar[str] = "fedavg"
    title: ClassVar[str] = "one model, averaged by sample counts (McMahan et al. 2017)"
    encryptions: ClassVar[tuple[str, ...]] = ("none",)

    weighting: str = "samples"  # or "clients"

    def __post_init__(self) -> None:
        if self.weighting not in ("samples", "clients"):
            raise CoveyError(f"algorithm.weighting is {self.weighting!r}: choose 'samples' or 'clients'")

    def start(self, setting: Setting) -> GlobalModel:
        return GlobalModel(setting.one_start())

    def broadcast(self, state: GlobalModel, client: int) -> GlobalModel:
        return state

    def client(self, me: Client, message: GlobalModel) -> Coroutine:
        model = yield Train(message.model, me.plan)
        return LocalModel(model, me.samples)

    def aggregate(self, server: Server, state: GlobalModel, replies: Iterator[tuple[int, Any]]) -> GlobalModel:
        average = Averages(1, like=state.model)
        for _, reply in replies:
            average.add(0, reply.model, weight_of(reply, self.weighting))
        return GlobalModel(average.means(state.model[None])[0])

    def use(self, me: Client, message: GlobalModel) -> Coroutine:
        return Use(message.model[None])
        yield  # a coroutine that asks for no work
