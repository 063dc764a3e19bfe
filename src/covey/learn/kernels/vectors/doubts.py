"""Doubts: whether trained vectors are all numbers. It is answered by any sum of them, which somebody mostly takes anyway."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from covey.errors import NotFinite


class Doubt:
    """Whether trained vectors are all numbers: NaN and infinities stay in any sum of them."""

    def __init__(self, vectors: Tensor, what: str, why: str) -> None:
        self._vectors: Tensor | None = vectors
        self._total: Tensor | None = None
        self._words = f"{what} gave values that are not finite: {why}"
        _DOUBTS[vectors] = self

    @property
    def is_answered(self) -> bool:
        return self._total is not None

    def answer(self, total: Tensor) -> None:
        """By a sum of numbers, each of which is one of these or was computed from it by +, − and ×; all of these are in it."""
        self._total, self._vectors = total, None

    def sum_up(self) -> None:
        """So that the vectors need not be kept; the device is not waited for."""
        if self._total is None:
            assert self._vectors is not None
            self.answer(self._vectors.sum())

    def check(self) -> None:
        self.sum_up()
        assert self._total is not None
        if not math.isfinite(float(self._total)):
            raise NotFinite(self._words)


_DOUBTS: Any = WeakTensorKeyDictionary()  # vectors -> Doubt


def answer(vectors: Tensor, total: Callable[[], Tensor]) -> None:
    """Answers the doubt about vectors, if there is one, by what they all went into: the first sum tells as much as another."""
    doubt = _DOUBTS.get(vectors)
    if doubt is not None and not doubt.is_answered:
        doubt.answer(total())
