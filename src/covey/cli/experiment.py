"""The commands that run experiments: run, resume, audit, bench."""

from __future__ import annotations

import json
import sys
import textwrap
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from covey.cli.interrupts import SAME_COMMAND, kept
from covey.cli.options import (
    Json,
    Log,
    Out,
    Quiet,
    Sets,
    Source,
    Sweeps,
    comma_separated,
    presets,
    typed,
)
from covey.cli.registries import check_names
from covey.errors import CoveyError, nearest
from covey.files import expect

SEEDS = 3  # of an audit, where nobody says otherwise


def run(
    source: Source = "",
    set_: Sets = None,
    out: Out = None,
    log: Log = None,
    as_json: Json = False,
    quiet: Quiet = False,
    sweep: Sweeps = None,
    seeds: Annotated[int, typer.Option(min=0, metavar="N", help="So many seeds of every setting, side by side.")] = 0,
    yes: Annotated[bool, typer.Option("--yes", help="With --sweep: yes, more than 500 runs.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Try a few rounds, say what the whole run will cost, and write nothing.")
    ] = False,
) -> None:
    """Run an experiment, or several, and write the report.

    Without arguments: the main job, in about a minute. With --sweep or --seeds: every combination, compared on one page.
    Examples:

        covey run ifca-mnist --set training.rounds=20 --set seeds=3
        covey run my.toml --out runs/first
        covey run my.toml --dry-run
        covey run hearts.csv --set data.label=ill --set data.client=hospital
        covey run ifca-digits --sweep training.lr=0.1,0.01 --seeds 5
    """
    from covey.experiment.presets import table_of

    table = table_of(source, set_ or [])
    check_names(table)
    words = [source] * bool(source) + [f"--set={s}" for s in set_ or []]
    if dry_run:
        _dry_run(table, bool(sweep or seeds or log), as_json)
    elif not sweep and not seeds:
        _run(table, out, log or [], as_json, quiet, typed("covey run", words))
    elif log:
        raise CoveyError("--log follows one run: leave it out of a sweep, or log the runs one by one")
    else:
        words += [f"--sweep={s}" for s in sweep or []] + [f"--seeds={seeds}"] * bool(seeds)
        _sweep(table, sweep or [], seeds, out, as_json, quiet, yes, typed("covey run", words))


def resume(
    folder: Annotated[Path, typer.Argument(help="The folder of an interrupted run.")],
    log: Log = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Go on after an interruption, to the same result.

    A run that is finished is shown and stays as it is.
    """
    expect(folder, "config.toml")
    from covey import loggers
    from covey.report.terminal import show
    from covey.results.folder import RunFolder
    from covey.results.status import STATUS
    from covey.rounds.loop import run
    from covey.rounds.result import is_complete, read_result

    place = RunFolder(folder)
    experiment = place.experiment()
    if is_complete(experiment, place):
        print(f"covey: {folder} is finished: nothing is left to do, and nothing was changed", file=sys.stderr)
        show(read_result(place), as_json)
        return
    if (folder / STATUS).is_file():
        raise CoveyError(
            f"{folder} is a deployed run: its coordinator goes on with it, by the `covey serve` that began it"
        )
    # Stopped while its data were read, a run has nothing but its settings; of several seeds each has its own checkpoint.
    going_on = place.begun or place.finished or experiment.seeds > 1
    callbacks, command = loggers.named(log or [], folder), typed("covey resume", [str(folder)])
    with kept(f"finished rounds are kept: continue with `{command}`"):
        result = run(
            experiment, out=folder, callbacks=callbacks, resume=going_on, quiet=quiet or as_json, command=command
        )
    show(result, as_json)


def audit(
    source: Annotated[
        str, typer.Argument(help="A TOML file, a preset, or the folder of a run.", autocompletion=presets)
    ] = "",
    protections: Annotated[
        list[str] | None,
        typer.Argument(help="With --frontier: which, e.g. `ldp` or `ldp=100,10,1`; none: all that declare a strength."),
    ] = None,
    set_: Sets = None,
    frontier: Annotated[
        bool, typer.Option("--frontier", help="Sweep how strong protections are: accuracy against leak against cost.")
    ] = False,
    matrix: Annotated[bool, typer.Option("--matrix", help="Algorithms × defences, one line each.")] = False,
    algorithms: Annotated[str, typer.Option(help="With --matrix: e.g. `ifca,mingledpie`; none: seven of them.")] = "",
    defences: Annotated[
        str, typer.Option(help="With --matrix: e.g. `none,ldp,ckks,ldp+ckks`; none: six of them.")
    ] = "",
    seeds: Annotated[
        int,
        typer.Option(min=0, metavar="N", help="Repetitions, pooled; 0: three, or more where the experiment says so."),
    ] = 0,
    out: Annotated[Path | None, typer.Option(help="Default `runs/audit-<algorithm or matrix>-<dataset>`.")] = None,
    docs: Annotated[bool, typer.Option("--docs", help="Also keep the result in `docs/results`.")] = False,
    ledger: Annotated[bool, typer.Option("--ledger", help="Only test the ε that the ledger claims.")] = False,
    deployed: Annotated[bool, typer.Option("--deployed", help="With --ledger: with a silo's secret noise.")] = False,
    trials: Annotated[int, typer.Option(min=0, metavar="N", help="With --ledger: 0: up to 4000.")] = 0,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Every attack at once: what could leak × who might learn it.

    From every vantage, with every attack that applies; where noise promises an ε, canaries test the promise. Runs that are
    finished are not run again; interrupted ones go on. Examples:

        covey audit ifca-digits
        covey audit ifca-digits --set defence.name=dp_sgd --ledger
        covey audit runs/ifca-digits-1
        covey audit ifca-digits --matrix --algorithms ifca,mingledpie
        covey audit ifca-digits --frontier ldp dp_sgd
    """
    from covey.experiment.presets import table_of

    if protections and not frontier:
        raise CoveyError(f"'{protections[0]}' is one word too many: for a frontier of protections add --frontier")
    if frontier and (matrix or ledger):
        raise CoveyError("--frontier is a page of its own: leave out --matrix and --ledger")
    if (algorithms or defences) and not matrix:
        raise CoveyError("--algorithms and --defences list what to compare: add --matrix")
    if (deployed or trials) and not ledger:
        raise CoveyError("--deployed and --trials are for tests of the ledger: add --ledger")
    if ledger and (matrix or docs):
        raise CoveyError("--ledger tests one experiment's claims and stores no page: leave out --matrix and --docs")
    is_run = source and Path(source).is_dir()
    table = table_of(str(expect(Path(source), "config.toml")) if is_run else source, set_ or [])
    check_names(table)

    from covey.experiment.experiment import Experiment

    if is_run:
        _refuse_other_data(Path(source), Experiment.of(table))
    if ledger:
        _ledger(table, trials, deployed, as_json)
        return
    if frontier:
        words = [source] * bool(source) + [f"--set={s}" for s in set_ or []] + ["--frontier", *(protections or [])]
        command = typed("covey audit", [*words, *[f"--seeds={seeds}"] * bool(seeds)])
        _frontier(table, protections or [], seeds, out, docs, as_json, quiet, command)
        return

    from covey.audit import audit as audit_one
    from covey.audit import store, survey, write
    from covey.audit.card import plain_words
    from covey.audit.text import WIDTH, lines

    experiment = Experiment.of(table)
    experiment = replace(experiment, seeds=seeds or max(SEEDS, experiment.seeds))
    subject = "matrix" if matrix else experiment.algorithm.name
    folder = out or Path("runs") / f"audit-{subject}-{experiment.stem}"
    words = [source] * bool(source) + [f"--set={s}" for s in set_ or []] + ["--matrix"] * matrix
    words += [f"--algorithms={algorithms}"] * bool(algorithms) + [f"--defences={defences}"] * bool(defences)
    words += [f"--seeds={seeds}"] * bool(seeds)
    command, silent = typed("covey audit", words), quiet or as_json
    chosen = comma_separated(algorithms), comma_separated(defences)
    one_alone = (audit_one(e, folder, quiet=silent, ledger=True, processes=True) for e in [experiment])
    pending = survey(experiment, folder, *chosen, quiet=silent, processes=True) if matrix else one_alone
    audits = []
    with kept(SAME_COMMAND):
        for one in pending:
            audits.append(one)
            paths = write(audits, folder, command)  # after each: an interrupted comparison can be looked at
    if docs:
        store(audits, Path("docs"), folder.name, command)
    last = textwrap.wrap(plain_words(audits[0]), WIDTH) if len(audits) == 1 else []
    shown = [*lines(audits), "", f"page  {paths[1]}", f"card  {folder / 'card.md'}", *[""] * bool(last), *last]
    print(paths[0].read_text(encoding="utf-8") if as_json else "\n".join(shown))


def bench(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="One benchmark; all; or goals: what is stored, beside its limits.")] = "",
) -> None:
    """The benchmarks, as ratios against peers in the same run.

    Without a name: which there are. Needs a source checkout and what `make bench` installs. `covey bench goals` prints the stored
    ratios with the limit beside each; with --measure --minutes 7 it measures those of a CPU first, and stores them. What
    stands behind a name goes to that benchmark: `covey bench state --quick`, `covey bench state -- --help`.
    """
    import subprocess

    folder = Path(__file__).resolve().parents[3] / "benchmarks"
    scripts = {p.stem.removeprefix("bench_"): p for p in sorted(folder.glob("bench_*.py"))}
    if not scripts:
        raise CoveyError("the benchmarks are part of the source checkout, not of the installed package: clone it first")
    known = scripts | {"goals": folder / "goals.py"}
    if not name:
        for each, script in known.items():
            print(f"{each:<20}{script.read_text().partition(chr(10))[0].strip(chr(34))}")
        print("\n`covey bench NAME` runs one, `covey bench all` those of a CPU one after the other, which takes long.")
        return
    if name not in (*known, "all"):
        raise CoveyError(f"unknown benchmark '{name}'{nearest(name, [*known, 'all'])}")
    failed = []
    for chosen in [name] if name != "all" else [script for script in scripts if not script.endswith("_gpu")]:
        print(f"== {chosen}", flush=True)
        process = subprocess.run([sys.executable, str(known[chosen]), *context.args], check=False)
        failed += [f"'{chosen}' (exit {process.returncode})"] * bool(process.returncode)
    if failed:  # one whose peer is not installed does not keep the others from running
        raise CoveyError(f"benchmark {', '.join(failed)} failed; what it needs is said above")


def _run(table: dict[str, Any], out: Path | None, log: list[str], as_json: bool, quiet: bool, command: str) -> None:
    from covey import loggers
    from covey.experiment.experiment import Experiment
    from covey.report.terminal import show
    from covey.rounds.loop import run

    experiment = Experiment.of(table)
    if not quiet and not as_json:
        _print_guesses(experiment)
    folder = out or (Path(experiment.out) if experiment.out else _free_folder(experiment))
    callbacks, again = loggers.named(log, folder), typed("covey resume", [str(folder)])
    with kept(f"finished rounds are kept: continue with `{again}`"):
        result = run(experiment, out=folder, callbacks=callbacks, quiet=quiet or as_json, command=command)
    show(result, as_json)


def _dry_run(table: dict[str, Any], several: bool, as_json: bool) -> None:
    from dataclasses import asdict

    from covey.experiment.experiment import Experiment
    from covey.rounds.estimate import estimate

    if several:
        raise CoveyError("--dry-run looks at one run: leave out --sweep, --seeds and --log")
    cost = estimate(Experiment.of(table))
    _print(asdict(cost) | {"seconds": cost.seconds, "traffic": cost.traffic}, cost.lines(), as_json)


def _ledger(table: dict[str, Any], trials: int, deployed: bool, as_json: bool) -> None:
    from covey.audit.canaries import audit_ledger
    from covey.audit.text import tested
    from covey.experiment.experiment import Experiment

    tests = audit_ledger(Experiment.of(table), trials=trials, deployed=deployed)
    nothing = ["this experiment books nothing in the ledger: there is no ε to test"]
    _print({"ledger": [test.json() for test in tests]}, tested(tests)[1:] or nothing, as_json)


def _frontier(
    table: dict[str, Any],
    protections: list[str],
    seeds: int,
    out: Path | None,
    docs: bool,
    as_json: bool,
    quiet: bool,
    command: str,
) -> None:
    from covey.audit.frontier import frontier, store_frontier, write_frontier
    from covey.audit.frontier.text import lines
    from covey.experiment.experiment import Experiment

    experiment = Experiment.of(table)
    experiment = replace(experiment, seeds=seeds or max(SEEDS, experiment.seeds))
    folder = out or Path("runs") / f"frontier-{experiment.algorithm.name}-{experiment.stem}"
    with kept(SAME_COMMAND):
        result = frontier(experiment, folder, protections, quiet=quiet or as_json, processes=True)
    paths = write_frontier(result, folder, command)
    if docs:
        store_frontier(result, Path("docs"), folder.name, command)
    shown = [*lines(result), "", f"page  {paths[1]}"]
    print(paths[0].read_text(encoding="utf-8") if as_json else "\n".join(shown))


def _refuse_other_data(folder: Path, experiment: Any) -> None:
    """Where what a run's data are called means others now: says what differs, which the fingerprint alone does not tell.

    One name may stand for a part of a dataset on one machine, and for all of it on another.
    """
    from covey.data.fingerprint import parts
    from covey.data.names import is_given, is_path
    from covey.engines.settle import dataset_of, settle, unpinned
    from covey.results.folder import RunFolder
    from covey.rounds.record import data_summary

    run = RunFolder(folder)
    begun = run.experiment()
    if experiment.dataset != begun.dataset or is_given(begun.dataset):  # others are wanted, or to be handed over
        return
    if is_path(begun.dataset):
        if experiment.data.fingerprint:
            dataset = dataset_of(experiment)
            run.refuse_other_data({"name": dataset.name, "parts": parts(dataset)})
    elif run.federation.exists():
        run.refuse_other_data(data_summary(settle(unpinned(begun))[1]))


def _print_guesses(experiment: Any) -> None:
    """What is done with data of the user's own, on standard error."""
    from covey.data.names import is_path
    from covey.engines.settle import dataset_of

    if is_path(experiment.dataset) and (note := dataset_of(experiment).note):
        print("\n".join(f"covey: {line}" for line in note.split("; ")), file=sys.stderr)


def _sweep(
    table: dict[str, Any],
    axes: list[str],
    seeds: int,
    out: Path | None,
    as_json: bool,
    quiet: bool,
    yes: bool,
    command: str,
) -> None:
    from covey.sweep.grid import sweep
    from covey.sweep.text import lines

    with kept(SAME_COMMAND):
        result = sweep(table, axes, seeds, out, quiet=quiet or as_json, yes=yes, command=command)
    _print(result.json(), lines(result), as_json)
    if result.failed:
        title, why = next(iter(result.failed.items()))
        more = f" and {len(result.failed) - 1} more" if len(result.failed) > 1 else ""
        raise CoveyError(f"{title}{more} failed ({why}); the others are kept, and the same command tries again")


def _print(content: dict[str, Any], lines: Sequence[str], as_json: bool) -> None:
    print(json.dumps(content, indent=1) if as_json else "\n".join(lines))


def _free_folder(experiment: Any) -> Path:
    stem = f"{experiment.algorithm.name}-{experiment.stem}"
    number = 1
    while (Path("runs") / f"{stem}-{number}").exists():
        number += 1
    return Path("runs") / f"{stem}-{number}"
