"""Calls: who is called in a round, with which message and plan. A thousand clients that get the same are one array, not tuples."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dis import get_instructions
from functools import cache
from itertools import repeat
from types import CodeType, FunctionType
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from covey.learn.work import Plan

Call = tuple[int, Any, Plan]  # client, message, plan


class Alike(Sequence[Call]):
    """The calls of clients that all get one message and one plan."""

    def __init__(self, clients: NDArray[np.int64], message: Any, plan: Plan) -> None:
        self.clients, self.message, self.plan = clients, message, plan

    def __len__(self) -> int:
        return len(self.clients)

    def __iter__(self) -> Iterator[Call]:
        return zip(self.clients.tolist(), repeat(self.message), repeat(self.plan))

    @overload
    def __getitem__(self, at: int) -> Call: ...
    @overload
    def __getitem__(self, at: slice) -> Alike: ...
    def __getitem__(self, at: int | slice) -> Call | Alike:
        if isinstance(at, slice):
            return Alike(self.clients[at], self.message, self.plan)
        return (int(self.clients[at]), self.message, self.plan)


# How Python's instructions for it begin, of any version.
HANDING_ON = ("RESUME", "NOP", "LOAD_FAST", "LOAD_ATTR", "RETURN")


def is_for_all(broadcast: Callable[[Any, int], Any]) -> bool:
    """Whether a broadcast hands on what the state holds, and does nothing else: then one call serves all clients.

    By its text. One that reads the client's number, or calls anything (which may count, draw or write down what it does), is asked
    for each client.
    """
    function = getattr(broadcast, "__func__", None)  # of a method of an object: self, state, client
    return isinstance(function, FunctionType) and _hands_on(function.__code__)


@cache
def _hands_on(code: CodeType) -> bool:
    if code.co_argcount != 3:
        return False
    client = code.co_varnames[2]
    return all(
        one.opname.startswith(HANDING_ON) and client not in one.argrepr.replace(",", " ").split()
        for one in get_instructions(code)
    )
