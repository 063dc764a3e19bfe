"""The commands before a deployment: keys for every party, and a simulated federation as folders to rehearse with."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any

import typer

keys_app = typer.Typer(
    no_args_is_help=True,
    help="Keys of a deployment: every party's folder, made where you trust the machine. Then `serve`, `join`, `csp`.",
)
Folder = Annotated[Path, typer.Argument(metavar="DIR", help="The folder that `covey keys make` wrote.")]
Hosts = Annotated[
    str, typer.Option(help="Names and addresses by which silos reach the server, e.g. `fed.example.org,10.0.0.5`.")
]
Source = Annotated[str, typer.Argument(help="A TOML file or the name of a preset (`covey list presets`).")]
Sets = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Change one key, e.g. `--set training.lr=0.1`; repeatable."),
]


def data_export(
    source: Source,
    out: Annotated[Path, typer.Option("--out", help="Gets one folder per silo.")],
    silos: Annotated[str, typer.Option(help="Names, for client 0, 1, …; none: silo-0, silo-1, … for all.")] = "",
    set_: Sets = None,
) -> None:
    """Write a simulated federation's clients as the folders of real silos, to rehearse a deployment.

    Each folder holds train.npz (the client's samples, in the simulation's order) and test.npz. Example:

        covey data export ifca-digits --silos north,south,west --out rehearsal/data
    """
    from covey.deploy.export import export
    from covey.experiment.experiment import Experiment
    from covey.experiment.presets import table_of

    print("\n".join(map(str, export(Experiment.of(table_of(source, set_ or [])), out, _words(silos)))))


@keys_app.command("make")
def keys_make(
    source: Source,
    silos: Annotated[str, typer.Option(help="Names of the silos, e.g. `north,south,west`; the first is client 0.")],
    out: Annotated[Path, typer.Option("--out", help="A new folder; nothing is ever overwritten.")],
    hosts: Hosts = "",
    set_: Sets = None,
    rehearsal: Annotated[
        bool, typer.Option("--rehearsal", help="Everything drawn from the seed, as in the simulation. Not private.")
    ] = False,
) -> None:
    """Make all keys of a deployment, one folder for each party.

    Give `DIR/server` to the server, `DIR/silos/NAME` to each silo, `DIR/csp` (if there is one) to the second server, each
    over a channel you trust, and keep `DIR/authority` offline: it is what adds silos later. Unless this is a rehearsal, draws
    become secret, and Paillier keys that are left at their usual size get 3072 bits. Example:

        covey keys make my.toml --silos north,south,west --hosts fed.example.org --out keys
    """
    from covey import config
    from covey.deploy.keys import deployed, make
    from covey.experiment.experiment import Experiment
    from covey.experiment.presets import table_of

    table = table_of(source, set_ or [])
    if rehearsal:
        table = config.assign(table, "deployment.rehearsal=true")
    experiment, names = Experiment.of(table), _words(silos)
    make(experiment, names, _words(hosts), out)
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
    if not hosts:
        print("the certificate is for this machine only: silos on others need --hosts (`covey keys renew`)")


@keys_app.command("add")
def keys_add(
    folder: Folder,
    name: Annotated[str, typer.Argument(help="The new silo's name.")],
) -> None:
    """Make the folder of one more silo. The server gets two public files; nobody else's folder changes."""
    from covey.deploy.keys import add

    add(folder, name)
    nodes = folder / "server" / "nodes"
    print(f"{folder / 'silos' / name}  for the silo {name}")
    print(f"{nodes / name}.pub and .bin  to be copied into the server's `nodes` folder")


@keys_app.command("renew")
def keys_renew(folder: Folder, hosts: Hosts = "") -> None:
    """Another certificate for the server: for other hosts, or before the old one ends. Silos need not be told."""
    from covey.deploy.keys import renew

    renew(folder, _words(hosts))
    print(
        f"{folder / 'server' / 'server'}.crt and .key  to be copied into the server's folder, before it is started again"
    )


@keys_app.command("inspect")
def keys_inspect(
    folder: Annotated[Path, typer.Argument(help="The folder that `covey keys make` wrote, or one party's.")],
) -> None:
    """Who holds what, and who could decrypt. Shows fingerprints, never a secret."""
    from rich.console import Console
    from rich.table import Table

    from covey.deploy.inventory import inspect

    table = Table("party", "holds", "", "fingerprint", "can open", box=None, pad_edge=False)
    last, able = "", dict[str, bool]()
    for h in inspect(folder):
        word = "secret" if h.secret else "public"
        table.add_row("" if h.party == last else h.party, h.what, word, h.fingerprint, h.opens)
        last, able[h.party] = h.party, able.get(h.party, False) or bool(h.opens)
    Console(width=None if sys.stdout.isatty() else 160).print(table)
    print(f"can open nothing: {', '.join(party for party, opens in able.items() if not opens) or 'nobody'}")


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def _changes(before: Any, after: Any) -> Iterator[str]:
    for field in fields(before):
        if getattr(before, field.name) != getattr(after, field.name):
            yield f"algorithm.{field.name} = {getattr(after, field.name)!r}"
