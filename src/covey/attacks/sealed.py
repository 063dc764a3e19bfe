"""Where things stand inside a sealed vector, as its message's field declares it: for attackers who can open it."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import accumulate
from typing import Any

from covey import roles
from covey.algorithms.contract import Setting


def places(role: roles.Sealed, setting: Setting) -> Mapping[type[roles.Role], slice]:
    """What is inside -> its numbers."""
    bounds = roles.Bounds(setting.clients, setting.clusters, setting.start.shape[1], _unchecked, _unchecked)
    ends = [0, *accumulate(kind().numbers(bounds) for kind in role.inside)]
    return {kind: slice(*ends[n : n + 2]) for n, kind in enumerate(role.inside)}


def _unchecked(*value: Any) -> None:
    """Sizes are asked for here, nothing is admitted."""
