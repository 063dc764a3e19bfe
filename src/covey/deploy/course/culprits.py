"""Replies that passed every check and on which the algorithm breaks nevertheless: whose they are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from covey import roles
from covey.errors import CoveyError


def culprits(senders: list[int], attempt: Callable[[Sequence[int]], Any]) -> list[int]:
    """Those on whose reply alone the attempt breaks, if that is not all; else one without whom it does not."""
    alone = [i for i in senders if _breaks(attempt, [i])]
    if 0 < len(alone) < len(senders) and not _breaks(attempt, [i for i in senders if i not in alone]):
        return alone
    return next(([i] for i in senders if len(senders) > 1 and not _breaks(attempt, [j for j in senders if j != i])), [])


def _breaks(attempt: Callable[[Sequence[int]], Any], senders: list[int]) -> bool:
    try:
        attempt(senders)
    except CoveyError:
        return False
    except Exception:
        return True
    return False


def is_finite(state: Any) -> bool:
    try:
        roles.refuse_infinite(state)
    except CoveyError:
        return False
    return True
