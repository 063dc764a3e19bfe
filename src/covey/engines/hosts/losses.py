"""The last losses of clients: those by which they chose a model for the evaluation of a round are asked for again when the next
one begins.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from weakref import ReferenceType, ref

from torch import Tensor


class LastLosses:
    """By who asks, one or several as one, and what they hold (`phase` of a round): of the `most` that asked last."""

    def __init__(self, phase: Callable[[int], int], most: int) -> None:
        self._phase, self._most = phase, most
        # Who takes part seldom must not keep the models of its last round alive.
        self._known: dict[tuple[Hashable, int], tuple[ReferenceType[Tensor], int, Tensor]] = {}

    def of(self, who: Hashable, round: int, models: Tensor) -> Tensor | None:
        """Those of these very models; None: they are not known."""
        known = self._known.get((who, self._phase(round)))
        if known is None or known[0]() is not models or known[1] != models._version:
            return None
        return known[2]

    def keep(self, who: Hashable, round: int, models: Tensor, losses: Tensor) -> None:
        if len(self._known) >= self._most:
            self._known.clear()
        self._known[who, self._phase(round)] = (ref(models), models._version, losses)
