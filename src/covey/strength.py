"""How strong a protection is: the option that says so, and values of it that are worth trying, from weak to strong.

A defence or an algorithm declares `strengths = (Strength("epsilon", (100.0, 10.0, 1.0), "ε of a round"),)`, and `covey audit
--frontier` sweeps each of them. The values are where figures change on small experiments; they promise nothing for another one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from covey.errors import CoveyError


@dataclass(frozen=True)
class Strength:
    option: str  # a field of the class that declares it
    grid: tuple[float, ...]  # from weak to strong
    symbol: str = ""  # as its authors write it
    words: str = ""  # what it is, in a few words


def strengths_of(kind: Any) -> tuple[Strength, ...]:
    """What a defence or an algorithm declares, or its class; CoveyError where that cannot be swept."""
    declared = getattr(kind, "strengths", ())
    name = getattr(kind, "name", getattr(kind, "__qualname__", type(kind).__qualname__))
    if not isinstance(declared, tuple) or not all(isinstance(one, Strength) for one in declared):
        raise CoveyError(f"{name} declares strengths = {declared!r}: expected a tuple of covey.strength.Strength")
    for one in declared:
        if one.option not in getattr(kind, "__dataclass_fields__", {}):
            raise CoveyError(f"{name} declares a strength '{one.option}': expected one of its own fields")
        if len(set(one.grid)) < 2 or len(set(one.grid)) < len(one.grid):
            raise CoveyError(
                f"{name}'s strength '{one.option}' has the values {one.grid}: expected two or more, each once"
            )
    return declared
