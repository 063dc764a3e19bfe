"""Boxes from one client to another, carried by a server that can neither read nor alter nor redirect them.

X25519 between the two clients' own keys, HKDF-SHA256 with both public keys and the direction, ChaCha20-Poly1305 with a fresh
random nonce. What a box is about (group, round) is authenticated with it. Both ends hold the same secret, so a box proves to
its receiver that the other one made it, and to nobody else. A key that is stolen later opens the boxes that were recorded.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from functools import lru_cache

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from covey.errors import CoveyError

KEY_BYTES = 32
_NONCE = 12
OVERHEAD = _NONCE + 16  # bytes that a box is longer than what is in it
_DOMAIN = b"covey box 1\n"
_PAIR = b"covey pair 1\n"


@dataclass(frozen=True)
class BoxKey:
    """A client's own key."""

    secret: bytes = field(repr=False)

    def __post_init__(self) -> None:
        if len(self.secret) != KEY_BYTES:
            raise CoveyError(f"an X25519 key has {KEY_BYTES} bytes, found {len(self.secret)}: load the raw key")

    @classmethod
    def generate(cls) -> BoxKey:
        return cls(X25519PrivateKey.generate().private_bytes_raw())

    @property
    def public(self) -> bytes:
        return _public(self.secret)

    def seal(self, receiver: bytes, content: bytes, about: bytes) -> bytes:
        """A box for the holder of the public key `receiver`."""
        nonce = os.urandom(_NONCE)
        key = _common(self.secret, receiver, self.public + receiver)
        return nonce + ChaCha20Poly1305(key).encrypt(nonce, content, about)

    def open(self, sender: bytes, box: bytes, about: bytes) -> bytes:
        """What the holder of `sender` put in, about the same thing; else a CoveyError."""
        key = _common(self.secret, sender, sender + self.public)
        try:
            return ChaCha20Poly1305(key).decrypt(box[:_NONCE], box[_NONCE:], about)
        except (InvalidTag, ValueError):
            raise CoveyError(
                "a box does not open: altered on the way, made by somebody else, for somebody else or for another round"
            ) from None

    def agree(self, other: bytes, about: bytes) -> bytes:
        """32 bytes that the holder of `other` gets as well and nobody else: another value for everything it is about."""
        both = b"".join(sorted((self.public, other)))
        return HKDF(SHA256(), KEY_BYTES, None, _PAIR + both + about).derive(_exchange(self.secret, other))


def check_public(key: bytes) -> None:
    """Refuses a point of small order, with which everybody has the same secret, before anybody seals for it."""
    BoxKey.generate().seal(key, b"", b"")


# A simulation has all clients in one process, and every pair of them meets in every round: too small a cache would forget each
# pair just before it comes again. As it is, 500 clients find room; a silo needs one entry for every other.
@lru_cache(maxsize=1 << 19)
def _common(secret: bytes, other: bytes, direction: bytes) -> bytes:
    return HKDF(SHA256(), KEY_BYTES, None, _DOMAIN + direction).derive(_exchange(secret, other))


@lru_cache(maxsize=1 << 18)
def _exchange(secret: bytes, other: bytes) -> bytes:
    try:
        return _private(secret).exchange(X25519PublicKey.from_public_bytes(other))
    except ValueError as e:
        raise CoveyError("a client's public key is none: make the keys again") from e


@lru_cache(maxsize=1 << 12)
def _private(secret: bytes) -> X25519PrivateKey:
    return X25519PrivateKey.from_private_bytes(secret)


@lru_cache(maxsize=1 << 12)
def _public(secret: bytes) -> bytes:
    return _private(secret).public_key().public_bytes_raw()
