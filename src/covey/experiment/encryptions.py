"""Which encryptions an algorithm runs under: those of the family that it declares as `sealing`."""

from __future__ import annotations

from typing import Any

from covey.algorithms.contract import MASKS
from covey.crypto import blinded, openings, sealing
from covey.errors import CoveyError, nearest

PLAIN = "none"
FAMILIES = {"sums": sealing.SCHEMES, "rows": blinded.SCHEMES}
TOGETHER = openings.SCHEMES  # where clients can be asked within a round: `advise`


def known() -> tuple[str, ...]:
    """The names of all encryptions there are."""
    return tuple(dict.fromkeys([PLAIN, *(name for family in (*FAMILIES.values(), TOGETHER) for name in family)]))


def able(algorithm: Any) -> tuple[str, ...]:
    """The names of those that an algorithm (or its class) can run under; a class without `sealing` may list them itself."""
    if family := getattr(algorithm, "sealing", ""):
        together = openings.of_family(family) if hasattr(algorithm, "advise") else ()
        return (*((PLAIN,) if family == MASKS else _family(algorithm, family)), *together)
    return tuple(getattr(algorithm, "encryptions", (PLAIN,)))


def fits(algorithm: Any, encryption: str) -> bool:
    """Whether an algorithm (or its class) can run under a name, or under something of its family that is named by a path."""
    return encryption in able(algorithm) or (":" in encryption and getattr(algorithm, "sealing", "") not in ("", MASKS))


def check(algorithm: Any, encryption: str) -> None:
    """Refuses an encryption that is not there, or that the algorithm cannot use; imports one that is named by its path."""
    if not fits(algorithm, encryption):
        if ":" not in encryption and encryption not in known():
            raise CoveyError(f"unknown encryption '{encryption}'{nearest(encryption, known())}")
        names = ", ".join(able(algorithm))
        raise CoveyError(f"{algorithm.name} cannot run with encryption = '{encryption}'; it can with: {names}")
    if ":" in encryption:
        _family(algorithm, algorithm.sealing).resolve(encryption)


def _family(algorithm: Any, family: str) -> Any:
    if family not in FAMILIES:
        raise CoveyError(
            f"{algorithm.name} declares sealing = {family!r}: expected one of {', '.join([*FAMILIES, MASKS])}, or nothing"
        )
    return FAMILIES[family]
