"""An algorithm of your own in forty lines: FedAvg whose server clips each client's update.

python examples/own_algorithm.py
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

from covey import Experiment, run
from covey.algorithms.averaging import Averages
from covey.algorithms.contract import Client, Coroutine, Server, Setting, Use
from covey.learn.work import Train
from covey.messages import message


@message
@dataclass(frozen=True)
class Model:
    model: Tensor  # [d]


@dataclass(frozen=True)
class ClippedAverage:
    """The mean of updates, each scaled down to norm `bound` at most."""

    name: ClassVar[str] = "clipped_average"
    title: ClassVar[str] = "FedAvg with clipped updates"
    encryptions: ClassVar[tuple[str, ...]] = ("none",)

    bound: float = 1.0

    def start(self, setting: Setting) -> Model:
        return Model(setting.one_start())

    def broadcast(self, state: Model, client: int) -> Model:
        return state

    def client(self, me: Client, message: Model) -> Coroutine:
        trained = yield Train(message.model, me.plan)
        return Model(trained - message.model)

    def aggregate(self, server: Server, state: Model, replies: Iterator[tuple[int, Any]]) -> Model:
        average = Averages(1, like=state.model)
        for _, reply in replies:
            norm = float(reply.model.norm())
            average.add(0, reply.model * min(1.0, self.bound / max(norm, 1e-12)))
        return Model(state.model + average.means(state.model.new_zeros(1, len(state.model)))[0])

    def use(self, me: Client, message: Model) -> Coroutine:
        return Use(message.model[None])
        yield


if __name__ == "__main__":
    experiment = Experiment.of(
        dataset="digits",
        algorithm=ClippedAverage(bound=2.0),
        clients=20,
        partition={"name": "dirichlet", "beta": 0.5},
        training={"rounds": 20, "batch_size": 10, "lr": 0.1},
    )
    print(run(experiment).accuracy)
