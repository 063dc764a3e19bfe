"""Waiting in tests: for something to become true, never for a guessed time."""

from __future__ import annotations

import time
from collections.abc import Callable

PATIENCE = 300.0  # seconds: what hangs fails, what a busy machine delays does not


def until(condition: Callable[[], object], what: Callable[[], object] = lambda: "") -> None:
    """Returns when the condition holds; `what` says what there was instead when it never did."""
    limit = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < limit, f"after {PATIENCE:.0f} s: {what()}"
        time.sleep(0.05)
