"""What lies in a party's folder: its own record, others' public ones, and how they are read and written.

Every file is written whole or not at all. What only its owner may read is 0600, in folders of 0700.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from covey.algorithms.sums import openings
from covey.errors import CoveyError, printable
from covey.files import write_atomically
from covey.messages import check_fields, decode, message

SERVER = "server"
OWN_KEY = f"{openings.OWN}.key"  # which a silo made itself, as the next one
SIGNING_KEY = "signing.key"
SECRETS = ("party.bin", "node.key", "server.key", "ca.key", "issued.bin")  # that `covey keys make` makes
NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,39}")
T = TypeVar("T")


@message
@dataclass(frozen=True)
class Party:
    """One party, with all that it alone may know."""

    name: str  # "server", "north", a further server's
    role: str  # as views call it: what the algorithm calls its servers, "client:3"
    signing: bytes = field(repr=False)  # Ed25519, secret; empty on disk where the party made it itself: SIGNING_KEY
    known: dict[str, bytes]  # role -> Ed25519 public key, of those that it hears from
    keys: dict[str, Any] = field(repr=False)  # the algorithm's key material, as far as it is this party's
    silos: dict[str, int] = field(default_factory=dict)  # server only: name -> client
    agreed: str = ""  # digest of what was agreed


@message
@dataclass(frozen=True)
class Admission:
    """What the server knows of a party that it lets in; all of it public."""

    name: str
    role: str
    client: int  # -1: a further server
    signing: bytes  # Ed25519, public


@message
@dataclass(frozen=True)
class Issued:
    """What the authority keeps so that silos can be added later: as secret as all silos' keys together."""

    clients: dict[str, Any] = field(repr=False)
    server: str  # its role
    server_signing: bytes  # public
    taken: dict[str, int]  # names ever given, with their client numbers: none is given twice
    agreed: str
    requests: dict[str, str] = field(
        default_factory=dict
    )  # of names given on request: its fingerprint, so that the same
    # request can be approved again after an approval that was cut short


def check_names(names: Sequence[str], clients: int, reserved: Sequence[str]) -> None:
    if not names:
        raise CoveyError("no silo is named: give at least one, for example --silos north,south,west")
    for name in names:
        check_name(name, reserved)
    twice = sorted({name for name in names if list(names).count(name) > 1})
    if twice:
        raise CoveyError(f"'{twice[0]}' is named twice: every silo needs a name of its own")
    if len(names) > clients:
        raise CoveyError(f"{len(names)} silos for {clients} clients: set clients to as many as there may ever be")


def check_name(name: str, reserved: Sequence[str] = (SERVER,)) -> None:
    if not NAME.fullmatch(name) or name in reserved:
        raise CoveyError(
            f"'{printable(name, 60)}' cannot be a silo's name: use small letters, digits and '-', up to 40, "
            f"and none of {', '.join(reserved)}"
        )


def check_private(folder: Path) -> None:
    for path in (folder / name for name in (*SECRETS, OWN_KEY, SIGNING_KEY)):
        if os.name == "posix" and path.is_file() and path.stat().st_mode & 0o077:
            raise CoveyError(f"{path} holds secrets and others on this machine can read it: run `chmod 600 {path}`")


def has_content(path: Path) -> bool:
    return path.is_file() and path.stat().st_size > 0


def read_foreign(path: Path, what: str, most: int, instead: str) -> bytes:
    """A file that somebody sent, and that may be of any length: refused beyond so many bytes. `instead` is what to do then."""
    try:
        with path.open("rb") as file:
            data = file.read(most + 1)
    except OSError as e:
        raise CoveyError(f"{path} cannot be read: {e.strerror}; {instead}") from e
    if len(data) > most:
        raise CoveyError(f"{path} is no {what}: it has more than {most:,} bytes; {instead}")
    return data


def read_bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as e:
        raise CoveyError(f"{path} cannot be read: {e.strerror}; copy it again from where the keys were made") from e


def read_record(path: Path, kind: type[T]) -> T:
    return record_in(read_bytes(path), kind, str(path), "copy it again from where the keys were made")


def record_in(data: bytes, kind: type[T], where: str, instead: str, foreign: bool = False) -> T:
    """A record of this kind; `instead` is what to do where it is none, `foreign`: anybody may have written it."""
    try:
        value = decode(data, foreign=foreign)
        if not isinstance(value, kind):
            raise CoveyError(f"it holds no {kind.__name__}")
        check_fields(value)
    except CoveyError as e:
        raise CoveyError(f"{where} cannot be used ({e}): {instead}") from e
    return value


def write(path: Path, data: bytes, mode: int = 0o644) -> None:
    write_atomically(path, data, mode)


def make_folder(folder: Path) -> None:
    """With 0700 also for those above it that are made with it."""
    try:
        for one in reversed([folder, *folder.parents]):
            one.mkdir(mode=0o700, exist_ok=True)
    except OSError as e:
        raise CoveyError(f"{folder} could not be made: {e.strerror}; choose another folder with --out") from e


def refuse_existing(path: Path) -> None:
    if path.exists():
        raise CoveyError(f"{path} is there already and keys are never overwritten: move it away first")
