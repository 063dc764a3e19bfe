"""All targets by name."""

from __future__ import annotations

from fuzz import masks, parties, readers
from fuzz.engine import Target

TARGETS: dict[str, Target] = {target.name: target for target in (*readers.TARGETS, *parties.TARGETS, *masks.TARGETS)}
