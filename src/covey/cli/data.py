"""The commands about datasets: which are here, fetch one, verify it, write it as the folders of silos."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from covey.cli.options import Dataset, Sets, Source, comma_separated
from covey.errors import CoveyError


def list_() -> None:
    """Which datasets are present, and where they were looked for."""
    from covey.data.sources.store import Entry, inventory
    from covey.report.format import size
    from covey.report.text_table import terminal_width, text_table

    def state(entry: Entry) -> str:
        if not entry.present:
            return "missing: covey data get" if entry.fetchable else "missing: get by hand"
        return f"{size(entry.bytes)}, {entry.paths[0].name}" if entry.paths else "embedded or generated"

    entries = inventory()
    rows = [[entry.name, state(entry), entry.title] for entry in entries]
    print("\n".join(text_table(rows, indent="  ", width=terminal_width())))
    print(f"looked in {entries[0].folder} (COVEY_DATA sets the folder)")


def check(name: Dataset, set_: Sets = None) -> None:
    """Decode a dataset, or look at a file or folder of your own.

    Of a dataset that covey knows it verifies shapes and checksums (of a file without a published checksum it says so). Of a path
    it says what it sees, what it will do, and how to run it; --set data.label=… and its like tell what is guessed wrong. Examples:

        covey data check mnist
        covey data check hearts.csv --set data.client=hospital
    """
    from covey.data.names import is_path
    from covey.data.sources.store import check

    if is_path(name):
        from covey import config
        from covey.data.own.inspection import inspect
        from covey.data.own.rules import Rules

        table: dict[str, Any] = {}
        for assignment in set_ or []:
            table = config.assign(table, assignment)
        strange = sorted(set(table) - {"data"})
        if strange:
            raise CoveyError(
                f"--set {strange[0]}=… says nothing about data: here set keys of the table [data], as data.label=…"
            )
        print("\n".join(inspect(name, config.build(Rules, table.get("data", {}), "data."))))
        return
    if set_:
        raise CoveyError(f"--set tells how a file or folder of your own is read, {name} is covey's: leave it out")

    report = check(name)
    shape = "×".join(map(str, report.shape))
    counts = f"{report.train:,} training and {report.test:,} test samples of {shape}, {report.classes} classes"
    print(f"{report.name}: {counts}")
    for line in filter(None, (report.note, report.stand_in)):
        print(f"  {line}")
    for path, word in report.checksums:
        print(f"  {path}: {word} checksum")


def get(name: Dataset) -> None:
    """Download a dataset, or go on with it, and verify it."""
    from covey.data.sources.store import get
    from covey.report.progress import Progress

    with Progress(100, f"get {name}", unit="percent") as bar:
        paths = get(
            name, lambda file, done, total: bar.update(done=round(100 * done / total) if total else 0, note=file)
        )
    print("\n".join(map(str, paths)) if paths else f"{name} is generated or embedded: nothing to fetch")


def export(
    source: Source,
    out: Annotated[Path, typer.Option("--out", help="Gets one folder per silo.")],
    silos: Annotated[str, typer.Option(help="Names, for client 0, 1, …; none: silo-0, silo-1, … for all.")] = "",
    set_: Sets = None,
) -> None:
    """A simulated federation as folders, to rehearse with.

    Each folder holds train.npz (the client's samples, in the simulation's order) and test.npz. Example:

        covey data export ifca-digits --silos north,south --out rehearsal/data
    """
    from covey.experiment.presets import table_of

    table = table_of(source, set_ or [])

    from covey.deploy.export import export
    from covey.experiment.experiment import Experiment

    print("\n".join(map(str, export(Experiment.of(table), out, comma_separated(silos)))))
