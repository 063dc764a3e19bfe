"""SCAFFOLD: Karimireddy et al., SCAFFOLD: Stochastic Controlled Averaging for Federated Learning, ICML 2020.

    client i:  K steps  y ← y − η (g_i(y) − c_i + c)  from y = x
               c_i⁺ = c_i − c + (x − y) / (K η)                      (option II)
               sends Δy = y − x and K η
    server:    Δc = c_i⁺ − c_i = −c − Δy / (K η)
               x ← x + η_g · mean Δy,   c ← c + |S| / N · mean Δc

The paper's clients send Δc, too. It follows from what the server has, so here they do not: an upload is half as long. A client's
variate c_i lives in its own memory and is zero, without taking any, until it first takes part. Option I (c_i⁺ is the gradient at x)
is left out: it would send a gradient that no defence has seen.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from covey import roles
from covey.algorithms.averaging import Averages, use_model
from covey.algorithms.contract import Client, Coroutine, Messages, Server, Setting
from covey.algorithms.robust.averages import averages, check_aggregation, check_group
from covey.algorithms.sums.contributions import Contribution
from covey.config import later
from covey.errors import CoveyError
from covey.learn.work import Train, rowwise
from covey.messages import message

LARGEST = torch.finfo(torch.float32).max
READS = "SCAFFOLD reads a client's mean gradient off K plain steps of size lr"


@message
@dataclass(frozen=True)
class ControlledModel:
    model: Annotated[Tensor, roles.Model]  # [d] x
    variate: Annotated[Tensor, roles.Change]  # [d] c


@message
@dataclass(frozen=True)
class ControlledChange:
    model: Annotated[Tensor, roles.Change]  # [d] Δy
    reach: Annotated[float, roles.Reach]  # K η

    def reference(self, sent: ControlledModel) -> Tensor:
        """Δy where Δc = 0: what compression leaves out of Δy changes no variate."""
        return sent.variate * -self.reach


def _first(y: Tensor, x: Tensor, c: Tensor, scale: Tensor | float) -> tuple[Tensor, Tensor]:
    """Δy, and c_i⁺ of a client that had none, with scale = −1 / (K η)."""
    moved = y - x
    return moved, (moved * scale).sub_(c)


def _next(y: Tensor, x: Tensor, c: Tensor, c_i: Tensor, scale: Tensor | float) -> tuple[Tensor, Tensor]:
    """Δy and c_i⁺."""
    moved, change = _first(y, x, c, scale)
    return moved, change.add_(c_i)


def _variate_change(moved: Tensor, reach: Any, c: Tensor) -> Tensor:
    """Δc of one client, or of many in rows; finite, whatever reach somebody claims."""
    rows = torch.from_numpy(reach).to(moved)[:, None] if isinstance(reach, np.ndarray) else reach
    return (-c - moved / rows).clamp_(-LARGEST, LARGEST)


class Changes:
    """The means of Δy and of Δc over clients. For a mean sums of Δy and of Δy / (K η) are enough, and one of them where all took as
    many steps; a rule that compares clients gets each one's Δc.
    """

    def __init__(self, c: Tensor, aggregation: str, least: int) -> None:
        self._c, self._usual = c, 0.0
        self._nothing = torch.zeros(2, len(c), device=c.device)
        self._average = averages(aggregation, self._nothing, least)

    @property
    def clients(self) -> int:
        return self._average.counts[0]

    def add(self, moved: Tensor, reach: Any) -> None:
        self._average.add(0, moved)
        if not isinstance(self._average, Averages):
            self._average.add(1, _variate_change(moved, reach, self._c))
            return
        self._usual = self._usual or float(np.ravel(reach)[0])
        further = 1 / reach - 1 / self._usual
        if np.any(further):
            self._average.add(1, moved, further)

    def means(self) -> tuple[Tensor, Tensor]:
        """[d] each."""
        if not isinstance(self._average, Averages):
            moved, change = self._average.means(self._nothing)
            return moved, change
        moves, further = self._average.sums / self.clients
        change = -self._c - (moves / self._usual + further)
        return moves.float(), change.clamp_(-LARGEST, LARGEST).float()


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
        if setting.plan.momentum > 0:
            raise CoveyError(f"{READS}: set training.momentum = 0")
        _check_rate(setting.plan.lr)
        model = setting.one_start()
        return ControlledModel(model, torch.zeros_like(model))

    def broadcast(self, state: ControlledModel, client: int) -> ControlledModel:
        return state

    def client(self, me: Client, message: ControlledModel) -> Coroutine:
        x, c = message.model, message.variate
        c_i = me.memory.get("variate")
        correction = c if c_i is None else (yield rowwise(torch.sub, c, c_i, may_wait=True))
        _check_rate(me.plan.lr)
        y = yield Train(x, me.plan, correction=correction)
        reach = me.plan.steps_for(me.samples) * me.plan.lr
        scale = -1 / reach
        if c_i is None:
            moved, variate = yield rowwise(_first, y, x, c, scale, may_wait=True)
        else:
            moved, variate = yield rowwise(_next, y, x, c, c_i, scale, may_wait=True)
        me.memory["variate"] = variate
        return ControlledChange(moved, reach)

    def aggregate(self, server: Server, state: ControlledModel, replies: Iterator[tuple[int, Any]]) -> ControlledModel:
        changes = Changes(state.variate, self.aggregation, self.min_group)
        for _, reply in replies:
            changes.add(reply.model, reply.reach)
        if changes.clients < self.min_group:
            return state  # nobody, or too few, answered
        x_change, c_change = changes.means()
        share = changes.clients / server.setting.clients  # |S| / N
        return ControlledModel(state.model + self.global_lr * x_change, state.variate + share * c_change)

    def blocks(self, setting: Setting) -> int:
        return 2

    def contribution(self, me: Client, message: ControlledModel, reply: ControlledChange) -> Contribution:
        """Δy, and Δc in units of a model's move, so that one bound fits both."""
        change = _variate_change(reply.model, reply.reach, message.variate)
        return Contribution({0: reply.model, 1: change * _reach(me.setting)})

    def moved(self, setting: Setting, state: ControlledModel, means: Tensor, share: float) -> ControlledModel:
        variate = state.variate + share / _reach(setting) * means[1]
        return ControlledModel(state.model + self.global_lr * means[0], variate)

    def use(self, me: Client, message: ControlledModel) -> Coroutine:
        return use_model(me, message)


def _check_rate(lr: float) -> None:
    if lr == 0:
        raise CoveyError(f"{READS}: set training.lr > 0, and no schedule that ends at 0 (training.lr_drop)")


def _reach(setting: Setting) -> float:
    """How far about so many steps take a model, known to everybody."""
    return setting.plan.lr * max(1, setting.plan.steps or setting.plan.epochs)
