"""FedDyn: Acar et al., Federated Learning Based on Dynamic Regularization, ICLR 2021.

    client i:  θ_i = argmin  f_i(θ) − ⟨∇_i, θ⟩ + α/2 ‖θ − θ^{t−1}‖²      (as far as its training plan takes it)
               ∇_i ← ∇_i − α (θ_i − θ^{t−1})
    server:    h ← h − α / m · Σ_{i in S} (θ_i − θ^{t−1}),   θ^t = mean_{i in S} θ_i − h / α

∇_i lives in the client's memory and is zero, without taking any, until it first takes part; m counts all clients. Where
training has converged ∇_i = ∇f_i(θ), so the clients' objectives agree with the global one at its stationary points.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from covey.algorithms.averaging import GlobalModel, LocalModel, use_model
from covey.algorithms.contract import Client, Coroutine, Messages, Server, Setting
from covey.algorithms.robust.averages import averages, check_aggregation, check_group
from covey.config import later
from covey.errors import CoveyError
from covey.learn.work import Train, rowwise
from covey.messages import message


@message
@dataclass(frozen=True)
class DynamicState:
    sent: GlobalModel  # θ
    h: Tensor  # [d] never leaves the server


def _gradient(model: Tensor, theta: Tensor, gradient: Tensor, alpha: Tensor | float) -> Tensor:
    """∇_i − α (θ_i − θ)."""
    return (model - theta).mul_(-alpha).add_(gradient)


@dataclass(frozen=True)
class FedDyn:
    name: ClassVar[str] = "feddyn"
    label: ClassVar[str] = "FedDyn"
    title: ClassVar[str] = "a regulariser per client that moves its optimum to the global one (Acar et al. 2021)"
    in_rows: ClassVar[bool] = True
    sends_alike: ClassVar[bool] = True
    sends: ClassVar[Messages] = (GlobalModel,)
    replies: ClassVar[Messages] = (LocalModel,)
    trains: ClassVar[str] = "one"
    averages: ClassVar[bool] = False  # the server moves the mean on by h / α

    alpha: float = 0.1
    aggregation: str = later("mean")  # or a rule that bears liars: see `robust.rules`
    min_group: int = later(1)  # fewest clients of an average that clients get; with fewer the model stays as it is

    def __post_init__(self) -> None:
        if not (math.isfinite(self.alpha) and self.alpha > 0):
            raise CoveyError(
                f"algorithm.alpha is {self.alpha}: it must be a finite number above 0 (the server divides by it)"
            )
        check_aggregation(self.aggregation)
        check_group(self.min_group, self.aggregation)

    def start(self, setting: Setting) -> DynamicState:
        model = setting.one_start()
        return DynamicState(GlobalModel(model), torch.zeros_like(model))

    def broadcast(self, state: DynamicState, client: int) -> GlobalModel:
        return state.sent

    def client(self, me: Client, message: GlobalModel) -> Coroutine:
        theta = message.model
        gradient = me.memory.get("gradient")  # ∇_i
        if gradient is None:
            gradient = torch.zeros_like(theta)
        plan = me.plan.but(proximal=self.alpha)
        correction = yield rowwise(torch.neg, gradient, may_wait=True)
        model = yield Train(theta, plan, anchor=theta, correction=correction)
        me.memory["gradient"] = yield rowwise(_gradient, model, theta, gradient, self.alpha, may_wait=True)
        return LocalModel(model, me.samples)

    def aggregate(self, server: Server, state: DynamicState, replies: Iterator[tuple[int, Any]]) -> DynamicState:
        theta = state.sent.model
        average = averages(self.aggregation, theta[None])
        for _, reply in replies:
            average.add(0, reply.model)
        if average.counts[0] < self.min_group:
            return state  # nobody, or too few, answered: the paper's mean over S does not exist
        mean = average.means(theta[None])[0]
        share = average.weights[0] / server.setting.clients  # |S| / m
        h = state.h - self.alpha * share * (mean - theta)
        return DynamicState(GlobalModel(mean - h / self.alpha), h)

    def use(self, me: Client, message: GlobalModel) -> Coroutine:
        return use_model(me, message)
