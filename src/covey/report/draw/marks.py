"""Single marks: bars, an attack's interval beside chance, a spark line, and the covey itself (one dot per client)."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence

from covey.report.draw.markup import Html, join, percent_of, short, tag
from covey.report.draw.svg import HUES, Axis, axis_for, chart, frame, hue, linear, stretched, whole
from covey.report.format import plain
from covey.results.contents import evenly

MAX_DOTS = 400


def bars(title: str, desc: str, rows: Sequence[tuple[str, float, str]], form: Callable[[float], str] = plain) -> Html:
    """Horizontal bars from zero: (name, value, colour), name above its bar so that long names fit a phone."""
    top = max((value for _, value, _ in rows), default=0.0) or 1.0
    lines = []
    for name, value, colour in rows:
        fill = tag("rect", width=percent_of(max(value, 0.0) / top), height=10, rx=2, class_=f"fill {colour}")
        bar = tag(
            "svg", tag("rect", width="100%", height=10, rx=2, class_="track"), fill, height=10, aria_hidden="true"
        )
        head = tag("span", tag("span", name), tag("b", form(value)), class_="barhead")
        lines.append(tag("li", head, bar))
    return tag("ul", *lines, class_="bars", aria_label=f"{title}. {desc}")


def stacked_bar(parts: Sequence[tuple[str, float, str]], form: Callable[[float], str], height: int = 8) -> Html:
    """Shares of a total in one bar, with two pixels of paper between the parts."""
    total = sum(value for _, value, _ in parts) or 1.0
    drawn, start = [], 0.0
    for name, value, colour in parts:
        share = max(value, 0.0) / total
        said = f"{name}: {form(value)}"
        place = {"x": percent_of(start), "width": percent_of(share), "height": height}
        drawn.append(tag("rect", **place, class_=f"fill gap {colour}", data_tip=said))
        start += share
    words = ", ".join(f"{name} {form(value)}" for name, value, _ in parts)
    return tag("svg", *drawn, class_="stack", height=height, role="img", aria_label=words)


def histogram(
    title: str,
    desc: str,
    values: Sequence[float],
    marks: Sequence[tuple[str, float]],
    form: Callable[[float], str],
    height: int = 150,
) -> Html:
    """How many values lie where; `marks` are upright lines with a name."""
    x = axis_for([*values, *(value for _, value in marks)], form)
    bins = max(5, min(24, len(values)))
    counts = [0] * bins
    for value in values:
        counts[min(bins - 1, int(bins * x.at(value)))] += 1
    y = linear(0.0, float(max(counts)), whole)
    parts = [frame(x, y, height, "", "clients")]
    for i, count in enumerate(counts):
        tall = height * y.at(count)
        low, high = (x.low + (x.high - x.low) * (i + end) / bins for end in (0, 1))
        place = {
            "x": percent_of((i + 0.06) / bins),
            "width": percent_of(0.88 / bins),
            "y": height - tall,
            "height": tall,
        }
        said = f"{form(low)} to {form(high)}: {count}"
        parts += [tag("rect", **place, class_="fill c0", data_tip=said)] if count else []
    for i, (name, value) in enumerate(marks):
        at = percent_of(x.at(value))
        said = f"{name}: {form(value)}"
        parts.append(tag("line", x1=at, x2=at, y1=-6, y2=height, class_=f"upright {hue(i + 1)}", data_tip=said))
    keys = [
        tag("span", tag("i", class_=f"swatch {hue(i + 1)}"), f"{n} ", tag("b", form(v)), class_="key")
        for i, (n, v) in enumerate(marks)
    ]
    return join([tag("div", *keys, class_="legend"), chart(join(parts), height, title, desc, "lines")])


def track(
    axis: Axis,
    value: float,
    interval: tuple[float, float] | None,
    chance: float | None,
    controls: Sequence[tuple[str, float]],
    form: Callable[[float], str],
    colour: str,
    ticks: bool = True,
) -> Html:
    """A score on its scale: dot and interval, an upright line at chance, hollow diamonds for the controls."""
    middle = 12
    parts = [tag("line", x1=0, x2="100%", y1=middle, y2=middle, class_="grid")]
    if chance is not None:
        at = percent_of(axis.at(chance))
        parts.append(
            tag("line", x1=at, x2=at, y1=0, y2=2 * middle, class_="chance", data_tip=f"chance: {form(chance)}")
        )
    if interval:
        low, high = (percent_of(min(1.0, max(0.0, axis.at(end)))) for end in interval)
        said = f"interval: {form(interval[0])} to {form(interval[1])}"
        parts.append(tag("line", x1=low, x2=high, y1=middle, y2=middle, class_=f"whisker {colour}", data_tip=said))
    for name, score in controls:
        diamond = tag(
            "path", d="M0-5.5 5.5 0 0 5.5-5.5 0z", class_="control", data_tip=f"control, {name}: {form(score)}"
        )
        parts.append(tag("svg", diamond, x=percent_of(axis.at(score)), y=middle, overflow="visible"))
    parts.append(
        tag("circle", cx=percent_of(axis.at(value)), cy=middle, r=5.5, class_=f"dot {colour}", data_tip=form(value))
    )
    for place, label in axis.ticks if ticks else ():
        parts.append(tag("text", label, x=percent_of(axis.at(place)), y=38, class_="tick mid"))
    words = f"{form(value)}" + (f", chance {form(chance)}" if chance is not None else "")
    return tag("svg", *parts, class_="track-chart", height=42 if ticks else 24, role="img", aria_label=words)


def spark(values: Sequence[float | None], colour: str = "c0", height: int = 28) -> Html:
    """A line without axes, for the first screen; nothing where there is nothing to draw."""
    points = [(i, value) for i, value in enumerate(values) if value is not None]
    if len(points) < 2:
        return Html("")
    low, high = min(v for _, v in points), max(v for _, v in points)
    span, last = (high - low) or 1.0, points[-1][0] - points[0][0]
    places = [
        f"{short(1000 * (i - points[0][0]) / last)} {short(2 + (height - 4) * (high - v) / span)}" for i, v in points
    ]
    line = stretched(tag("path", d="M" + "L".join(places), class_=f"line {colour}"), height)
    return tag("svg", line, class_="spark", height=height, aria_hidden="true")


def covey(groups: Sequence[Sequence[int]], names: Sequence[str]) -> tuple[Html, int]:
    """Clients as dots in sunflower order, one flower per group, coloured by the cluster each chose (-1: none yet).

    A ring marks a client that chose otherwise than most of its group. Returns the picture and how many clients a dot stands for.
    """
    total = sum(len(group) for group in groups)
    stands_for = max(1, math.ceil(total / MAX_DOTS))
    shown = [[group[i] for i in evenly(len(group), max(1, round(len(group) / stands_for)))] for group in groups]
    gap = 11.0
    radii = [gap * (0.62 * math.sqrt(len(group)) + 0.6) for group in shown]
    places = _pack(radii)
    dots = []
    for (cx, cy), group in zip(places, shown):
        usual = Counter(choice for choice in group if choice >= 0).most_common(1)
        for i, choice in enumerate(group):
            turn, far = i * 2.399963, gap * 0.58 * math.sqrt(i + 0.4)
            odd = bool(usual) and choice not in (-1, usual[0][0])
            colour = hue(choice) if choice >= 0 else "absent"
            spot = {"cx": cx + far * math.cos(turn), "cy": cy + far * math.sin(turn)}
            dots.append(tag("circle", **spot, r=4.5, class_=f"bird {colour}{' odd' if odd else ''}"))
    left = min(x - r for (x, _), r in zip(places, radii)) - 2
    top = min(y - r for (_, y), r in zip(places, radii)) - 2
    width = max(x + r for (x, _), r in zip(places, radii)) + 2 - left
    height = max(y + r for (_, y), r in zip(places, radii)) + 2 - top
    view = f"{short(left)} {short(top)} {short(width)} {short(height)}"
    said = "; ".join(f"{name}: {len(group)}" for name, group in zip(names, groups))
    return tag(
        "svg", *dots, class_="covey", viewBox=view, role="img", aria_label=f"Clients as dots. {said}"
    ), stands_for


def _pack(radii: Sequence[float]) -> list[tuple[float, float]]:
    """Circles placed one after the other on a widening spiral, each at the first free spot: compact enough for a flock."""
    placed: list[tuple[float, float, float]] = []
    for radius in radii:
        step = 0
        while True:
            turn, far = step * 0.25, 1.1 * step**0.9
            x, y = 1.3 * far * math.cos(turn), 0.85 * far * math.sin(turn)
            if all(math.hypot(x - a, y - b) >= radius + r + 4 for a, b, r in placed):
                placed.append((x, y, radius))
                break
            step += 1
    return [(x, y) for x, y, _ in placed]


def beyond_palette(clusters: int) -> str:
    """The sentence a caption owes its reader when there are more clusters than distinct colours."""
    return f" Clusters from {HUES} on are grey." if clusters > HUES else ""
