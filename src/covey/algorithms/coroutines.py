"""Coroutines of clients, begun, changed or joined: one text of an algorithm under a defence, on part of its data, or several."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from covey.algorithms.contract import Client, Coroutine
from covey.errors import CoveyError
from covey.learn.work import Work


def begun(method: Callable[[Client, Any], Coroutine], me: Client, message: Any) -> Coroutine:
    """A client's turn, if the method is a coroutine."""
    turn = method(me, message)
    if not hasattr(turn, "send"):
        raise CoveyError(
            f"{getattr(method, '__qualname__', method)} gave a {type(turn).__name__} at once: it must be a coroutine, and a "
            "`yield` in it makes it one, also after its `return`, where nothing is asked for"
        )
    return turn


def with_work(coroutine: Coroutine, change: Callable[[Work], Work]) -> Coroutine:
    """The same coroutine, with every work that it asks for changed on the way."""
    answer: Any = None
    while True:
        try:
            request = coroutine.send(answer)
        except StopIteration as stop:
            return stop.value
        answer = yield [change(work) for work in request] if isinstance(request, list) else change(request)


def in_step(turns: Sequence[Coroutine]) -> Coroutine:
    """Several coroutines as one: what they ask for at the same step goes out as one list.

    A machine computes the list as one batch, and work keeps the position, hence the randomness, that it has undefended.
    """
    done: list[Any] = [None] * len(turns)
    answers: dict[int, Any] = dict.fromkeys(range(len(turns)))
    while True:
        asked: dict[int, Work | list[Work]] = {}
        for i, answer in answers.items():
            try:
                asked[i] = turns[i].send(answer)
            except StopIteration as stop:
                done[i] = stop.value
        if not asked:
            return done
        flat: list[Work] = []
        for request in asked.values():
            flat.extend(request if isinstance(request, list) else [request])
        results = iter((yield flat))
        answers = {
            i: [next(results) for _ in request] if isinstance(request, list) else next(results)
            for i, request in asked.items()
        }
