"""Who holds which keys in a deployment: making them, adding a silo, loading a party's folder.

    out/authority/       keep offline: ca.key, ca.crt, issued.bin (what a further silo is given), agreed.bin
    out/server/          party.bin, server.crt, server.key, nodes/<name>.pub and .bin: the public keys of all others
    out/silos/<name>/    party.bin, node.key
    out/invitations/     of silos that made their own keys: what they need beside them, for each of them alone
    out/<other>/         the same for each further server that the algorithm names

Every party's folder also has agreed.bin, experiment.toml (the same, to read) and ca.crt. A party's folder holds its own
secrets and others' public keys: the server's never a key that opens what silos seal. What only its owner may read is 0600.

A silo is added by two public files in the server's `nodes`, and taken away by removing them: nobody else's folder changes.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from covey.algorithms.admission import ADDED
from covey.algorithms.contract import MASKS, Declaration, declaration, make_keys, own_keys, public_sealing, server_of
from covey.algorithms.sums import masking, openings
from covey.crypto.openings.boxes import KEY_BYTES, BoxKey
from covey.crypto.signatures import Signer
from covey.data.names import SILOS
from covey.deploy.agreed import Agreed, agree, digest, experiment_of, setting_of, table_of
from covey.deploy.membership.certificates import Pair, general_name, issue_server, make_authority, make_node, registered
from covey.deploy.membership.records import (
    OWN_KEY,
    SERVER,
    Admission,
    Issued,
    Party,
    check_names,
    check_private,
    make_folder,
    read_bytes,
    read_record,
    refuse_existing,
    write,
)
from covey.deploy.membership.requests import (
    Invited,
    Request,
    check_new_keys,
    check_renewal,
    federation,
    fingerprint,
    invitation,
    signing_of,
)
from covey.deploy.membership.roll import (
    REPLACED,
    admissions,
    admitting,
    holders,
    node_keys,
    note_key,
    revocations,
)
from covey.errors import CoveyError
from covey.experiment import encryptions
from covey.experiment.experiment import Experiment
from covey.files import expect, lock
from covey.ledger.entries import large_delta
from covey.messages import encode
from covey.names import OURS, path_of


def make(
    experiment: Experiment,
    silos: Sequence[str | Request],
    hosts: Sequence[str],
    out: Path,
    own: Path | None = None,
) -> None:
    """All folders of a deployment, the first silo being client 0; hosts are the names that silos reach the server by.

    A silo that is a request has made its keys itself, and gets an invitation in the place of a folder. `own`: a folder with the
    public half, NAME.pub, of the key that each silo has made for itself (`make_own`).
    """
    requests = {one.name: one for one in silos if isinstance(one, Request)}
    names = [one if isinstance(one, str) else one.name for one in silos]
    experiment = deployed(experiment)
    further = declaration(experiment.algorithm).further
    check_names(names, experiment.clients, (SERVER, *further))
    for host in hosts:
        general_name(host)  # refuses what is none
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise CoveyError(f"{out} is there already and keys are never overwritten: choose another folder with --out")
    _check_distinct(list(requests.values()))
    agreed = agree(experiment)
    publics = None if own is None else {i: read_public(own, name) for i, name in enumerate(names)}
    if requests and openings.is_together(experiment.encryption):
        publics = {i: requests[name].opening for i, name in enumerate(names)}
    material = make_keys(experiment.algorithm, setting_of(agreed, experiment), publics)
    declared = declaration(experiment.algorithm)  # refused here, not at every reply of every silo
    if (quorum := quorum_held(declared, material.get(declared.server, {}))) > len(names):
        raise CoveyError(
            f"{quorum} silos must help to open a sum and {len(names)} are named: set algorithm.quorum to at most "
            f"{len(names)}, or clients to the number of silos"
        )
    needed, enough = silos_needed(declared, material.get(declared.server, {})), experiment.deployment.min_silos
    if 0 < enough < needed:
        raise CoveyError(
            f"deployment.min_silos is {enough}, and a round with fewer than {needed} silos changes no model (algorithm.quorum, "
            f"min_group, or what masks need): set it to {needed} or more, or leave it out"
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
        for name in names:
            issued = _number_silo(issued, name)
            if name in requests:
                _invite(folder, requests[name], issued, agreed, authority.public)
            else:
                _write_silo(folder, name, issued, agreed, authority.public)
        write(folder / "authority" / "issued.bin", encode(issued), 0o600)


def _check_distinct(requests: Sequence[Request]) -> None:
    held: dict[bytes, str] = {}
    for one in requests:
        check_new_keys(one, held)
        held |= {registered(one.node): one.name, one.signing: one.name}


def quorum_held(declared: Declaration, keys: Mapping[str, Any]) -> int:
    """How many silos must help to open a sum, by the keys that the server holds; 0: each does it alone, or nothing is sealed."""
    if declared.sealing == MASKS and declared.sealed_with not in keys:
        return 0
    return openings.quorum_of(public_sealing(declared, keys)) if declared.sealing in ADDED else 0


def silos_needed(declared: Declaration, keys: Mapping[str, Any]) -> int:
    """With how few silos a round can change a model, by the keys that the server holds."""
    masked = declared.sealing == MASKS and declared.sealed_with in keys
    least = masking.least_unmasked(declared.min_group) if masked else declared.min_group
    return max(least, quorum_held(declared, keys))


def weak_delta(experiment: Experiment) -> list[str]:
    """Sentences on a δ beside which an ε sounds better than it is, of a defence that has one."""
    own, clients = getattr(experiment.defence, "delta_of", None), experiment.clients
    delta = own(clients) if own else getattr(experiment.defence, "delta", None)
    if not isinstance(delta, float):
        return []
    if delta >= 1 / clients:
        return [
            f"defence.delta comes to {delta:.2g}, which is not below 1 / {clients} clients: to show one client whole, by lot, "
            "would be within it; set it to less"
        ]
    return large_delta(delta)


def make_own(folder: Path) -> bytes:
    """A silo's own key, made by itself: NAME.key and NAME.pub as `folder`.key and .pub; its public half."""
    key = BoxKey.generate()
    secret, public = folder.with_suffix(".key"), folder.with_suffix(".pub")
    for path in (secret, public):
        refuse_existing(path)
    make_folder(folder.parent)
    write(secret, key.secret, 0o600)
    write(public, key.public.hex().encode() + b"\n")
    return key.public


def read_public(folder: Path, name: str) -> bytes:
    """The public half of a silo's own key, as `make_own` wrote it."""
    text = read_bytes(folder / f"{name}.pub").strip()
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
    with _alone(authority):
        issued, agreed = read_issued(authority), read_agreed(authority)
        issued = _taken_next(issued, agreed, name)
        refuse_existing(out / "silos" / name)
        write(authority / "issued.bin", encode(issued), 0o600)  # first: whatever happens now, the number is taken
    _write_silo(out, name, issued, agreed, read_bytes(authority / "ca.crt"))


def approve(out: Path, request: Request) -> tuple[Path, str]:
    """One more silo, that made its own keys, or other keys for one that is in; (its invitation, the federation's fingerprint).

    Cut short at any point it can be done again with the same request, and until it is done the silo's present keys are let in.
    """
    authority = out / "authority"
    with _alone(authority):
        issued, agreed, ca = read_issued(authority), read_agreed(authority), read_bytes(authority / "ca.crt")
        admitted = {a.name: a for a in admissions(out / SERVER)}
        server, given = out / SERVER, issued.requests.get(request.name) == fingerprint(request)
        if request.name in admitted and request.name in issued.taken:
            check_renewal(request, admitted[request.name].signing)
            held = holders(server)
            if registered(request.node) != node_keys(server)[request.name]:  # else an approval of it was cut short
                check_new_keys(request, held)
                note_key(server, admitted[request.name], REPLACED)
            else:
                check_new_keys(request, {k: name for k, name in held.items() if k != registered(request.node)})
        elif given and request.name not in {one.name for one in revocations(server)}:
            # An approval of it was cut short: the same again.
            check_new_keys(request, {k: name for k, name in holders(server).items() if name != request.name})
        else:
            issued = _taken_next(issued, agreed, request.name)
            check_new_keys(request, holders(server))
            if openings.OWN in own_keys(issued.clients, issued.taken[request.name]):
                raise CoveyError(
                    f"the keys with which silos open sums together were dealt here, and '{request.name}' has made its own: give it "
                    "a dealt one with `covey keys add`, or make new keys for all with `covey keys make --requests`"
                )
            issued = replace(issued, requests={**issued.requests, request.name: fingerprint(request)})
            write(authority / "issued.bin", encode(issued), 0o600)
        return _invite(out, request, issued, agreed, ca)


@contextmanager
def _alone(authority: Path) -> Iterator[None]:
    """One process at a time gives numbers out."""
    _expect_authority(authority)
    held = lock(authority / "issued.lock")
    if held is None:
        raise CoveyError(f"another process admits a silo with {authority} at this moment: do it again after it")
    with held:
        try:
            yield
        finally:
            (authority / "issued.lock").unlink(missing_ok=True)


def remaining(server: Path) -> Iterator[str]:
    """Sentences on what those who are still let in can, and cannot, do without who was revoked."""
    party, agreed = load(server)
    experiment = experiment_of(agreed)
    declared, left = declaration(experiment.algorithm), len(party.silos)
    needed, least = silos_needed(declared, party.keys), max(1, experiment.deployment.min_silos)
    if left < max(needed, least):
        yield (
            f"{left} silos are left and a round needs {max(needed, least)}: the run waits until one is added; where none can be, "
            "make new keys for those who are left"
        )
    if quorum_held(declared, party.keys) == 0 and experiment.encryption != "none":
        yield "what all silos seal with stays with it: make new keys for the others where it left in discord"


def _taken_next(issued: Issued, agreed: Agreed, name: str) -> Issued:
    """With the next client number for a silo that comes later; refused where there can be none."""
    experiment = experiment_of(agreed)
    if name in issued.taken:
        raise CoveyError(
            f"'{name}' was given to client {issued.taken[name]} before: a new silo needs a name of its own"
        )
    check_names([*issued.taken, name], experiment.clients, (SERVER, *declaration(experiment.algorithm).further))
    if openings.is_together(experiment.encryption) and not own_keys(issued.clients, len(issued.taken)).get(
        openings.OWN
    ):
        raise CoveyError(
            f"the silos made their own keys, with which they open sums together, and '{name}' is not among them: make new keys "
            "for all with `covey keys make --requests` (or --own)"
        )
    return _number_silo(issued, name)


def renew(out: Path, hosts: Sequence[str]) -> None:
    """Another certificate for the server, for other hosts or before the old one ends; silos need not be told."""
    authority, server = out / "authority", out / SERVER
    read_issued(authority)  # refuses a folder that is none, or that others can read
    pair = issue_server(Pair(read_bytes(authority / "ca.crt"), read_bytes(authority / "ca.key")), hosts)
    make_folder(server)
    write(server / "server.key", pair.private, 0o600)
    write(server / "server.crt", pair.public)


def read_issued(authority: Path) -> Issued:
    _expect_authority(authority)
    check_private(authority)
    return read_record(authority / "issued.bin", Issued)


def _expect_authority(authority: Path) -> None:
    if not authority.is_dir():
        raise CoveyError(f"{authority} is not here, without which nothing can be issued: run this where it is kept")


def read_agreed(folder: Path) -> Agreed:
    return read_record(folder / "agreed.bin", Agreed)


def load(folder: Path) -> tuple[Party, Agreed]:
    """A party from its folder, checked: readable by its owner only, whole, and made for what is agreed there."""
    folder = Path(folder)
    expect(folder, "party.bin")
    check_private(folder)
    party, agreed = read_record(folder / "party.bin", Party), read_agreed(folder)
    if party.agreed != digest(agreed):
        raise CoveyError(f"{folder}/agreed.bin is not what party.bin was made for: copy the whole folder again")
    if party.name == SERVER:
        return admitting(party, folder), agreed
    party = replace(party, signing=signing_of(folder, party))
    if (
        openings.is_together(table_of(agreed)["encryption"]) and (folder / OWN_KEY).is_file()
    ):  # which this silo made itself
        party = replace(party, keys={openings.OWN: read_bytes(folder / OWN_KEY), **party.keys})
    return party, agreed


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
    part, fewest = experiment.participation, experiment.deployment.min_silos
    if part.buffer and fewest > part.buffer:
        raise CoveyError(
            f"deployment.min_silos is {fewest}, and a round ends with participation.buffer = {part.buffer} replies: set min_silos "
            f"to {part.buffer} at most, or buffer to {fewest} at least"
        )
    if not part.newcomer_labels:
        raise CoveyError(
            "participation.newcomer_labels = false is of simulations, which hide labels that are there: leave it out"
        )
    if part.delay:
        raise CoveyError(
            f"participation.delay is {part.delay}: it simulates slow clients, and real silos take the time that they take; leave "
            "it out"
        )
    if experiment.deployment.rehearsal:
        return experiment
    own = getattr(experiment.algorithm, "deployed", None)
    return replace(experiment, algorithm=own(experiment.encryption)) if own else experiment


def check_described(table: Mapping[str, Any]) -> None:
    """Refuses an experiment of real silos that leaves to a default how every silo reads its files: one whose files are of another
    kind would end at once, and the coordinator wait for it.
    """
    if table.get("dataset") == SILOS and "kind" not in table.get("silos", {}):
        raise CoveyError(
            "silos.kind is missing, by which every silo reads its files: set it to image (numbers from 0 to 255), binary, real "
            "(tables, for example) or tokens; `covey data check` says which"
        )


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


def _invite(out: Path, request: Request, issued: Issued, agreed: Agreed, ca: bytes) -> tuple[Path, str]:
    """An invitation for a silo that has its own keys, which the server gets the public halves of."""
    client = issued.taken[request.name]
    role, single = f"client:{client}", sorted(issued.clients.get("own", {}).get(client, {}))
    material = own_keys(issued.clients, client)
    party = Party(request.name, role, b"", {issued.server: issued.server_signing}, material, {}, issued.agreed)
    invited, path = Invited(party, agreed, ca, request.node, single), out / "invitations" / f"{request.name}.invitation"
    make_folder(path.parent)
    write(path, invitation(request, invited), 0o600)
    _admit(out, Admission(request.name, role, client, request.signing), request.node)
    return path, federation(invited)


def _admit(out: Path, admission: Admission, node: bytes) -> None:
    nodes = out / SERVER / "nodes"
    make_folder(nodes)
    write(nodes / f"{admission.name}.pub", node)
    write(nodes / f"{admission.name}.bin", encode(admission))


def _write_party(
    out: Path, folder: Path, who: tuple[str, str, int], keys: dict[str, Any], issued: Issued, agreed: Agreed, ca: bytes
) -> None:
    """The folder of a party that the server lets in, and its public keys for the server."""
    name, role, client = who
    signer, node = Signer.generate(role), make_node()
    party = Party(name, role, signer.secret, {issued.server: issued.server_signing}, keys, {}, issued.agreed)
    _write_folder(folder, agreed, ca, {"party.bin": encode(party), "node.key": node.private})
    _admit(out, Admission(name, role, client, signer.public), node.public)


def _write_folder(
    folder: Path, agreed: Agreed, ca: bytes, secret: dict[str, bytes], public: dict[str, bytes] | None = None
) -> None:
    refuse_existing(folder)
    make_folder(folder)
    for name, data in secret.items():
        write(folder / name, data, 0o600)
    shown = {"agreed.bin": encode(agreed), "experiment.toml": agreed.experiment.encode(), "ca.crt": ca}
    for name, data in {**shown, **(public or {})}.items():
        write(folder / name, data)


@contextmanager
def _whole(out: Path) -> Iterator[Path]:
    """A folder that appears as `out` when all of it is written, or not at all."""
    make_folder(out.parent)
    part = Path(tempfile.mkdtemp(prefix=f".{out.name}.", dir=out.parent))  # 0700
    try:
        yield part
        part.replace(out)
    except OSError as e:
        raise CoveyError(f"{out} could not be written: {e.strerror}; choose another folder with --out") from e
    finally:
        shutil.rmtree(part, ignore_errors=True)
