"""A reproduction as rows of text: every column twice, ours and the paper's."""

from __future__ import annotations

import math
from dataclasses import replace
from decimal import Decimal

from covey.papers.cells import Cell
from covey.papers.harness import Reproduction
from covey.report.labels import as_written

LEAST_WRITTEN_OUT = 1e-6  # below, zeros would have to be counted


def grid(reproduction: Reproduction, theirs: str = "paper") -> tuple[list[str], list[list[str]]]:
    """Head and rows: every column twice, ours and the paper's, the latter only where the paper has any."""
    columns = list(dict.fromkeys(c.column for c in reproduction.cells))
    printed = {c.column for c in reproduction.cells if c.paper is not None}
    by_place = {(c.row, c.column): c for c in reproduction.cells}
    head = [""]
    for column in columns:
        name = as_written(column)
        head += [f"{name} ours", f"{name} {theirs}"] if column in printed else [name]
    rows = []
    for row in dict.fromkeys(c.row for c in reproduction.cells):
        texts = [as_written(row)]
        for column in columns:
            cell = by_place.get((row, column))
            bare = (
                replace(cell, unit="") if cell and cell.unit in column.split() else cell
            )  # "rounds to 95%" has said it
            texts.append(ours(bare) if bare else "")
            if column in printed:
                texts.append(shown(bare.paper, bare.unit) if bare else "")
        rows.append(texts)
    return head, rows


def ours(cell: Cell) -> str:
    lost = f"{len(cell.diverged)} diverged" if cell.diverged else ""
    if cell.ours is None:
        return lost or "–"
    spread = "" if cell.std is None else f" ± {shown(cell.std, cell.unit, bare=True, figures=2)}"
    count = "; ".join(words for words in (str(cell.n) if cell.n > 1 else "", lost) if words)
    return f"{shown(cell.ours, cell.unit)}{spread}" + (f" ({count})" if count else "")


def shown(value: float | None, unit: str, bare: bool = False, figures: int = 4) -> str:
    if value is None:
        return ""
    if unit == "%":
        return f"{100 * value:.2f}".replace("-", "−") + ("" if bare else " %")
    digits = written_out(value, figures).replace("-", "−")
    return digits if bare or not unit else f"{digits} {unit}"


def written_out(value: float, figures: int) -> str:
    """'10,350', and not '1.035e+04'; whole numbers keep their digits, also where these are more than `figures`."""
    if not math.isfinite(value) or 0 < abs(value) < LEAST_WRITTEN_OUT:
        return f"{value:.{figures}g}"
    if abs(value) >= 10**figures:
        return f"{value:,.0f}"
    return f"{Decimal(f'{value:.{figures}g}'):,f}"
