"""Who holds which keys in a deployment: making them, adding a silo, loading a party's folder.

    out/authority/       keep offline: ca.key, ca.crt, issued.bin (what a further silo is given), agreed.bin
    out/server/          party.bin, server.crt, server.key, nodes/<name>.pub and .bin: the public keys of all others
    out/silos/<name>/    party.bin, node.key
    out/<other>/         the same for each further server that the algorithm names

Every party's folder also has agreed.bin, experiment.toml (the same, to read) and ca.crt. A party's folder holds its own
secrets and others' public keys: the server's never a key that opens what silos seal. What only its owner may read is 0600.

A silo is added by two public files in the server's `nodes`, and taken away by removing them: nobody else's folder changes.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from covey.algorithms.admission import ADDED
from covey.algorithms.contract import MASKS, Declaration, declaration, make_keys, own_keys, public_sealing, server_of
from covey.algorithms.sums import openings
from covey.crypto.openings.boxes import KEY_BYTES, BoxKey
from covey.crypto.signatures import Signer
from covey.deploy.agreed import Agreed, agree, digest, experiment_of, setting_of
from covey.deploy.certificates import Pair, general_name, issue_server, make_authority, make_node, registered
from covey.errors import CoveyError
from covey.experiment import encryptions
from covey.experiment.experiment import Experiment
from covey.files import expect, write_atomically
from covey.messages import check_fields, decode, encode, message
from covey.names import OURS, path_of

SERVER = "server"
OWN_KEY = f"{openings.OWN}.key"
SECRETS = ("party.bin", "node.key", "server.key", "ca.key", "issued.bin")  # that are made here
_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,39}")
T = TypeVar("T")


@message
@dataclass(frozen=True)
class Party:
    """One party, with all that it alone may know."""

    name: str  # "server", "north", a further server's
    role: str  # as views call it: what the algorithm calls its servers, "client:3"
    signing: bytes = field(repr=False)  # Ed25519, secret
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


def make(
    experiment: Experiment, silos: Sequence[str], hosts: Sequence[str], out: Path, own: Path | None = None
) -> None:
    """All folders of a deployment, the first silo being client 0; hosts are the names that silos reach the server by.

    `own`: a folder with the public half, NAME.pub, of the key that each silo has made for itself (`make_own`).
    """
    experiment = deployed(experiment)
    further = declaration(experiment.algorithm).further
    _check_names(silos, experiment.clients, (SERVER, *further))
    for host in hosts:
        general_name(host)  # refuses what is none
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise CoveyError(f"{out} is there already and keys are never overwritten: choose another folder with --out")
    agreed = agree(experiment)
    publics = None if own is None else {i: read_public(own, name) for i, name in enumerate(silos)}
    material = make_keys(experiment.algorithm, setting_of(agreed, experiment), publics)
    declared = declaration(experiment.algorithm)  # refused here, not at every reply of every silo
    if (quorum := quorum_held(declared, material.get(declared.server, {}))) > len(silos):
        raise CoveyError(
            f"{quorum} silos must help to open a sum and {len(silos)} are named: set algorithm.quorum to at most "
            f"{len(silos)}, or clients to the number of silos"
        )
    authority = make_authority()
    with _whole(out) as folder:
        server = Signer.generate(server_of(experiment.algorithm))
        issued = Issued(material.get("clients", {}), server.sender, server.public, {}, digest(agreed))
        _write_folder(folder / "authority", agreed, authority.public, {"ca.key": authority.private})
        pair = issue_server(authority, hosts)
        party = Party(SERVER, server.sender, server.secret, {}, material.get(server.sender, {}), {}, issued.agreed)
        secrets = {"party.bin": encode(party), "server.key": pair.private}
        _write_folder(folder / SERVER, agreed, authority.public, secrets, {"server.crt": pair.public})
        for name in further:
            _write_party(
                folder, folder / name, (name, name, -1), material.get(name, {}), issued, agreed, authority.public
            )
        for name in silos:
            issued = _number_silo(issued, name)
            _write_silo(folder, name, issued, agreed, authority.public)
        _write(folder / "authority" / "issued.bin", encode(issued), 0o600)


def quorum_held(declared: Declaration, keys: Mapping[str, Any]) -> int:
    """How many silos must help to open a sum, by the keys that the server holds; 0: each does it alone, or nothing is sealed."""
    if declared.sealing == MASKS and declared.sealed_with not in keys:
        return 0
    return openings.quorum_of(public_sealing(declared, keys)) if declared.sealing in ADDED else 0


def make_own(folder: Path) -> bytes:
    """A silo's own key, made by itself: NAME.key and NAME.pub as `folder`.key and .pub; its public half."""
    key = BoxKey.generate()
    secret, public = folder.with_suffix(".key"), folder.with_suffix(".pub")
    for path in (secret, public):
        if path.exists():
            raise CoveyError(f"{path} is there already and keys are never overwritten: move it away first")
    _make_folder(folder.parent)
    _write(secret, key.secret, 0o600)
    _write(public, key.public.hex().encode() + b"\n")
    return key.public


def read_public(folder: Path, name: str) -> bytes:
    """The public half of a silo's own key, as `make_own` wrote it."""
    text = _bytes(folder / f"{name}.pub").strip()
    try:
        public = bytes.fromhex(text.decode())
    except ValueError:
        public = b""
    if len(public) != KEY_BYTES:
        raise CoveyError(f"{folder / name}.pub is no public key of a silo: expected what `covey keys own` wrote")
    return public


def add(out: Path, name: str) -> None:
    """One more silo, with the next free client number; the server's folder gets its public keys, nothing else changes."""
    authority = out / "authority"
    issued, agreed = read_issued(authority), read_agreed(authority)
    experiment = experiment_of(agreed)
    if name in issued.taken:
        raise CoveyError(
            f"'{name}' was given to client {issued.taken[name]} before: a new silo needs a name of its own"
        )
    _check_names([*issued.taken, name], experiment.clients, (SERVER, *declaration(experiment.algorithm).further))
    if (out / "silos" / name).exists():
        raise CoveyError(f"{out / 'silos' / name} is there already and keys are never overwritten: move it away first")
    if openings.is_together(experiment.encryption) and not own_keys(issued.clients, len(issued.taken)).get(
        openings.OWN
    ):
        raise CoveyError(
            f"the silos made their own keys, and '{name}' is not among them: make new keys for all with `covey keys make --own`"
        )
    issued = _number_silo(issued, name)
    _write(authority / "issued.bin", encode(issued), 0o600)  # first: whatever happens now, the number is taken
    _write_silo(out, name, issued, agreed, _bytes(authority / "ca.crt"))


def renew(out: Path, hosts: Sequence[str]) -> None:
    """Another certificate for the server, for other hosts or before the old one ends; silos need not be told."""
    authority, server = out / "authority", out / SERVER
    read_issued(authority)  # refuses a folder that is none, or that others can read
    pair = issue_server(Pair(_bytes(authority / "ca.crt"), _bytes(authority / "ca.key")), hosts)
    _make_folder(server)
    _write(server / "server.key", pair.private, 0o600)
    _write(server / "server.crt", pair.public)


def read_issued(authority: Path) -> Issued:
    if not authority.is_dir():
        raise CoveyError(f"{authority} is not here, without which nothing can be issued: run this where it is kept")
    _check_private(authority)
    return _read(authority / "issued.bin", Issued)


def read_agreed(folder: Path) -> Agreed:
    return _read(folder / "agreed.bin", Agreed)


def load(folder: Path) -> tuple[Party, Agreed]:
    """A party from its folder, checked: readable by its owner only, whole, and made for what is agreed there."""
    folder = Path(folder)
    expect(folder, "party.bin")
    _check_private(folder)
    party, agreed = _read(folder / "party.bin", Party), read_agreed(folder)
    if party.agreed != digest(agreed):
        raise CoveyError(f"{folder}/agreed.bin is not what party.bin was made for: copy the whole folder again")
    if party.name == SERVER:
        return admitting(party, folder), agreed
    if (folder / OWN_KEY).is_file():  # which this silo made itself
        party = replace(party, keys={**party.keys, openings.OWN: _bytes(folder / OWN_KEY)})
    return party, agreed


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
        p for p in sorted((folder / "nodes").glob("*.bin")) if _has_content(p) and _has_content(p.with_suffix(".pub"))
    ]
    admitted = {path: _read(path, Admission) for path in both}
    roles = [a.role for a in admitted.values()]
    for path, admission in admitted.items():
        if path.stem != admission.name or roles.count(admission.role) > 1:
            raise CoveyError(
                f"{path} is for '{admission.name}' as {admission.role}: another name, or a role given twice"
            )
    return sorted(admitted.values(), key=lambda a: a.client)


def node_keys(folder: Path) -> dict[str, bytes]:
    """Public keys of the nodes that the server lets in, by name, as Flower's Control API takes them."""
    return {a.name: registered(_bytes(folder / "nodes" / f"{a.name}.pub")) for a in admissions(folder)}


def protected(table: Mapping[str, Any]) -> dict[str, Any]:
    """An experiment's table that chooses no encryption, with one under which no single silo opens what others seal.

    Where its algorithm can, for three clients or more, and not in a rehearsal, which is to be compared with its simulation.
    """
    experiment = Experiment.of(table)
    sealing = declaration(experiment.algorithm).sealing in encryptions.FAMILIES  # masks are a choice: they rule lies in
    able = [name for name in encryptions.TOGETHER if sealing and encryptions.fits(experiment.algorithm, name)]
    if "encryption" in table or not able or experiment.clients < 3 or experiment.deployment.rehearsal:
        return dict(table)
    return {**table, "encryption": able[0]}


def deployed(experiment: Experiment) -> Experiment:
    """The experiment as real parties run it: secret draws, and keys for more than a simulation; a rehearsal as it is."""
    if experiment.seeds > 1:
        raise CoveyError(f"seeds is {experiment.seeds}: a deployment runs once, set seeds = 1")
    if experiment.deployment.rehearsal:
        return experiment
    own = getattr(experiment.algorithm, "deployed", None)
    return replace(experiment, algorithm=own(experiment.encryption)) if own else experiment


def keyed_draws(experiment: Experiment) -> list[str]:
    """Own code among what a silo runs that does not say how it draws secrets: nobody can tell whether what it draws is one."""
    silent = [thing for thing in (experiment.algorithm, experiment.defence) if not hasattr(thing, "deployed")]
    paths = [path_of(type(thing)) for thing in silent if thing is not None]
    return [path for path in paths if path.partition(".")[0] != OURS]


# ---------------------------------------------------------------- writing


def _number_silo(issued: Issued, name: str) -> Issued:
    """With the next client number for this silo."""
    return replace(issued, taken={**issued.taken, name: max(issued.taken.values(), default=-1) + 1})


def _write_silo(out: Path, name: str, issued: Issued, agreed: Agreed, ca: bytes) -> None:
    client = issued.taken[name]
    own = own_keys(issued.clients, client)
    _write_party(out, out / "silos" / name, (name, f"client:{client}", client), own, issued, agreed, ca)


def _write_party(
    out: Path, folder: Path, who: tuple[str, str, int], keys: dict[str, Any], issued: Issued, agreed: Agreed, ca: bytes
) -> None:
    """The folder of a party that the server lets in, and its public keys for the server."""
    name, role, client = who
    signer, node = Signer.generate(role), make_node()
    party = Party(name, role, signer.secret, {issued.server: issued.server_signing}, keys, {}, issued.agreed)
    _write_folder(folder, agreed, ca, {"party.bin": encode(party), "node.key": node.private})
    nodes = out / SERVER / "nodes"
    _make_folder(nodes)
    _write(nodes / f"{name}.pub", node.public)
    _write(nodes / f"{name}.bin", encode(Admission(name, role, client, signer.public)))


def _write_folder(
    folder: Path, agreed: Agreed, ca: bytes, secret: dict[str, bytes], public: dict[str, bytes] | None = None
) -> None:
    if folder.exists():
        raise CoveyError(f"{folder} is there already and keys are never overwritten: move it away first")
    _make_folder(folder)
    for name, data in secret.items():
        _write(folder / name, data, 0o600)
    shown = {"agreed.bin": encode(agreed), "experiment.toml": agreed.experiment.encode(), "ca.crt": ca}
    for name, data in {**shown, **(public or {})}.items():
        _write(folder / name, data)


def _write(path: Path, data: bytes, mode: int = 0o644) -> None:
    write_atomically(path, data, mode)


def _make_folder(folder: Path) -> None:
    """With 0700 also for those above it that are made with it."""
    try:
        for one in reversed([folder, *folder.parents]):
            one.mkdir(mode=0o700, exist_ok=True)
    except OSError as e:
        raise CoveyError(f"{folder} could not be made: {e.strerror}; choose another folder with --out") from e


@contextmanager
def _whole(out: Path) -> Iterator[Path]:
    """A folder that appears as `out` when all of it is written, or not at all."""
    _make_folder(out.parent)
    part = Path(tempfile.mkdtemp(prefix=f".{out.name}.", dir=out.parent))  # 0700
    try:
        yield part
        part.replace(out)
    except OSError as e:
        raise CoveyError(f"{out} could not be written: {e.strerror}; choose another folder with --out") from e
    finally:
        shutil.rmtree(part, ignore_errors=True)


# ---------------------------------------------------------------- reading and checking


def _check_names(names: Sequence[str], clients: int, reserved: Sequence[str]) -> None:
    if not names:
        raise CoveyError("no silo is named: give at least one, for example --silos north,south,west")
    for name in names:
        if not _NAME.fullmatch(name) or name in reserved:
            raise CoveyError(
                f"'{name}' cannot be a silo's name: use small letters, digits and '-', up to 40, "
                f"and none of {', '.join(reserved)}"
            )
    twice = sorted({name for name in names if list(names).count(name) > 1})
    if twice:
        raise CoveyError(f"'{twice[0]}' is named twice: every silo needs a name of its own")
    if len(names) > clients:
        raise CoveyError(f"{len(names)} silos for {clients} clients: set clients to as many as there may ever be")


def _check_private(folder: Path) -> None:
    for path in (folder / name for name in (*SECRETS, OWN_KEY)):
        if os.name == "posix" and path.is_file() and path.stat().st_mode & 0o077:
            raise CoveyError(f"{path} holds secrets and others on this machine can read it: run `chmod 600 {path}`")


def _has_content(path: Path) -> bool:
    return path.is_file() and path.stat().st_size > 0


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as e:
        raise CoveyError(f"{path} cannot be read: {e.strerror}; copy it again from where the keys were made") from e


def _read(path: Path, kind: type[T]) -> T:
    data = _bytes(path)
    try:
        value = decode(data)
        if not isinstance(value, kind):
            raise CoveyError(f"it holds no {kind.__name__}")
        check_fields(value)
    except CoveyError as e:
        raise CoveyError(f"{path} cannot be used ({e}): copy it again from where the keys were made") from e
    return value
