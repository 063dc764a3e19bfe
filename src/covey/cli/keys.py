"""`covey keys`: every party's folder, made where you trust the machine, before `serve`, `join` and `second-server`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any

import typer

from covey.cli.options import Sets, Source, comma_separated
from covey.errors import CoveyError

Folder = Annotated[Path, typer.Argument(metavar="DIR", help="The folder that `covey keys make` wrote.")]
Hosts = Annotated[
    str, typer.Option(help="Names and addresses by which silos reach the server, e.g. `fed.example.org,10.0.0.5`.")
]


Fingerprint = Annotated[
    str, typer.Option(help="As it was read out over the telephone; refused where it is another one.")
]


def make(
    source: Source,
    out: Annotated[Path, typer.Option("--out", help="A new folder; nothing is ever overwritten.")],
    silos: Annotated[
        str, typer.Option(help="Names of the silos, e.g. `north,south,west`; the first is client 0.")
    ] = "",
    requests: Annotated[
        Path | None,
        typer.Option(
            "--requests", help="In the place of --silos: folder with NAME.request of each, from `covey keys request`."
        ),
    ] = None,
    hosts: Hosts = "",
    set_: Sets = None,
    rehearsal: Annotated[
        bool, typer.Option("--rehearsal", help="Everything drawn from the seed, as in the simulation. Not private.")
    ] = False,
    own: Annotated[
        Path | None,
        typer.Option(
            "--own", help="Folder with NAME.pub of each silo, from `covey keys own`: then nobody deals keys out."
        ),
    ] = None,
) -> None:
    """Make all keys of a deployment, one folder for each party.

    Give `DIR/server` to the server, `DIR/silos/NAME` to each silo, `DIR/csp` (if there is one) to the second server, each
    over a channel you trust, and keep `DIR/authority` offline: it is what adds silos later. Unless this is a rehearsal, draws
    become secret, and Paillier keys that are left at their usual size get 3072 bits. Example:

        covey keys make my.toml --silos north,south --out keys
        covey keys make my.toml --silos north,south --hosts fed.example.org --out keys
        covey keys make my.toml --requests requests --hosts fed.example.org --out keys

    With --requests silos have made their own keys: their private halves are not here, and each gets an invitation, which only it
    can open, in the place of a folder.
    """
    from covey import config
    from covey.experiment.presets import table_of

    table = table_of(source, set_ or [])
    if rehearsal:
        table = config.assign(table, "deployment.rehearsal=true")

    from covey.algorithms.contract import declaration
    from covey.deploy.keys import (
        check_described,
        deployed,
        keyed_draws,
        load,
        make,
        protected,
        quorum_held,
        weak_delta,
    )
    from covey.deploy.membership.records import SERVER
    from covey.deploy.membership.requests import fingerprint, read_requests
    from covey.experiment.experiment import Experiment

    if requests is not None and (silos or own is not None):
        raise CoveyError(
            "--requests was given with --silos or --own: a request names its silo and has its key, leave those out"
        )
    check_described(table)
    asked = [] if requests is None else read_requests(requests)
    experiment, names = Experiment.of(protected(table)), [one.name for one in asked] or comma_separated(silos)
    make(experiment, asked or names, comma_separated(hosts), out, own)
    for name in sorted(p.name for p in out.iterdir() if p.name not in ("authority", "silos", "invitations")):
        print(f"{out / name}  for the {name}")
    for name in () if asked else names:
        print(f"{out / 'silos' / name}  for the silo {name}")
    for one in asked:
        print(
            f"{out / 'invitations' / one.name}.invitation  for the silo {one.name}, whose keys are {fingerprint(one)}"
        )
    print(f"{out / 'authority'}  for nobody: keep it offline, `covey keys {'approve' if asked else 'add'}` needs it")
    if asked:
        print(
            "before you send an invitation, have its silo read out the fingerprint of its request: it must be the one above"
        )
        _warn_of_dealt(out)
    if rehearsal:
        print(
            "a rehearsal: all randomness follows from the seed that everybody has; not for data that is to stay private"
        )
    elif deployed(experiment) != experiment:
        print("changed for real parties: " + ", ".join(_changes(experiment.algorithm, deployed(experiment).algorithm)))
    for name in () if rehearsal else keyed_draws(experiment):
        print(
            f"{name} is not covey's: what its clients draw with `me.random` comes from a seed of each silo's own, by a generator "
            "that is not made for secrets; noise that is to protect must come from `me.noise`"
        )
    if experiment.encryption != Experiment.of(table).encryption:
        print(
            f"encryption = {experiment.encryption!r}, since the experiment chooses none: no silo alone opens what others seal"
        )
    if quorum := quorum_held(declaration(experiment.algorithm), load(out / SERVER)[0].keys):
        lying = min(quorum, max(1, 2 * quorum - len(names)))
        print(
            f"{quorum} of {len(names)} silos open a sum together; a coordinator that lies needs {lying} of them to read another's "
            "upload: a larger quorum needs more"
        )
    for sentence in () if rehearsal else weak_delta(experiment):
        print(sentence)
    if own is not None:
        print("each silo puts its own NAME.key into its folder as opening.key; no such key was made here")
    if not hosts:
        print("the certificate is for this machine only: silos on others need --hosts (`covey keys renew`)")


def own(
    name: Annotated[Path, typer.Argument(help="Where to write it: NAME.key, which stays here, and NAME.pub.")],
) -> None:
    """Make a silo's own key, where the silo is.

    For encryption = "threshold" without a dealer: every silo runs this and hands out NAME.pub, `covey keys make --own` takes all
    of them, and NAME.key goes into the silo's folder as opening.key. Compare fingerprints with the other silos. Example:

        covey keys own north
    """
    import hashlib

    from covey.deploy.keys import make_own

    public = make_own(name)
    print(f"{name.with_suffix('.key')}  stays here: nobody else may have it")
    print(
        f"{name.with_suffix('.pub')}  for who makes the deployment's keys; fingerprint {hashlib.sha256(public).hexdigest()[:16]}"
    )


def add(
    folder: Folder,
    name: Annotated[str, typer.Argument(help="The new silo's name.")],
) -> None:
    """Make the folder of one more silo.

    The server gets two public files; nobody else's folder changes. Example:

        covey keys add keys east
    """
    from covey.deploy.keys import add

    add(folder, name)
    nodes = folder / "server" / "nodes"
    print(f"{folder / 'silos' / name}  for the silo {name}")
    print(f"{nodes / name}.pub and .bin  to be copied into the server's `nodes` folder")


def request(
    folder: Annotated[Path, typer.Argument(metavar="NAME", help="A new folder; its last part is the silo's name.")],
    renew: Annotated[
        bool, typer.Option("--renew", help="Of a silo that is in: other keys in the place of its present ones.")
    ] = False,
) -> None:
    """Make a silo's own keys, where the silo is, and ask for admission.

    All its private keys stay in the folder; NAME.request goes to who runs the federation, by any way, and its fingerprint by
    telephone. Examples:

        covey keys request north
        covey keys request north --renew
    """
    from covey.deploy.membership.requests import ask, ask_again, fingerprint

    asked = ask_again(folder) if renew else ask(folder)
    print(f"{folder}  stays here: its private keys are for nobody else")
    print(f"{folder / asked.name}.request  for who runs the federation; fingerprint {fingerprint(asked)}")


def approve(
    folder: Folder,
    path: Annotated[Path, typer.Argument(metavar="REQUEST", help="The silo's NAME.request.")],
    fingerprint: Fingerprint = "",
) -> None:
    """Admit a silo that has made its own keys.

    A running server lets it in within a second. Of a silo that is in already, this replaces its keys. Its invitation can be
    sent by any way: only that silo opens it. Example:

        covey keys approve keys east.request --fingerprint "3f2a 9c10 77b1 0d4e 8e52 aa01 5c3b 9d20"
    """
    from covey.deploy import keys
    from covey.deploy.membership import requests

    asked = requests.read_request(path)
    requests.check_fingerprint(fingerprint, requests.fingerprint(asked), f"{asked.name}'s")
    invitation, shared = keys.approve(folder, asked)
    print(f"{invitation}  for the silo {asked.name}, whose keys are {requests.fingerprint(asked)}")
    print(f"the federation's fingerprint, which {asked.name} must see, too: {shared}")
    nodes = folder / "server" / "nodes" / asked.name
    print(f"{nodes}.pub and .bin  to be copied into the server's `nodes` folder, where that is another one")
    if not fingerprint:
        print(
            "before you send the invitation, have its silo read out its request's fingerprint: it must be the one above"
        )
    _warn_of_dealt(folder)


def accept(
    folder: Annotated[Path, typer.Argument(metavar="NAME", help="The folder that `covey keys request` made.")],
    invitation: Annotated[Path, typer.Argument(help="NAME.invitation, as it came.")],
    fingerprint: Fingerprint = "",
) -> None:
    """Take an invitation: then the folder is ready for `covey join`.

    Example:

        covey keys accept north north.invitation
    """
    from covey.deploy.membership import requests
    from covey.deploy.membership.records import read_foreign

    if not folder.is_dir():
        raise CoveyError(f"{folder} is no folder: give the one that `covey keys request` made")
    party, shared = requests.accept(
        folder, read_foreign(invitation, "invitation", requests.INVITATION_BYTES, requests.ASK), fingerprint
    )
    print(f"{folder}  is complete: {party.name} is {party.role}; `covey join {folder} --data …`")
    print(f"the federation's fingerprint: {shared}")
    if not fingerprint:
        print(
            "compare it with who invited you and with other silos, by telephone, before you join: it is the same at all"
        )


def revoke(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="The server's folder, as `covey serve --keys` has it; it may run.")
    ],
    name: Annotated[str, typer.Argument(help="The silo that is to take part no more.")],
) -> None:
    """Shut a silo out, at once and for good.

    A running server refuses its next call, and its round goes on without it. What the silo has learned, and a key that all
    silos share, stays with it: then make new keys for the others. Example:

        covey keys revoke keys/server north
    """
    from covey.deploy.keys import remaining
    from covey.deploy.membership.roll import revoke, server_folder

    server = server_folder(folder)
    record = revoke(server, name)
    print(f"{name} ({record.role}) is revoked since {record.when}: its keys are let in no more")
    for sentence in remaining(server):
        print(sentence)


def renew(folder: Folder, hosts: Hosts = "") -> None:
    """Another certificate for the server.

    For other hosts, or before the old one ends. Silos need not be told. Example:

        covey keys renew keys --hosts fed.example.org,10.0.0.5
    """
    from covey.deploy.keys import renew

    renew(folder, comma_separated(hosts))
    print(
        f"{folder / 'server' / 'server'}.crt and .key  to be copied into the server's folder; a running server takes them"
    )


def inspect(
    folder: Annotated[Path, typer.Argument(help="The folder that `covey keys make` wrote, or one party's.")],
) -> None:
    """Who holds what, and who could decrypt.

    Shows fingerprints, never a secret.
    """
    if not folder.is_dir():
        raise CoveyError(f"{folder} is no folder: give the one that `covey keys make` wrote, or one party's")

    from covey.deploy.membership.inventory import inspect
    from covey.report.text_table import terminal_width, text_table

    rows, able, last = [["party", "holds", "", "fingerprint", "can open"]], dict[str, bool](), ""
    for item in inspect(folder):
        party = "" if item.party == last else item.party
        rows.append([party, item.what, "secret" if item.secret else "public", item.fingerprint, item.opens])
        last, able[item.party] = item.party, able.get(item.party, False) or bool(item.opens)
    print("\n".join(text_table(rows, width=terminal_width())))
    print(f"can open nothing: {', '.join(party for party, opens in able.items() if not opens) or 'nobody'}")


def _warn_of_dealt(folder: Path) -> None:
    """What of the silos' key material was made here, and so is known here."""
    from covey.deploy.membership.inventory import dealt

    for what in dealt(folder / "authority"):
        print(
            f"dealt here, and in {folder / 'authority'}: {what}; who has that can open what silos seal, so it must not be the "
            "coordinator"
        )


def _changes(before: Any, after: Any) -> Iterator[str]:
    for field in fields(before):
        if getattr(before, field.name) != getattr(after, field.name):
            yield f"algorithm.{field.name} = {getattr(after, field.name)!r}"
