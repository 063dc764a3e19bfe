"""The command line: nothing but argument handling. Bad input ends in one sentence and a non-zero exit, never a traceback."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import Annotated, Any

import click
import typer

from covey.cli.deploy import csp, join, serve
from covey.cli.keys import data_export, keys_app
from covey.cli.listing import list_command
from covey.errors import CoveyError, nearest

app = typer.Typer(
    name="covey",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    help="Private clustered federated learning: train it, protect it, attack it, audit it, deploy it.",
)
data_app = typer.Typer(no_args_is_help=True, help="Datasets: what is there, download, verify.")
app.add_typer(data_app, name="data")
app.add_typer(keys_app, name="keys")
app.command("list")(list_command)
for party in (serve, join, csp):
    app.command()(party)

Source = Annotated[str, typer.Argument(help="A TOML file or the name of a preset (`covey list presets`).")]
Sets = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Change one key, e.g. `--set training.lr=0.1`; repeatable."),
]
Out = Annotated[
    Path | None, typer.Option("--out", help="Folder for the run; default `runs/<algorithm>-<dataset>-<number>`.")
]
Json = Annotated[bool, typer.Option("--json", help="Print result.json on standard output and nothing else there.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")]
Log = Annotated[
    list[str] | None, typer.Option("--log", metavar="LOGGER", help="Also log to `tensorboard` or `mlflow`; repeatable.")
]
Sweeps = Annotated[
    list[str] | None,
    typer.Option("--sweep", metavar="KEY=A,B,…", help="Run every combination of such values; repeatable."),
]


@app.command("run")
def run_command(
    source: Source = "",
    set_: Sets = None,
    out: Out = None,
    log: Log = None,
    as_json: Json = False,
    quiet: Quiet = False,
    sweep: Sweeps = None,
    seeds: Annotated[int, typer.Option(min=0, help="So many seeds of every setting, side by side.")] = 0,
    yes: Annotated[bool, typer.Option("--yes", help="With --sweep: yes, more than 500 runs.")] = False,
) -> None:
    """Run one experiment and write its report; with --sweep or --seeds several, side by side, and compare them.

    Without arguments: the main job, in about a minute. Examples:

        covey run ifca-mnist --set training.rounds=20 --set seeds=3
        covey run my.toml --out runs/first
        covey run ifca-digits --sweep training.lr=0.1,0.01 --sweep clusters=3,5 --seeds 5
    """
    from covey import loggers
    from covey.experiment.experiment import Experiment
    from covey.report.terminal import show
    from covey.rounds.loop import run

    table = _table(source, set_ or [])
    if sweep or seeds:
        if log:
            raise CoveyError("--log follows one run: leave it out of a sweep, or log the runs one by one")
        asked = [source] * bool(source) + [f"--set={s}" for s in set_ or []] + [f"--sweep={s}" for s in sweep or []]
        _sweep(table, sweep or [], seeds, out, as_json, quiet, yes, [*asked, *([f"--seeds={seeds}"] if seeds else [])])
        return
    experiment = Experiment.of(table)
    folder = out or (Path(experiment.out) if experiment.out else _free_folder(experiment))
    command = "covey run " + _typed([*([source] if source else []), *(f"--set={s}" for s in set_ or [])])
    watching = loggers.named(log or [], folder)
    result = run(experiment, out=folder, callbacks=watching, quiet=quiet or as_json, command=command.strip())
    show(result, as_json)


@app.command()
def resume(
    folder: Annotated[Path, typer.Argument(help="The folder of an interrupted run.")],
    log: Log = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Go on after an interruption, to the same result."""
    from covey import loggers
    from covey.report.terminal import show
    from covey.results.folder import RunFolder
    from covey.rounds.loop import run

    experiment = RunFolder(folder).experiment()
    command, watching = f"covey resume {folder}", loggers.named(log or [], folder)
    result = run(experiment, out=folder, callbacks=watching, resume=True, quiet=quiet or as_json, command=command)
    show(result, as_json)


@app.command()
def compare(
    folders: Annotated[list[Path], typer.Argument(help="Folders of finished runs.")],
    out: Annotated[Path, typer.Option(help="The page to write.")] = Path("comparison.html"),
) -> None:
    """Runs side by side on one page, differences in configuration highlighted."""
    from covey.report.page import write_comparison
    from covey.results.folder import RunFolder

    for folder in folders:
        RunFolder(folder).result_json()
    print(write_comparison(folders, out))


@app.command()
def audit(
    source: Annotated[str, typer.Argument(help="A TOML file, a preset, or the folder of a run.")] = "",
    set_: Sets = None,
    matrix: Annotated[bool, typer.Option(help="Algorithms × defences, one line each.")] = False,
    algorithms: Annotated[str, typer.Option(help="With --matrix: e.g. `ifca,mingledpie`; none: seven of them.")] = "",
    defences: Annotated[
        str, typer.Option(help="With --matrix: e.g. `none,ldp,ckks,ldp+ckks`; none: six of them.")
    ] = "",
    out: Annotated[Path | None, typer.Option(help="Default `runs/audit-<algorithm or matrix>-<dataset>`.")] = None,
    docs: Annotated[bool, typer.Option(help="Also keep the result in `docs/results`.")] = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Every attack that applies, from every vantage, in one matrix: what could leak × who might learn it.

    Runs that are finished are not run again; interrupted ones go on. Examples:

        covey audit ifca-digits
        covey audit runs/ifca-digits-1
        covey audit ifca-digits --matrix --algorithms ifca,mingledpie --defences none,ldp,ckks
    """
    from covey.audit.runs import DEFENDED, SURVEYED, store, survey, write
    from covey.audit.runs import audit as audit_one
    from covey.audit.text import lines
    from covey.experiment.experiment import Experiment

    if (algorithms or defences) and not matrix:
        raise CoveyError("--algorithms and --defences list what to compare: add --matrix")
    config_of_run = Path(source) / "config.toml"
    experiment = Experiment.of(_table(str(config_of_run) if config_of_run.is_file() else source, set_ or []))
    subject = "matrix" if matrix else experiment.algorithm.name
    folder = out or Path("runs") / f"audit-{subject}-{experiment.dataset.replace(':', '-')}"
    asked = [source] * bool(source) + [f"--set={s}" for s in set_ or []] + ["--matrix"] * matrix
    asked += [f"--algorithms={algorithms}"] * bool(algorithms) + [f"--defences={defences}"] * bool(defences)
    command = f"covey audit {_typed(asked)}".strip()
    wanted = (algorithms.split(",") if algorithms else SURVEYED, defences.split(",") if defences else DEFENDED)
    silent, made = quiet or as_json, []
    for one in (
        survey(experiment, folder, *wanted, quiet=silent) if matrix else [audit_one(experiment, folder, quiet=silent)]
    ):
        made.append(one)
        paths = write(made, folder, command)  # after each: an interrupted comparison can be looked at
    if docs:
        store(made, Path("docs"), folder.name, command)
    print(paths[0].read_text(encoding="utf-8") if as_json else "\n".join([*lines(made), "", f"page  {paths[1]}"]))


@app.command()
def ui(
    folder: Annotated[Path, typer.Argument(help="The folder that holds your runs.")] = Path("runs"),
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: 8420, or any free one.")] = 0,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open it in the browser.")] = True,
) -> None:
    """A local page: the runs of a folder, live progress, reports, comparisons. It reads only, and answers this machine only."""
    from covey.ui.server import serve

    serve(folder, port, browser)


@data_app.command("list")
def data_list() -> None:
    """Which datasets are present, and where they were looked for."""
    from covey.data.sources.store import inventory
    from covey.report.format import size

    entries = inventory()
    for e in entries:
        state = ("embedded or generated" if not e.paths else size(e.bytes)) if e.present else "-"
        how = "" if e.present else ("covey data get" if e.fetchable else "by hand")
        print(f"  {e.name:<18} {state:<22} {how:<15} {e.title}")
    print(f"looked in {entries[0].folder} (COVEY_DATA sets the folder)")


@data_app.command("check")
def data_check(name: Annotated[str, typer.Argument(help="A dataset (`covey data list`).")]) -> None:
    """Decode a dataset and verify its shapes and, where they are known, its checksums."""
    from covey.data.sources.store import check

    found = check(name)
    shape = "×".join(map(str, found.shape))
    print(f"{found.name}: {found.train:,} training and {found.test:,} test samples of {shape}, {found.classes} classes")
    for line in filter(None, (found.note, found.stand_in)):
        print(f"  {line}")
    for path, word in found.checksums:
        print(f"  {path}: {word} checksum")


@data_app.command("get")
def data_get(name: Annotated[str, typer.Argument(help="A dataset (`covey data list`).")]) -> None:
    """Download a dataset, resuming where an earlier download stopped, and verify it."""
    from covey.data.sources.store import get
    from covey.report.progress import Progress

    with Progress(100, f"get {name}", unit="percent") as bar:
        paths = get(
            name, lambda file, done, total: bar.update(done=round(100 * done / total) if total else 0, note=file)
        )
    print("\n".join(str(p) for p in paths) if paths else f"{name} is generated or embedded: nothing to fetch")


data_app.command("export")(data_export)


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def bench(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="One benchmark, or all.")] = "",
) -> None:
    """The benchmarks, as ratios against peers measured in the same run. Needs a source checkout with `make bench`."""
    import subprocess

    folder = Path(__file__).resolve().parents[3] / "benchmarks"
    scripts = {p.stem.removeprefix("bench_"): p for p in sorted(folder.glob("bench_*.py"))}
    if not scripts:
        raise CoveyError("the benchmarks are part of the source checkout, not of the installed package: clone it first")
    if name and name not in scripts:
        raise CoveyError(f"unknown benchmark '{name}'{nearest(name, list(scripts))}")
    gpu_only = {n for n in scripts if n.endswith("_gpu")}
    for chosen in [name] if name else [n for n in scripts if n not in gpu_only]:
        print(f"== {chosen}", flush=True)
        done = subprocess.run([sys.executable, str(scripts[chosen]), *context.args], check=False)
        if done.returncode:
            raise CoveyError(f"benchmark '{chosen}' failed (exit {done.returncode})")


@app.command()
def reproduce(
    paper: Annotated[str, typer.Argument(help="A paper (`covey reproduce` lists them).")] = "",
    table: Annotated[str, typer.Option(help="e.g. `table3`, `fig3`; none: list the paper's tables.")] = "",
    dataset: Annotated[str, typer.Option(help="One of the table's datasets; none: its first.")] = "",
    quick: Annotated[bool, typer.Option(help="A variant of a few minutes.")] = False,
    seeds: Annotated[int, typer.Option(min=0, help="Repetitions; 0: the table's own number.")] = 0,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    workers: Annotated[int, typer.Option(min=0, help="Worker processes; 0: one per core on a CPU.")] = 0,
    out: Annotated[Path | None, typer.Option(help="Default `runs/reproduce-<paper>`; holds the runs, too.")] = None,
    docs: Annotated[bool, typer.Option(help="Store the result in `docs/results` and write `docs/results.md`.")] = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """A paper's table: its figures beside ours, a verdict per claim, as text, JSON and HTML.

    Runs that are finished are not run again; interrupted ones go on. Examples:

        covey reproduce mingledpie
        covey reproduce mingledpie --table table3 --dataset mnist --quick
        covey reproduce --docs
    """
    from covey.papers import PAPERS, present
    from covey.papers.harness import Options, reproduce, tables

    if not table and not docs:
        for name in [paper] if paper else PAPERS:
            print(name)
            for label, one in tables(name).items():
                print(f"  {label:<8} {one.about} [{', '.join(d for d in one.datasets if d) or 'no data'}]")
    elif table:
        asked = [paper, "--table", table, *(["--dataset", dataset] if dataset else []), *(["--quick"] if quick else [])]
        command = "covey reproduce " + _typed([*asked, *(["--seeds", str(seeds)] if seeds else [])])
        folder = out or Path("runs") / f"reproduce-{paper}"
        options = Options(folder, dataset, quick, seeds, device, workers, quiet or as_json)
        made = reproduce(paper, table, options, command)
        paths = present.write(made, folder)
        if docs:
            present.store(made, Path("docs"))
        print(json.dumps(made.json(), indent=1) if as_json else "\n".join([*present.lines(made), str(paths[-1])]))
    if docs:
        print(present.write_document(Path("docs")), file=sys.stderr)


def _sweep(
    table: dict[str, Any],
    sweeps: list[str],
    seeds: int,
    out: Path | None,
    as_json: bool,
    quiet: bool,
    yes: bool,
    asked: list[str],
) -> None:
    from covey.sweep.grid import sweep
    from covey.sweep.text import lines

    command = f"covey run {_typed(asked)}"
    try:
        made = sweep(table, sweeps, seeds, out, quiet=quiet or as_json, yes=yes, command=command)
    except KeyboardInterrupt:
        print("\ncovey: interrupted; what is finished is kept: the same command goes on", file=sys.stderr)
        sys.exit(130)
    print(json.dumps(made.json(), indent=1) if as_json else "\n".join(lines(made)))
    if made.failed:
        title, why = next(iter(made.failed.items()))
        more = f" and {len(made.failed) - 1} more" if len(made.failed) > 1 else ""
        raise CoveyError(f"{title}{more} failed ({why}); the others are kept, and the same command tries again")


def _typed(words: list[str]) -> str:
    """A command as one would type it: double quotes around what holds single ones, where the shell leaves it alone."""
    return " ".join(
        f'"{word}"' if "'" in word and not set(word) & set('"$`\\!') else shlex.quote(word) for word in words
    )


def _table(source: str, assignments: list[str]) -> dict[str, Any]:
    from covey.experiment.presets import table_of

    return table_of(source, assignments)


def _free_folder(experiment: Any) -> Path:
    stem = f"{experiment.algorithm.name}-{experiment.dataset.replace(':', '-')}"
    number = 1
    while (Path("runs") / f"{stem}-{number}").exists():
        number += 1
    return Path("runs") / f"{stem}-{number}"


def main() -> None:
    """The console script."""
    try:
        code = app(standalone_mode=False)  # typer turns Ctrl-C into the exit code 130
    except CoveyError as e:
        print(f"covey: {e}", file=sys.stderr)
        sys.exit(2)
    except click.ClickException as e:  # a mistake in the arguments: click knows how to say it
        e.show()
        sys.exit(e.exit_code)
    except click.Abort:
        code = 130
    if code == 130:
        print("\ncovey: interrupted; finished rounds are kept: continue with `covey resume FOLDER`", file=sys.stderr)
    sys.exit(code if isinstance(code, int) else 0)
