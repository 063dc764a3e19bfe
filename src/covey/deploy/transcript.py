"""The transcript: one line per message that a party saw, without its content."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from covey.files import append_line
from covey.messages import encode


def line(round: int, sender: str, receiver: str, message: Any) -> dict[str, Any]:
    """Who sent whom what kind of message, how long, and its digest."""
    data = encode(message)
    return {
        "round": round,
        "from": sender,
        "to": receiver,
        "kind": type(message).__name__,
        "bytes": len(data),
        "sha256": hashlib.sha256(data).hexdigest(),
    }


class Transcript:
    def __init__(self, path: Path) -> None:
        self.path = path

    def add(self, round: int, sender: str, receiver: str, message: Any) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        append_line(self.path, line(round, sender, receiver, message))
