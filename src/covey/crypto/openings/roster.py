"""Who takes part: the public X25519 keys of clients by number, in hexadecimal; "" where nobody holds a place yet."""

from __future__ import annotations

from collections.abc import Sequence

from covey.crypto.openings.boxes import KEY_BYTES, check_public
from covey.errors import CoveyError

Roster = tuple[str, ...]


def roster_of(publics: Sequence[bytes]) -> Roster:
    for key in publics:
        if len(key) not in (0, KEY_BYTES):
            raise CoveyError(f"a client's public key has {KEY_BYTES} bytes, found {len(key)}: give raw X25519 keys")
    return tuple(key.hex() for key in publics)


def holders(roster: Roster) -> int:
    return sum(bool(key) for key in roster)


def public_key(roster: Roster, client: int) -> bytes:
    if not (0 <= client < len(roster) and roster[client]):
        raise CoveyError(f"client {client} holds no key in this circle of {holders(roster)}: make keys that include it")
    return bytes.fromhex(roster[client])


def check_owner(roster: Roster, client: int, public: bytes) -> None:
    if public_key(roster, client) != public:
        raise CoveyError(
            f"this key is not the one that the circle knows of client {client}: use the key that was made with it"
        )


def is_roster(value: object) -> bool:
    """Whether each place is empty or has the length of a key; ValueError or TypeError where it is no text of such."""
    return isinstance(value, tuple) and all(len(bytes.fromhex(key)) in (0, KEY_BYTES) for key in value)


def check_roster(roster: Roster) -> None:
    """Refuses keys that no client can have made for itself."""
    keys = [key for key in roster if key]
    if len(set(keys)) < len(keys):  # one client's share could stand for another's then, and its vector twice in a sum
        raise CoveyError("two clients have the same public key: each makes one of its own (`covey keys own`)")
    for key in keys:
        check_public(bytes.fromhex(key))


def check_quorum(roster: Roster, quorum: int) -> None:
    if quorum > holders(roster):
        raise CoveyError(
            f"{quorum} clients must help to open a sum and {holders(roster)} hold keys: lower algorithm.quorum"
        )
