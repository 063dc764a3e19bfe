"""What an ε must be at least, given how well somebody guessed: the counterpart of the accountants, which say what it is at most.

Two ways, both without any assumption on the mechanism:

    two worlds   many runs with and without a sample; (ε, δ) bounds how far true and false alarms of any test can be apart.
                 Clopper and Pearson's intervals make the observed rates bounds of the true ones (Jagielski et al. 2020).
    one run      m samples, each in or out by a coin of its own; (ε, δ) bounds how many of r coins anybody guesses (Steinke, Nasr
                 and Jagielski 2023, for (ε, δ)).

A bound near 0 proves nothing: the guesses may have been bad.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from covey.errors import CoveyError
from covey.statistics import clopper_pearson

_LARGEST = 60.0  # ε: nothing that can be counted shows more


@dataclass(frozen=True)
class Rates:
    """How often a test said "in" where it was so, and where it was not."""

    true_alarms: int
    there: int
    false_alarms: int
    absent: int

    def bounds(self, alpha: float) -> tuple[float, float]:
        """(true alarms at least, false alarms at most); both hold together with probability 1 − alpha."""
        low, _ = clopper_pearson(self.true_alarms, self.there, alpha / 2)
        _, high = clopper_pearson(self.false_alarms, self.absent, alpha / 2)
        return low, high


def epsilon_of_rates(rates: Rates, delta: float, alpha: float = 0.05) -> float:
    """ε at least, at this δ, with confidence 1 − alpha: TPR ≤ e^ε FPR + δ, and the same of those that were let pass."""
    return epsilon_of_bounds(*rates.bounds(alpha), delta)


def epsilon_of_bounds(true: float, false: float, delta: float) -> float:
    """The same of rates that are known: true alarms at least, false ones at most. Holds for all δ together."""
    return max(0.0, _log_ratio(true - delta, false), _log_ratio(1 - false - delta, 1 - true))


def deviation_of_rates(rates: Rates, alpha: float = 0.05) -> float:
    """μ at least, *if* the two worlds are normal distributions of one width, μ widths apart (Nasr et al. 2023)."""
    from scipy.special import ndtri

    true, false = rates.bounds(alpha)
    if not (true > 0 and false < 1):
        return 0.0
    return max(0.0, float(ndtri(min(true, 1 - 1e-12)) - ndtri(max(false, 1e-12))))


def guesses_p_value(canaries: int, guesses: int, right: int, epsilon: float, delta: float) -> float:
    """How probable so many right guesses are at most under (ε, δ), whoever guesses.

    The number of right ones is dominated by Binomial(guesses, e^ε / (1 + e^ε)) up to δ's part: 2 m δ times the largest mean of the
    probabilities just below `right`.
    """
    if not 0 <= right <= guesses <= canaries or epsilon < 0 or not 0 <= delta <= 1:
        raise CoveyError(f"{right} right of {guesses} guesses on {canaries} canaries at ({epsilon}, {delta}) cannot be")
    from scipy.stats import binom

    accuracy = 1 / (1 + math.exp(-epsilon))
    least = float(binom.sf(right - 1, guesses, accuracy))
    if right == 0:
        return 1.0
    below = np.cumsum(binom.pmf(right - np.arange(1, right + 1), guesses, accuracy))  # P[right − i ≤ B < right]
    steepest = float(np.max(below / np.arange(1, right + 1)))
    return min(1.0, least + 2 * canaries * delta * steepest)


def epsilon_of_guesses(canaries: int, guesses: int, right: int, delta: float, alpha: float = 0.05) -> float:
    """The largest ε that so many right guesses refute at this δ with confidence 1 − alpha; 0: none."""
    if guesses == 0 or guesses_p_value(canaries, guesses, right, 0.0, delta) > alpha:
        return 0.0
    low, high = 0.0, _LARGEST
    while high - low > 1e-6:
        middle = (low + high) / 2
        low, high = (
            (middle, high) if guesses_p_value(canaries, guesses, right, middle, delta) <= alpha else (low, middle)
        )
    return low


def _log_ratio(over: float, under: float) -> float:
    return math.log(over / under) if over > 0 and under > 0 else 0.0
