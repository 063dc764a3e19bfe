"""`covey reproduce`: tables of the papers, one or many, and what each needs."""

from __future__ import annotations

import json
import math
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from covey.cli.interrupts import SAME_COMMAND, kept
from covey.cli.options import Device, Json, Quiet, papers
from covey.errors import CoveyError

if TYPE_CHECKING:
    from covey.papers.harness import Options, Reproduction
    from covey.papers.rehearsal import Item

NOT_MADE = 8  # tables that are named one by one


def reproduce(
    paper: Annotated[str, typer.Argument(help="A paper (`covey reproduce` lists them).", autocompletion=papers)] = "",
    table: Annotated[
        str, typer.Option(help="e.g. `table3`, `fig3`; none: its tables are listed, and its page is written.")
    ] = "",
    dataset: Annotated[str, typer.Option(help="One of the table's datasets; none: its first.")] = "",
    quick: Annotated[bool, typer.Option("--quick", help="A variant of a few minutes.")] = False,
    seeds: Annotated[int, typer.Option(min=0, metavar="N", help="Repetitions; 0: the table's own number.")] = 0,
    device: Device = "auto",
    workers: Annotated[int, typer.Option(min=0, metavar="N", help="Worker processes; 0: one per core on a CPU.")] = 0,
    many: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PATTERN",
            help="Tables like `pqfed/table?/mnist` in one pool of processes; repeatable. `runs.tar.xz` in `--out` holds the runs "
            "that have ended: copied to another machine's `--out`, they are not run again there.",
        ),
    ] = None,
    minutes: Annotated[
        float,
        typer.Option(
            min=0.0, help="With --many, or a paper without --table: when to break off; 0: make tables of what is there."
        ),
    ] = math.inf,
    plan: Annotated[
        bool,
        typer.Option("--plan", help="What every table needs, has and took, or those that are named; runs nothing."),
    ] = False,
    out: Annotated[Path | None, typer.Option(help="Default `runs/reproduce-<paper>`; holds the runs, too.")] = None,
    docs: Annotated[
        bool,
        typer.Option("--docs", help="Store the result in `docs/results` and write `docs/results.md`, `docs/papers`."),
    ] = False,
    browser: Annotated[
        bool, typer.Option("--browser/--no-browser", help="Open the page of a paper, where this is a terminal.")
    ] = True,
    mixed: Annotated[
        bool, typer.Option("--mixed", help="Take runs of different code, devices or arithmetic; the table is marked.")
    ] = False,
    arithmetic: Annotated[
        str,
        typer.Option(help="On a GPU: ieee, torch, tf32 or bf16. Each but ieee has a folder of its own in `--out`."),
    ] = "ieee",
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """A paper's table: its figures beside ours, claim by claim.

    With a verdict per claim, as text, JSON and HTML. Runs that are finished are not run again; interrupted ones go on. Without
    `--table` the paper's tables are listed, and one page with all that is known of it is written. Examples:

        covey reproduce mingledpie
        covey reproduce mingledpie --table table3 --dataset mnist --quick
        covey reproduce field --minutes 30
        covey reproduce --many 'afc_cfl/*/mnist' --many 'pqfed/table?/*' --minutes 60
        covey reproduce --docs
    """
    options_given = {
        "--plan": plan,
        "--many": bool(many),
        "--table": bool(table),
        "--dataset": bool(dataset),
        "--quick": quick,
        "--seeds": bool(seeds),
        "--device": device != "auto",
        "--workers": bool(workers),
        "--minutes": minutes < math.inf,
        "--mixed": mixed,
        "--arithmetic": arithmetic != "ieee",
        "--out": out is not None,
        "--docs": docs,
        "--json": as_json,
    }
    if math.isnan(minutes):
        raise CoveyError("--minutes is no number: give the minutes after which to break off, or leave it out")
    _refuse_unused(paper, {name for name, given in options_given.items() if given})

    from covey.papers import PAPERS, present
    from covey.papers.harness import Options, reproduce
    from covey.papers.pages.write import write_pages
    from covey.papers.plan import picked
    from covey.papers.pool import command_of
    from covey.papers.rehearsal import Item

    folder = out or Path("runs") / (f"reproduce-{paper}" if paper else "reproduce")
    folder = folder if arithmetic == "ieee" else folder / arithmetic
    options = Options(folder, dataset, quick, seeds, device, workers, quiet or as_json, mixed, arithmetic)
    if (paper or many) and not plan:
        _refuse_unfit(folder)
    if plan:
        _plan(picked(paper, table, dataset, many or ()), options, docs)
    elif many:
        _many(many, options, minutes, docs)
    elif paper and not table and minutes < math.inf:
        _many([f"{paper}/*/{dataset or '*'}"], options, minutes, docs)
    elif not table and not docs:
        _print_tables([paper] if paper else list(PAPERS))
        if paper:
            _open_paper(paper, folder, browser and sys.stdout.isatty())
    elif table:
        with kept(SAME_COMMAND):
            reproduction = reproduce(paper, table, options, command_of(Item(paper, table, dataset), options))
        paths = present.write(reproduction, folder)
        if docs:
            _store(reproduction)
        shown = [*present.lines(reproduction), str(paths[-1])]
        print(json.dumps(reproduction.json(), indent=1) if as_json else "\n".join(shown))
    if docs:
        print(write_pages(Path("docs")), file=sys.stderr)


NO_TABLE = "nothing is made without a table"


def _refuse_unused(paper: str, given: set[str]) -> None:
    """What nothing would come of: whoever says it expects something else than what would happen."""
    tables = [f"'{paper}'"] * bool(paper) + [name for name in ("--table", "--dataset") if name in given]
    if "--many" in given and tables:
        raise CoveyError(f"--many names tables by PAPER/TABLE/DATASET: leave out {' and '.join(tables)}")
    if "--table" in given and not paper:
        raise CoveyError("--table needs a paper: e.g. `covey reproduce mingledpie --table table3`")
    if "--plan" in given and "--docs" in given:
        if paper:
            raise CoveyError(f"--plan --docs writes docs/coverage.md of all papers: leave out '{paper}'")
        _leave_out(given - {"--plan", "--docs", "--out"}, "--plan --docs writes docs/coverage.md of all tables")
    elif "--plan" in given:
        used = {"--plan", "--many", "--table", "--dataset", "--quick", "--seeds", "--arithmetic", "--out"}
        _leave_out(given - used, "--plan runs nothing, and prints a list")
    elif "--minutes" in given and ("--table" in given or not (paper or "--many" in given)):
        raise CoveyError("--minutes is for --many, or for a paper without --table: say which tables")
    elif {"--many", "--minutes"} & given:
        _leave_out(given & {"--json"}, "JSON is printed of one table, named by --table")
    elif paper and given == {"--docs"}:
        raise CoveyError(f"--docs writes the pages of all papers: leave out '{paper}', or name a table with --table")
    elif paper and "--table" not in given:
        how = f", or say which with --table (`covey reproduce {paper}` lists them)"
        _leave_out(given - {"--out", "--arithmetic"}, NO_TABLE, how)
    elif not paper:
        _leave_out(given - {"--docs"}, NO_TABLE, ", or say which, e.g. `covey reproduce mingledpie --table table3`")


def _leave_out(unused: set[str], why: str, otherwise: str = "") -> None:
    if unused:
        raise CoveyError(f"{why}: leave out {' and '.join(sorted(unused))}{otherwise}")


def _refuse_unfit(folder: Path) -> None:
    """A folder that nothing can be written in, before anything is computed for it."""
    from covey.papers.packing import PACKED

    place = next(one for one in (folder, *folder.parents) if os.path.lexists(one))
    if (folder / PACKED).is_dir():
        raise CoveyError(f"{folder / PACKED} is a folder, where a pool keeps an archive: choose another --out")
    if place.is_symlink() and not place.exists():
        raise CoveyError(f"{place} is a link that leads nowhere: choose a folder with --out")
    if not place.is_dir():
        raise CoveyError(f"{place} is a file: choose a folder with --out")
    try:
        with tempfile.TemporaryFile(dir=place):
            pass
    except OSError as e:
        raise CoveyError(f"nothing can be written in {place} ({e.strerror}): choose another folder with --out") from e


def _store(reproduction: Reproduction) -> None:
    from covey.papers import present

    if why := present.less_than_stored(reproduction, Path("docs")):
        print(f"not stored  {why}", file=sys.stderr)
    else:
        present.store(reproduction, Path("docs"))


def _plan(wanted: Sequence[Item], options: Options, docs: bool) -> None:
    from covey.files import write_atomically
    from covey.papers import plan
    from covey.report.text_table import text_table

    lines = plan.lines_of(wanted, options, Path("docs") if docs else _documents())
    print("\n".join([*text_table([list(plan.HEAD), *(line.words() for line in lines)]), "", *plan.closing(lines)]))
    if docs:
        write_atomically(Path("docs/coverage.md"), plan.markdown(lines).encode())


def _many(patterns: Sequence[str], options: Options, minutes: float, docs: bool) -> None:
    """Runs what is missing, then makes the tables that have all their runs."""
    from covey.engines.simulate import cores
    from covey.papers import packing, pool, present
    from covey.report.format import counted

    wanted, problems = pool.chosen(patterns), list[str]()
    if taken := packing.unpack(options.out):
        print(
            f"unpacked  {counted(taken, 'run')} of {options.out / packing.PACKED} that were not in {options.out / 'runs'}"
        )
    if minutes:
        pool.refuse_absent_data(wanted)
        options.check_device()
        try:
            with kept(SAME_COMMAND):
                problems = pool.run_many(wanted, options, options.workers or cores(), minutes)
        finally:
            print(f"runs      {packing.pack(options.out)}")
    else:
        options.failed.update(pool.refused(options.out))
    made, lacking = pool.complete_tables(wanted, options)
    for reproduction in made:
        print(f"table     {present.write(reproduction, options.out)[-1]}")
        if docs:
            _store(reproduction)
    for item, why in list(lacking.items())[:NOT_MADE]:
        print(f"not made  {item.name}: {why}")
    if len(lacking) > NOT_MADE:
        print(f"not made  {len(lacking) - NOT_MADE} more: `covey reproduce --plan` lists all, with what they need")
    if lacking and 0 < minutes < math.inf:
        print(SAME_COMMAND)
    if problems:
        raise CoveyError(f"{len(problems)} runs or tables failed, the first of them: {problems[0]}")


def _documents() -> Path:
    """Where results are stored: here, else in the checkout that this code is of."""
    local, checkout = Path("docs"), Path(__file__).resolve().parents[3] / "docs"
    return local if (local / "results").is_dir() or not (checkout / "results").is_dir() else checkout


def _open_paper(paper: str, folder: Path, browser: bool) -> None:
    """The page with all that is stored of a paper: here, in the source checkout, and in the folder of its runs."""
    import webbrowser

    from covey.papers.pages.write import beside, write_paper

    path = write_paper(paper, folder, _documents())
    print("\n".join(beside(paper, folder, _documents())))
    if path is None:
        print(f"nothing of {paper} is stored yet: make a table with --table")
        return
    print(f"\npage  {path}")
    if browser:
        webbrowser.open(path.resolve().as_uri())


def _print_tables(names: Sequence[str]) -> None:
    from covey.papers.harness import tables
    from covey.report.text_table import terminal_width, text_table

    for name, own in [(name, tables(name)) for name in names]:
        print(name)
        rows = [
            [label, f"{table.about} [{', '.join(d for d in table.datasets if d) or 'no data'}]"]
            for label, table in own.items()
        ]
        print("\n".join(text_table(rows, indent="  ", width=terminal_width())))
