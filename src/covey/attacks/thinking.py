"""How the work of an attack is done: on a machine of its own, over data that it really has, through the protocol's defence."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from covey.algorithms.contract import Client, Coroutine
from covey.algorithms.coroutines import in_step
from covey.attacks.contract import Knowledge
from covey.errors import CoveyError
from covey.learn.machine import Machine
from covey.learn.work import Compute, Job, Train, Work


def answered(thinking: Coroutine, machine: Machine, stream: Callable[[int, int], int]) -> Any:
    """Advances a coroutine to its end; what it returns. `stream(step, i)` is the randomness of the i-th work of a step."""
    rows = torch.arange(len(machine.samples.y))
    answer: Any = None
    step = 0
    while True:
        try:
            request = thinking.send(answer)
        except StopIteration as stop:
            return stop.value
        works = request if isinstance(request, list) else [request]
        answers: list[Any] = [w.function(*w.arguments) if isinstance(w, Compute) else None for w in works]
        asked = [i for i, w in enumerate(works) if not isinstance(w, Compute)]
        jobs = [_job(rows, stream(step, i), works[i]) for i in asked]
        for i, result in zip(asked, machine.compute(jobs) if jobs else []):
            answers[i] = result
        answer = answers if isinstance(request, list) else answers[0]
        step += 1


def _job(rows: Tensor, stream: int, work: Any) -> Job:
    """The work's choice among all rows is a client's whole data: a machine that had those before need not gather and fetch them."""
    if isinstance(work, Train) and work.on is not None and work.weights is None and work.head is None:
        return Job(work.on, stream, replace(work, on=None))
    return Job(rows, stream, work)


def defended(works: Sequence[Work], round: int, knowledge: Knowledge) -> Coroutine:
    """What simulated clients would send: the defence is part of the protocol, so simulated updates go through it as real ones."""
    defence, setting = knowledge.defence, knowledge.setting
    if defence is None:
        return (yield list(works))
    shells = [
        Client(-1 - n, round, setting.seed, len(knowledge.y), setting.plan, setting, {}, {}, data=_nothing)
        for n in range(len(works))
    ]
    return (yield from in_step([defence.train(me, work) for me, work in zip(shells, works)]))


def _nothing() -> tuple[Tensor, Tensor]:
    raise CoveyError("a simulated client has no data of its own")
