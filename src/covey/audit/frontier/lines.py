"""The settings of a frontier: one line of them for every strength that a defence or the algorithm declares."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from covey.algorithms import ALGORITHMS
from covey.config import assign
from covey.defences import DEFENCES
from covey.errors import CoveyError, nearest
from covey.experiment.experiment import Experiment
from covey.report.format import plain
from covey.report.labels import label
from covey.strength import Strength, strengths_of


@dataclass(frozen=True)
class Setting:
    """One strength of one protection."""

    line: str  # its name; "" of the experiment without any defence
    words: str  # "LDP, ε = 10"
    value: float | None
    experiment: Experiment


@dataclass(frozen=True)
class Line:
    """A protection from weak to strong."""

    name: str  # as one types it
    label: str  # as its authors write it
    words: str  # what is varied
    settings: tuple[Setting, ...]
    by_itself: bool  # whether the algorithm has it: then there is nothing weaker than its first setting


def lines_of(experiment: Experiment, words: Sequence[str] = ()) -> list[Line]:
    """The lines that these words ask for: a defence, the algorithm, with `.option` one strength of it, with `=a,b,c` other values.

    Without words: all strengths of the algorithm, then those of the experiment's own defence, else of all that declare some and
    are worth a survey.
    """
    asked = words or [*_own(experiment), *_defences(experiment)]
    lines = [line for word in asked for line in _asked(experiment, word)]
    names = [line.name for line in lines]
    if len(set(names)) < len(names):
        raise CoveyError(f"--frontier names '{max(names, key=names.count)}' twice: name it once, with all its values")
    return lines


def unprotected(experiment: Experiment) -> Setting:
    """The experiment without its defence: what the others are compared with."""
    return Setting("", "no defence", None, replace(experiment, defence=None))


def _own(experiment: Experiment) -> list[str]:
    name = _algorithm(experiment)
    return [name] if strengths_of(ALGORITHMS.resolve(name)) else []


def _defences(experiment: Experiment) -> list[str]:
    if experiment.defence is not None:
        return [str(experiment.table()["defence"]["name"])]
    kinds, _ = DEFENCES.loaded()
    return [name for name, kind in kinds.items() if getattr(kind, "surveyed", False) and strengths_of(kind)]


def _algorithm(experiment: Experiment) -> str:
    return str(experiment.table()["algorithm"]["name"])


def _asked(experiment: Experiment, word: str) -> list[Line]:
    name, equals, listed = word.partition("=")
    base, option = _parted(experiment, name)
    kind: Any = (ALGORITHMS if base == _algorithm(experiment) else DEFENCES).resolve(base)
    declared = strengths_of(kind)
    if not declared:
        raise CoveyError(
            f"{base} declares no strength that could be swept: sweep an option with `covey run --sweep`, or name another protection"
        )
    options = [one.option for one in declared]
    if option and option not in options:
        raise CoveyError(f"{base} has no strength '{option}'{nearest(option, options)}")
    chosen = [one for one in declared if option in ("", one.option)]
    if equals:
        chosen = [replace(chosen[0], grid=_values(word, listed))]
    return [_line(experiment, base, one, several=len(declared) > 1) for one in chosen]


def _parted(experiment: Experiment, name: str) -> tuple[str, str]:
    """(what, its option or "") of `ldp`, `mingledpie.rate`, `package.module:Class` or `package.module:Class.rate`."""
    known = [_algorithm(experiment), *DEFENCES]
    if name in known:
        return name, ""
    start, dot, option = name.rpartition(".")
    path, colon, inner = name.partition(":")
    if colon:
        return (f"{path}:{inner.rpartition('.')[0]}", option) if "." in inner else (name, "")
    if dot and start in known:
        return start, option
    raise CoveyError(f"--frontier: there is no protection '{name}' here{nearest(name, known)}")


def _values(word: str, listed: str) -> tuple[float, ...]:
    values = [assign({}, f"value={text}")["value"] for text in listed.split(",")]
    numbers = all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)
    if not numbers or len(set(values)) < len(values):
        raise CoveyError(f"--frontier {word!r}: expected numbers, each once, as in NAME=100,10,1")
    return tuple(values)


def _line(experiment: Experiment, base: str, strength: Strength, several: bool) -> Line:
    by_itself = base == _algorithm(experiment)
    whose = label("algorithm" if by_itself else "defence", base)
    symbol = strength.symbol or strength.option.replace("_", " ")
    name = f"{base}.{strength.option}" if several else base
    settings = tuple(
        Setting(
            name, f"{whose}, {symbol} = {plain(float(value))}", float(value), _with(experiment, base, strength, value)
        )
        for value in strength.grid
    )
    return Line(name, f"{whose}, {symbol}" if several else whose, strength.words or symbol, settings, by_itself)


def _with(experiment: Experiment, base: str, strength: Strength, value: float) -> Experiment:
    """What the experiment sets beside the strength stays as it is."""
    table = experiment.table()
    if base == _algorithm(experiment):
        return Experiment.of({**table, "algorithm": {**table["algorithm"], strength.option: value}})
    own = table.get("defence") or {}
    kept = own if own.get("name") == base else {"name": base}
    return Experiment.of({**table, "defence": {**kept, strength.option: value}})
