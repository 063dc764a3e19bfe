"""One rule for every verdict: a sentence is a set of contrasts, each with the range in which it says that the effect lies.

    holds           the whole 95 % interval of every contrast lies inside its range
    does not hold   the whole interval of some contrast lies outside
    undecided       neither: an interval reaches over an end of its range, or there is one run and so no interval
    not measured    nothing was run

Intervals are Student's over seeds, of differences paired by seed. "A is above B" asks for a difference above 0, "A is like B" for
one within a margin (equivalence: both ends of the interval inside ± margin), "A does not help" for a gain below a margin; margins
stand in the papers' modules, beside the sentence, before anything is run. So no sentence holds because a test failed to reject.

Files from before seeds were stored have a mean, a deviation and a number of seeds per cell, and the correlation between cells is
lost. But the deviation of a weighted sum lies between what perfect correlation and perfect anticorrelation make of the cells'
deviations: where the narrowest and the widest interval give the same verdict, every pairing would have. Where they do not, it is
*undecided*, with the words "not decidable from what is stored". Where such a file tells the paired interval of a difference, a cell
in the row "A − B" holds it.

A run that diverged has no figure: a contrast that needs it is shown over the seeds that are left and is *undecided* (`outcome.py`).

Rounds that a run did not last to see count as one more than it had. Its interval is of these numbers: a run that would have taken
far longer would move the mean on, and widen the interval, too.

Limits: three seeds make wide intervals. Nothing is corrected for the number of sentences: of a hundred that sit exactly on the end
of their range, two or three are called one way and two or three the other.

Where all seeds gave the same, Student's interval would have no width, as if nothing else could have come out. A share (100 % of the
clients in each of three runs) then gets Wilson's interval over all that was counted: n times the cell's `trials`, as if those of
one run were independent, and over the n runs alone where trials are not known, which decides little. Rounds until something
happens are whole numbers: equal ones get the deviation of what rounding hides, 1/√12 of a round each. Another number that is no
share (bytes) keeps its width of 0, and the words say "the same in every run". So does a difference of rows that are equal seed by
seed while the seeds differ: they are one computation under two names. One test sample more in each of three runs is chance, and
gets Wilson's where the samples are counted (`trials`); where they are not, nothing bounds it, and it is undecided. Intervals of
shares are shown cut at 0 and 100 %: Student's does not know these ends. Verdicts are of the uncut ones.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from covey.errors import CoveyError
from covey.papers.cells import Cell, Contrast, Sheet, difference
from covey.report.labels import as_written
from covey.statistics import Mean, deviation, student, student_half, wilson

HOLDS, FAILS, UNDECIDED, UNMEASURED = VERDICTS = ("holds", "does not hold", "undecided", "not measured")
SHOWN = 4  # contrasts that a sentence's words list
SAME = 1e-12  # a spread below this is rounding


@dataclass(frozen=True)
class Range:
    """Where an effect lies if the sentence is true; the ends are outside."""

    low: float = -math.inf
    high: float = math.inf

    def verdict(self, low: float, high: float) -> str:
        """Of an interval."""
        if (self.low == -math.inf or self.low < low) and (self.high == math.inf or high < self.high):
            return HOLDS
        return FAILS if high <= self.low or low >= self.high else UNDECIDED

    def words(self, scale: float) -> str:
        low, high = (f"{scale * end:.4g}" for end in (self.low, self.high))
        if self.high == math.inf:
            return f"above {low}"
        if self.low == -math.inf:
            return f"below {high}"
        return f"within ± {high}" if self.low == -self.high else f"between {low} and {high}"


def above(margin: float = 0.0) -> Range:
    return Range(low=margin)


def below(margin: float = 0.0) -> Range:
    return Range(high=margin)


def within(margin: float) -> Range:
    """Equivalence."""
    return Range(-margin, margin)


@dataclass(frozen=True)
class Estimate:
    """An effect and half the width of its interval: the widest and the narrowest that what is stored allows."""

    value: float
    widest: float
    narrowest: float
    n: int
    one_sided: str = ""  # "at least": the true effect may be greater, "at most": less, "": as it is
    diverged: str = ""  # in words, where seeds are missing because a run diverged: what is left decides nothing

    def verdict(self, asked: Range) -> str:
        if self.diverged:
            return UNDECIDED
        both = {asked.verdict(self.value - half, self.value + half) for half in (self.widest, self.narrowest)}
        (verdict,) = both if len(both) == 1 else (UNDECIDED,)
        if self.one_sided and verdict != UNDECIDED:  # would it stand, however far the effect is on its open side?
            open_end = math.inf if self.one_sided == "at least" else -math.inf
            ends = sorted((self.value - math.copysign(self.widest, open_end), open_end))
            return asked.verdict(*ends)
        return verdict


@dataclass(frozen=True)
class Part:
    """One contrast of a sentence, and what the sentence says of it."""

    name: str
    effect: Contrast | Estimate | None  # an Estimate: computed otherwise than over seeds; None: not measured
    asked: Range
    unit: str = "%"  # of an Estimate: as a cell's
    units: int = (
        0  # independent repetitions, where a cell's values are more than these (several draws of one partition)
    )
    one_sided: str = ""
    gap: bool = False  # of one column, whose figures are differences of shares: shown in points


@dataclass(frozen=True)
class Statement:
    """A sentence and what it rests on. It holds if all of its parts do."""

    text: str
    parts: Sequence[Part]
    comment: str = ""  # for the reader, beside the figures
    whose: str = "paper"  # "ours": a question that the paper does not ask


@dataclass(frozen=True)
class Effect:
    """A part as it came out, in the unit it is shown in."""

    name: str
    value: float | None  # None: not measured
    low: float | None  # None: no interval
    high: float | None
    n: int  # seeds or draws; 0: computed, not measured
    unit: str
    asked: str
    verdict: str
    exact: bool = True  # False: seeds' values are not stored, and the interval is the widest that is possible
    lost: str = ""  # why there is no value although it was run

    @property
    def same(self) -> bool:
        """Whether no run differed, of a number that is no share: an interval without width says nothing else."""
        return self.n > 0 and self.low is not None and self.high is not None and self.high - self.low <= SAME

    def words(self) -> str:
        name = f"{self.name}: " if self.name else ""
        return name + self._figures().replace("-", "−")

    def _figures(self) -> str:
        if self.value is None:
            return self.lost or UNMEASURED
        unit = f" {self.unit}" if self.unit else ""
        number = f"{self.value:+.4g}{unit}" if self.unit == "points" else f"{self.value:.4g}{unit}"
        if self.low is None or self.high is None:
            return f"{number}, one run: no interval (asked: {self.asked})"
        if self.n == 0:
            return f"{number}, computed (asked: {self.asked})"
        if self.same:
            return f"{number}, the same in every run (n = {self.n}; asked: {self.asked})"
        kind = "" if self.exact else " at the widest"
        return f"{number} [{self.low:.4g}, {self.high:.4g}{kind}, n = {self.n}] (asked: {self.asked})"


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper, and what our figures say to it."""

    text: str
    verdict: str
    why: str  # with the numbers
    effects: list[Effect] = field(default_factory=list)
    whose: str = "paper"

    def __post_init__(self) -> None:
        if self.verdict not in VERDICTS:
            raise CoveyError(f"a claim's verdict is {self.verdict!r}: choose one of {', '.join(VERDICTS)}")

    @property
    def decisive(self) -> Effect | None:
        """The effect that the verdict hangs on: of those with the verdict itself the worst, which comes first."""
        same = [e for e in self.effects if e.verdict == self.verdict] or self.effects
        return same[0] if same else None


def judge(statement: Statement, sheet: Sheet) -> Claim:
    """The one rule."""
    estimates = [(part, _estimate(part, sheet)) for part in statement.parts]
    found = [(_effect(part, e, sheet), _inside(part, e)) for part, e in estimates]
    effects = [effect for effect, _ in sorted(found, key=lambda one: (_ORDER.index(one[0].verdict), one[1]))]
    verdict = conjunction([e.verdict for e in effects])
    why = _words(effects, verdict)
    return Claim(as_written(statement.text), verdict, f"{why} {statement.comment}".strip(), effects, statement.whose)


def _inside(part: Part, estimate: Estimate | None) -> float:
    """How far a part's effect lies inside of what is asked of it; below 0: outside, which a reader must see first."""
    if estimate is None or not math.isfinite(estimate.value):
        return math.inf
    return min(estimate.value - part.asked.low, part.asked.high - estimate.value)


_ORDER = (FAILS, UNDECIDED, UNMEASURED, HOLDS)  # what a reader must see first


def conjunction(verdicts: Sequence[str]) -> str:
    """Of a sentence whose parts were judged so."""
    if not set(verdicts) - {UNMEASURED}:
        return UNMEASURED
    if FAILS in verdicts:
        return FAILS
    return HOLDS if set(verdicts) == {HOLDS} else UNDECIDED


def estimate(contrast: Contrast, sheet: Sheet, units: int = 0) -> Estimate | None:
    """A contrast's value and interval from the cells; None where one of them was not run. Not a number: no seed is left."""
    cells = [sheet.ran(place) for _, place in contrast.terms]
    known = [c for c in cells if c is not None]
    if len(known) < len(cells):
        return None
    lost = sorted({place for c in known for place in c.diverged})
    if lost:
        rest = Sheet([c.without(lost) for c in known], sheet.dataset, sheet.settings, sheet.quick)
        words = f"diverged in {len(lost)} of {max(c.seeds for c in known)} seeds"
        left = estimate(contrast, rest, units) or Estimate(math.nan, math.inf, math.inf, 0)
        return replace(left, diverged=words)
    weights = [w for w, _ in contrast.terms]
    value = sum(w * (c.ours or 0.0) for w, c in zip(weights, known)) - contrast.less
    n = min(min(units or c.n, c.n) for c in known)
    if n < 2 or any(c.n < 2 or (c.std is None and not c.values) for c in known):
        return Estimate(value, math.inf, math.inf, n)
    if not contrast.paired:
        return _welch(value, weights, known)
    if all(len(c.values) == n for c in known):
        mean = student([sum(w * v for w, v in zip(weights, seed)) for seed in zip(*(c.values for c in known))])
        return _spread(Mean(value, mean.half, n), weights, known)
    pair = _stored_difference(contrast, sheet)
    if pair is not None:
        half = student_half(pair.n) * (pair.std or 0.0) / math.sqrt(pair.n)
        return _spread(Mean(value, half, pair.n), weights, known)
    errors = [abs(w) * (c.std or 0.0) / math.sqrt(min(units or c.n, c.n)) for w, c in zip(weights, known)]
    least = max(0.0, 2 * max(errors) - sum(errors))  # the others all pull against the largest
    if not any(errors):
        return _spread(Mean(value, 0.0, n), weights, known)
    t = student_half(n)
    return Estimate(value, t * sum(errors), t * least, n)


def _stored_difference(contrast: Contrast, sheet: Sheet) -> Cell | None:
    """The cell in row "A − B" where the contrast is A less B in one column."""
    by_weight = sorted(contrast.terms, reverse=True)
    if [w for w, _ in by_weight] != [1.0, -1.0] or contrast.less:
        return None
    (_, (a, column)), (_, (b, other)) = by_weight
    pair = sheet.get((difference(a, b), column)) if column == other else None
    return pair if pair is not None and pair.n > 1 else None


def _spread(mean: Mean, weights: Sequence[float], cells: Sequence[Cell]) -> Estimate:
    """With the interval that the seeds gave, or, where all of them gave the same effect, what was counted."""
    varied = any((deviation(c.values) if c.values else c.std or 0.0) > SAME for c in cells)
    equal = abs(sum(w * (c.ours or 0.0) for w, c in zip(weights, cells))) <= SAME
    counted = all(c.trials or c.unit == "rounds" for c in cells)
    chance = not varied or (not equal and mean.half <= SAME and counted)
    half = _counted(weights, cells) if chance and not math.isnan(mean.half) else mean.half  # NaN: undecided
    if not equal and varied and mean.half <= SAME and not chance and any(c.unit == "%" for c in cells):
        half = math.inf  # shares that differ by as much in every seed, of nobody knows how many samples
    return Estimate(mean.value, half, half, mean.n)


def _counted(weights: Sequence[float], cells: Sequence[Cell]) -> float:
    """Half the width of the interval of what did not vary; of several shares, as if they were independent."""
    if all(c.unit == "rounds" for c in cells):
        n = min(c.n for c in cells)
        return student_half(n) * math.sqrt(sum(w * w for w in weights) / 12 / n)
    if any(c.unit != "%" for c in cells):
        return 0.0
    squares = 0.0
    for weight, c in zip(weights, cells):
        share = min(max(c.ours or 0.0, 0.0), 1.0)
        low, high = wilson(share, c.n * max(1, c.trials))
        squares += (weight * max(share - low, high - share)) ** 2
    return math.sqrt(squares)


def _welch(value: float, weights: Sequence[float], cells: Sequence[Cell]) -> Estimate:
    """Of cells that share no seeds: deviations are all that it takes."""
    squares = [(w * (deviation(c.values) if c.values else c.std or 0.0)) ** 2 / c.n for w, c in zip(weights, cells)]
    total, n = sum(squares), min(c.n for c in cells)
    if not total:
        return _spread(Mean(value, 0.0, n), weights, cells)
    freedom = total**2 / sum(s**2 / (c.n - 1) for s, c in zip(squares, cells))
    half = student_half(1 + freedom) * math.sqrt(total)
    return Estimate(value, half, half, n)


def _estimate(part: Part, sheet: Sheet) -> Estimate | None:
    if not isinstance(part.effect, Contrast):
        return part.effect
    found = estimate(part.effect, sheet, part.units)
    return found and replace(found, one_sided=part.one_sided)


def _effect(part: Part, estimate: Estimate | None, sheet: Sheet) -> Effect:
    unit, level, said = part.unit, False, as_written(part.name)
    if isinstance(part.effect, Contrast):
        units = [c.unit for _, place in part.effect.terms if (c := sheet.get(place))]
        unit, level = (units[0] if units else "%"), part.effect.level
    scale = 100.0 if unit == "%" else 1.0
    differs = (
        not level or part.gap or part.asked.low == 0.0
    )  # a column of differences is asked about 0, a share never is
    shown = {"%": "points" if differs else "%"}.get(unit, unit)
    asked = part.asked.words(scale)
    if estimate is None or not np.isfinite(estimate.value):
        lost = estimate.diverged if estimate is not None else ""
        return Effect(said, None, None, None, 0, shown, asked, UNDECIDED if lost else UNMEASURED, lost=lost)
    wide = math.isfinite(estimate.widest)
    low, high = (scale * (estimate.value + side * estimate.widest) if wide else None for side in (-1, 1))
    if low is not None and high is not None and level and unit == "%":
        low, high = low if differs or estimate.value < 0 else max(low, 0.0), min(high, 100.0)
    exact = estimate.widest == estimate.narrowest
    verdict = estimate.verdict(part.asked)
    name = ", ".join(words for words in (said, estimate.diverged, estimate.one_sided) if words)
    value = scale * estimate.value if abs(estimate.value) > SAME else 0.0
    return Effect(name, value, low, high, estimate.n, shown, asked, verdict, exact)


def _words(effects: Sequence[Effect], verdict: str) -> str:
    """The effects that say most, and whether more could have been said of what is stored."""
    listed = "; ".join(e.words() for e in effects[:SHOWN])
    rest = effects[SHOWN:]
    more = f"; {len(rest)} more, of which {sum(e.verdict == HOLDS for e in rest)} hold" if rest else ""
    lost = verdict == UNDECIDED and any(e.verdict == UNDECIDED and not e.exact for e in effects)
    return f"{listed}{more}." + (" Not decidable from what is stored: the seeds' own values are not." if lost else "")
