"""What a defence is: a change to one training request of one client, with its spend on record.

    train(me, work)    coroutine: yields the (changed) Train and any further work, returns the protected model

A defence of whole clients also has

    around(algorithm, terms)    -> what runs in the algorithm's place: it changes what clients send and how it is summed
    choose(me, losses)          -> the cluster that a client takes part in, where the algorithm asks `me.choose`

It may declare a `label` (the name as its authors write it), `measures` (what it notes with `me.note`, and how to show it) and
`clips_samples` (each step bounds single samples' gradients: a CPU then compiles nothing for steps that do not).

`defend` threads it through a client's coroutine; everything but training passes through untouched. So what an algorithm
sends beside a trained model (a cluster choice, a sample count) is not protected by any of them: the ledger says so.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from covey.algorithms.contract import Client, Coroutine
from covey.algorithms.coroutines import in_step
from covey.learn.work import Train, Work
from covey.measures import NOISE, Measure

CLIPPING = Measure(
    "Clipping bound", "norm", "Largest norm of one contribution; longer ones are scaled down to it.", NOISE
)
NOISE_NORM = Measure("Noise", "norm", "Norm of the noise that a client adds in a round, mean over clients.", NOISE)


@dataclass(frozen=True)
class Terms:
    """What a run is, before it begins, as far as a guarantee over the whole of it depends on that."""

    clients: int
    clusters: int
    rounds: int
    share: float = 1.0  # of the clients that are in a round …
    sampling: str = "fixed"  # … and how they are drawn: `experiment.participation`
    encryption: str = "none"
    stops_early: bool = False  # by an accuracy that nothing protects


def protected(defence: Any, algorithm: Any, terms: Terms) -> Any:
    """What runs: the algorithm, or what the defence puts around it."""
    bare = getattr(algorithm, "stands_for", algorithm)
    around = getattr(defence, "around", None)
    return around(bare, terms) if around else bare


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
