"""Draws the pictures that a finding brings along: a map of dots, a histogram, a curve over whole numbers, a table, small images.

Attacks describe them in `details["pictures"]` as tables of lists (see `attacks/property/pictures.py`); nothing is computed here.
A table that is of no known kind, or whose lists do not fit together, is left out: a report must not fail over a decoration.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from covey.files import number
from covey.report.draw.bitmap import data_address, is_picture
from covey.report.draw.layout import figure, figures, rows_table
from covey.report.draw.markup import Html, join, percent_of, tag
from covey.report.draw.svg import Series, chart, frame, hue, line_chart, linear, whole
from covey.report.format import percent, plain, sentence_case

HEIGHT = 230


def pictures_of(details: Mapping[str, Any]) -> Html:
    """All pictures of a finding's details side by side; nothing where there are none."""
    described = details.get("pictures")
    given = [one for one in described if isinstance(one, Mapping)] if isinstance(described, list) else []
    return figures(*(DRAWN[kind](one) for one in given if (kind := str(one.get("kind"))) in DRAWN))


def scatter(given: Mapping[str, Any]) -> Html | None:
    """One dot for each point, coloured by its label; the axes of such a map have no unit, so none are drawn."""
    xs, ys, labels = _numbers(given, "x"), _numbers(given, "y"), given.get("label")
    if not xs or not isinstance(labels, list) or not len(xs) == len(ys) == len(labels):
        return None
    x, y = linear(min(xs), max(xs), tight=True), linear(min(ys), max(ys), tight=True)
    kinds = sorted({str(label) for label in labels})
    # The rarer kind last: what is drawn later covers what was drawn before.
    order = sorted(range(len(xs)), key=lambda i: -labels.count(labels[i]))
    dots = [
        tag(
            "circle",
            cx=percent_of(x.at(xs[i])),
            cy=HEIGHT * (1 - y.at(ys[i])),
            r=4,
            class_=f"dot {hue(kinds.index(str(labels[i])))}",
        )
        for i in order
    ]
    counts = [(kind, sum(str(label) == kind for label in labels)) for kind in kinds]
    keys = [
        tag("span", tag("i", class_=f"swatch {hue(i)}"), f"{kind} ", tag("b", count), class_="key")
        for i, (kind, count) in enumerate(counts)
    ]
    title = _title(given)
    desc = "; ".join(f"{kind}: {count} points" for kind, count in counts)
    drawn = chart(join(dots), HEIGHT, title, desc, "map")
    caption = "Points that lie close are updates that look alike; the directions themselves mean nothing."
    return figure(title, join([tag("div", *keys, class_="legend"), drawn]), caption)


def histogram(given: Mapping[str, Any]) -> Html | None:
    """A bar between each pair of edges."""
    edges, counts = _numbers(given, "edges"), _numbers(given, "counts")
    if not counts or len(edges) != len(counts) + 1 or min(counts) < 0:
        return None
    x, y = linear(edges[0], edges[-1], plain, tight=True), linear(0.0, max(counts) or 1.0, whole)
    bars = [
        tag(
            "rect",
            x=percent_of(x.at(left)),
            width=percent_of(x.at(right) - x.at(left)),
            y=HEIGHT * (1 - y.at(count)),
            height=HEIGHT * y.at(count),
            class_="fill gap c0",
            data_tip=f"{plain(left)} to {plain(right)}: {count:,.0f}",
        )
        for left, right, count in zip(edges, edges[1:], counts)
    ]
    title = _title(given)
    highest = counts.index(max(counts))
    desc = f"{sum(counts):,.0f} values, most of them between {plain(edges[highest])} and {plain(edges[highest + 1])}"
    head, _, rest = title.partition(": ")
    content = join([frame(x, y, HEIGHT, str(given.get("of") or "value"), str(given.get("counted") or "count")), *bars])
    return figure(head, chart(content, HEIGHT, title, desc, "bins"), sentence_case(rest) + "." if rest else "")


def line(given: Mapping[str, Any]) -> Html | None:
    """A share over a count."""
    xs, ys = _numbers(given, "x"), _numbers(given, "y")
    if len(xs) != len(ys) or len(xs) < 2:
        return None
    title = _title(given)
    head, _, over = title.partition(", by ")
    desc = f"From {percent(ys[0])} at {plain(xs[0])} to {percent(ys[-1])} at {plain(xs[-1])}"
    series = [Series(head, ys, hue(0))]
    return figure(
        title, line_chart(title, desc, xs, series, "share", percent, over or "count", y=linear(0.0, 1.0, percent))
    )


def table(given: Mapping[str, Any]) -> Html | None:
    """Rows under a head, as they are."""
    head, rows = given.get("head"), given.get("rows")
    if not isinstance(head, list) or not head or not isinstance(rows, list) or not rows:
        return None
    if not all(isinstance(row, list) and len(row) == len(head) for row in rows):
        return None
    shown = [[plain(n) if (n := number(value)) is not None else str(value) for value in row] for row in rows]
    return figure(_title(given), rows_table([sentence_case(str(name)) for name in head], shown))


def images(given: Mapping[str, Any]) -> Html | None:
    """Rows of pictures, one under the other, as large as they can be seen."""
    rows = given.get("rows")
    if not isinstance(rows, list) or not rows or not all(isinstance(row, Mapping) for row in rows):
        return None
    drawn = []
    for row in rows:
        pictures = row.get("pictures")
        if not isinstance(pictures, list) or not pictures or not all(map(is_picture, pictures)):
            return None
        name = str(row.get("name") or "")
        shown = [
            tag(
                "img", src=data_address(one), alt=f"{name} {n}", style="width:56px;image-rendering:pixelated;margin:2px"
            )
            for n, one in enumerate(pictures, 1)
        ]
        drawn.append(tag("div", tag("p", sentence_case(name), class_="soft small-text"), *shown))
    return figure(_title(given), join(drawn), str(given.get("caption") or ""))


DRAWN: dict[str, Callable[[Mapping[str, Any]], Html | None]] = {
    "scatter": scatter,
    "histogram": histogram,
    "line": line,
    "table": table,
    "images": images,
}


def _title(given: Mapping[str, Any]) -> str:
    said = str(given.get("title") or "picture")
    return said if said[1:2] == "-" else sentence_case(said)  # t-SNE is a name


def _numbers(given: Mapping[str, Any], name: str) -> list[float]:
    """The list of this name if it holds finite numbers alone, else nothing."""
    values = given.get(name)
    known = [number(value) for value in values] if isinstance(values, list) else []
    return [] if any(value is None for value in known) else [value for value in known if value is not None]
