"""An algorithm of your own in fifty lines: FedAvg whose server clips each client's update.

python examples/own_algorithm.py
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from torch import Tensor

from covey import Experiment, roles, run
from covey.algorithms.averaging import Averages
from covey.algorithms.contract import Client, Coroutine, Messages, Predictor, Server, Setting
from covey.learn.work import Train
from covey.messages import message


@message
@dataclass(frozen=True)
class Model:
    model: Annotated[Tensor, roles.Model]  # [d]


@message
@dataclass(frozen=True)
class Change:
    change: Annotated[Tensor, roles.Change]  # [d]


@dataclass(frozen=True)
class ClippedAverage:
    """The mean of updates, each scaled down to norm `bound` at most."""

    name: ClassVar[str] = "clipped_average"
    title: ClassVar[str] = "FedAvg with clipped updates"
    sends: ClassVar[Messages] = (Model,)
    replies: ClassVar[Messages] = (Change,)
    trains: ClassVar[str] = "one"

    bound: float = 1.0

    def start(self, setting: Setting) -> Model:
        return Model(setting.one_start())

    def broadcast(self, state: Model, client: int) -> Model:
        return state

    def client(self, me: Client, message: Model) -> Coroutine:
        trained = yield Train(message.model, me.plan)
        return Change(trained - message.model)

    def aggregate(self, server: Server, state: Model, replies: Iterator[tuple[int, Any]]) -> Model:
        average = Averages(1, like=state.model)
        for _, reply in replies:
            norm = float(reply.change.norm())
            average.add(0, reply.change * min(1.0, self.bound / max(norm, 1e-12)))
        return Model(state.model + average.means(state.model.new_zeros(1, len(state.model)))[0])

    def use(self, me: Client, message: Model) -> Coroutine:
        return Predictor(message.model[None])
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
