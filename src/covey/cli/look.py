"""The commands that look at what there is: list, compare, ui."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from covey.cli.registries import REGISTRIES, registries
from covey.errors import CoveyError, nearest
from covey.files import expect, write_atomically
from covey.names import OURS, Entry
from covey.report.text_table import terminal_width, text_table

LISTS = (*REGISTRIES, "presets")
READ = {"flat": "28×28", "image": "32×32×3", "tokens": "tokens"}  # the inputs that declared counts are for


def kinds(incomplete: str) -> list[str]:
    return [kind for kind in LISTS if kind.startswith(incomplete)]


def list_(
    what: Annotated[
        str,
        typer.Argument(
            help=f"{', '.join(LISTS[:-1])} or {LISTS[-1]}; none: all.",
            autocompletion=kinds,
        ),
    ] = "",
) -> None:
    """What there is, one line each.

    Examples:

        covey list
        covey list presets
    """
    if what and what not in LISTS:
        raise CoveyError(f"there is no list of '{what}'{nearest(what, LISTS)}")
    for kind in [what] if what else LISTS:
        if not what:
            print(f"\n{kind}")
        print("\n".join(text_table(_rows(kind), indent="  ", right=(1,) * (kind == "models"), width=terminal_width())))
        for _, registry in registries(kind):
            for sentence in registry.broken:
                print(f"covey: {sentence}", file=sys.stderr)


def compare(
    folders: Annotated[list[Path], typer.Argument(help="Folders of finished runs.")],
    out: Annotated[Path | None, typer.Option(help="The file to write; a page: comparison.html.")] = None,
    form: Annotated[str, typer.Option("--format", metavar="FORM", help="html, csv, latex or markdown.")] = "html",
) -> None:
    """Runs side by side on one page, differences marked.

    Or their figures as a table, on standard output unless a file is named.

    Examples:

        covey compare runs/ifca-digits-1 runs/mingledpie-digits-1
        covey compare runs/* --format latex --out table.tex
    """
    for folder in folders:
        expect(folder, "result.json")

    from covey.report.comparison import named
    from covey.report.comparison_table import FORMS
    from covey.report.page import write_comparison
    from covey.results.folder import RunFolder

    if form != "html" and form not in FORMS:
        raise CoveyError(f"there is no format '{form}'{nearest(form, ['html', *FORMS])}")
    for folder in folders:
        RunFolder(folder).result_json()
    if form == "html":
        print(write_comparison(folders, out or Path("comparison.html")))
        return
    text = FORMS[form](named([RunFolder(folder).read() for folder in folders]))
    if out is None:
        print(text, end="")
    else:
        write_atomically(out, text.encode())
        print(out)


def ui(
    folder: Annotated[Path, typer.Argument(help="The folder that holds your runs.")] = Path("runs"),
    port: Annotated[int, typer.Option(metavar="N", min=0, max=65535, help="0: 8420, or any free one.")] = 0,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open it in the browser.")] = True,
) -> None:
    """A local page of your runs: live progress, reports.

    Comparisons, too. It reads only, and answers this machine only.
    """
    from covey.ui.server import serve

    serve(folder, port, browser)


def _rows(kind: str) -> list[list[str]]:
    """A line for each thing; of what another package brought, also which one that is."""
    if kind == "presets":
        from covey.experiment.presets import ABOUT, PRESETS

        return [[name, ABOUT[name]] for name in PRESETS]
    entries = [
        (family, entry, registry.word(entry)) for family, registry in registries(kind) for entry in registry.entries
    ]
    if kind == "models":  # the smallest first
        entries.sort(key=lambda row: row[1].declared.get("parameters", 0))
        return [[word, *_size(entry), _title(entry)] for _, entry, word in entries]
    entries.sort(key=lambda row: (row[0], row[1].name))
    return [[word, *([family] if family else []), _title(entry)] for family, entry, word in entries]


def _title(entry: Entry) -> str:
    return entry.title if entry.origin == OURS else f"{entry.title} [{entry.origin}]".strip()


def _size(entry: Entry) -> list[str]:
    count, layout = entry.declared.get("parameters"), str(entry.declared.get("layout"))
    return [f"{count:,} parameters", f"for {READ.get(layout, layout)} and 10 classes"] if count else ["", ""]
