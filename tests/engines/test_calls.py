"""One message for all clients is asked for once, and only where nothing looks at whom it is for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from covey.engines.calls import Alike, of_anybody
from covey.learn.work import Plan

STATE = ["one", "two"]


def to_all(state: Any, client: int) -> Any:
    return state


@pytest.mark.parametrize(
    "broadcast",
    [
        lambda state, client: state[client],
        lambda state, client: state[client % 2],
        lambda state, client: state if client == 3 else None,
        lambda state, client: {0: state}.get(client),
        lambda state, client: state if client else None,
        lambda state, client: f"{client}",
        lambda state, client: [state] * client,
        lambda state, client: np.zeros(3)[client],
        lambda state, client: state if client in {1, 2} else None,
        lambda state, client: state if client > 0 else None,
    ],
)
def test_a_broadcast_that_looks_at_the_client_is_asked_for_each(broadcast: Callable[..., Any]) -> None:
    assert of_anybody(broadcast, STATE) is None


def test_one_that_does_not_is_asked_once() -> None:
    assert of_anybody(to_all, STATE) is STATE


def test_calls_alike_are_a_sequence_of_calls() -> None:
    plan = Plan()
    calls = Alike(np.array([3, 5, 8]), STATE, plan)
    assert list(calls) == [(3, STATE, plan), (5, STATE, plan), (8, STATE, plan)]
    assert calls[1] == (5, STATE, plan)
    assert type(calls[1][0]) is int
    assert list(calls[1:]) == [(5, STATE, plan), (8, STATE, plan)]
    assert len(calls[3:]) == 0
