"""The audit: every attack that applies to an experiment, from every vantage, in one matrix of what could leak × who might learn it.

    audit(experiment, out)       one experiment: the runs it needs, then the matrix
    survey(experiment, out, …)   algorithms × defences of it, one audit each

A run takes one attack of a name, so an attack from a second vantage gets a second run of the same experiment; an attack that
changes what its client sends gets one of its own. Runs lie under `out` by a hash of their configuration: finished ones are
read back, interrupted ones resumed, and each is an ordinary run with its own report.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from covey import files
from covey.algorithms import ALGORITHMS
from covey.attacks.finding import Finding
from covey.attacks.observe import check_vantage
from covey.audit.matrix import Audit, fill
from covey.audit.questions import Questions, Watch, usual_place
from covey.defences import DEFENCES
from covey.errors import CoveyError, nearest
from covey.experiment import encryptions
from covey.experiment.experiment import Experiment
from covey.report.progress import Progress
from covey.results.folder import RunFolder
from covey.rounds.completion import complete
from covey.rounds.loop import Callback
from covey.rounds.result import versions

SURVEYED = ("fedavg", "ifca", "fedsoft", "sattler", "mingledpie", "routing", "fedcaprivacy")
DEFENDED = ("none", "dp_sgd", "ldp", "afc", "ckks", "bfv")
_NO_SETTINGS = ("attacks", "engine", "out", "seeds", "silos", "deployment")  # say nothing about what leaks here


def audit(experiment: Experiment, out: str | Path, *, quiet: bool = False, watch: Callback | None = None) -> Audit:
    """Runs what is needed (one seed, under `out/runs`) and fills the matrix; the caller writes it where it wants.

    `watch` is called after every round, for a progress of the caller's own.
    """
    _check_places(experiment)
    return _audit(experiment, out, quiet, watch)


def _check_places(experiment: Experiment) -> None:
    """The audit looks from everywhere, whatever its attacks are configured for: a misspelt place would go unnoticed."""
    for attack in experiment.attacks:
        if not usual_place(attack):
            check_vantage(attack.vantage, experiment.algorithm)


def _audit(experiment: Experiment, out: str | Path, quiet: bool, watch: Callback | None) -> Audit:
    questions = Questions(experiment)
    done: dict[Watch, tuple[Finding, str]] = {}
    failed: dict[Watch, str] = {}
    runs: list[dict[str, Any]] = []
    accuracy, stand_in = None, ""
    for batch in questions.batches():
        for watches, result, report, problem in _results(questions, batch, Path(out), quiet, watch):
            failed |= dict.fromkeys(watches, problem) if problem else {}
            if result is None:
                continue
            for one in watches:
                finding = Finding.of(one.attack, result["attacks"].get(one.attack))
                if finding is None:
                    failed[one] = "ended without a score"
                else:
                    done[one] = (finding, report)
            runs.append({"report": report, "attacks": [f"{one.attack} from the {one.column}" for one in watches]})
            if accuracy is None and not any(questions.declared[one.attack].active for one in watches):
                accuracy = result["accuracy"].get("client_mean")
            stand_in = result["stand_in"]
    if failed and not done and len(set(failed.values())) == 1:
        raise CoveyError(next(iter(failed.values())))  # it is the experiment, not an attack
    settings = questions.watched(()).table()
    return Audit(
        **_heading(experiment),
        stand_in=stand_in,
        accuracy=accuracy,
        cells=fill(questions, done, failed),
        runs=tuple(runs),
        settings={k: v for k, v in settings.items() if k not in _NO_SETTINGS},
        rows={row.name: row.question for row in questions.rows},
    )


def survey(
    experiment: Experiment,
    out: str | Path,
    algorithms: Sequence[str] = SURVEYED,
    protections: Sequence[str] = DEFENDED,
    *,
    quiet: bool = False,
) -> Iterator[Audit]:
    """One audit per algorithm and protection ("none", a defence, an encryption, or both as "ldp+ckks"), as they get ready.

    A combination that does not exist, such as an encryption that an algorithm cannot run under, is left out; one that its
    algorithm refuses comes with its `problem` and without a matrix.
    """
    _check_places(experiment)
    every = combinations(experiment, algorithms, protections)
    counts = [len(Questions(changed).batches()) for changed in every]
    before = sum(_there_already(changed, Path(out)) for changed in every)
    with Progress(sum(counts), "audit", unit="run", quiet=quiet, start=before) as progress:
        for n, changed in enumerate(every):
            done, where = sum(counts[:n]), _spoken(changed, n, len(every))
            progress.update(done=done, note=where)
            tell = _teller(progress, done, where, changed.training.rounds)
            try:
                yield _audit(changed, out, True, tell)
            except CoveyError as problem:
                yield Audit(**_heading(changed), stand_in="", accuracy=None, cells=(), runs=(), problem=str(problem))
        progress.update(done=sum(counts))


def _spoken(experiment: Experiment, n: int, total: int) -> str:
    shield = experiment.defence.name if experiment.defence else "no defence"
    sealed = "" if experiment.encryption == "none" else f" and {experiment.encryption}"
    return f"{n + 1} of {total}: {experiment.algorithm.name}, {shield}{sealed}"


def _teller(progress: Progress, before: int, where: str, rounds: int) -> Callback:
    """Moves the bar of a survey on as the rounds of its runs pass."""
    runs = 0

    def tell(record: dict[str, Any], state: Any) -> None:
        nonlocal runs
        runs += record["round"] == 1
        progress.update(done=before + max(runs - 1, 0), note=f"{where}, round {record['round']} of {rounds}")

    return tell


def _there_already(experiment: Experiment, out: Path) -> int:
    """How many of an experiment's runs are there already."""
    questions = Questions(experiment)
    return sum(RunFolder.named_by_hash(out, questions.watched(batch)).finished for batch in questions.batches())


def combinations(experiment: Experiment, algorithms: Sequence[str], protections: Sequence[str]) -> list[Experiment]:
    """The experiments of a survey. An algorithm or defence that the experiment itself names keeps its settings."""
    for name in algorithms:
        if name not in ALGORITHMS:
            raise CoveyError(f"unknown algorithm '{name}'{nearest(name, list(ALGORITHMS))}")
    base = experiment.table()
    found = []
    for name in algorithms:
        for protection in protections:
            defence, encryption = _protection(protection)
            if encryption not in encryptions.able(ALGORITHMS[name]):
                continue
            kept = base["algorithm"] if base["algorithm"]["name"] == name else {"name": name}
            own = base.get("defence") or {}
            wall = own if defence and own.get("name") == defence else {"name": defence or "none"}
            found.append(Experiment.of({**base, "algorithm": kept, "defence": wall, "encryption": encryption}))
    if not found:
        raise CoveyError("no algorithm can run under any of these defences: add 'none', or another algorithm")
    return found


def _protection(words: str) -> tuple[str, str]:
    """(defence, encryption) of "none", "ldp", "ckks" or "ldp+ckks"."""
    defence, encryption = "", "none"
    for word in words.split("+"):
        if word in encryptions.known():
            encryption = word
        elif word in DEFENCES:
            defence = word
        else:
            raise CoveyError(f"unknown defence '{word}'{nearest(word, [*DEFENCES, *encryptions.known()])}")
    return defence, encryption


def _results(
    questions: Questions, batch: tuple[Watch, ...], out: Path, quiet: bool, watch: Callback | None
) -> Iterator[tuple[tuple[Watch, ...], dict[str, Any] | None, str, str]]:
    """(attacks, result.json, report, problem) of a batch; where one attack spoils it, of every attack in a run of its own."""
    watched = questions.watched(batch)
    folder = RunFolder.named_by_hash(out, watched)
    try:
        complete(watched, folder, callbacks=[watch] if watch else [], quiet=quiet)
        yield batch, folder.result_json(), str(folder.report.relative_to(out)), ""
    except CoveyError as problem:
        if len(batch) <= 1:
            if not batch:
                raise
            yield batch, None, "", str(problem)
            return
        for one in batch:
            yield from _results(questions, (one,), out, quiet, watch)


def _heading(experiment: Experiment) -> dict[str, Any]:
    return {
        "algorithm": experiment.algorithm.name,
        "dataset": experiment.dataset,
        "partition": experiment.partition.name,
        "defence": experiment.defence.name if experiment.defence else "none",
        "encryption": experiment.encryption,
        "clients": experiment.clients,
        "clusters": experiment.clusters,
        "rounds": experiment.training.rounds,
        "seed": experiment.seed,
        "notes": _left_out(experiment),
    }


def _left_out(experiment: Experiment) -> tuple[str, ...]:
    if experiment.seeds == 1:
        return ()
    last = experiment.seed + experiment.seeds - 1
    return (f"seeds = {experiment.seeds}: an audit is of one, {experiment.seed}; repeat it with seed = … {last}",)


def write(audits: Sequence[Audit], out: str | Path, command: str = "") -> tuple[Path, Path]:
    """audit.json and audit.html."""
    from covey.audit.page import write_audit

    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    content = {"schema": 1, "command": command, "versions": versions(), "audits": [a.json() for a in audits]}
    files.write_json(folder / "audit.json", content)
    return folder / "audit.json", write_audit(audits, folder / "audit.html", command)


def store(audits: Sequence[Audit], docs: str | Path, name: str, command: str) -> tuple[Path, Path]:
    """Keeps audits among the documented results, without the runs behind them and so without links to their reports."""
    alone = [
        replace(
            audit,
            cells=tuple(replace(cell, reports={}) for cell in audit.cells),
            runs=tuple({**run, "report": ""} for run in audit.runs),
        )
        for audit in audits
    ]
    from covey.audit.text import markdown

    folder = Path(docs) / "results" / name
    files.write_atomically(folder / "README.md", markdown(alone, command).encode())
    return write(alone, folder, command)
