"""Which settings are on the front, and what one can afford: pure functions of a frontier."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from covey.attacks.finding import Finding
from covey.audit.frontier.frontier import Frontier, Gauge, Point
from covey.audit.matrix import LEAKING
from covey.report.format import percent
from covey.statistics import Mean, student

GIVE_UP = 0.05  # accuracy, in points of a hundred: what the sentence takes for affordable


@dataclass(frozen=True)
class Weighed:
    """What a setting is compared by: more accuracy, less leak and fewer bytes are better."""

    accuracy: float
    leak: float
    cost: float

    def beats(self, other: Weighed) -> bool:
        no_worse = self.accuracy >= other.accuracy and self.leak <= other.leak and self.cost <= other.cost
        return no_worse and self != other


def front(weighed: Sequence[Weighed | None]) -> list[bool]:
    """Which are beaten by no other in all three at once; what has no figures is on no front."""
    known = [one for one in weighed if one is not None]
    return [one is not None and not any(other.beats(one) for other in known) for one in weighed]


def on_front(frontier: Frontier, gauge: Gauge) -> list[bool]:
    """Of one attack: point by point."""
    return front([_weighed(point, _leak(point, gauge)) for point in frontier.points])


def on_overall_front(frontier: Frontier) -> list[bool]:
    """Of the worst that any attack still learns; attacks that no setting moves decide nothing."""
    moved = movable(frontier)
    return front([_weighed(point, remaining(point, moved)) for point in frontier.points])


def _weighed(point: Point, leak: float | None) -> Weighed | None:
    if point.problem or leak is None:
        return None
    return Weighed(point.accuracy.value, leak, point.cost or 0.0)


def _leak(point: Point, gauge: Gauge) -> float | None:
    score = point.leaks.get(gauge.attack)
    return None if score is None else max(0.0, score.excess)


def remaining(point: Point, gauges: Sequence[Gauge]) -> float | None:
    """How far the worst of these attacks is beyond guessing, as a share of the way to knowing everything."""
    known = [leak for gauge in gauges if (leak := _leak(point, gauge)) is not None]
    return max(known) if known else None


def start_of(frontier: Frontier, point: Point) -> Point:
    """What a setting is compared with: no defence, or the weakest setting of what the algorithm does by itself."""
    line = frontier.lines.get(point.line)
    return frontier.of_line(point.line if line is not None and line.by_itself else "")[0]


def lowered(before: Finding | None, after: Finding | None) -> bool:
    """Whether a score has fallen by more than both intervals: not the mean of luck."""
    if before is None or after is None or before.interval is None or after.interval is None:
        return False
    upwards = before.scale.upwards
    return after.interval[1] < before.interval[0] if upwards else after.interval[0] > before.interval[1]


def movable(frontier: Frontier) -> list[Gauge]:
    """The attacks that some setting lowers."""
    return [gauge for gauge in frontier.gauges if any(_lowers(frontier, point, gauge) for point in frontier.points)]


def _lowers(frontier: Frontier, point: Point, gauge: Gauge) -> bool:
    start = start_of(frontier, point)
    return lowered(start.leaks.get(gauge.attack), point.leaks.get(gauge.attack))


def loss(frontier: Frontier, point: Point) -> Mean | None:
    """What a setting costs in accuracy, paired by seed; None where either has no figures."""
    start = start_of(frontier, point)
    if point.problem or start.problem or len(start.accuracies) != len(point.accuracies):
        return None
    return student([before - after for before, after in zip(start.accuracies, point.accuracies)])


def groups(frontier: Frontier) -> list[list[Gauge]]:
    """The attacks, those of one row that score alike in every setting together: they are one picture."""
    by_scores: dict[tuple[object, ...], list[Gauge]] = {}
    for gauge in frontier.gauges:
        scores = [point.leaks.get(gauge.attack) for point in frontier.points]
        numbers = tuple(None if one is None else (round(one.value, 3), one.interval, one.bar) for one in scores)
        by_scores.setdefault((gauge.row, gauge.metric, numbers), []).append(gauge)
    return list(by_scores.values())


def affordable(frontier: Frontier, give_up: float = GIVE_UP) -> Point | None:
    """The setting that lowers some attack, costs no more accuracy than this, and leaves the least; None: there is none."""
    moved = movable(frontier)
    fits = [
        point
        for point in frontier.points
        if (cost := loss(frontier, point)) is not None
        and cost.value <= give_up
        and any(_lowers(frontier, point, gauge) for gauge in moved)
    ]
    return min(fits, key=lambda point: (_left(point, moved), -point.accuracy.value), default=None)


def _left(point: Point, gauges: Sequence[Gauge]) -> tuple[float, float]:
    leaks = [leak for gauge in gauges if (leak := _leak(point, gauge)) is not None]
    return max(leaks, default=1.0), sum(leaks)


def verdict_words(frontier: Frontier, give_up: float = GIVE_UP) -> list[str]:
    """How much protection one can afford: the answer, what stays open, and what the figures do not say; none reads as safety."""
    moved = movable(frontier)
    stays = _unmoved([gauge for gauge in frontier.gauges if gauge not in moved])
    end = "What these attacks do not show may still be learned by better ones."
    if not moved:
        return [f"Nothing that was tried lowers any of these attacks by more than luck. {end}"]
    points, choice = f"{100 * give_up:g} points of accuracy", affordable(frontier, give_up)
    if choice is None:
        said = f"For at most {points}, nothing that was tried lowers any of these attacks by more than luck."
        return list(filter(None, [f"{said} {_cheapest(frontier, moved)}".rstrip(), stays, end]))
    start = start_of(frontier, choice)
    figures = f"accuracy {percent(choice.accuracy.value)} instead of {percent(start.accuracy.value)}"
    falls = [_fall(start, choice, gauge) for gauge in moved if _lowers(frontier, choice, gauge)]
    said = f"For at most {points}, the most that one gets here is {choice.words}: {figures}; {'; '.join(falls)}."
    unlowered = _unlowered(choice, [gauge for gauge in moved if not _lowers(frontier, choice, gauge)])
    picked = "The setting was picked by the same runs that score it."
    return list(filter(None, [said, f"{unlowered} {stays}".strip(), f"{picked} {end}"]))


def _fall(start: Point, choice: Point, gauge: Gauge) -> str:
    before, after = start.leaks[gauge.attack], choice.leaks[gauge.attack]
    guess = "" if after.bar is None else f"; guessing {after.bar:.2f}"
    left = ", which still leaks" if after.verdict in LEAKING else ""
    return f"{gauge.row} by {spoken(gauge)}: {before.value:.2f} becomes {after.value:.2f}{guess}{left}"


def _unlowered(choice: Point, gauges: Sequence[Gauge]) -> str:
    scores = [f"{gauge.row} by {spoken(gauge)} ({_value(choice, gauge)})" for gauge in gauges]
    return f"As open as before, or not surely less: {', '.join(scores)}." if scores else ""


def _unmoved(gauges: Sequence[Gauge]) -> str:
    rows: dict[str, list[str]] = {}
    for gauge in gauges:
        rows.setdefault(gauge.row, []).append(spoken(gauge))
    listed = ", ".join(f"{row} (by {', '.join(names)})" for row, names in rows.items())
    return f"No setting here surely lowers {listed}." if rows else ""


def _cheapest(frontier: Frontier, moved: Sequence[Gauge]) -> str:
    """The setting that lowers something for the least accuracy."""
    costs = [
        (cost.value, point)
        for point in frontier.points
        if (cost := loss(frontier, point)) is not None and any(_lowers(frontier, point, gauge) for gauge in moved)
    ]
    if not costs:
        return ""
    value, point = min(costs, key=lambda pair: pair[0])
    return f"The least that lowers one is {point.words}, for {100 * value:.1f} points."


def _value(point: Point, gauge: Gauge) -> str:
    score = point.leaks.get(gauge.attack)
    return "not measured" if score is None else f"{score.value:.2f}"


def spoken(gauge: Gauge) -> str:
    return gauge.attack.replace("_", " ")


def brief(group: Sequence[Gauge]) -> str:
    """Attacks that are one picture, in few words."""
    return spoken(group[0]) + (f" and {len(group) - 1} more" if len(group) > 1 else "")
