"""What of a table becomes a figure. A paper declares drawings by table; a table without one gets the usual.

A drawing picks cells with regular expressions over "row | column" and names their parts: `x` (the number on the axis, or the name
of the row), `series` (which line), `panel` (which part of the figure). A cell that no expression matches is in the table only.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from covey.errors import CoveyError
from covey.papers.cells import Cell
from covey.papers.harness import Reproduction
from covey.report.draw import standing
from covey.report.draw.svg import HUES
from covey.report.labels import as_written
from covey.statistics import student_half

NUMBER = r"\d+(?:\.\d+)?"
DIFFERENCE = " − "  # a row "A − B" is an effect, on a scale of its own
MOST_ROWS = 32  # of dots: more are a table, not a figure
SHARES = ("%", "AUC", "accuracy")  # units of what ends at 1


@dataclass(frozen=True)
class Curves:
    """Lines over a number. `panels`: title to expression; an expression with a group `panel` makes one for "
    "each of its values."""

    x_label: str
    panels: Mapping[str, str]
    log: bool = False  # of the axis below
    log_figures: bool = False
    shared: bool = True  # one scale for all panels


@dataclass(frozen=True)
class Dots:
    """Figures beside the names of rows, a panel for each quantity. `least`: panel to the expression of cells that say, by a number
    above 0, that the row's figure is a lower bound.
    """

    panels: Mapping[str, str]
    log_figures: bool = False
    least: Mapping[str, str] = field(default_factory=dict)
    words: standing.Words = standing.PAPER


@dataclass(frozen=True)
class Shades:
    """Shares as shaded cells: the groups `x` and `panel` are row and column."""

    pattern: str


Drawing = Curves | Dots | Shades


@dataclass(frozen=True)
class Beside:
    """What stands beside a paper's pages, made from all of its tables and from what else `docs` holds."""

    files: Mapping[str, str]  # path below docs -> content
    lines: Sequence[str]  # for a terminal


@dataclass(frozen=True)
class Theirs:
    """Whose the figures beside ours are."""

    name: str  # of their column
    meaning: str


PAPER = Theirs("paper", "as printed")


@dataclass(frozen=True)
class About:
    """What a paper's page says beside its figures; sentences are Markdown, links relative to docs/papers/PAPER."""

    label: str
    cites: str
    says: str  # what the paper claims
    differs: Sequence[str]  # what we read differently, or had to choose
    breaks: Sequence[str]  # what broke a claim, or bounds it
    drawings: Mapping[str, Sequence[Drawing]] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)  # of tables that the paper does not number
    theirs: Mapping[str, Theirs] = field(default_factory=dict)  # by table, where they are not the paper's
    beside: Callable[[Sequence[Reproduction], Path], Beside] | None = None  # what all its tables together make


@dataclass(frozen=True)
class _Place:
    panel: str
    series: str
    x: str
    cell: Cell


def pictures(reproduction: Reproduction, drawings: Sequence[Drawing]) -> list[str]:
    """SVG of each drawing that has something to show."""
    wanted = drawings or [usual(reproduction.cells)]
    made = [_picture(reproduction, one) for one in wanted]
    return [one for one in made if one]


def usual(cells: Sequence[Cell]) -> Curves | Dots:
    """Curves where rows are one word with different numbers ("round 10", "round 20" …) and columns have one unit, else dots: up to
    three columns, those first that the paper printed figures for.
    """
    columns = list(dict.fromkeys(cell.column for cell in cells))
    words = {re.sub(NUMBER, "#", cell.row, count=1) for cell in cells}
    rows = {cell.row for cell in cells}
    if len(words) == 1 and "#" in (word := words.pop()) and len(rows) > 2 and len({cell.unit for cell in cells}) == 1:
        before, _, after = (re.escape(part) for part in word.partition("#"))
        series = "|".join(re.escape(column) for column in columns[:HUES])
        label = word.replace("#", "").replace("=", "").strip()
        return Curves(label, {"": f"{before}(?P<x>{NUMBER}){after} \\| (?P<series>{series})"})
    printed = {cell.column for cell in cells if cell.paper is not None}
    chosen = sorted(columns, key=lambda column: column not in printed)[:3]
    return Dots({column: f"(?P<x>.+) \\| {re.escape(column)}" for column in columns if column in chosen})


def _picture(reproduction: Reproduction, drawing: Drawing) -> str:
    title = f"{reproduction.title} ({reproduction.dataset})" if reproduction.dataset else reproduction.title
    if isinstance(drawing, Shades):
        return _shades(title, _places(reproduction.cells, {"": drawing.pattern}))
    places = _places(reproduction.cells, drawing.panels)
    if not places:
        return ""
    if isinstance(drawing, Curves):
        places = [place for place in places if place.cell.ours is not None or place.cell.paper is not None]
        if not places:
            return ""
        panels = _panels(places, [float(place.x) for place in places], drawing.log_figures)
        return standing.curves(title, panels, drawing.x_label, drawing.log, drawing.shared)
    known = [place for place in places if DIFFERENCE not in place.cell.row]
    names = list(dict.fromkeys(place.x for place in known))[:MOST_ROWS]
    known = [place for place in known if place.x in names]
    if not known:
        return ""
    rows = [float(names.index(place.x)) for place in known]
    bounds = {(p.panel, p.x) for p in _places(reproduction.cells, drawing.least) if (p.cell.ours or 0) > 0}
    return standing.dots(title, names, _panels(known, rows, drawing.log_figures, bounds), drawing.words)


def _places(cells: Sequence[Cell], panels: Mapping[str, str]) -> list[_Place]:
    places = []
    for title, pattern in panels.items():
        for cell in cells:
            matched = re.fullmatch(pattern, f"{cell.row} | {cell.column}")
            if matched and (cell.ours is not None or cell.paper is not None or cell.diverged):
                named = {of: as_written(name or "") for of, name in matched.groupdict().items()}
                places.append(_Place(named.get("panel") or title, named.get("series") or "", named["x"], cell))
    return places


def _panels(
    places: Sequence[_Place], xs: Sequence[float], log: bool, bounds: Collection[tuple[str, str]] = ()
) -> list[standing.Panel]:
    panels = []
    for title in dict.fromkeys(place.panel for place in places):
        lines: dict[str, list[standing.Mark]] = {}
        units = set()
        for place, x in zip(places, xs):
            if place.panel == title:
                made = replace(mark(place.cell, x), least=(place.panel, place.x) in bounds)
                lines.setdefault(place.series, []).append(made)
                units.add(place.cell.unit)
        if len(units) > 1:
            raise CoveyError(f"panel '{title}' has figures in {' and '.join(sorted(units))}: one scale needs one unit")
        unit = units.pop()
        named = title if unit in (*SHARES, "") or not title or unit in title else f"{title}, {unit}"
        drawn = [standing.Line(name, marks) for name, marks in lines.items()]
        panels.append(standing.Panel(named, drawn, unit == "%", log))
    return panels


def mark(cell: Cell, x: float) -> standing.Mark:
    """Our mean with Student's interval over seeds; none of a single run."""
    interval = None
    if cell.ours is not None and cell.std is not None and cell.n > 1:
        half = student_half(cell.n) * cell.std / math.sqrt(cell.n)
        most = 1.0 if cell.unit in SHARES else math.inf  # Student's interval does not know where shares end
        interval = cell.ours - half, max(cell.ours, min(cell.ours + half, most))
    lost = f"{len(cell.diverged)} of {cell.seeds} runs diverged" if cell.diverged and cell.ours is None else ""
    return standing.Mark(x, cell.ours, interval, cell.paper, said=lost)


def _shades(title: str, places: Sequence[_Place]) -> str:
    if not places:
        return ""
    rows = list(dict.fromkeys(place.x for place in places))
    columns = list(dict.fromkeys(place.panel for place in places))
    by_place = {(place.x, place.panel): place.cell.ours for place in places}
    return standing.shades(title, rows, columns, [[by_place.get((r, c)) for c in columns] for r in rows])
