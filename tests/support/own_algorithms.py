"""Algorithms outside the registry, in a module that other processes can import."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from covey.algorithms.ifca import IFCA


@dataclass(frozen=True)
class Mine(IFCA):
    """An algorithm outside the registry, in a module that workers can import."""

    name: ClassVar[str] = "mine"

    extra: float = 0.5


@dataclass(frozen=True)
class Odd(IFCA):
    """With a field that may hold what cannot cross the wire."""

    start_at: Any = None
