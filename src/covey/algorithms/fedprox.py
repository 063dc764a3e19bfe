"""FedProx: Li et al., Federated Optimization in Heterogeneous Networks, MLSys 2020.

FedAvg whose clients minimise F_i(w) + μ/2 ‖w − w^t‖², w^t being the global model they were sent. The paper's second half,
clients that do different amounts of work, is `participation.slowest`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

from covey.algorithms.contract import Client, Coroutine
from covey.algorithms.fedavg import FedAvg, GlobalModel, LocalModel
from covey.errors import CoveyError
from covey.learn.work import Train


@dataclass(frozen=True)
class FedProx(FedAvg):
    name: ClassVar[str] = "fedprox"
    title: ClassVar[str] = "FedAvg with a pull back to the global model (Li et al. 2020)"

    mu: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (math.isfinite(self.mu) and self.mu >= 0):
            raise CoveyError(f"algorithm.mu is {self.mu}: the pull must be a finite number that is not negative")

    def client(self, me: Client, message: GlobalModel) -> Coroutine:
        model = yield Train(message.model, replace(me.plan, proximal=self.mu), anchor=message.model)
        return LocalModel(model, me.samples)
