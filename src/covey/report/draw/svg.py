"""Charts over rounds. Widths are percentages and text keeps its size, so one drawing serves a phone, a laptop and paper.

A curve cannot have percentage coordinates: it lives in a nested <svg> whose 1000-unit viewBox is stretched to the width there is,
with strokes that do not stretch. Labels sit in the margins that the style sheet leaves around the drawing.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from covey.report.draw.markup import Html, join, percent_of, short, tag
from covey.report.format import NBSP, percent, plain

HUES = 8  # the style sheet's colours c0 … c7 stay distinct for colour-blind readers; there is no honest ninth
WIDTH = 1000  # units of the stretched viewBox
NEAR = 2.5  # pixels: lines as close as that in most places cover each other
COVERED = 2.0  # pixels by which a line is broader than one that covers it
BROADER = "broad: another line lies on it"  # what legends say of it


def hue(index: int) -> str:
    """The colour class of a cluster or series; beyond the palette everything is grey, and captions say so."""
    return f"c{index}" if 0 <= index < HUES else "other"


@dataclass(frozen=True)
class Axis:
    """Maps values to [0, 1]. Build with `linear` or `logarithmic`."""

    low: float
    high: float
    ticks: tuple[tuple[float, str], ...]
    log: bool = False

    def at(self, value: float) -> float:
        low, high = self.low, self.high
        if self.log:
            low, high, value = math.log10(low), math.log10(high), math.log10(max(value, low))
        return (value - low) / (high - low) if high > low else 0.5  # all values alike: in the middle


def linear(low: float, high: float, form: Callable[[float], str] = plain, count: int = 5, tight: bool = False) -> Axis:
    """A range in steps of 1, 2 or 5. `tight` ends it at the data (rounds), else it ends on ticks."""
    if high <= low:
        room = abs(low) * 0.1 or 0.5
        low, high = low - room, high + room
    rough = (high - low) / count
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * 0.999)
    first = math.ceil(low / step - 1e-9) if tight else math.floor(low / step + 1e-9)
    last = math.floor(high / step + 1e-9) if tight else math.ceil(high / step - 1e-9)
    places = [i * step for i in range(first, last + 1)]
    ticks = tuple(zip(places, trimmed(_labels(places, step, form))))
    return Axis(low, high, ticks) if tight else Axis(first * step, last * step, ticks)


def _labels(places: Sequence[float], step: float, form: Callable[[float], str]) -> list[str]:
    """Labels that differ: on a narrow range the usual digits may not be enough."""
    labels = [form(place) for place in places]
    if len(set(labels)) == len(labels) or form not in (plain, percent):
        return labels
    factor, unit = (100.0, f"{NBSP}%") if form is percent else (1.0, "")
    digits = max(0, -math.floor(math.log10(step * factor) + 1e-9))
    return [f"{factor * place:,.{digits}f}{unit}" for place in places] if digits <= 6 else labels


def trimmed(labels: Sequence[str]) -> list[str]:
    """Tick labels without a '.0' that all of them carry: '80.0 %', '90.0 %' become '80 %', '90 %'."""
    zero = f".0{NBSP}"
    return [label.replace(zero, NBSP) for label in labels] if all(zero in label for label in labels) else list(labels)


def logarithmic(low: float, high: float, form: Callable[[float], str] = plain) -> Axis:
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    stride = max(1, math.ceil((last - first) / 5))
    ticks = tuple((10.0**e, form(10.0**e)) for e in range(first, last + 1, stride))
    return Axis(10.0**first, 10.0 ** max(last, first + 1), ticks, log=True)


def axis_for(values: Sequence[float], form: Callable[[float], str] = plain, log: bool = False) -> Axis:
    """An axis around the values; logarithmic only where asked for, possible and worth it (a factor of 30)."""
    low, high = min(values), max(values)
    if log and low > 0 and high / low > 30:
        return logarithmic(low, high, form)
    return linear(low, high, form)


def whole(value: float) -> str:
    """A tick label of a counting axis; nothing between the whole numbers."""
    return f"{value:,.0f}" if abs(value - round(value)) < 1e-9 else ""


@dataclass(frozen=True)
class Series:
    name: str
    values: Sequence[float | None]
    colour: str
    label: str = ""  # a few letters at the end of the line; none by default
    thin: bool = False  # context, drawn behind and lighter


def covered(heights: Sequence[Mapping[float, float]]) -> list[int]:
    """How many later lines lie on each, by their heights in pixels at a place: it is drawn broader by them, else two methods that
    agree look like one.
    """

    def on(below: Mapping[float, float], above: Mapping[float, float]) -> bool:
        both = below.keys() & above.keys()
        return 2 * sum(abs(below[place] - above[place]) < NEAR for place in both) > len(both)

    return [sum(on(own, later) for later in heights[i + 1 :]) for i, own in enumerate(heights)]


def broader(above: int) -> dict[str, str]:
    """The look of a line that so many others cover."""
    return {"style": f"stroke-width:{1.8 + COVERED * above:g};opacity:.6"} if above else {}


def drawable(series: Sequence[Series], points: int = 1) -> list[Series]:
    """The series that have at least so many values to draw."""
    return [one for one in series if sum(value is not None for value in one.values) >= points]


def frame(x: Axis, y: Axis, height: int, x_label: str, y_label: str) -> Html:
    """Grid lines, tick labels and the names of both axes."""
    parts = [tag("text", y_label, x=-38, y=-14, class_="axis")]
    for value, label in y.ticks:
        at = height * (1 - y.at(value))
        parts.append(tag("line", x1=0, x2="100%", y1=at, y2=at, class_="grid"))
        parts.append(tag("text", label, x=-7, y=at + 4, class_="tick end"))
    for value, label in x.ticks:
        parts.append(tag("text", label, x=percent_of(x.at(value)), y=height + 18, class_="tick mid"))
    parts.append(tag("text", x_label, x="100%", y=height + 36, class_="axis end"))
    return join(parts)


def chart(content: Html, height: int, title: str, desc: str, kind: str, data: object = None) -> Html:
    """The outer <svg> with its text alternative. `data` is what the page's script shows on hover."""
    written = None if data is None else json.dumps(data, separators=(",", ":"), ensure_ascii=False)
    return tag(
        "svg",
        tag("desc", desc),
        content,
        class_=f"chart {kind}",
        height=height,
        role="img",
        aria_label=title,
        tabindex=0 if data is not None else None,
        data_chart=written,
    )


def stretched(content: Html, height: int, units: int = WIDTH, rows: int | None = None) -> Html:
    """A nested drawing as wide as its chart: `units` across, `rows` (or pixels) down."""
    return tag(
        "svg",
        content,
        width="100%",
        height=height,
        viewBox=f"0 0 {units} {rows or height}",
        preserveAspectRatio="none",
        class_="plot",
    )


def line_chart(
    title: str,
    desc: str,
    xs: Sequence[float],
    series: Sequence[Series],
    y_label: str,
    form: Callable[[float], str] = plain,
    x_label: str = "round",
    log: bool = False,
    height: int = 230,
    legend: bool = True,
    y: Axis | None = None,
    x_ticks: int = 5,
) -> Html:
    """Lines over `xs`; missing values are bridged. Hovering reads all series at the nearest x; the legend hides them."""
    known = [value for one in series for value in one.values if value is not None]
    x = linear(min(xs), max(xs), whole, x_ticks, tight=True)
    y = y or axis_for(known, form, log)
    groups = []
    order = sorted(range(len(series)), key=lambda i: not series[i].thin)
    places = {i: [(x.at(a), y.at(b)) for a, b in zip(xs, series[i].values) if b is not None] for i in order}
    above = covered([{a: height * (1 - b) for a, b in places[i]} if not series[i].thin else {} for i in order])
    for index, over in zip(order, above):
        groups.append(_line(series[index], index, places[index], height, over))
    labels = _end_labels(series, y, height)
    data = {
        "x": [round(value, 6) for value in xs],
        "at": [round(x.at(value), 4) for value in xs],
        "unit": x_label,
        "series": [{"n": one.name, "c": one.colour, "v": [_say(v, form) for v in one.values]} for one in series],
    }
    content = join([frame(x, y, height, x_label, y_label), *groups, *labels])
    drawn = chart(content, height, title, desc, "lines ended" if labels else "lines", data)
    return join([_legend(series, form, any(above)), drawn]) if legend and len(series) > 1 else drawn


def _say(value: float | None, form: Callable[[float], str]) -> str | None:
    return None if value is None else form(value)


def _line(one: Series, index: int, points: list[tuple[float, float]], height: int, above: int = 0) -> Html:
    """One series: a stretched path, or a dot where there is a single point."""
    if not points:
        return Html("")
    kind = f"{one.colour}{' thin' if one.thin else ''}"
    if len(points) == 1:
        mark = tag("circle", cx=percent_of(points[0][0]), cy=height * (1 - points[0][1]), r=4, class_=f"dot {kind}")
    else:
        path = "M" + "L".join(f"{short(WIDTH * a)} {short(height * (1 - b))}" for a, b in points)
        mark = stretched(tag("path", d=path, class_=f"line {kind}", **broader(above)), height)
    return tag("g", mark, data_s=index)


def _end_labels(series: Sequence[Series], y: Axis, height: int) -> list[Html]:
    """Names at the ends of the lines, pushed apart so that they never overlap."""
    wanted = []
    for index, one in enumerate(series):
        last = next((value for value in reversed(one.values) if value is not None), None)
        if one.label and last is not None:
            wanted.append((height * (1 - y.at(last)), index))
    spots = spread([at for at, _ in sorted(wanted)], 13.0, height)
    return [
        tag("text", series[i].label, x="100%", dx=8, y=at + 4, class_=f"endlabel {series[i].colour}", data_s=i)
        for at, (_, i) in zip(spots, sorted(wanted))
    ]


def spread(places: Sequence[float], gap: float, limit: float) -> list[float]:
    """Sorted places moved as little as needed to stand `gap` apart, the last at most at `limit` where there is room."""
    moved: list[float] = []
    for place in places:
        moved.append(max(place, moved[-1] + gap) if moved else place)
    ceiling = limit
    for i in range(len(moved) - 1, -1, -1):
        moved[i] = min(moved[i], ceiling)
        ceiling = moved[i] - gap
    return moved


def _legend(series: Sequence[Series], form: Callable[[float], str], broad: bool = False) -> Html:
    """`broad`: a line is drawn broader than others."""
    keys = []
    for index, one in enumerate(series):
        last = next((value for value in reversed(one.values) if value is not None), None)
        final = tag("b", form(last)) if last is not None else Html("")
        swatch = tag("i", class_=f"swatch {one.colour}")
        keys.append(
            tag("button", swatch, one.name, " ", final, type="button", class_="key", data_s=index, aria_pressed="true")
        )
    if broad:
        keys.append(tag("span", tag("i", class_="swatch broad"), BROADER, class_="key"))
    return tag("div", *keys, class_="legend")


def area_chart(
    title: str,
    desc: str,
    xs: Sequence[float],
    series: Sequence[Series],
    y_label: str,
    form: Callable[[float], str] = plain,
    x_label: str = "round",
    height: int = 230,
    top: float | None = None,
) -> Html:
    """Series stacked from the bottom, first one lowest; a missing value counts as nothing."""
    x = linear(min(xs), max(xs), whole, tight=True)
    floor = [0.0] * len(xs)
    layers = []
    for index, one in enumerate(series):
        roof = [a + (b or 0.0) for a, b in zip(floor, one.values)]
        layers.append((index, one, floor, roof))
        floor = roof
    y = linear(0.0, top or max(floor) or 1.0, form)
    groups = []
    for index, one, low, high in layers:
        up = [f"{short(WIDTH * x.at(a))} {short(height * (1 - y.at(b)))}" for a, b in zip(xs, high)]
        down = [f"{short(WIDTH * x.at(a))} {short(height * (1 - y.at(b)))}" for a, b in zip(xs, low)]
        path = "M" + "L".join(up + down[::-1]) + "z"
        groups.append(tag("g", stretched(tag("path", d=path, class_=f"area {one.colour}"), height), data_s=index))
    data = {
        "x": [round(value, 6) for value in xs],
        "at": [round(x.at(value), 4) for value in xs],
        "unit": x_label,
        "series": [{"n": one.name, "c": one.colour, "v": [_say(v, form) for v in one.values]} for one in series],
    }
    drawn = chart(join([*groups, frame(x, y, height, x_label, y_label)]), height, title, desc, "lines areas", data)
    return join([_legend(series, form), drawn]) if len(series) > 1 else drawn
