"""Calls: who is called in a round, with which message and plan. A thousand clients that get the same are one array, not tuples."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import repeat
from typing import Any, NoReturn, overload

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


class Told(Exception):
    """Somebody wants to know which client it is."""


class _Anybody:
    """In the place of a client's number: whatever reads it, compares it or looks something up by it raises."""

    def _refuse(self, *_: Any) -> NoReturn:
        raise Told

    def __getattr__(self, name: str) -> NoReturn:
        raise Told

    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = __hash__ = __bool__ = __int__ = __index__ = __float__ = (
        _refuse  # type: ignore[assignment]
    )
    __str__ = __repr__ = __format__ = __neg__ = __abs__ = __invert__ = __iter__ = __len__ = __round__ = _refuse  # type: ignore[assignment]
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __mod__ = __rmod__ = __floordiv__ = _refuse
    __rfloordiv__ = __truediv__ = __rtruediv__ = __divmod__ = __rdivmod__ = __pow__ = __rpow__ = _refuse
    __and__ = __rand__ = __or__ = __ror__ = __xor__ = __rxor__ = __lshift__ = __rlshift__ = __rshift__ = _refuse
    __rrshift__ = __getitem__ = __contains__ = __call__ = _refuse


ANYBODY: Any = _Anybody()


def of_anybody(broadcast: Callable[[Any, int], Any], state: Any) -> Any:
    """The message that clients are sent where it is the same for all of them, since nothing looks at whom it is for; None: ask
    for each. A broadcast that only asks whether the number *is* something, or of which class, would be taken for one that does not.
    """
    try:
        return broadcast(state, ANYBODY)
    except Exception:  # Told, or what came of it; a fault of the broadcast comes again when it is asked for each
        return None
