"""One message for all clients is asked for once, and only where its broadcast hands on what the state holds."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

from covey.algorithms import ALGORITHMS
from covey.algorithms.contract import declaration
from covey.engines.calls import Alike, is_for_all
from covey.learn.work import Plan

STATE = ["one", "two"]
LOG: list[Any] = []


class Plain:
    def broadcast(self, state: Any, client: int) -> Any:
        return state


class Held(Plain):
    def broadcast(self, state: Any, client: int) -> Any:
        return state.held.sent


def inner(state: Any, client: int) -> Any:
    def ask() -> int:
        return client

    return ask


def swallowing(state: Any, client: int) -> Any:
    try:
        return state[client % 2]
    except Exception:
        return state


@pytest.mark.parametrize(
    "broadcast",
    [
        lambda self, state, client: state[client],
        lambda self, state, client: state if client == 3 else None,
        lambda self, state, client: state if client is not None else None,
        lambda self, state, client: state if isinstance(client, str) else None,
        lambda self, state, client: (state, client),
        lambda self, state, client: f"{client}",
        lambda self, state, client: LOG.append(client) or state,  # type: ignore[func-returns-value]
        lambda self, state, client: LOG.append(1) or state,  # type: ignore[func-returns-value]
        lambda self, state, client: state.noisy(),
        lambda self, state, client: LOG,
        lambda self, *given: given[0],
        lambda self, state, client=0: client,
        lambda self, state, client: swallowing(state, client),
        lambda self, state, client: inner(state, client),
        lambda self, state, client: locals()["client"],
    ],
)
def test_a_broadcast_that_does_more_than_hand_on_is_asked_for_each(broadcast: Callable[..., Any]) -> None:
    kind = type("Own", (), {"broadcast": broadcast})
    assert not is_for_all(kind().broadcast)


def test_one_that_hands_on_what_the_state_holds_is_asked_once() -> None:
    assert is_for_all(Plain().broadcast)
    assert is_for_all(Held().broadcast)
    assert not is_for_all(partial(Plain().broadcast))  # nobody knows its text
    assert not is_for_all(lambda state, client: state)


def test_every_algorithm_of_ours_that_reads_in_rows_is_asked_once() -> None:
    """Else a round on a GPU calls it a thousand times."""
    assert all(is_for_all(kind().broadcast) for kind in ALGORITHMS.values() if declaration(kind).in_rows)


def test_calls_alike_are_a_sequence_of_calls() -> None:
    plan = Plan()
    calls = Alike(np.array([3, 5, 8]), STATE, plan)
    assert list(calls) == [(3, STATE, plan), (5, STATE, plan), (8, STATE, plan)]
    assert calls[1] == (5, STATE, plan)
    assert type(calls[1][0]) is int
    assert list(calls[1:]) == [(5, STATE, plan), (8, STATE, plan)]
    assert len(calls[3:]) == 0
