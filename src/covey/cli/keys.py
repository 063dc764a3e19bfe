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


def make(
    source: Source,
    silos: Annotated[str, typer.Option(help="Names of the silos, e.g. `north,south,west`; the first is client 0.")],
    out: Annotated[Path, typer.Option("--out", help="A new folder; nothing is ever overwritten.")],
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
    """
    from covey import config
    from covey.experiment.presets import table_of

    table = table_of(source, set_ or [])
    if rehearsal:
        table = config.assign(table, "deployment.rehearsal=true")

    from covey.algorithms.contract import declaration
    from covey.deploy.keys import SERVER, deployed, keyed_draws, load, make, protected, quorum_held
    from covey.experiment.experiment import Experiment

    experiment, names = Experiment.of(protected(table)), comma_separated(silos)
    make(experiment, names, comma_separated(hosts), out, own)
    for name in sorted(p.name for p in out.iterdir() if p.name not in ("authority", "silos")):
        print(f"{out / name}  for the {name}")
    for name in names:
        print(f"{out / 'silos' / name}  for the silo {name}")
    print(f"{out / 'authority'}  for nobody: keep it offline, `covey keys add` needs it")
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


def renew(folder: Folder, hosts: Hosts = "") -> None:
    """Another certificate for the server.

    For other hosts, or before the old one ends. Silos need not be told. Example:

        covey keys renew keys --hosts fed.example.org,10.0.0.5
    """
    from covey.deploy.keys import renew

    renew(folder, comma_separated(hosts))
    print(
        f"{folder / 'server' / 'server'}.crt and .key  to be copied into the server's folder, before it is started again"
    )


def inspect(
    folder: Annotated[Path, typer.Argument(help="The folder that `covey keys make` wrote, or one party's.")],
) -> None:
    """Who holds what, and who could decrypt.

    Shows fingerprints, never a secret.
    """
    if not folder.is_dir():
        raise CoveyError(f"{folder} is no folder: give the one that `covey keys make` wrote, or one party's")

    from covey.deploy.inventory import inspect
    from covey.report.text_table import terminal_width, text_table

    rows, able, last = [["party", "holds", "", "fingerprint", "can open"]], dict[str, bool](), ""
    for item in inspect(folder):
        party = "" if item.party == last else item.party
        rows.append([party, item.what, "secret" if item.secret else "public", item.fingerprint, item.opens])
        last, able[item.party] = item.party, able.get(item.party, False) or bool(item.opens)
    print("\n".join(text_table(rows, width=terminal_width())))
    print(f"can open nothing: {', '.join(party for party, opens in able.items() if not opens) or 'nobody'}")


def _changes(before: Any, after: Any) -> Iterator[str]:
    for field in fields(before):
        if getattr(before, field.name) != getattr(after, field.name):
            yield f"algorithm.{field.name} = {getattr(after, field.name)!r}"
