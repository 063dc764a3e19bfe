"""`covey keys inspect`: who holds what, and who could open what is sealed. No secret is shown, only fingerprints.

What the algorithm does not describe in `key_kinds` counts as secret, and nobody says what it opens: its holders are not among those
who can open nothing.

A fingerprint is the beginning of a SHA-256: of the public key where there is one, so that it is the same on both sides, else
of the material itself, which is random and cannot be found by guessing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import serialization

from covey.algorithms.contract import declaration
from covey.crypto.key_kinds import NOT_SAID, Describe, KeyKind
from covey.crypto.signatures import Signer
from covey.deploy import keys
from covey.deploy.agreed import Agreed, experiment_of
from covey.deploy.membership import roll
from covey.deploy.membership.records import SERVER
from covey.errors import CoveyError


@dataclass(frozen=True)
class Holding:
    """One thing that a party holds."""

    party: str
    what: str
    secret: bool
    fingerprint: str
    opens: str = ""  # what can be decrypted with it; "": nothing


def inspect(path: Path) -> list[Holding]:
    """The holdings of one party's folder, or of all that `covey keys make` wrote into a folder."""
    path = Path(path)
    if (path / "party.bin").is_file() or (path / "issued.bin").is_file():
        return list(_folder(path))
    inside = [path / "authority", path / SERVER, *sorted(path.glob("*")), *sorted(path.glob("silos/*"))]
    folders = [p for p in dict.fromkeys(inside) if (p / "party.bin").is_file() or (p / "issued.bin").is_file()]
    if not folders:
        raise CoveyError(f"{path} holds no keys: give the folder that `covey keys make` wrote, or one party's")
    return [holding for folder in folders for holding in _folder(folder)]


def dealt(authority: Path) -> list[str]:
    """Key material of the silos that the authority has made for them and keeps, and that opens something."""
    return [one.what for one in _folder(authority) if one.secret and one.opens]


def _folder(folder: Path) -> Iterator[Holding]:
    if (folder / "issued.bin").is_file():
        issued = keys.read_issued(folder)
        yield Holding("authority", "key that signs server certificates", True, _public_of(folder / "ca.key"))
        yield Holding("authority", f"certificate{_validity(folder / 'ca.crt')}", False, _certified(folder / "ca.crt"))
        yield from _materials("authority", "clients", issued.clients, keys.read_agreed(folder))
        yield from _each_silo_s(issued.clients.get("own", {}), keys.read_agreed(folder))
        return
    party, agreed = keys.load(folder)
    name = party.name if party.name == party.role else f"{party.name} ({party.role})"
    signer = Signer(party.role, party.signing)
    yield Holding(name, "signing key (Ed25519)", True, _hash(signer.public))
    for role, public in party.known.items():
        yield Holding(name, f"public key of {role}", False, _hash(public))
    if (folder / "node.key").is_file():
        yield Holding(name, "node key (ECDSA P-384)", True, _public_of(folder / "node.key"))
    for other, pem in (roll.node_keys(folder) if party.name == SERVER else {}).items():
        yield Holding(name, f"public node key of {other}", False, _hash(_der(pem)))
    if (folder / "server.key").is_file():
        yield Holding(name, "TLS key", True, _public_of(folder / "server.key"))
        yield Holding(
            name, f"TLS certificate{_validity(folder / 'server.crt')}", False, _certified(folder / "server.crt")
        )
    yield Holding(name, "certificate of the authority", False, _certified(folder / "ca.crt"))
    yield from _materials(name, party.role, party.keys, agreed)


def _materials(party: str, role: str, material: dict[str, Any], agreed: Agreed) -> Iterator[Holding]:
    """The algorithm's keys, as it describes them."""
    kinds = declaration(experiment_of(agreed).algorithm).key_kinds
    for name, value in material.items():
        if name != "own":
            kind = _kind(kinds, name, value, role)
            yield Holding(party, kind.what, kind.secret, _hash(_shown(kind, value)), kind.opens)


def _each_silo_s(own: dict[int, dict[str, Any]], agreed: Agreed) -> Iterator[Holding]:
    """What the authority keeps for single silos, those that come later too: a line for each kind of key."""
    kinds = declaration(experiment_of(agreed).algorithm).key_kinds
    for name in dict.fromkeys(name for material in own.values() for name in material):
        values = [material[name] for material in own.values() if name in material]
        described = [_kind(kinds, name, value, "clients") for value in values]
        data = b"".join(_shown(kind, value) for kind, value in zip(described, values))
        kind = described[0]
        yield Holding("authority", f"{kind.what}, of up to {len(values)} silos", kind.secret, _hash(data), kind.opens)


def _kind(kinds: Mapping[str, Describe], name: str, value: Any, role: str) -> KeyKind:
    return kinds[name](value, role) if name in kinds else KeyKind(f"'{name}' of the algorithm", True, NOT_SAID)


def _shown(kind: KeyKind, value: Any) -> bytes:
    shown = value if kind.public is None else kind.public
    return shown if isinstance(shown, bytes) else repr(shown).encode()


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]


def _der(pem: bytes) -> bytes:
    key = serialization.load_pem_public_key(pem)
    return key.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)


def _public_of(path: Path) -> str:
    """Fingerprint of the public half of a private key's file."""
    data = path.read_bytes()
    try:
        load = serialization.load_ssh_private_key if b"OPENSSH" in data[:40] else serialization.load_pem_private_key
        key = load(data, None)
    except ValueError as e:
        raise CoveyError(f"{path} is no private key ({e}): copy it again from where the keys were made") from e
    der = key.public_key().public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    return _hash(der)


def _certificate(path: Path) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificate(path.read_bytes())
    except (OSError, ValueError) as e:
        raise CoveyError(f"{path} is no certificate ({e}): copy it again from where the keys were made") from e


def _certified(path: Path) -> str:
    """Fingerprint of the public key in a certificate."""
    public = _certificate(path).public_key()
    return _hash(public.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo))


def _validity(path: Path) -> str:
    """Until when, and for which hosts, in words."""
    certificate = _certificate(path)
    until = f", until {certificate.not_valid_after_utc:%Y-%m-%d}"
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return until
    return f" for {', '.join(str(name.value) for name in names)}{until}"
