"""Calls: who is called in a round, with which message and plan. A thousand clients that get the same are one array, not tuples."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import repeat
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


def heterogeneous(plan: Plan, share: float) -> Plan:
    """E_i = d_i E_m, at least one epoch (or step)."""
    if plan.steps:
        return plan.but(steps=max(1, round(plan.steps * share)))
    return plan.but(epochs=max(1, round(plan.epochs * share)))
