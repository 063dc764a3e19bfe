"""Settings as dots with intervals on both axes, those of one kind joined from weak to strong; what is on the front is filled."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from covey.report.draw.markup import Html, join, percent_of, short, tag
from covey.report.draw.svg import WIDTH, Axis, chart, frame, linear, stretched
from covey.report.format import plain

DOT = 5.0  # pixels


@dataclass(frozen=True)
class Dot:
    x: float
    y: float
    across: tuple[float, float] | None  # interval of x
    up: tuple[float, float] | None  # interval of y
    filled: bool  # on the front
    says: str  # when hovered
    size: float = 1.0  # relative to the others


@dataclass(frozen=True)
class Trail:
    """Dots of one kind, in order."""

    name: str
    colour: str
    dots: Sequence[Dot]


def scatter(
    title: str,
    desc: str,
    trails: Sequence[Trail],
    x_label: str,
    y_label: str,
    x_form: Callable[[float], str] = plain,
    y_form: Callable[[float], str] = plain,
    mark: tuple[str, float] | None = None,
    height: int = 230,
) -> Html:
    """`mark` is an upright line with a name: what guessing reaches."""
    dots = [dot for trail in trails for dot in trail.dots]
    places = [mark[1]] if mark else []
    x = _axis([*(v for d in dots for v in (d.x, *(d.across or ()))), *places], x_form)
    y = _axis([v for d in dots for v in (d.y, *(d.up or ()))], y_form)
    parts = [frame(x, y, height, x_label, y_label)]
    if mark:
        at = percent_of(x.at(mark[1]))
        parts.append(
            tag("line", x1=at, x2=at, y1=0, y2=height, class_="chance", data_tip=f"{mark[0]}: {x_form(mark[1])}")
        )
    for trail in trails:
        parts.append(_trail(trail, x, y, height))
    return chart(join(parts), height, title, desc, "lines scatter")


def _axis(values: Sequence[float], form: Callable[[float], str]) -> Axis:
    return linear(min(values), max(values), form)


def _trail(trail: Trail, x: Axis, y: Axis, height: int) -> Html:
    places = [(x.at(dot.x), height * (1 - y.at(dot.y))) for dot in trail.dots]
    drawn = []
    if len(places) > 1:
        path = "M" + "L".join(f"{short(WIDTH * a)} {short(b)}" for a, b in places)
        drawn.append(stretched(tag("path", d=path, class_=f"line thin {trail.colour}"), height))
    for dot, (a, b) in zip(trail.dots, places):
        at = percent_of(a)
        if dot.across:
            low, high = (percent_of(x.at(end)) for end in dot.across)
            drawn.append(tag("line", x1=low, x2=high, y1=b, y2=b, class_=f"spread {trail.colour}"))
        if dot.up:
            top, bottom = (height * (1 - y.at(end)) for end in dot.up)
            drawn.append(tag("line", x1=at, x2=at, y1=top, y2=bottom, class_=f"spread {trail.colour}"))
    for dot, (a, b) in zip(trail.dots, places):
        kind = "dot" if dot.filled else "ring"
        drawn.append(
            tag("circle", cx=percent_of(a), cy=b, r=DOT * dot.size, class_=f"{kind} {trail.colour}", data_tip=dot.says)
        )
    return tag("g", *drawn)
