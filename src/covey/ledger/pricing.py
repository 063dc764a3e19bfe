"""What a run spent: its events by mechanism, each kind priced by the statement that knows it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from covey.errors import CoveyError
from covey.ledger.clients import together
from covey.ledger.events import EVERYONE, Event
from covey.ledger.statements import STATEMENTS


def price(spends: Sequence[tuple[int, int, Any]], delta: float | None = None) -> dict[str, dict[str, Any]]:
    """What a run spent, (round, client, event) each, by mechanism. `delta` overrides the δ that the events carry."""
    by_mechanism: dict[str, list[tuple[int, int, Event]]] = defaultdict(list)
    for round, client, event in spends:
        if type(event) not in STATEMENTS:
            known = ", ".join(kind.__name__ for kind in STATEMENTS)
            raise CoveyError(f"the ledger cannot price a {type(event).__name__}: it knows {known}")
        by_mechanism[event.mechanism].append((round, client, event))
    priced = {name: _entry(name, entries, delta) for name, entries in by_mechanism.items()}
    return priced | together(by_mechanism, delta)


def _entry(name: str, spends: list[tuple[int, int, Event]], delta: float | None) -> dict[str, Any]:
    kinds = {type(event) for _, _, event in spends}
    if len(kinds) > 1:
        raise CoveyError(f"mechanism '{name}' booked events of several kinds: give each kind a name of its own")
    # The weakest δ that was asked for holds for all.
    deltas = {event.delta for _, _, event in spends}
    chosen = max(deltas) if delta is None else delta
    if not 0 < chosen < 1:
        raise CoveyError(f"delta is {chosen}: a failure probability lies strictly between 0 and 1")
    histories: dict[int, list[Any]] = defaultdict(list)
    for _, client, event in spends:
        histories[client].append(event)
    entry: dict[str, Any] = STATEMENTS[kinds.pop()](histories, chosen)
    everyone = max((getattr(event, "clients", 0) for event in histories.get(EVERYONE, ())), default=0)
    return entry | {"clients": everyone or len(histories), "rounds": len({round for round, _, _ in spends})}
