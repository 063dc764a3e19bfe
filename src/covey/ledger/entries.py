"""What every statement of the ledger has in common: its fields, and how figures and the origin of noise are put."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from covey.ledger.events import CLIENT, RECORD, Event

Entry = dict[str, Any]
EXACT = "exact for Gaussian noise"
KEYED = "keyed: reproducible, not secret"
SECRET = "secret: from the operating system, by an exact discrete sampler"
FORESEEN = "the noise is keyed by a seed, so it can be repeated, and taken off by whoever finds the key: a deployment's is secret"


def entry_of(
    clients: Mapping[int, float],
    delta: float,
    *,
    caveat: list[str],
    total: Entry,
    unit: str = RECORD,
    units: Entry | None = None,
    **said: Any,
) -> Entry:
    """The fields that every mechanism has; the worst client's ε leads. One for a record is none for a client of many."""
    worst = max(clients, key=lambda client: clients[client])
    mean = sum(clients.values()) / len(clients)
    summary = {"epsilon": number_of(clients[worst]), "client": worst, "mean": number_of(mean)} | total
    sentence = "; ".join(caveat)
    return (
        {"unit": unit, "epsilon": number_of(clients[worst]), "delta": delta, "total": summary}
        | {"units": units or {RECORD: number_of(clients[worst]), CLIENT: None}}
        | said
        | {"caveat": sentence[0].upper() + sentence[1:] + "."}
    )


LARGE_DELTA = 0.01


def large_delta(delta: float) -> list[str]:
    """Where δ is so large that an ε beside it sounds better than it is."""
    if delta < LARGE_DELTA:
        return []
    return [f"a δ of {delta:.2g} is large: to show one client in {round(1 / delta)} whole, by lot, would be within it"]


def origin(events: Iterable[Event]) -> str:
    return SECRET if all(event.secret for event in events) else KEYED


def foreseen(events: Iterable[Event]) -> list[str]:
    return [] if all(event.secret for event in events) else [FORESEEN]


def number_of(value: float) -> float | None:
    """None for what is infinite: JSON has no word for it."""
    return float(value) if math.isfinite(value) else None


def say(value: float) -> str:
    return f"{value:.4g}" if math.isfinite(value) else "∞"
