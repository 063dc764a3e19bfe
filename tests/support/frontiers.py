"""A frontier made up by hand: an attack that noise lowers, and one that nothing moves."""

from __future__ import annotations

from covey.attacks.finding import Finding
from covey.audit.frontier.frontier import Frontier, Gauge, Point, Varied


def score(value: float, half: float = 0.05, chance: float = 0.2, attack: str = "a2") -> Finding:
    return Finding(attack, "server", "accuracy", value, chance, max(0.0, value - half), min(1.0, value + half))


def point(line: str, value: float | None, accuracies: tuple[float, ...], *leaks: Finding, cost: float = 100.0) -> Point:
    words = f"Noise, σ = {value:g}" if line else "no defence"
    return Point(line, words, value, accuracies, cost, {}, {one.attack: one for one in leaks})


def swept(*points: Point, by_itself: bool = False) -> Frontier:
    attacks = dict.fromkeys(name for one in points for name in one.leaks)
    gauges = tuple(Gauge(name, "server", f"row of {name}", "accuracy") for name in attacks)
    heading = {"algorithm": "ifca", "dataset": "digits", "clients": 8, "rounds": 2, "notes": ()}
    return Frontier(heading, 2, {"noise": Varied("Noise", "σ of a step", by_itself)}, gauges, points)


FIGURES = swept(
    point("", None, (0.99, 0.97), score(1.0), score(1.0, attack="a1")),
    point("noise", 1.0, (0.96, 0.96), score(0.6), score(1.0, attack="a1")),
    point("noise", 2.0, (0.80, 0.82), score(0.22), score(1.0, attack="a1")),
    point("noise", 4.0, (0.50, 0.52), score(0.3), score(1.0, attack="a1")),
)
