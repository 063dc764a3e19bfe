"""Clients whose work can be done by hand: a sample x has the loss curvature/2 · ‖θ − x‖², and a step takes all samples."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from covey.algorithms.contract import Client, Server, Setting
from covey.learn.work import Compute, Logits, Losses, Plan, SampleLosses, Train


@dataclass(frozen=True)
class Quadratic:
    points: Tensor  # [n, d]
    curvature: float = 1.0

    def answer(self, work: Any) -> Any:
        if isinstance(work, list):
            return [self.answer(one) for one in work]
        if isinstance(work, Train):
            return self.train(work)
        losses = self.curvature / 2 * ((work.models[:, None] - self.points) ** 2).sum(2)  # [k, n]
        assert isinstance(work, Losses | SampleLosses)
        return losses if isinstance(work, SampleLosses) else losses.mean(1)

    def train(self, work: Train) -> Tensor:
        model = work.start
        anchor = work.start if work.anchor is None else work.anchor
        points = self.points if work.on is None else self.points[work.on]
        weights = torch.ones(len(points)) if work.weights is None else work.weights
        for _ in range(work.plan.steps_for(len(points))):
            gradient = (weights[:, None] * self.curvature * (model - points)).mean(0)
            gradient = gradient + work.plan.proximal * (model - anchor)
            if work.correction is not None:
                gradient = gradient + work.correction
            moved = model - work.plan.lr * gradient
            model = moved if work.moves is None else torch.where(work.moves, moved, model)
        return model


def on_a_line(*values: float, curvature: float = 1.0) -> Quadratic:
    """A client whose samples are numbers; its model has one parameter."""
    return Quadratic(torch.tensor(values)[:, None], curvature)


@dataclass
class Bench:
    """An algorithm and its clients, one round at a time. `asked` holds what each client requested in the last round."""

    algorithm: Any
    clients: Sequence[Quadratic]
    start: Any  # [k, d]
    plan: Plan
    personal: Any = None
    memories: dict[int, dict[str, Any]] = field(default_factory=dict)
    asked: dict[int, list[Any]] = field(default_factory=dict)
    notes: dict[int, dict[str, Any]] = field(default_factory=dict)
    replies: dict[int, Any] = field(default_factory=dict)
    rounds: int = 0

    def __post_init__(self) -> None:
        start = torch.tensor(self.start, dtype=torch.float32)
        mask = torch.ones(start.shape[1], dtype=torch.bool) if self.personal is None else torch.tensor(self.personal)
        self.setting = Setting(0, len(self.clients), len(start), 10, self.plan, start, mask)
        self.state = self.algorithm.start(self.setting)

    def me(self, i: int, memory: dict[str, Any]) -> Client:
        samples = len(self.clients[i].points)
        return Client(i, self.rounds, 0, samples, self.plan, self.setting, memory, {}, data=lambda: None)  # type: ignore

    def round(self, *present: int) -> Any:
        """One round of these clients, of all without a name; returns the new state."""
        self.rounds += 1
        self.asked, self.notes, self.replies = {}, {}, {}
        for i in present or range(len(self.clients)):
            memory = dict(self.memories.get(i, {}))
            me = self.me(i, memory)
            self.asked[i], self.replies[i] = self.advance(
                i, self.algorithm.client(me, self.algorithm.broadcast(self.state, i))
            )
            self.notes[i] = me.notes
            if memory:
                self.memories[i] = memory
        server = Server(self.rounds, 0, self.setting, {}, lambda *_: None, lambda _: nullcontext())
        self.state = self.algorithm.aggregate(server, self.state, iter(self.replies.items()))
        return self.state

    def use(self, i: int) -> Any:
        """What client i would predict with now."""
        me = self.me(i, dict(self.memories.get(i, {})))
        return self.advance(i, self.algorithm.use(me, self.algorithm.broadcast(self.state, i)))[1]

    def advance(self, i: int, coroutine: Any) -> tuple[list[Any], Any]:
        asked, answer = [], None
        while True:
            try:
                work = coroutine.send(answer)
            except StopIteration as stop:
                return asked, stop.value
            if isinstance(work, Compute) and work.rowwise:
                answer = work.function(*work.arguments)
            else:
                asked.append(work)
                answer = self.clients[i].answer(work)


@dataclass
class Seen(Bench):
    """Clients whose samples and labels their algorithm looks at."""

    labels: Sequence[Sequence[int]] = ()

    def me(self, i: int, memory: dict[str, Any]) -> Client:
        points = self.clients[i].points
        labels = torch.tensor(self.labels[i]) if self.labels else torch.zeros(len(points), dtype=torch.int64)
        return replace(super().me(i, memory), data=lambda: (points, labels))

    def advance(self, i: int, coroutine: Any) -> tuple[list[Any], Any]:
        asked, answer = [], None
        while True:
            try:
                work = coroutine.send(answer)
            except StopIteration as stop:
                return asked, stop.value
            asked.append(work)
            if isinstance(work, Compute):
                answer = work.function(*work.arguments)
            elif isinstance(work, Logits):
                answer = self.clients[i].points[None].expand(len(work.models), -1, -1)  # a model says the sample itself
            else:
                answer = self.clients[i].answer(work)


def steps(count: int, lr: float = 0.5) -> Plan:
    """This many full-batch steps."""
    return Plan(lr=lr, steps=count, batch_size=0)
