"""A survey: the audits of one experiment under several algorithms and protections, side by side."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from covey.algorithms import ALGORITHMS
from covey.audit.matrix import Audit
from covey.audit.questions import Questions
from covey.audit.runs import check_places, heading, matrix_of
from covey.defences import DEFENCES
from covey.errors import CoveyError, nearest
from covey.experiment import encryptions
from covey.experiment.experiment import Experiment
from covey.names import Registry, import_path
from covey.report.progress import Progress
from covey.results.folder import RunFolder
from covey.rounds.loop import Callback


def survey(
    experiment: Experiment,
    out: str | Path,
    algorithms: Sequence[str] = (),
    protections: Sequence[str] = (),
    *,
    quiet: bool = False,
) -> Iterator[Audit]:
    """One audit per algorithm and protection ("none", a defence, an encryption, or both as "ldp+ckks"), as they get ready;
    where none are named, of those that say that they are worth it.

    A combination that does not exist, such as an encryption that an algorithm cannot run under, is left out; one that its
    algorithm refuses comes with its `problem` and without a matrix.
    """
    check_places(experiment)
    every = combinations(experiment, algorithms or surveyed(), protections or protecting())
    counts = [changed.seeds * len(Questions(changed).batches()) for changed in every]
    before = sum(_finished(changed, Path(out)) for changed in every)
    with Progress(sum(counts), "audit", unit="run", quiet=quiet, start=before) as progress:
        for n, changed in enumerate(every):
            done, where = sum(counts[:n]), _spoken(changed, n, len(every))
            progress.update(done=done, note=where)
            tell = _teller(progress, done, where, changed.training.rounds)
            try:
                yield matrix_of(changed, out, True, tell)
            except CoveyError as problem:
                yield Audit(**heading(changed), stand_in="", accuracy=None, cells=(), runs=(), problem=str(problem))
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


def _finished(experiment: Experiment, out: Path) -> int:
    """How many of an experiment's runs are there already."""
    seeds = range(experiment.seed, experiment.seed + experiment.seeds)
    each = [Questions(replace(experiment, seed=seed)) for seed in seeds]
    return sum(RunFolder.named_by_hash(out, q.watched(batch)).finished for q in each for batch in q.batches())


def surveyed() -> list[str]:
    """The algorithms that a survey compares unless told otherwise: they say so themselves, with `surveyed`."""
    return _saying_so(ALGORITHMS)


def protecting() -> list[str]:
    """The same of protections: nothing, then defences, then encryptions."""
    sealed = [name for family in encryptions.FAMILIES.values() for name in _saying_so(family)]
    return list(dict.fromkeys([encryptions.PLAIN, *_saying_so(DEFENCES), *sealed]))


def _saying_so(registry: Registry) -> list[str]:
    return [registry.word(entry) for entry in registry.entries if entry.declared.get("surveyed")]


def combinations(experiment: Experiment, algorithms: Sequence[str], protections: Sequence[str]) -> list[Experiment]:
    """The experiments of a survey. An algorithm or defence that the experiment itself names keeps its settings."""
    base = experiment.table()
    own = base.get("defence") or {}
    chosen = []
    for name in algorithms:
        kind = ALGORITHMS.resolve(name)
        algorithm = base["algorithm"] if base["algorithm"]["name"] == name else {"name": name}
        for protection in protections:
            defence, encryption = _protection(protection)
            if not encryptions.fits(kind, encryption):
                continue
            wall = own if defence and own.get("name") == defence else {"name": defence or "none"}
            chosen.append(Experiment.of({**base, "algorithm": algorithm, "defence": wall, "encryption": encryption}))
    if not chosen:
        raise CoveyError("no algorithm can run under any of these defences: add 'none', or another algorithm")
    return chosen


def _protection(words: str) -> tuple[str, str]:
    """(defence, encryption) of "none", "ldp", "ckks", "ldp+ckks", or with `package.module:Thing` for either."""
    defence, encryption = "", encryptions.PLAIN
    for word in words.split("+"):
        if word in encryptions.known() or (":" in word and not hasattr(import_path(word, "defence"), "train")):
            encryption = word
        elif word in DEFENCES or ":" in word:
            defence = word
        else:
            raise CoveyError(f"unknown defence '{word}'{nearest(word, [*DEFENCES, *encryptions.known()])}")
    return defence, encryption
