"""Two worlds: many trials with the canary there and many with it absent, told apart by a threshold on one number.

The number is Fisher's discriminant of what is known of a trial, so it weighs rounds by their noise, and finds noise that cancels.
A third of the trials fits it and chooses thresholds, the others count. Whatever was fitted, what is counted is a bound.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from covey.audit.canaries.verdict import CERTAIN, SHOWN
from covey.ledger.calibration import analytic_epsilon
from covey.ledger.lower_bounds import Rates, deviation_of_rates, epsilon_of_bounds, epsilon_of_rates

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
THRESHOLDS = 64
RIDGE = 1e-12  # of the largest variance: small enough to see noise that cancels, above the rounding of a double


@dataclass(frozen=True)
class Worlds:
    """What the counting trials show."""

    shown: float
    most: float
    as_gaussian: float
    refuted: bool
    refutation: str
    refutable: bool
    guesses: str


def compare(scores: Floats, there: Bools, claims: Mapping[float, float], delta: float) -> Worlds:
    """`scores` of trials in random order, the first third of which chose them; `claims`: δ -> the ε that is claimed there."""
    first = len(fitting(scores))
    fit, count = (scores[:first], there[:first]), (scores[first:], there[first:])
    thresholds = np.unique(np.quantile(fit[0], np.linspace(0, 1, THRESHOLDS)))

    def best(goal: Callable[[Rates], float]) -> Rates:
        at = max(thresholds, key=lambda threshold: goal(rates(*fit, threshold)))
        return rates(*count, at)

    def places(seen: Rates) -> dict[float, float]:
        bounds = seen.bounds(CERTAIN)
        return {d: epsilon_of_bounds(*bounds, d) for d in claims}

    def excess(seen: Rates) -> float:
        return max((shown - claims[d] for d, shown in places(seen).items()), default=-math.inf)

    shown = best(lambda seen: epsilon_of_rates(seen, delta, SHOWN))
    apart = deviation_of_rates(best(lambda seen: deviation_of_rates(seen, SHOWN)), SHOWN)
    tested = places(best(excess))
    worst = max(tested, key=lambda d: tested[d] - claims[d], default=delta)
    refuted = worst in tested and tested[worst] > claims[worst]
    perfect = Rates(int(count[1].sum()), int(count[1].sum()), 0, int((~count[1]).sum()))
    return Worlds(
        epsilon_of_rates(shown, delta, SHOWN),
        epsilon_of_rates(perfect, delta, SHOWN),
        analytic_epsilon(1 / apart, delta) if apart > 0 else 0.0,
        refuted,
        f"at δ {worst:.2g} ε is at least {tested[worst]:.2f}, claimed {claims[worst]:.2f}" if refuted else "",
        excess(perfect) > 0,
        f"{shown.true_alarms} of {shown.there} canaries seen, {shown.false_alarms} of {shown.absent} false alarms",
    )


def fitting(trials: NDArray[Any]) -> NDArray[Any]:
    """Those that choose the test, and so do not count."""
    return trials[: len(trials) // 3]


def rates(scores: Floats, there: Bools, threshold: float) -> Rates:
    alarm = scores >= threshold
    return Rates(int((alarm & there).sum()), int(there.sum()), int((alarm & ~there).sum()), int((~there).sum()))


def discriminant(known: Floats, there: Bools) -> Floats:
    """Scores [n] of what is known of each trial [n, f], fitted on the first third."""
    fit, labels = fitting(known), fitting(there)
    means = [fit[labels == world].mean(0) for world in (False, True)]
    rest = fit - np.where(labels[:, None], means[1], means[0])
    covariance = rest.T @ rest / max(1, len(fit) - 2)
    scale = np.maximum(np.sqrt(np.diag(covariance)), RIDGE * (np.abs(fit).max() + np.finfo(float).tiny))
    correlation = covariance / np.outer(scale, scale)
    weights = np.linalg.lstsq(correlation + RIDGE * np.eye(len(scale)), (means[1] - means[0]) / scale, rcond=None)[0]
    scores: Floats = (known / scale) @ weights
    return scores
