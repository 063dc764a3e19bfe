"""The audit's matrix: what one party learned of one thing, or why nothing is known about it.

Never safety: the best word for a cell is "no leak seen", with what was tried. A cell without an attack says why it has none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from covey.attacks.applies import APPLIES, COLUMNS, IDENTITY, PREFERENCE, ROWS, absent, given, implies, vantage
from covey.attacks.contract import Scale
from covey.experiment.experiment import Experiment

# A cell's verdict, worst first. Those above "no leak seen" say that something leaks, those below that nothing was measured.
BROKEN, LEAKS, GIVEN, NOTHING_SEEN = "broken", "leaks", "given by design", "no leak seen"
FAILED, UNKNOWN, INAPPLICABLE, NOBODY = "not measured", "no attack known", "not applicable", "nobody here"
VERDICTS = (BROKEN, LEAKS, GIVEN, NOTHING_SEEN, FAILED, UNKNOWN, INAPPLICABLE, NOBODY)
LEAKING = (BROKEN, LEAKS, GIVEN)


@dataclass(frozen=True)
class Tried:
    """One attack's score in a cell, with all it must be read beside."""

    attack: str
    vantage: str
    metric: str
    means: str  # how the score is to be read
    value: float
    chance: float
    low: float
    high: float
    control: str  # the best attacker that ignores the observation
    control_value: float
    used: str
    verdict: str
    report: str  # the run's report, relative to the audit's folder
    perfect: float = 1.0  # the score of who knows everything; 0 for an error, where less is worse

    @property
    def scale(self) -> Scale:
        return Scale(self.chance, (self.control_value,), self.perfect)

    @property
    def excess(self) -> float:
        """How far beyond the best guess, as a share of the way to a perfect score."""
        return self.scale.excess(self.value)

    @property
    def bar(self) -> float:
        """What the best attacker scores that ignores the observation."""
        return self.control_value if self.scale.bar is None else self.scale.bar

    @property
    def open_end(self) -> float | None:
        """How bad a leak the interval leaves open; None where it leaves none."""
        end = self.high if self.scale.upwards else self.low
        return end if self.scale.beyond(end, end) else None


@dataclass(frozen=True)
class Cell:
    """What one party learned of one thing, or why nothing is known about it."""

    row: str
    column: str
    verdict: str
    why: str  # in words: what decided, or what is missing
    tried: tuple[Tried, ...] = ()  # the worst first
    carried: str = ""  # the party, seeing less, whose verdict this is


@dataclass(frozen=True)
class Audit:
    """The matrix of one experiment."""

    algorithm: str
    dataset: str
    stand_in: str
    partition: str
    defence: str
    encryption: str
    clients: int
    clusters: int
    rounds: int
    seed: int
    accuracy: float | None  # of clients on their own distribution: what the protection costs
    cells: tuple[Cell, ...]
    runs: tuple[dict[str, Any], ...]  # report, attacks
    settings: dict[str, Any] = field(default_factory=dict)
    problem: str = ""  # why there is no matrix: the experiment cannot be run
    notes: tuple[str, ...] = ()  # what of the experiment the audit leaves out

    @property
    def protection(self) -> str:
        """The defence and the encryption in one word: "none", "ldp", "ldp+ckks"."""
        return "+".join(w for w in (self.defence, self.encryption) if w != "none") or "none"

    def cell(self, row: str, column: str) -> Cell:
        return next(c for c in self.cells if (c.row, c.column) == (row, column))

    def worst(self, row: str) -> Cell:
        """The worst that anyone learns of it."""
        return min((c for c in self.cells if c.row == row), key=_rank)

    def learners(self, row: str, *verdicts: str) -> list[str]:
        """The parties with one of these verdicts on it."""
        return [c.column for c in self.cells if c.row == row and c.verdict in verdicts]

    def leaks(self, row: str) -> list[tuple[str, list[str]]]:
        """(verdict, the parties with it) of those who learn something, the worst first."""
        return [(verdict, who) for verdict in LEAKING if (who := self.learners(row, verdict))]

    def says(self, row: str) -> bool:
        """Whether the row has a meaning in this experiment."""
        return any(c.row == row and c.verdict not in (INAPPLICABLE, NOBODY) for c in self.cells)

    def json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def of(cls, content: Mapping[str, Any]) -> Audit:
        """Back from `json`."""
        cells = [Cell(**{**c, "tried": tuple(Tried(**t) for t in c["tried"])}) for c in content["cells"]]
        listed = {"runs": tuple(content["runs"]), "notes": tuple(content.get("notes", ()))}
        return cls(**{**content, **listed, "cells": tuple(cells)})


Watch = tuple[str, str]  # attack, column


def fill(
    experiment: Experiment, done: Mapping[Watch, tuple[dict[str, Any], str]], failed: Mapping[Watch, str]
) -> tuple[Cell, ...]:
    """All cells, row by row, from the findings (with their run's report) and the problems of what was run."""
    blind = {w: f"saw too little: {f['used']}" for w, (f, _) in done.items() if f["low"] <= 0 and f["high"] >= 1}
    done, failed = {w: found for w, found in done.items() if w not in blind}, {**failed, **blind}
    cells = {(row, column): _cell(row, column, experiment, done, failed) for row in ROWS for column in COLUMNS}
    for row, column in cells:
        cells[row, column] = _carried_over(cells[row, column], cells, experiment)
    return tuple(_warned(cell, cells, experiment) for cell in cells.values())


def _cell(
    row: str,
    column: str,
    experiment: Experiment,
    done: Mapping[Watch, tuple[dict[str, Any], str]],
    failed: Mapping[Watch, str],
) -> Cell:
    if not vantage(column, experiment):
        return Cell(row, column, NOBODY, "this protocol has one server")
    if words := absent(row, experiment):
        return Cell(row, column, INAPPLICABLE, words)
    if words := given(row, column, experiment):
        return Cell(row, column, GIVEN, words)
    here = [name for name, rule in APPLIES.items() if rule.row == row and column in rule.columns]
    tried = [t for name in here if (name, column) in done for t in _tried(name, *done[name, column])]
    problems = [f"{name}: {failed[name, column]}" for name in here if (name, column) in failed]
    if tried:
        tried.sort(key=lambda t: (VERDICTS.index(t.verdict), -t.excess))
        return Cell(row, column, tried[0].verdict, "; ".join([_in_words(tried), *problems]), tuple(tried))
    if problems:
        return Cell(row, column, FAILED, "; ".join(problems))
    lacking = [
        f"{name} {words}"
        for name in here
        if not APPLIES[name].fits(experiment) and (words := APPLIES[name].needs(experiment))
    ]
    if lacking:
        return Cell(row, column, FAILED, "; ".join(lacking))
    unfit = dict.fromkeys(APPLIES[name].fits(experiment) for name in here)
    return Cell(row, column, UNKNOWN, "; ".join(["no attack of covey tells from here", *unfit]))


def _tried(name: str, found: Mapping[str, Any], report: str) -> list[Tried]:
    """The finding, and the stronger attacker that it may have among its details."""
    controls = found["controls"] or {"chance": found["chance"]}
    perfect = float(found.get("perfect", 1.0))  # older results have none: all their scores are better when higher
    upwards = Scale(found["chance"], (), perfect).upwards
    best = (max if upwards else min)(controls, key=lambda c: float(controls[c]))
    kept = {k: found[k] for k in ("vantage", "metric", "value", "chance", "low", "high", "used", "verdict")}
    kept["perfect"] = perfect
    plain = Tried(name, control=best, control_value=controls[best], means=APPLIES[name].means, report=report, **kept)
    told = found["details"]
    if "closed form" in told:
        plain = replace(plain, used=f"{plain.used}; the closed form expects {told['closed form']:.3f}")
    if "noise_aware_leak" not in told or told["noise_aware"] == plain.value:
        return [plain]
    # Category inference keeps the one who reckons with the defence's noise as a paired difference to its best control.
    bar = told["noise_aware"] - told["noise_aware_leak"]
    aware = replace(
        plain,
        attack=f"{name}_noise_aware",
        value=told["noise_aware"],
        low=bar + told["noise_aware_leak_low"],
        high=bar + told["noise_aware_leak_high"],
        control="best control",
        control_value=bar,
        verdict=LEAKS if told["noise_aware_leak_low"] > 0 else NOTHING_SEEN,
        used=f"{plain.used.split('. ')[0]}, and the size of the noise, measured in the update",
    )
    return [plain, aware]


def _in_words(tried: Sequence[Tried]) -> str:
    worst = tried[0]
    words = f"tried: {', '.join(t.attack for t in tried)}"
    if worst.used.startswith(("nothing", "no ")):
        words += f", which could use {worst.used}"
    if worst.verdict == NOTHING_SEEN and (end := not_excluded(tried)) is not None:
        words += f"; a score {'up' if worst.scale.upwards else 'down'} to {end:.2f} is not excluded"
    if worst.chance == 0.5 and worst.scale.upwards and worst.high < 0.5:
        words += f"; wholly below 0.5: read the other way round it would score {1 - worst.value:.3f}"
    return words


def not_excluded(tried: Sequence[Tried]) -> float | None:
    """The worst leak that would have gone unseen by these attacks, all read on the first one's scale."""
    ends = [t.open_end for t in tried if t.scale.upwards == tried[0].scale.upwards]
    known = [end for end in ends if end is not None]
    if tried[0].open_end is None or not known:
        return None
    return max(known) if tried[0].scale.upwards else min(known)


def _carried_over(cell: Cell, cells: Mapping[tuple[str, str], Cell], experiment: Experiment) -> Cell:
    """Leaks carry over to a party that sees more. That somebody saw nothing does not."""
    if cell.verdict not in (UNKNOWN, FAILED):
        return cell
    less = sorted((cells[cell.row, other] for other in implies(cell.row, cell.column, experiment)), key=_rank)
    if less and less[0].verdict in LEAKING:
        why = f"it sees at least what the {less[0].column} sees ({less[0].why})"
        return Cell(cell.row, cell.column, less[0].verdict, why, less[0].tried, less[0].column)
    seen = [c for c in less if c.verdict == NOTHING_SEEN]
    words = "".join(f"; the {c.column}, who sees less: {c.verdict}" for c in seen)
    return replace(cell, why=cell.why + words)


def _warned(cell: Cell, cells: Mapping[tuple[str, str], Cell], experiment: Experiment) -> Cell:
    """Who knows a client's cluster knows its labels, where clusters are label sets: models may be sealed as they like."""
    identity = cells[IDENTITY, cell.column].verdict
    sets = cell.row == PREFERENCE and experiment.partition.name == "label_sets"
    if not sets or cell.verdict in LEAKING or identity not in LEAKING:
        return cell
    return replace(cell, why=f"{cell.why}; but the cluster identity is {identity} here, and clusters are label sets")


def _rank(cell: Cell) -> tuple[int, bool, float]:
    return VERDICTS.index(cell.verdict), bool(cell.carried), -cell.tried[0].excess if cell.tried else 0.0
