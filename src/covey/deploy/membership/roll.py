"""The roll: whom the server lets in at this moment, and whom it does not any more.

    server/nodes/NAME.pub and .bin     a party that is let in: its node's public key, and what it signs with
    server/revoked/NAME-WHEN.bin       a key that was let in once, since when not, and why

A running server looks here every second, in the middle of a round, too. Taking a party's two files away is enough to shut it
out; `revoke` also keeps its key, so that the party is told once and for all instead of trying for ever. Who is revoked stays
out when its two files come back, with a copy of the folder or from an authority that has not heard of it.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from covey.deploy.membership.certificates import registered
from covey.deploy.membership.records import (
    SERVER,
    Admission,
    Party,
    has_content,
    make_folder,
    read_bytes,
    read_record,
    write,
)
from covey.errors import CoveyError
from covey.messages import encode, message

REVOKED, REPLACED = "revoked", "replaced"  # why a key is let in no more


@message
@dataclass(frozen=True)
class Revocation:
    """A key that the server lets in no more."""

    name: str
    role: str
    node: bytes  # its public key, as in nodes/NAME.pub
    when: str  # UTC, as 2026-11-16T03:04:05Z
    why: str  # REVOKED or REPLACED
    signing: bytes = b""  # the public key that it signed with; none in records of an older covey


@dataclass(frozen=True)
class Roll:
    """What the server's folder says now."""

    party: Party  # the server, with those it knows
    nodes: dict[str, bytes]  # name -> public key of its node, as Flower's Control API takes it
    struck: dict[bytes, str] = field(default_factory=dict)  # such keys that are let in no more -> "revoked 2026-…"
    revoked: dict[str, str] = field(default_factory=dict)  # name -> since when; not those whose keys were replaced


def admitting(server: Party, folder: Path) -> Party:
    """The server with those that its folder lets in now; cheap enough to look often."""
    admitted = admissions(folder)
    silos = {a.name: a.client for a in admitted if a.client >= 0}
    return replace(server, known={a.role: a.signing for a in admitted}, silos=silos)


def admissions(folder: Path) -> list[Admission]:
    """Whom the server lets in, as its `nodes` folder says now; further servers first, then silos by number.

    A party counts when both of its files are there: the server may look while they are being copied.
    """
    both = [
        p for p in sorted((folder / "nodes").glob("*.bin")) if has_content(p) and has_content(p.with_suffix(".pub"))
    ]
    out = {one.name for one in revocations(folder) if one.why == REVOKED}
    admitted = {path: read_record(path, Admission) for path in both if path.stem not in out}
    roles = [a.role for a in admitted.values()]
    for path, admission in admitted.items():
        if path.stem != admission.name or roles.count(admission.role) > 1:
            raise CoveyError(
                f"{path} is for '{admission.name}' as {admission.role}: another name, or a role given twice"
            )
    return sorted(admitted.values(), key=lambda a: a.client)


def node_keys(folder: Path) -> dict[str, bytes]:
    """Public keys of the nodes that the server lets in, by name, as Flower's Control API takes them."""
    return {a.name: registered(read_bytes(folder / "nodes" / f"{a.name}.pub")) for a in admissions(folder)}


def revocations(folder: Path) -> list[Revocation]:
    """The oldest first."""
    paths = sorted((folder / "revoked").glob("*.bin"))
    return sorted((read_record(path, Revocation) for path in paths if has_content(path)), key=lambda one: one.when)


def holders(folder: Path) -> dict[bytes, str]:
    """Public keys that the server knows, of nodes and for signing, with whose they are or were."""
    past = {key: one.name for one in revocations(folder) for key in (registered(one.node), one.signing) if key}
    nodes = {public: name for name, public in node_keys(folder).items()}
    return {**past, **nodes, **{a.signing: a.name for a in admissions(folder)}}


def read_roll(server: Party, folder: Path) -> Roll:
    nodes, past = node_keys(folder), revocations(folder)
    struck = {registered(one.node): f"{one.why} {one.when}" for one in past}
    gone = {one.name: one.when for one in past if one.why == REVOKED and one.name not in nodes}
    return Roll(admitting(server, folder), nodes, {k: w for k, w in struck.items() if k not in nodes.values()}, gone)


def following(server: Party, folder: Path, say: Callable[[str], None] = print) -> Callable[[], Roll]:
    """The roll whenever it is asked for; read anew only when a file has changed.

    One that cannot be read (files are being copied, a disk is away) shuts nobody out but who was revoked: it is taken as it
    was, and that is said.
    """
    roll, seen, said = read_roll(server, folder), _look(folder), ""

    def now() -> Roll:
        nonlocal roll, seen, said
        look = _look(folder)
        if look == seen:
            return roll
        try:
            if not (folder / "nodes").is_dir():
                raise CoveyError(f"{folder / 'nodes'} is not there")
            roll, seen, said = read_roll(server, folder), look, ""
        except CoveyError as e:
            if str(e) != said:
                said = str(e)
                say(f"who is let in cannot be read, and stays as it was: {e}")
            with suppress(CoveyError):  # another file's damage must not keep a revoked party in
                roll = _without(roll, [one for one in revocations(folder) if one.why == REVOKED])
        return roll

    return now


def _without(roll: Roll, revoked: list[Revocation]) -> Roll:
    gone = {one.name: one for one in revoked if one.name in roll.nodes}
    if not gone:
        return roll
    roles = {one.role for one in gone.values()}
    known = {role: key for role, key in roll.party.known.items() if role not in roles}
    silos = {name: client for name, client in roll.party.silos.items() if name not in gone}
    struck = {roll.nodes[name]: f"{one.why} {one.when}" for name, one in gone.items()}
    return Roll(
        replace(roll.party, known=known, silos=silos),
        {name: key for name, key in roll.nodes.items() if name not in gone},
        {**roll.struck, **struck},
        {**roll.revoked, **{name: one.when for name, one in gone.items()}},
    )


def revoke(folder: Path, name: str) -> Revocation:
    """From now on this party's key is let in no more; `folder` is the server's, running or not."""
    admitted = {a.name: a for a in admissions(folder)}
    before = {one.name: one.when for one in revocations(folder) if one.why == REVOKED}
    if name not in admitted:
        past = f"it was revoked on {before[name]} already" if name in before else f"there are {_listed(admitted)}"
        raise CoveyError(f"'{name[:60]}' is not let in by {folder / 'nodes'}: {past}")
    if admitted[name].client < 0:
        raise CoveyError(f"'{name}' is a further server, without which no round ends: stop the run, and make new keys")
    record = note_key(folder, admitted[name], REVOKED)  # first: then it is told why
    for suffix in (".bin", ".pub"):
        (folder / "nodes" / f"{name}{suffix}").unlink(missing_ok=True)
    return record


def note_key(folder: Path, admission: Admission, why: str) -> Revocation:
    """Writes down a party's present keys as ones that it gives up. A key that is to be REPLACED is let in until another is."""
    moment, node = datetime.datetime.now(datetime.UTC), read_bytes(folder / "nodes" / f"{admission.name}.pub")
    when = f"{moment:%Y-%m-%dT%H:%M:%SZ}"
    record = Revocation(admission.name, admission.role, node, when, why, admission.signing)
    make_folder(folder / "revoked")
    write(folder / "revoked" / f"{admission.name}-{moment:%Y%m%dT%H%M%S%f}.bin", encode(record))
    return record


def server_folder(folder: Path) -> Path:
    """The server's folder itself, or in the one that `covey keys make` wrote."""
    inside = folder if (folder / "party.bin").is_file() else folder / SERVER
    if not (inside / "party.bin").is_file():
        raise CoveyError(f"{folder} holds no server's folder: give the one that `covey serve --keys` is given")
    if read_record(inside / "party.bin", Party).name != SERVER:
        raise CoveyError(f"{inside} is another party's folder: give the server's")
    return inside


def _look(folder: Path) -> list[tuple[str, int, int]]:
    """What can be seen of the files without reading them."""
    paths = sorted(path for kind in ("nodes", "revoked") for path in (folder / kind).glob("*"))
    states = [(path, _state(path)) for path in paths]
    return [(path.name, *state) for path, state in states if state is not None]


def _state(path: Path) -> tuple[int, int] | None:
    try:
        stat = path.stat()
    except OSError:  # taken away meanwhile
        return None
    return stat.st_mtime_ns, stat.st_size


def _listed(admitted: dict[str, Admission]) -> str:
    return ", ".join(sorted(admitted)) or "none"
