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

from covey import config, files
from covey.algorithms import ALGORITHMS
from covey.attacks import ATTACKS
from covey.attacks.applies import APPLIES, absent, given, vantage
from covey.attacks.observe import check_vantage
from covey.audit.matrix import Audit, Watch, fill
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
        if attack.vantage != ATTACKS[attack.name]().vantage:  # nobody wrote the usual one
            check_vantage(attack.vantage, experiment.algorithm)


def _audit(experiment: Experiment, out: str | Path, quiet: bool, watch: Callback | None) -> Audit:
    once = replace(experiment, attacks=(), seeds=1, out="")
    done: dict[Watch, tuple[dict[str, Any], str]] = {}
    failed: dict[Watch, str] = {}
    runs: list[dict[str, Any]] = []
    accuracy, stand_in = None, ""
    for sitting in sittings(experiment):
        for watches, result, report, problem in _results(once, experiment.attacks, sitting, Path(out), quiet, watch):
            failed |= dict.fromkeys(watches, problem) if problem else {}
            if result is None:
                continue
            done |= {w: (result["attacks"][w[0]], report) for w in watches}
            runs.append({"report": report, "attacks": [f"{name} from the {column}" for name, column in watches]})
            if accuracy is None and not any(APPLIES[name].active for name, _ in watches):
                accuracy = result["accuracy"].get("client_mean")
            stand_in = result["stand_in"]
    if failed and not done and len(set(failed.values())) == 1:
        raise CoveyError(next(iter(failed.values())))  # it is the experiment, not an attack
    return Audit(
        **_heading(experiment),
        stand_in=stand_in,
        accuracy=accuracy,
        cells=fill(experiment, done, failed),
        runs=tuple(runs),
        settings={k: v for k, v in once.table().items() if k not in _NO_SETTINGS},
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
    counts = [len(sittings(changed)) for changed in every]
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
    once = replace(experiment, attacks=(), seeds=1, out="")
    watched = [_watched(once, experiment.attacks, s) for s in sittings(experiment)]
    return sum(RunFolder.named_by_hash(out, one).finished for one in watched)


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


def sittings(experiment: Experiment) -> list[tuple[Watch, ...]]:
    """Which attacks watch the same run: no name twice, and an active attack alone. The first is undisturbed, for the accuracy."""
    shared: list[list[Watch]] = []
    alone: list[tuple[Watch, ...]] = []
    for watch in _applicable(experiment):
        if APPLIES[watch[0]].active:
            alone.append((watch,))
            continue
        free = next((s for s in shared if watch[0] not in {name for name, _ in s}), None)
        if free is None:
            shared.append([watch])
        else:
            free.append(watch)
    return [*([tuple(s) for s in shared] or [()]), *alone]


def _applicable(experiment: Experiment) -> list[Watch]:
    return [
        (name, column)
        for name, rule in APPLIES.items()
        for column in rule.columns
        if vantage(column, experiment)
        and not absent(rule.row, experiment)
        and not given(rule.row, column, experiment)
        and not rule.fits(experiment)
        and not rule.needs(experiment)
    ]


def _results(
    experiment: Experiment,
    configured: Sequence[Any],
    sitting: tuple[Watch, ...],
    out: Path,
    quiet: bool,
    watch: Callback | None,
) -> Iterator[tuple[tuple[Watch, ...], dict[str, Any] | None, str, str]]:
    """(attacks, result.json, report, problem) of a sitting; where one attack spoils it, of every attack in a run of its own."""
    watched = _watched(experiment, configured, sitting)
    folder = RunFolder.named_by_hash(out, watched)
    try:
        complete(watched, folder, callbacks=[watch] if watch else [], quiet=quiet)
        yield sitting, folder.result_json(), str(folder.report.relative_to(out)), ""
    except CoveyError as problem:
        if len(sitting) <= 1:
            if not sitting:
                raise
            yield sitting, None, "", str(problem)
            return
        for one in sitting:
            yield from _results(experiment, configured, (one,), out, quiet, watch)


def _watched(experiment: Experiment, configured: Sequence[Any], sitting: tuple[Watch, ...]) -> Experiment:
    return replace(experiment, attacks=tuple(_attack(w, experiment, configured) for w in sitting))


def _attack(watch: Watch, experiment: Experiment, configured: Sequence[Any]) -> Any:
    """The attack at its vantage: with the experiment's own settings where it names it, else with the table's."""
    name, column = watch
    usual = config.to_table(ATTACKS[name]())
    named = next((config.to_table(a) for a in configured if a.name == name), usual)
    own = {k: v for k, v in named.items() if v != usual[k] and k not in ("memory", "vantage")}
    seen_from = {"vantage": vantage(column, experiment)} if "vantage" in usual else {}
    return config.choose(ATTACKS, {"name": name, **seen_from, **APPLIES[name].settings(experiment), **own}, "attacks")


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
            cells=tuple(replace(c, tried=tuple(replace(t, report="") for t in c.tried)) for c in audit.cells),
            runs=tuple({**run, "report": ""} for run in audit.runs),
        )
        for audit in audits
    ]
    from covey.audit.text import markdown

    folder = Path(docs) / "results" / name
    files.write_atomically(folder / "README.md", markdown(alone, command).encode())
    return write(alone, folder, command)
