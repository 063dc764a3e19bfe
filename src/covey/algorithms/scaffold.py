"""SCAFFOLD: Karimireddy et al., SCAFFOLD: Stochastic Controlled Averaging for Federated Learning, ICML 2020.

    client i:  K steps  y ← y − η (g_i(y) − c_i + c)  from y = x
               c_i⁺ = c_i − c + (x − y) / (K η)                      (option II)
               sends Δy = y − x and Δc = c_i⁺ − c_i = −c − Δy / (K η)
    server:    x ← x + η_g · mean Δy,   c ← c + |S| / N · mean Δc

A client's variate c_i lives in its own memory and is zero, without taking any, until it first takes part. Option I (c_i⁺ is
the gradient at x) is left out: it would send a gradient that no defence has seen.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import torch
from torch import Tensor

from covey import roles
from covey.algorithms.averaging import use_model
from covey.algorithms.contract import Client, Coroutine, Messages, Server, Setting
from covey.algorithms.robust.averages import averages, check_aggregation, check_group
from covey.algorithms.sums.contributions import Contribution
from covey.config import later
from covey.errors import CoveyError
from covey.learn.work import Train, rowwise
from covey.messages import message


@message
@dataclass(frozen=True)
class ControlledModel:
    model: Annotated[Tensor, roles.Model]  # [d] x
    variate: Annotated[Tensor, roles.Change]  # [d] c


@message
@dataclass(frozen=True)
class ControlledChange:
    model: Annotated[Tensor, roles.Change]  # [d] Δy
    variate: Annotated[Tensor, roles.Change]  # [d] Δc


def _changes(y: Tensor, x: Tensor, c: Tensor, scale: Tensor | float) -> tuple[Tensor, Tensor]:
    """Δy, and Δc with scale = −1 / (K η)."""
    moved = y - x
    return moved, (moved * scale).sub_(c)


def _changes_from(y: Tensor, x: Tensor, c: Tensor, c_i: Tensor, scale: Tensor | float) -> tuple[Tensor, Tensor, Tensor]:
    """The same, and c_i⁺."""
    moved, change = _changes(y, x, c, scale)
    return moved, change, c_i + change


@dataclass(frozen=True)
class Scaffold:
    name: ClassVar[str] = "scaffold"
    label: ClassVar[str] = "SCAFFOLD"
    title: ClassVar[str] = "control variates against client drift (Karimireddy et al. 2020)"
    in_rows: ClassVar[bool] = True
    sends_alike: ClassVar[bool] = True
    sends: ClassVar[Messages] = (ControlledModel,)
    replies: ClassVar[Messages] = (ControlledChange,)
    trains: ClassVar[str] = "one"
    one_part: ClassVar[bool] = False
    counted: ClassVar[bool] = False

    global_lr: float = 1.0  # η_g
    aggregation: str = later("mean")  # or a rule that bears liars, of Δy and of Δc: see `robust.rules`
    min_group: int = later(1)  # fewest clients of an average that clients get; with fewer x and c stay as they are

    def __post_init__(self) -> None:
        check_aggregation(self.aggregation)
        check_group(self.min_group, self.aggregation)
        if not (math.isfinite(self.global_lr) and self.global_lr > 0):
            raise CoveyError(f"algorithm.global_lr is {self.global_lr}: it must be a finite number above 0")

    @property
    def averages(self) -> bool:
        """With another η_g the server goes beyond the mean of the clients' models, or not as far."""
        return self.global_lr == 1

    def start(self, setting: Setting) -> ControlledModel:
        if setting.plan.momentum > 0 or setting.plan.lr == 0:
            raise CoveyError(
                "SCAFFOLD reads a client's mean gradient off K plain steps of size lr: set training.momentum = 0 "
                "and training.lr > 0"
            )
        model = setting.one_start()
        return ControlledModel(model, torch.zeros_like(model))

    def broadcast(self, state: ControlledModel, client: int) -> ControlledModel:
        return state

    def client(self, me: Client, message: ControlledModel) -> Coroutine:
        x, c = message.model, message.variate
        c_i = me.memory.get("variate")
        correction = c if c_i is None else (yield rowwise(torch.sub, c, c_i, may_wait=True))
        y = yield Train(x, me.plan, correction=correction)
        steps = me.plan.steps_for(me.samples)
        scale = -1 / (steps * me.plan.lr)
        if c_i is None:
            moved, change = yield rowwise(_changes, y, x, c, scale, may_wait=True)
            me.memory["variate"] = change
        else:
            moved, change, me.memory["variate"] = yield rowwise(_changes_from, y, x, c, c_i, scale, may_wait=True)
        return ControlledChange(moved, change)

    def aggregate(self, server: Server, state: ControlledModel, replies: Iterator[tuple[int, Any]]) -> ControlledModel:
        nothing = torch.zeros(2, len(state.model), device=state.model.device)
        average = averages(self.aggregation, nothing, self.min_group)
        for _, reply in replies:
            average.add(0, reply.model)
            average.add(1, reply.variate)
        x_change, c_change = average.means(nothing)
        share = average.weights[0] / server.setting.clients  # |S| / N
        return ControlledModel(state.model + self.global_lr * x_change, state.variate + share * c_change)

    def blocks(self, setting: Setting) -> int:
        return 2

    def contribution(self, me: Client, message: ControlledModel, reply: ControlledChange) -> Contribution:
        """Δy, and Δc in units of a model's move, so that one bound fits both."""
        return Contribution({0: reply.model, 1: reply.variate * _reach(me.setting)})

    def moved(self, setting: Setting, state: ControlledModel, means: Tensor, share: float) -> ControlledModel:
        variate = state.variate + share / _reach(setting) * means[1]
        return ControlledModel(state.model + self.global_lr * means[0], variate)

    def use(self, me: Client, message: ControlledModel) -> Coroutine:
        return use_model(me, message)


def _reach(setting: Setting) -> float:
    """How far about so many steps take a model, known to everybody: of a client's own number of steps nothing shows."""
    return setting.plan.lr * max(1, setting.plan.steps or setting.plan.epochs)
