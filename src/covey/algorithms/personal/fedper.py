"""FedPer: Arivazhagan, Aggarwal, Singh and Choudhary, Federated Learning with Personalization Layers, 2019 (arXiv 1912.00818).

client i:  trains base layers W_B and its own personalisation layers W_Pi together; sends W_B
server:    W_B = Σ_i n_i / n · W_B,i
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
)
from covey.algorithms.robust.averages import check_average, mean_vector
from covey.learn.work import Train


@dataclass(frozen=True)
class FedPer:
    name: ClassVar[str] = "fedper"
    label: ClassVar[str] = "FedPer"
    title: ClassVar[str] = "shared base layers, the last layers of each client's own (Arivazhagan et al. 2019)"
    family: ClassVar[str] = "personalised"
    sends: ClassVar[Messages] = (SharedModel,)
    replies: ClassVar[Messages] = (TrainedLayers,)
    trains: ClassVar[str] = "one"
    personal_layers: ClassVar[int] = 1

    weighting: str = "samples"  # or "clients"
    aggregation: str = "mean"  # or a rule that bears liars: see `robust.rules`
    min_group: int = 1  # fewest clients of an average that clients get; with fewer the layers stay as they are

    def __post_init__(self) -> None:
        check_average(self.weighting, self.aggregation, self.min_group)

    def start(self, setting: Setting) -> SharedModel:
        return shared_start("FedPer", setting)

    def broadcast(self, state: SharedModel, client: int) -> SharedModel:
        return state

    def client(self, me: Client, message: SharedModel) -> Coroutine:
        model = yield Train(whole_model(me, message.model), me.plan)
        keep_own(me, model)
        return TrainedLayers(shared_part(model, me.setting), me.samples)

    def aggregate(self, server: Server, state: SharedModel, replies: Iterator[tuple[int, Any]]) -> SharedModel:
        return SharedModel(mean_vector(state.model, replies, self.weighting, self.aggregation, self.min_group))

    def use(self, me: Client, message: SharedModel) -> Coroutine:
        return Predictor(whole_model(me, message.model)[None], index=None)
        yield
