"""A figure of ours beside the paper's, and contrasts of such figures: what verdicts are computed from."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from covey.statistics import deviation

Place = tuple[str, str]  # row, column
BETWEEN = " − "  # the names of two rows, in the row of their paired difference


@dataclass(frozen=True)
class Cell:
    """One figure of ours, beside the paper's where it printed one."""

    row: str
    column: str
    ours: float | None  # mean; None: not run
    std: float | None
    n: int  # values in the mean
    paper: float | None
    unit: str = "%"  # "%": values are shares; else shown as they are
    values: list[float] = field(default_factory=list)  # seed by seed; none in files stored before this was kept
    trials: int = 0  # that each value is a share of, as clients or rows; 0: not a share of counted things, or not known
    diverged: list[int] = field(default_factory=list)  # of the seeds, by place, those without a value: `outcome.py`

    @property
    def seeds(self) -> int:
        return self.n + len(self.diverged)

    def without(self, places: Collection[int]) -> Cell:
        """Its values of the other seeds, where all are stored; those that diverged among them are left out in any case."""
        if len(self.values) != self.n:
            return self
        kept = zip([p for p in range(self.seeds) if p not in self.diverged], self.values)
        return cell(self.row, self.column, [v for p, v in kept if p not in places], self.paper, self.unit, self.trials)


def cell(
    row: str, column: str, values: Sequence[float | None], paper: float | None = None, unit: str = "%", trials: int = 0
) -> Cell:
    """Our values, one per seed in the order of the seeds, beside the paper's; without values: not run. None: that seed diverged."""
    known = [float(v) for v in values if v is not None]
    diverged = [place for place, v in enumerate(values) if v is None]
    mean = float(np.mean(known)) if known else None
    std = deviation(known) if len(known) > 1 else None
    return Cell(row, column, mean, std, len(known), paper, unit, known, trials, diverged)


@dataclass(frozen=True)
class Sheet:
    """A table's cells by place, with what else its claims may depend on."""

    cells: Sequence[Cell]
    dataset: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    quick: bool = False

    @cached_property
    def _by_place(self) -> dict[Place, Cell]:
        return {(c.row, c.column): c for c in self.cells}

    def get(self, place: Place) -> Cell | None:
        """The cell, if it was run and came out as a number."""
        cell = self._by_place.get(place)
        return None if cell is None or cell.ours is None or not math.isfinite(cell.ours) else cell

    def ran(self, place: Place) -> Cell | None:
        """The same, and also a cell that has no number because all of its runs diverged."""
        cell = self._by_place.get(place)
        return cell if cell is not None and cell.ours is None and cell.diverged else self.get(place)

    @cached_property
    def rows(self) -> list[str]:
        """Without those that hold paired differences of two others."""
        every = dict.fromkeys(c.row for c in self.cells)
        pairs = {row for row in every if {*row.split(BETWEEN)} <= every.keys() and BETWEEN in row}
        return [row for row in every if row not in pairs]

    def mean(self, row: str, column: str) -> float:
        """For words; NaN where it was not run."""
        cell = self.get((row, column))
        return math.nan if cell is None or cell.ours is None else cell.ours


@dataclass(frozen=True)
class Contrast:
    """A weighted sum of cells less a number. Cells of the same seeds are paired: what they owe to a seed cancels."""

    terms: tuple[tuple[float, Place], ...]
    less: float = 0.0
    paired: bool = True

    def __sub__(self, other: Contrast | float) -> Contrast:
        return (
            self + -1.0 * other if isinstance(other, Contrast) else Contrast(self.terms, self.less + other, self.paired)
        )

    def __add__(self, other: Contrast) -> Contrast:
        weights: dict[Place, float] = {}
        for weight, place in (*self.terms, *other.terms):
            weights[place] = weights.get(place, 0.0) + weight
        paired = self.paired and other.paired
        return Contrast(tuple((w, p) for p, w in weights.items()), self.less + other.less, paired)

    def __rmul__(self, factor: float) -> Contrast:
        return Contrast(tuple((factor * w, p) for w, p in self.terms), factor * self.less, self.paired)

    @property
    def level(self) -> bool:
        """Whether it is a figure, not a difference of figures."""
        return abs(sum(w for w, _ in self.terms)) > 1e-9 and not self.less


def at(row: str, column: str) -> Contrast:
    """The figure in one cell."""
    return Contrast(((1.0, (row, column)),))


def average(contrasts: Iterable[Contrast]) -> Contrast:
    """The mean of several, seed by seed."""
    every = list(contrasts)
    total = every[0]
    for one in every[1:]:
        total = total + one
    return (1.0 / len(every)) * total


def independent(contrast: Contrast) -> Contrast:
    """Of cells that share no seeds."""
    return Contrast(contrast.terms, contrast.less, paired=False)


def difference(a: str, b: str) -> str:
    """The row of a paired difference of two rows."""
    return f"{a}{BETWEEN}{b}"
