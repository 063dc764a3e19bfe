"""What a defence is: a change to one training request of one client, with its spend on record.

    train(me, work)    coroutine: yields the (changed) Train and any further work, returns the protected model

`defend` threads it through a client's coroutine; everything but training passes through untouched.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, Protocol

from covey.algorithms.contract import Client, Coroutine
from covey.learn.work import Train, Work


class Defence(Protocol):
    @property
    def name(self) -> str: ...
    def train(self, me: Client, work: Train) -> Coroutine: ...


def defend(defence: Defence | None, me: Client, coroutine: Coroutine) -> Coroutine:
    """The same client, its training protected."""
    if defence is None:
        return coroutine
    return _defended(defence, me, coroutine)


def _defended(defence: Defence, me: Client, coroutine: Coroutine) -> Generator[Work | list[Work], Any, Any]:
    answer = None
    while True:
        try:
            request = coroutine.send(answer)
        except StopIteration as stop:
            return stop.value
        if isinstance(request, list):
            answer = []
            for work in request:
                answer.append((yield from defence.train(me, work)) if isinstance(work, Train) else (yield work))
        elif isinstance(request, Train):
            answer = yield from defence.train(me, request)
        else:
            answer = yield request
