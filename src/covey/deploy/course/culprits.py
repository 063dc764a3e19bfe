"""Replies that passed every check and on which the algorithm breaks nevertheless: whose they are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from covey import roles
from covey.errors import CoveyError

BREAKS, REFUSES, GOES_ON = "breaks", "refuses", "goes on"


def culprits(senders: list[int], attempt: Callable[[Sequence[int]], Any]) -> list[int]:
    """Those on whose reply alone the attempt breaks, if it goes on without them; else one without whom it does; else nobody.

    What the algorithm refuses in words, such as too few replies, tells nothing of those that are in it.
    """
    alone = [i for i in senders if _outcome(attempt, [i]) == BREAKS]
    if 0 < len(alone) < len(senders) and _outcome(attempt, [i for i in senders if i not in alone]) == GOES_ON:
        return alone
    others = {i: [j for j in senders if j != i] for i in senders}
    return next(([i] for i in senders if others[i] and _outcome(attempt, others[i]) == GOES_ON), [])


def _outcome(attempt: Callable[[Sequence[int]], Any], senders: list[int]) -> str:
    try:
        attempt(senders)
    except CoveyError:
        return REFUSES
    except Exception:
        return BREAKS
    return GOES_ON


def is_finite(state: Any) -> bool:
    try:
        roles.refuse_infinite(state)
    except CoveyError:
        return False
    return True
