"""The commands of a deployment's parties: coordinator, silo, second server."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from covey.cli.interrupts import kept
from covey.cli.options import Device, Json, Quiet, presets
from covey.files import expect

ON_DISK = "what this party must not forget is on disk: start the same command again to go on"

Superlink = Annotated[str, typer.Option("--superlink", metavar="HOST:PORT", help="Where the coordinator listens.")]
Insecure = Annotated[
    bool, typer.Option("--insecure", help="No TLS and no node authentication: for a trial on one machine.")
]
LogForm = Annotated[
    str, typer.Option("--log", metavar="FORM", help="text: sentences; json: one object a line, on stderr.")
]
Metrics = Annotated[
    int | None,
    typer.Option(
        "--metrics",
        metavar="PORT",
        min=0,
        max=65535,
        help="Answer /metrics (Prometheus), /health and /status.json on 127.0.0.1; 0: any free port.",
    ),
]
PartyFolder = Annotated[Path, typer.Argument(help="This party's folder, as `covey keys make` made it.")]


def serve(
    experiment: Annotated[
        str, typer.Argument(help="The experiment that the keys were made for; may be left out.", autocompletion=presets)
    ] = "",
    keys: Annotated[Path, typer.Option("--keys", help="The server's folder, as `covey keys make` made it.")] = Path(
        "keys/server"
    ),
    address: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Where silos find this coordinator.")
    ] = "0.0.0.0:9092",
    out: Annotated[Path, typer.Option(help="Folder of the run; a run that is in it already goes on.")] = Path(
        "runs/deployed"
    ),
    insecure: Insecure = False,
    as_json: Json = False,
    log: LogForm = "text",
    metrics: Metrics = None,
    quiet: Quiet = False,
) -> None:
    """Coordinate real silos: start the server and wait for them.

    TLS and node authentication are on. Killed and started again, it goes on after the last finished round. Example:

        covey serve --keys keys/server --address 0.0.0.0:9092 --out runs/first
    """
    from covey.experiment.presets import table_of

    table = table_of(experiment, []) if experiment else None

    expect(keys, "party.bin")

    from covey.deploy.serve import check_same, serve
    from covey.report.terminal import show

    if table:
        check_same(table, keys)
    with kept(ON_DISK):
        silent = quiet or (as_json and log == "text")
        result = serve(keys, address, out, insecure=insecure, quiet=silent, log=log, metrics=metrics)
    show(result, as_json)


def join(
    folder: PartyFolder,
    data: Annotated[Path, typer.Option("--data", help="Folder with this silo's samples: .npz, .csv or images.")],
    superlink: Superlink = "127.0.0.1:9092",
    state: Annotated[Path | None, typer.Option(help="What this silo remembers; default `FOLDER/state`.")] = None,
    device: Device = "auto",
    share_accuracy: Annotated[
        bool, typer.Option("--share-accuracy", help="Tell the coordinator the accuracy on this silo's test samples.")
    ] = False,
    budget: Annotated[
        float | None,
        typer.Option(help="ε that this silo spends at most, over all runs with these keys; remembered beside them."),
    ] = None,
    insecure: Insecure = False,
    log: LogForm = "text",
    metrics: Metrics = None,
    quiet: Quiet = False,
) -> None:
    """Take part as a silo; its data never leave this machine.

    Ends when the run is over, with the silo's model in the state folder. Killed and started again, it goes on. Example:

        covey join keys/silos/north --data /srv/north --superlink fed.example.org:9092
    """
    expect(folder, "party.bin")

    from covey.deploy.serve import join

    with kept(ON_DISK):
        join(
            folder,
            data,
            superlink,
            state or folder / "state",
            device=device,
            share_accuracy=share_accuracy,
            insecure=insecure,
            quiet=quiet,
            budget=budget,
            log=log,
            metrics=metrics,
        )


def second_server(
    folder: PartyFolder,
    superlink: Superlink = "127.0.0.1:9092",
    state: Annotated[Path | None, typer.Option(help="What this party remembers; default `FOLDER/state`.")] = None,
    insecure: Insecure = False,
    log: LogForm = "text",
    metrics: Metrics = None,
    quiet: Quiet = False,
) -> None:
    """Be the second server of an algorithm that has two.

    It must not collude with the first: run it elsewhere, by others. Example:

        covey second-server keys/csp --superlink fed.example.org:9092
    """
    expect(folder, "party.bin")

    from covey.deploy import serve

    with kept(ON_DISK):
        serve.second_server(
            folder, superlink, state or folder / "state", insecure=insecure, quiet=quiet, log=log, metrics=metrics
        )


def status(
    place: Annotated[
        str,
        typer.Argument(help="The --out of `covey serve`, the --state of `covey join`, or the address of --metrics."),
    ] = "runs/deployed",
    as_json: Annotated[bool, typer.Option("--json", help="Print status.json on standard output.")] = False,
) -> None:
    """How a deployment's party is: rounds, who is late, alerts.

    Refusals and why, bytes, privacy spent and certificates, too. Ends with 1 where something wants a person. Examples:

        covey status runs/first
        covey status http://127.0.0.1:9464
    """
    import json

    from covey.errors import printable
    from covey.report.status import status_lines
    from covey.results.status import fetch, now, read

    status = fetch(place) if place.startswith(("http://", "https://")) else read(Path(place))
    lines = map(printable, status_lines(status, now()))  # whoever holds the port may have written them
    print(json.dumps(status.json(), indent=1) if as_json else "\n".join(lines))
    if status.troubles(now()):
        raise typer.Exit(1)
