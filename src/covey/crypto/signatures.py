"""Signed messages: who sent this, for what, in which round, when, and that it is not an old one again.

Ed25519 over canonical bytes: a fixed first line, then every field with its length before it, so that no two messages
have the same bytes and no signature made for one purpose counts for another. The payload enters as its SHA-256.

A verifier refuses, in this order: fields of the wrong kind, unknown senders, wrong signatures, another purpose or round,
messages that are too old or too far in the future, and nonces it has seen. It remembers nonces only as long as their messages
are fresh enough to pass, and never accepts a timestamp from before the last thing it forgot, even if its clock is set back.
"""

from __future__ import annotations

import hashlib
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any

from covey import roles
from covey.errors import CoveyError
from covey.messages import message

if TYPE_CHECKING:  # envelopes also pass where nothing is signed, and there `cryptography` is not needed
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

_DOMAIN = b"covey signed message 1\n"
_NONCE = 16


@message
@dataclass(frozen=True)
class Envelope:
    """A payload with what its sender vouches for."""

    sender: Annotated[str, roles.Plain(str)]
    purpose: Annotated[str, roles.Plain(str)]  # what the message is, e.g. "fedcaprivacy/upload"
    round: Annotated[int, roles.Plain(int)]
    timestamp: Annotated[int, roles.Plain(int)]  # milliseconds since 1970, by the sender's clock
    nonce: Annotated[bytes, roles.Plain(bytes)]
    payload: Annotated[bytes, roles.Payload]
    signature: Annotated[bytes, roles.Plain(bytes)]  # empty where a protocol runs in the clear, without keys


def canonical(sender: str, purpose: str, round: int, timestamp: int, nonce: bytes, payload: bytes) -> bytes:
    """The bytes that are signed."""
    fields = (
        sender.encode(),
        purpose.encode(),
        round.to_bytes(8, "big"),
        timestamp.to_bytes(8, "big"),
        nonce,
        hashlib.sha256(payload).digest(),
    )
    return _DOMAIN + b"".join(len(part).to_bytes(4, "big") + part for part in fields)


@dataclass(frozen=True)
class Signer:
    """One sender and its secret key of 32 bytes."""

    sender: str
    secret: bytes = field(repr=False)
    clock: Callable[[], float] = field(default=time.time, repr=False)

    def __post_init__(self) -> None:
        if len(self.secret) != 32:
            raise CoveyError(f"an Ed25519 secret key has 32 bytes, found {len(self.secret)}; load the raw key")

    @classmethod
    def generate(cls, sender: str, clock: Callable[[], float] = time.time) -> Signer:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        return cls(sender, Ed25519PrivateKey.generate().private_bytes_raw(), clock)

    @property
    def public(self) -> bytes:
        """32 bytes to hand to every verifier."""
        return self._key().public_key().public_bytes_raw()

    def sign(self, payload: bytes, purpose: str, round: int) -> Envelope:
        timestamp, nonce = int(self.clock() * 1000), secrets.token_bytes(_NONCE)
        content = canonical(self.sender, purpose, round, timestamp, nonce, payload)
        return Envelope(self.sender, purpose, round, timestamp, nonce, payload, self._key().sign(content))

    def _key(self) -> Ed25519PrivateKey:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        return Ed25519PrivateKey.from_private_bytes(self.secret)


@dataclass
class Verifier:
    """The senders a party knows, and the messages it has accepted lately.

    `seen` (nonce to timestamp, per sender) and `horizon` are its whole memory: `state()` gives them as a plain dict,
    `restore()` takes them back, so that a restart opens no door to replays.
    """

    keys: Mapping[str, bytes]  # sender -> public key
    max_age: float = 300.0  # seconds
    max_ahead: float = 30.0  # seconds: clocks differ
    clock: Callable[[], float] = time.time
    seen: dict[str, dict[str, int]] = field(default_factory=dict)
    horizon: int = 0  # milliseconds; nothing from before is ever accepted, since its nonces are forgotten

    def accept(self, signed: Envelope, purpose: str, round: int) -> bytes:
        """The payload, or a CoveyError that says why not. Only an accepted message changes the memory."""
        now = int(self.clock() * 1000)
        self._check_signature(signed)
        if signed.purpose != purpose or signed.round != round:
            raise CoveyError(
                f"'{signed.sender}' signed this for {signed.purpose!r} in round {signed.round}, "
                f"expected {purpose!r} in round {round}; drop it and ask again"
            )
        oldest = max(now - int(self.max_age * 1000), self.horizon)
        if signed.timestamp < oldest:
            raise CoveyError(
                f"the message of '{signed.sender}' is {(now - signed.timestamp) / 1000:.0f} s old and too stale, "
                f"{self.max_age:.0f} s are allowed; ask for a fresh one or set the clocks"
            )
        if signed.timestamp > now + int(self.max_ahead * 1000):
            raise CoveyError(
                f"the message of '{signed.sender}' is dated {(signed.timestamp - now) / 1000:.0f} s in the future, "
                f"{self.max_ahead:.0f} s are allowed; set the clocks"
            )
        if signed.nonce.hex() in self.seen.get(signed.sender, {}):
            raise CoveyError(f"the message of '{signed.sender}' was accepted before: a replay; drop it")
        self._forget_before(oldest)
        self.seen.setdefault(signed.sender, {})[signed.nonce.hex()] = signed.timestamp
        return signed.payload

    def _check_signature(self, signed: Envelope) -> None:
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

        roles.check(signed, roles.NOTHING_AGREED)
        if signed.sender not in self.keys:
            raise CoveyError(f"unknown sender '{signed.sender}'; register its public key first")
        wrong = CoveyError(
            f"the signature of '{signed.sender}' does not fit: altered on the way, or signed by somebody else"
        )
        if len(signed.nonce) != _NONCE or not (0 <= signed.round < 2**63 and 0 <= signed.timestamp < 2**63):
            raise wrong
        try:
            content = canonical(
                signed.sender, signed.purpose, signed.round, signed.timestamp, signed.nonce, signed.payload
            )
            Ed25519PublicKey.from_public_bytes(self.keys[signed.sender]).verify(signed.signature, content)
        except (InvalidSignature, ValueError):
            raise wrong from None

    def _forget_before(self, oldest: int) -> None:
        self.horizon = oldest
        kept = {
            sender: {nonce: t for nonce, t in nonces.items() if t >= oldest} for sender, nonces in self.seen.items()
        }
        self.seen = {sender: nonces for sender, nonces in kept.items() if nonces}

    def state(self) -> dict[str, Any]:
        return {"horizon": self.horizon, "seen": {sender: dict(nonces) for sender, nonces in self.seen.items()}}

    def restore(self, state: Mapping[str, Any]) -> None:
        self.horizon = int(state["horizon"])
        self.seen = {str(s): {str(n): int(t) for n, t in nonces.items()} for s, nonces in state["seen"].items()}
