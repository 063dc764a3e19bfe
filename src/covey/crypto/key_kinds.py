"""What one piece of key material is, in words that show nothing of it: for `covey keys inspect`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class KeyKind:
    what: str
    secret: bool
    opens: str = ""  # what can be decrypted with it
    public: bytes | None = None  # its public half, where there is one: the fingerprint is then the same on both sides
    guarded: bool = False  # what it opens is authenticated, so that whether it opens tells nothing of it


Describe = Callable[[Any, str], KeyKind]  # (the material, its holder's role) -> what it is

NOT_SAID = "not said by the algorithm"
NOTHING_ENCRYPTED = "everything (nothing is encrypted)"
