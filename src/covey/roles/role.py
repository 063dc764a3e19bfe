"""What every role is: words for it, and a check of the field that has it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from covey.errors import CoveyError

LARGEST_COUNT = 10**12


@dataclass(frozen=True)
class Bounds:
    """What a field is measured by: the sizes that everyone agreed on, and how its checker looks at what is not plain."""

    clients: int
    clusters: int
    weights: int  # d
    sealed: Callable[[bytes, int], None]  # refuses bytes that do not seal one vector of so many numbers under our keys
    part: Callable[[Any], None]  # refuses a message inside a message that may not stand there


def _nothing_sealed(sealed: bytes, length: int) -> None:
    raise CoveyError("is sealed, and no key was agreed on")


def _nothing_inside(part: Any) -> None:
    raise CoveyError(f"holds a {type(part).__name__}, and nothing may stand there")


NOTHING_AGREED = Bounds(
    0, 0, 0, _nothing_sealed, _nothing_inside
)  # for messages whose fields need no sizes to be checked


class Role:
    """What one field carries. `words` end the sentence "a message with …"."""

    words: ClassVar[str]

    def check(self, value: Any, bounds: Bounds) -> None:
        """Refuses, with a CoveyError that continues the field's name, what an honest sender cannot have sent."""
        refuse_infinite(value)

    def numbers(self, bounds: Bounds) -> int:
        """How many numbers it takes inside a sealed vector."""
        raise CoveyError(f"{self.words} cannot stand in a sealed vector")


def refuse_infinite(value: Any) -> None:
    """All that can be said of a value without a role: its numbers are numbers."""
    if isinstance(value, Tensor):
        bad = value.is_floating_point() and not bool(torch.isfinite(value).all())
    else:
        bad = isinstance(value, float) and not math.isfinite(value)
    if bad:
        raise CoveyError("holds a number that is infinite or none")
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    for one in inner or getattr(value, "__dict__", {}).values():
        refuse_infinite(one)


def check_floats(value: Any, shape: tuple[int, ...]) -> None:
    if not isinstance(value, Tensor) or value.dtype != torch.float32:
        raise CoveyError(f"is a {getattr(value, 'dtype', type(value).__name__)}, expected float32 numbers")
    if tuple(value.shape) != shape:
        raise CoveyError(f"has the shape {list(value.shape)}, expected {list(shape)}")
    if not bool(torch.isfinite(value).all()):
        raise CoveyError("holds a number that is infinite or none")
