"""Pictures made of cells: who chose which cluster when, label histograms, count matrices.

Equal neighbours in a row become one stroke and all strokes of a colour one path: 120 clients x 100 rounds is a few kilobytes, and
the colours still follow the reader's light or dark theme, which a bitmap would not.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from covey.report.draw.markup import Html, join, percent_of, tag
from covey.report.draw.svg import stretched
from covey.report.format import plain

MAX_ROWS = 200
MAX_COLUMNS = 200
LEVELS = 10  # steps of the sequential scale, classes q0 … q9


@dataclass(frozen=True)
class Shade:
    """How cells of one value look and what hovering them says."""

    colour: str
    says: str


def cells(grid: Sequence[Sequence[int]], shades: dict[int, Shade]) -> Html:
    """One path per value; a value without a shade stays empty."""
    paths: dict[int, list[str]] = {value: [] for value in shades}
    for row, values in enumerate(grid):
        start = 0
        for column in range(1, len(values) + 1):
            if column == len(values) or values[column] != values[start]:
                if values[start] in paths:
                    paths[values[start]].append(f"M{start} {row}h{column - start}")
                start = column
    drawn = [
        tag("path", d="".join(moves), class_=f"cell {shades[value].colour}", data_v=shades[value].says)
        for value, moves in paths.items()
        if moves
    ]
    return tag("g", *drawn, transform="translate(0 .5)")


def row_pixels(rows: int) -> int:
    """Height of a row: readable for ten clients, and two hundred still fit a screen."""
    return max(2, min(18, 380 // max(rows, 1)))


def grid_picture(
    title: str,
    desc: str,
    grid: Sequence[Sequence[int]],
    shades: dict[int, Shade],
    row_names: Sequence[str],
    column_names: Sequence[str],
    column_ticks: Sequence[tuple[float, str]],
    x_label: str,
    groups: Sequence[tuple[int, int, str, str]] = (),
    slanted: bool = False,
    sequential: bool = False,
) -> Html:
    """The grid with its axes. `groups` are (first row, end row, name, colour): a strip at the left that names blocks of rows.

    A column tick stands at a fraction of the width. Row and column names are what hovering says.
    """
    rows, columns = len(grid), len(grid[0])
    pixels = row_pixels(rows)
    height = rows * pixels
    ground = tag("rect", width=columns, height=rows, class_="ground")
    parts = [stretched(join([ground, cells(grid, shades)]), height, columns, rows)]
    for first, end, name, colour in groups:
        top, tall = first * pixels, (end - first) * pixels
        parts.append(tag("rect", x=-12, y=top, width=6, height=max(tall - 1, 1), class_=f"fill {colour}"))
        if tall >= 11:
            parts.append(tag("text", name, x=-17, y=top + tall / 2 + 4, class_="tick end"))
        if first:
            parts.append(tag("line", x1=-12, x2="100%", y1=top - 0.5, y2=top - 0.5, class_="divide"))
    for fraction, label in column_ticks:
        if slanted:
            turned = tag("text", label, x=0, y=0, transform="rotate(-40)", class_="tick end")
            parts.append(tag("svg", turned, x=percent_of(fraction), y=height + 12, overflow="visible"))
        else:
            parts.append(tag("text", label, x=percent_of(fraction), y=height + 16, class_="tick mid"))
    parts.append(tag("text", x_label, x="100%", y=height + (62 if slanted else 34), class_="axis end"))
    data = json.dumps(
        {"rows": list(row_names), "columns": list(column_names)}, separators=(",", ":"), ensure_ascii=False
    )
    return tag(
        "svg",
        tag("desc", desc),
        *parts,
        class_=f"chart cells{' slanted' if slanted else ''}{' sequential' if sequential else ''}",
        height=height,
        role="img",
        aria_label=title,
        data_cells=data,
    )


def levels(values: Sequence[Sequence[float]], unit: str) -> tuple[list[list[int]], dict[int, Shade]]:
    """Values as steps 0 … 9 of a sequential scale from zero to the largest; exact zeros stay empty (-1)."""
    top = max((value for row in values for value in row), default=0.0) or 1.0
    steps = [[-1 if value <= 0 else min(LEVELS - 1, int(LEVELS * value / top)) for value in row] for row in values]
    shades = {
        step: Shade(f"q{step}", f"{plain(top * step / LEVELS)} to {plain(top * (step + 1) / LEVELS)} {unit}")
        for step in range(LEVELS)
    }
    return steps, shades


def scale_legend(top: float, unit: str) -> Html:
    """The sequential scale as a strip of its steps, with its ends named."""
    steps = [tag("i", class_=f"step q{step}") for step in range(LEVELS)]
    strip = tag("span", *steps, class_="strip")
    return tag("div", tag("span", "0"), strip, tag("span", f"{plain(top)} {unit}"), class_="legend scale")


def matrix(title: str, desc: str, values: Sequence[Sequence[float]], row_word: str, column_word: str) -> Html:
    """A small table of numbers, shaded; a real table, so it can be read aloud and copied."""
    top = max((value for row in values for value in row), default=0.0) or 1.0
    head = [tag("th", ""), *(tag("th", f"{column_word} {j}", scope="col") for j in range(len(values[0])))]
    body = []
    for i, row in enumerate(values):
        shaded = [
            tag("td", plain(value), class_=f"q{min(LEVELS - 1, int(LEVELS * value / top))}" if value > 0 else "empty")
            for value in row
        ]
        body.append(tag("tr", tag("th", f"{row_word} {i}", scope="row"), *shaded))
    table = tag("table", tag("caption", desc), tag("thead", tag("tr", *head)), tag("tbody", *body), class_="matrix")
    return tag("div", table, class_="scroll", role="region", aria_label=title, tabindex=0)


def legend(keys: Sequence[tuple[str, str]]) -> Html:
    """(colour, name) pairs that only explain; nothing to click."""
    return tag("div", *(tag("span", tag("i", class_=f"swatch {c}"), n, class_="key") for c, n in keys), class_="legend")
