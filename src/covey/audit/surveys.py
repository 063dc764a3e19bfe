"""A survey: the audits of one experiment under several algorithms and protections, side by side."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from covey.algorithms import ALGORITHMS
from covey.audit.matrix import Audit
from covey.audit.runs import check_places, heading, made_ahead, matrix_of
from covey.defences import DEFENCES
from covey.errors import CoveyError, nearest
from covey.experiment import encryptions
from covey.experiment.experiment import Experiment
from covey.names import Registry, import_path


def survey(
    experiment: Experiment,
    out: str | Path,
    algorithms: Sequence[str] = (),
    protections: Sequence[str] = (),
    *,
    quiet: bool = False,
    processes: bool = False,
) -> Iterator[Audit]:
    """One audit per algorithm and protection ("none", a defence, an encryption, or both as "ldp+ckks"), as they get ready;
    where none are named, of those that say that they are worth it.

    A combination that does not exist, such as an encryption that an algorithm cannot run under, is left out; one that its
    algorithm refuses comes with its `problem` and without a matrix. `processes`: see `audit`.
    """
    check_places(experiment)
    every = combinations(experiment, algorithms or surveyed(), protections or protecting())
    able = [one for one in every if isinstance(one, Experiment)]
    ready = made_ahead(able, out, processes, quiet) if able else iter(())
    for one in every:
        if isinstance(one, Refusal):
            yield _refused({**heading(experiment), **one.names, "seeds": experiment.seeds}, one.problem)
            continue
        next(ready)
        try:
            yield matrix_of(one, out, True, None)
        except CoveyError as problem:
            yield _refused({**heading(one), "seeds": one.seeds}, str(problem))
    for _ in ready:  # nothing is left to make; who watches is told that all is done
        pass


def _refused(names: dict[str, Any], problem: str) -> Audit:
    return Audit(**names, stand_in="", accuracy=None, cells=(), runs=(), problem=problem)


def surveyed() -> list[str]:
    """The algorithms that a survey compares unless told otherwise: they say so themselves, with `surveyed`."""
    return _saying_so(ALGORITHMS)


def protecting() -> list[str]:
    """The same of protections: nothing, then defences, then encryptions."""
    sealed = [name for family in encryptions.FAMILIES.values() for name in _saying_so(family)]
    return list(dict.fromkeys([encryptions.PLAIN, *_saying_so(DEFENCES), *sealed]))


def _saying_so(registry: Registry) -> list[str]:
    return [registry.word(entry) for entry in registry.entries if entry.declared.get("surveyed")]


@dataclass(frozen=True)
class Refusal:
    """A combination that no experiment can have, and why."""

    names: dict[str, str]  # of its algorithm, defence and encryption
    problem: str


def combinations(
    experiment: Experiment, algorithms: Sequence[str], protections: Sequence[str]
) -> list[Experiment | Refusal]:
    """The experiments of a survey. An algorithm or defence that the experiment itself names keeps its settings."""
    base = experiment.table()
    own = base.get("defence") or {}
    chosen: list[Experiment | Refusal] = []
    for name in algorithms:
        kind = ALGORITHMS.resolve(name)
        algorithm = base["algorithm"] if base["algorithm"]["name"] == name else {"name": name}
        for protection in protections:
            defence, encryption = _protection(protection)
            if not encryptions.fits(kind, encryption):
                continue
            wall = own if defence and own.get("name") == defence else {"name": defence or "none"}
            try:
                chosen.append(
                    Experiment.of({**base, "algorithm": algorithm, "defence": wall, "encryption": encryption})
                )
            except CoveyError as problem:
                names = {"algorithm": kind.name, "defence": defence or "none", "encryption": encryption}
                chosen.append(Refusal(names, str(problem)))
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
