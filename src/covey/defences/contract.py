"""What a defence is: a change to one training request of one client, with its spend on record.

    train(me, work)    coroutine: yields the (changed) Train and any further work, returns the protected model

It may declare a `label` (the name as its authors write it) and `measures` (what it notes with `me.note`, and how to show it).

`defend` threads it through a client's coroutine; everything but training passes through untouched. So what an algorithm
sends beside a trained model (a cluster choice, a sample count) is not protected by any of them: the ledger says so.
"""

from __future__ import annotations

from typing import Protocol

from covey.algorithms.contract import Client, Coroutine
from covey.algorithms.coroutines import in_step
from covey.learn.work import Train, Work
from covey.measures import NOISE, Measure

CLIPPING = Measure(
    "Clipping bound", "norm", "Largest norm of one contribution; longer ones are scaled down to it.", NOISE
)
NOISE_NORM = Measure("Noise", "norm", "Norm of the noise that a client adds in a round, mean over clients.", NOISE)


class Defence(Protocol):
    @property
    def name(self) -> str: ...
    def train(self, me: Client, work: Train) -> Coroutine: ...


def defend(defence: Defence | None, me: Client, coroutine: Coroutine) -> Coroutine:
    """The same client, its training protected."""
    if defence is None:
        return coroutine
    return _defended(defence, me, coroutine)


def _defended(defence: Defence, me: Client, coroutine: Coroutine) -> Coroutine:
    answer = None
    while True:
        try:
            request = coroutine.send(answer)
        except StopIteration as stop:
            return stop.value
        if isinstance(request, list):
            answer = yield from in_step([_protected(defence, me, work) for work in request])
        else:
            answer = yield from _protected(defence, me, request)


def _protected(defence: Defence, me: Client, work: Work) -> Coroutine:
    if isinstance(work, Train):
        return (yield from defence.train(me, work))
    return (yield work)
