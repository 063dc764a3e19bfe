"""Maps of dots that stand alone, as SVG files: t-SNE of what an attacker saw, side by side, coloured by truth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from covey.report.draw.markup import Html, join, tag
from covey.report.draw.standing import MARGIN, WIDTH, file_of, key_row
from covey.report.draw.svg import hue, linear

GAP = 16  # pixels between maps


@dataclass(frozen=True)
class Map:
    """Dots with a label each; such a map has no axes, since its directions mean nothing."""

    title: str
    x: Sequence[float]
    y: Sequence[float]
    label: Sequence[str]
    said: str = ""  # under the title


def maps(title: str, given: Sequence[Map]) -> str:
    """Two in a row, dots of one label in one colour over all of them."""
    labels = sorted({label for one in given for label in one.label})
    wide = (WIDTH - 2 * MARGIN - GAP) / 2
    keys, top = key_row(
        [(tag("circle", cx=5, cy=-4, r=4, class_=f"dot {hue(i)}"), label) for i, label in enumerate(labels)]
    )
    parts, under = [keys], 18 * any(one.said for one in given)
    for number, one in enumerate(given):
        left, above = MARGIN + (number % 2) * (wide + GAP), top + 26 + under + (number // 2) * (wide + 40 + under)
        parts.append(tag("g", _map(one, labels, wide), transform=f"translate({left:.0f} {above:.0f})"))
    return file_of(title, top + -(-len(given) // 2) * (wide + 40 + under) + 4, parts)


def _map(one: Map, labels: Sequence[str], wide: float) -> Html:
    x, y = linear(min(one.x), max(one.x), tight=True), linear(min(one.y), max(one.y), tight=True)
    edge = 8
    inner = wide - 2 * edge
    parts = [tag("text", one.title, x=0, y=-26 if one.said else -8, class_="head"), tag("text", one.said, x=0, y=-8)]
    parts += [tag("line", x1=a, y1=b, x2=c, y2=d, class_="grid") for a, b, c, d in _frame(wide)]
    # The rarer label last: what is drawn later covers what was drawn before.
    for i in sorted(range(len(one.x)), key=lambda i: -list(one.label).count(one.label[i])):
        place = {"cx": round(edge + inner * x.at(one.x[i]), 1), "cy": round(edge + inner * (1 - y.at(one.y[i])), 1)}
        parts.append(tag("circle", **place, r=3.2, class_=f"dot {hue(labels.index(one.label[i]))}", opacity=0.8))
    return join(parts)


def _frame(wide: float) -> list[tuple[float, float, float, float]]:
    return [(0, 0, wide, 0), (0, wide, wide, wide), (0, 0, 0, wide), (wide, 0, wide, wide)]
