"""Pictures that stand alone, as SVG files: for pages of the documentation, slides and papers.

Three kinds: curves over a number, dots over names, and shaded cells. A mark is one figure with its interval; what somebody else
printed stands beside it as a hollow diamond. Colours follow the reader's light or dark screen, and nothing is fetched.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

from covey.report import assets
from covey.report.draw.markup import Html, join, tag
from covey.report.draw.svg import BROADER, COVERED, Axis, axis_for, broader, covered, hue, linear, logarithmic
from covey.report.format import percent, plain

WIDTH = 720  # pixels
LETTER = 6.4  # pixels of a letter, about
BOLD = 7.2  # of a bold one, or a capital
MARGIN = 14
NAMES = 250.0  # pixels of a column of names, at most
STYLE = """
text { font: 12px system-ui, -apple-system, "Segoe UI", Roboto, Arial, sans-serif; fill: var(--soft); }
.ground { fill: var(--card); } .name { fill: var(--ink); } .head { fill: var(--ink); font-weight: 600; }
.end { text-anchor: end; } .mid { text-anchor: middle; } .grid { stroke: var(--rule); }
.line { fill: none; stroke: var(--k); stroke-width: 1.8; stroke-linejoin: round; }
.dot { fill: var(--k); } .spread { stroke: var(--k); stroke-width: 1.6; opacity: .6; }
.printed { fill: none; stroke: var(--k); stroke-width: 1.6; } .said { fill: var(--soft); font-style: italic; }
.open { fill: none; stroke: var(--k); stroke-width: 1.6; }
.dash { stroke-dasharray: 3 3; opacity: .75; stroke-width: 1.2; }
.cell { fill: var(--k); } .strong { fill: var(--card); font-weight: 600; } .warn { --k: var(--warn); }
"""
DIAMOND = "M0-6 6 0 0 6-6 0z"
ONWARD = "M6-4 11 0 6 4"  # behind a dot: the figure is as large at least
NARROW, BROAD = frozenset("fijlrt.,:;|()[]'!I/- "), frozenset("mwMW—…Δ%=+−±×<>≥≤~@")


@dataclass(frozen=True)
class Mark:
    """One figure at its place, with its interval, and the one that somebody else printed for the same.

    `least`: the figure is a lower bound. `said`: why there is none.
    """

    place: float
    value: float | None
    interval: tuple[float, float] | None = None
    printed: float | None = None
    least: bool = False
    said: str = ""

    def figures(self) -> list[float]:
        ends = self.interval or ()
        return [one for one in (self.value, *ends, self.printed) if one is not None]


@dataclass(frozen=True)
class Line:
    name: str
    marks: Sequence[Mark]


@dataclass(frozen=True)
class Panel:
    """Lines on one scale; `share`: figures from 0 to 1 that are shown as percentages."""

    title: str
    lines: Sequence[Line]
    share: bool = True
    log: bool = False

    def axis(self) -> Axis:
        form = percent if self.share else plain
        known = [one for line in self.lines for mark in line.marks for one in mark.figures()]
        centres = [
            one for line in self.lines for mark in line.marks for one in (mark.value, mark.printed) if one is not None
        ]
        if not centres:  # nothing but words on what became of the runs
            return axis_for([0.0, 1.0], form)
        low = 0.0 if min(centres) >= 0 else min(known)  # whiskers of few seeds may leave what a figure can be
        high = 1.0 if self.share and max(centres) <= 1 else max(known)
        return axis_for([min(high, max(low, one)) for one in known], form, self.log)


@dataclass(frozen=True)
class Words:
    """What the legend calls a dot, its whisker and a diamond."""

    own: str = "covey"
    interval: str = "95 % interval"
    printed: str = "printed in the paper"
    least: str = "at least"


PAPER = Words()


def curves(title: str, panels: Sequence[Panel], x_label: str, log: bool = False, shared: bool = True) -> str:
    """Lines over a number, two or three panels in a row; `shared`: all panels on one scale, so that their heights compare."""
    names = _names(panels)
    columns = len(panels) if len(panels) in (1, 3) else 2
    height = 230 if columns == 1 else 180
    step = (WIDTH - 2 * MARGIN) / columns
    places = [mark.place for panel in panels for line in panel.lines for mark in line.marks]
    x = logarithmic(min(places), max(places)) if log else linear(min(places), max(places), tight=True)
    together = Panel("", [line for panel in panels for line in panel.lines], panels[0].share, panels[0].log).axis()
    scales = [together if shared else panel.axis() for panel in panels]
    above = [_covered(panel, y, height) for panel, y in zip(panels, scales)]
    keys, top = _keys(names, panels, PAPER, any(map(any, above)))
    parts = [keys]
    for number, (panel, y) in enumerate(zip(panels, scales)):
        left = MARGIN + step * (number % columns) + 46
        down = top + (number // columns) * (height + 76) + 26
        drawn = _curves(panel, names, x, y, above[number], step - 62, height, x_label)
        parts.append(tag("g", drawn, transform=f"translate({left:.0f} {down:.0f})"))
    rows = -(-len(panels) // columns)
    return file_of(title, top + rows * (height + 76) + 4, parts)


def dots(title: str, names: Sequence[str], panels: Sequence[Panel], words: Words = PAPER) -> str:
    """Figures over named rows, a panel for each quantity; a mark's place is the number of its row."""
    series = _names(panels)
    name_width, wrapped = _column(names)
    lanes = max(len(panel.lines) for panel in panels)
    row = max(24, 11 * lanes + 10)
    tall = [max(row, 15 * len(lines) + 8) for lines in wrapped]
    starts = [sum(tall[:n]) for n in range(len(tall))]
    height = sum(tall)
    keys, top = _keys(series, panels, words)
    step = (WIDTH - MARGIN - name_width) / len(panels)
    heads = [textwrap.wrap(panel.title, int((step - 20) / BOLD)) for panel in panels]
    top += 15 * max(map(len, heads), default=0) + 6
    parts = [keys]
    for name, start, size, lines in zip(names, starts, tall, wrapped):
        parts += _name(name, lines, top + start + size / 2)
    for number, (panel, head) in enumerate(zip(panels, heads)):
        left = name_width + MARGIN + step * number
        titles = [
            tag("text", words, x=0, y=-10 - 15 * (len(head) - 1 - n), class_="head") for n, words in enumerate(head)
        ]
        drawn = _dots(panel, series, starts, tall, step - 46, height)
        parts.append(tag("g", *titles, drawn, transform=f"translate({left:.0f} {top:.0f})"))
    return file_of(title, top + height + 30, parts)


def shades(title: str, rows: Sequence[str], columns: Sequence[str], values: Sequence[Sequence[float | None]]) -> str:
    """A table of shares, each cell shaded and with its figure."""
    name_width, wrapped = _column(rows)
    tall = [15 * len(lines) + 9 for lines in wrapped]
    step = (WIDTH - 2 * MARGIN - name_width) / len(columns)
    heads = [textwrap.wrap(column.replace("_", " "), max(6, int(step / LETTER) - 1)) for column in columns]
    top = MARGIN + 15 * max(map(len, heads)) + 8
    parts = []
    for j, head in enumerate(heads):
        at = MARGIN + name_width + step * (j + 0.5)
        parts += [
            tag("text", words, x=at, y=top - 10 - 15 * (len(head) - 1 - n), class_="head mid")
            for n, words in enumerate(head)
        ]
    for i, row in enumerate(rows):
        y = top + sum(tall[:i])
        parts += _name(row, wrapped[i], y + tall[i] / 2)
        for j, value in enumerate(values[i]):
            if value is None:
                continue
            level = min(9, int(10 * min(1.0, max(0.0, value))))
            place = {"x": MARGIN + name_width + step * j + 1, "y": y + 1, "width": step - 2, "height": tall[i] - 2.0}
            parts.append(tag("rect", **place, rx=3, class_=f"cell q{level}"))
            kind = "strong mid" if level >= 5 else "name mid"
            spot = {"x": MARGIN + name_width + step * (j + 0.5), "y": y + tall[i] / 2 + 4}
            parts.append(tag("text", f"{100 * value:.0f}", **spot, class_=kind))
    parts.append(tag("text", "Figures in %.", x=MARGIN, y=top + sum(tall) + 18))
    return file_of(title, top + sum(tall) + 28, parts)


def shares(title: str, rows: Sequence[tuple[str, Sequence[int]]], kinds: Sequence[tuple[str, str]]) -> str:
    """How many of each kind, row by row, as parts of a bar; `kinds` are (name, colour), and parts carry their number."""
    name_width = max(LETTER * len(name) for name, _ in rows) + 24
    wide = WIDTH - 2 * MARGIN - name_width
    keys = key_row([(tag("rect", x=0, y=-9, width=10, height=10, rx=2, class_=f"cell {c}"), n) for n, c in kinds])
    parts, top = [keys[0]], keys[1]
    for number, (name, counts) in enumerate(rows):
        y, x = top + 34 * number, MARGIN + name_width
        parts.append(tag("text", name, x=MARGIN, y=y + 18, class_="name"))
        for count, (_, colour) in zip(counts, kinds):
            part = wide * count / (sum(counts) or 1)
            if count:
                parts.append(tag("rect", x=x, y=y, width=max(part - 2, 1.0), height=26, rx=3, class_=f"cell {colour}"))
                if part > 16:
                    parts.append(tag("text", count, x=x + part / 2 - 1, y=y + 18, class_="strong mid"))
            x += part
    return file_of(title, top + 34 * len(rows) + 10, parts)


def whiskers(svg: str) -> bool:
    """Whether any mark of a picture has its interval drawn."""
    return 'class="spread' in svg


def _covered(panel: Panel, y: Axis, height: float) -> list[int]:
    """Of each line of a panel, how many later ones lie on it."""
    heights = [
        {m.place: height * (1 - y.at(m.value)) for m in line.marks if m.value is not None} for line in panel.lines
    ]
    return covered(heights)


def _curves(
    panel: Panel, names: Sequence[str], x: Axis, y: Axis, over: Sequence[int], width: float, height: float, x_label: str
) -> Html:
    """`over`: how many lines lie on each."""
    parts = [tag("text", panel.title, x=0, y=-14, class_="head")] if panel.title else []
    for value, label in y.ticks:
        at = height * (1 - y.at(value))
        parts.append(tag("line", x1=0, x2=width, y1=at, y2=at, class_="grid"))
        parts.append(tag("text", label, x=-7, y=at + 4, class_="end"))
    for value, label in x.ticks:
        parts.append(tag("text", label, x=width * x.at(value), y=height + 17, class_="mid"))
    parts.append(tag("text", x_label, x=width, y=height + 34, class_="end"))
    for line, above in zip(panel.lines, over):
        colour = _colour(names, line.name)
        spots = [(mark, width * x.at(mark.place)) for mark in sorted(line.marks, key=lambda mark: mark.place)]
        for kind, ends in (
            ("line", [(a, m.value) for m, a in spots if m.value is not None]),
            ("line dash", [(a, m.printed) for m, a in spots if m.printed is not None]),
        ):
            if len(ends) > 1:
                path = "M" + "L".join(f"{a:.1f} {height * (1 - y.at(v)):.1f}" for a, v in ends)
                parts.append(
                    tag("path", d=path, class_=f"{kind} {colour}", **(broader(above) if kind == "line" else {}))
                )
        for mark, a in spots:
            if mark.interval:
                low, high = (height * (1 - min(1.0, max(0.0, y.at(end)))) for end in mark.interval)
                parts.append(tag("line", x1=a, x2=a, y1=low, y2=high, class_=f"spread {colour}"))
            if mark.value is not None:
                radius = f"{3 + 0.6 * COVERED * above:g}"
                parts.append(tag("circle", cx=a, cy=height * (1 - y.at(mark.value)), r=radius, class_=f"dot {colour}"))
            if mark.printed is not None:
                parts.append(_diamond(a, height * (1 - y.at(mark.printed)), colour))
    return join(parts)


def _dots(
    panel: Panel, names: Sequence[str], starts: Sequence[float], tall: Sequence[float], width: float, height: float
) -> Html:
    axis = panel.axis()
    parts = []
    room = max(44, 7 * max((len(label) for _, label in axis.ticks), default=0) + 8)
    stride = max(1, math.ceil(room * (len(axis.ticks) - 1) / width))
    nought = next((i for i, (value, _) in enumerate(axis.ticks) if abs(value) < 1e-12), 0)
    shown = axis.ticks[nought % stride :: stride]  # nought among them, where it is on the axis
    for value, label in axis.ticks:
        at = width * axis.at(value)
        parts.append(tag("line", x1=at, x2=at, y1=0, y2=height, class_="grid"))
        if (value, label) in shown:
            parts.append(tag("text", label, x=at, y=height + 17, class_="mid"))
    said: set[tuple[int, str]] = set()
    for lane, line in enumerate(panel.lines):
        colour = _colour(names, line.name)
        for mark in line.marks:
            row = int(mark.place)
            y = starts[row] + tall[row] / 2 + 11 * (lane - (len(panel.lines) - 1) / 2)
            if mark.interval:
                low, high = (width * min(1.0, max(0.0, axis.at(end))) for end in mark.interval)
                parts.append(tag("line", x1=low, x2=high, y1=y, y2=y, class_=f"spread {colour}"))
            if mark.value is not None:
                parts.append(tag("circle", cx=width * axis.at(mark.value), cy=y, r=4, class_=f"dot {colour}"))
            if mark.least and mark.value is not None:
                place = f"translate({width * axis.at(mark.value):.1f} {y:.1f})"
                parts.append(tag("path", d=ONWARD, transform=place, class_=f"open {colour}"))
            if mark.printed is not None:
                parts.append(_diamond(width * axis.at(mark.printed), y, colour))
            if mark.said and (row, mark.said) not in said:  # once for all of a row's lines
                said.add((row, mark.said))
                middle = starts[row] + tall[row] / 2
                parts.append(tag("text", mark.said, x=4, y=middle + 4, class_="said"))
    return join(parts)


def _diamond(x: float, y: float, colour: str) -> Html:
    return tag("path", d=DIAMOND, transform=f"translate({x:.1f} {y:.1f})", class_=f"printed {colour}")


def _names(panels: Sequence[Panel]) -> list[str]:
    return list(dict.fromkeys(line.name for panel in panels for line in panel.lines if line.name))


def _colour(names: Sequence[str], name: str) -> str:
    """Of a line among those that have names; one without is blue where it is alone, else in the colour of ink."""
    return hue(names.index(name)) if name else "ink" if names else hue(0)


def _keys(names: Sequence[str], panels: Sequence[Panel], words: Words, broad: bool = False) -> tuple[Html, float]:
    """The legend, and where the picture below it may begin. `broad`: a line is drawn broader than others."""
    marks = [mark for panel in panels for line in panel.lines for mark in line.marks]
    whiskers = any(mark.interval for mark in marks)
    printed = any(mark.printed is not None for mark in marks)
    least = any(mark.least for mark in marks)
    plain_colour = _colour(names, "")
    keys = [(tag("circle", cx=5, cy=-4, r=4, class_=f"dot {hue(i)}"), name) for i, name in enumerate(names)]
    if printed or whiskers or not names:
        said = [*([words.own] if printed or not names else []), *([words.interval] if whiskers else [])]
        dot = tag("circle", cx=5, cy=-4, r=4, class_=f"dot {plain_colour}")
        bar = tag("line", x1=-3, x2=13, y1=-4, y2=-4, class_=f"spread {plain_colour}") if whiskers else Html("")
        keys.append((join([bar, dot]), ", ".join(said)))
    if printed:
        keys.append((_diamond(5, -4, plain_colour), words.printed))
    if least:
        dot = tag("circle", cx=-1, cy=-4, r=4, class_=f"dot {plain_colour}")
        onward = tag("path", d=ONWARD, transform="translate(-1 -4)", class_=f"open {plain_colour}")
        keys.append((join([dot, onward]), words.least))
    if broad:
        keys.append((tag("path", d="M-5-4H10", class_=f"line {plain_colour}", **broader(1)), BROADER))
    return key_row(keys)


def length(words: str) -> float:
    """Pixels that words take in a wide font, about: letters are not alike, and what a reader has is not known."""
    return sum(4.4 if c in NARROW else 10.8 if c in BROAD else 8.6 if c.isupper() else 7.4 for c in words)


def _column(names: Sequence[str]) -> tuple[float, list[list[str]]]:
    """How wide the names beside a plot are, and each in lines that fit."""
    wide = min(NAMES - 16, max(map(length, names), default=0.0))
    return wide + 16, [_wrapped(name, wide) for name in names]


def _name(name: str, lines: Sequence[str], middle: float) -> list[Html]:
    """Its lines around a height; where a word was cut, all of it for a reader who points there."""
    whole = tag("title", name) if any(line.endswith("…") for line in lines) else Html("")
    first = middle + 4 - 7.5 * (len(lines) - 1)
    return [tag("text", line, whole, x=MARGIN, y=first + 15 * n, class_="name") for n, line in enumerate(lines)]


def _wrapped(name: str, width: float) -> list[str]:
    """In lines of at most so many pixels; a word that is longer is cut."""
    lines = [""]
    for word in (_cut(word, width) for word in name.split()):
        longer = f"{lines[-1]} {word}".strip()
        if length(longer) <= width or not lines[-1]:
            lines[-1] = longer
        else:
            lines.append(word)
    return lines


def _cut(word: str, width: float) -> str:
    while length(word) > width and len(word) > 1:
        word = word.removesuffix("…")[:-1] + "…"
    return word


def key_row(keys: Sequence[tuple[Html, str]]) -> tuple[Html, float]:
    """Symbols with their words, over as many lines as they need; and where what comes below may begin."""
    x, y, parts = float(MARGIN), 26.0, []
    for symbol, name in keys:
        wide = LETTER * len(name) + 38
        if x + wide > WIDTH - MARGIN and x > MARGIN:
            x, y = float(MARGIN), y + 19
        words = tag("text", name, x=15, y=0, class_="name")
        parts.append(tag("g", symbol, words, transform=f"translate({x:.0f} {y:.0f})"))
        x += wide
    return join(parts), y + 12


def file_of(title: str, height: float, parts: Sequence[Html]) -> str:
    style = Html(assets.palette() + assets.hues() + STYLE)
    ground = tag("rect", width=WIDTH, height=round(height), rx=6, class_="ground")
    return tag(
        "svg",
        tag("title", title),
        tag("style", style),
        ground,
        *parts,
        xmlns="http://www.w3.org/2000/svg",
        width=WIDTH,
        height=round(height),
        viewBox=f"0 0 {WIDTH} {round(height)}",
        role="img",
    )
