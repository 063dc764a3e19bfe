"""Intervals and spreads, one of each. All intervals are two-sided at 95 % unless told otherwise.

An interval of the mean over seeds is Student's; of a share of independent trials it is Wilson's, or Clopper and Pearson's where a
promise hangs on it; where a standard error is known otherwise, the normal one. Intervals of other scores come from repetitions (a
bootstrap), beside the score.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Z = 1.959964  # 97.5 % of a standard normal lie below


def wilson(value: float, trials: int) -> tuple[float, float]:
    """Wilson's interval of a success rate; without trials: everything."""
    if trials <= 0:
        return 0.0, 1.0
    z2 = Z**2
    centre = (value + z2 / (2 * trials)) / (1 + z2 / trials)
    half = (Z / (1 + z2 / trials)) * ((value * (1 - value) + z2 / (4 * trials)) / trials) ** 0.5
    return max(0.0, centre - half), min(1.0, centre + half)


def clopper_pearson(hits: int, trials: int, tail: float = 0.025) -> tuple[float, float]:
    """The exact interval of a success rate, which lies beyond either end with probability `tail` at most."""
    if trials <= 0:
        return 0.0, 1.0
    from scipy.special import betaincinv

    low = 0.0 if hits == 0 else float(betaincinv(hits, trials - hits + 1, tail))
    high = 1.0 if hits == trials else float(betaincinv(hits + 1, trials - hits, 1 - tail))
    return low, high


def normal_interval(share: float, error: float) -> tuple[float, float]:
    """Of a number from 0 to 1 with this standard error, cut to 0 and 1."""
    return max(0.0, share - Z * error), min(1.0, share + Z * error)


def tallied(numbers: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The whole numbers from 0 on that occur, in order, and how often each does: numpy's `unique`, without its sorting where the
    numbers are small.
    """
    if not len(numbers) or int(numbers.max()) > 4 * len(numbers) + 1024:
        return np.unique(numbers, return_counts=True)
    counts = np.bincount(numbers)
    occur = np.flatnonzero(counts)
    return occur, counts[occur]


def deviation(values: Sequence[float] | NDArray[np.float64]) -> float:
    """The sample's standard deviation (n - 1); 0 of equal values, where numpy's is rounding, and of a single one."""
    return float(np.std(values, ddof=1)) if len(values) and np.min(values) != np.max(values) else 0.0


def standard_error(values: Sequence[float]) -> float:
    """Of the mean of independent values."""
    return deviation(values) / math.sqrt(len(values))


@dataclass(frozen=True)
class Mean:
    """A mean over independent repetitions, and half the width of its interval: infinite for fewer than two of them."""

    value: float
    half: float
    n: int

    @property
    def low(self) -> float:
        return self.value - self.half

    @property
    def high(self) -> float:
        return self.value + self.half


def student(values: Sequence[float]) -> Mean:
    """The mean of at least one value, with Student's interval."""
    n = len(values)
    mean = float(np.mean(values))
    if n < 2:
        return Mean(mean, math.inf, n)
    return Mean(mean, student_half(n) * standard_error(values), n)


def student_half(n: float) -> float:
    """Half the width of the interval of a mean of n values (n - 1 degrees of freedom, whole or not), in standard errors."""
    from scipy.special import stdtrit  # a bare GPU machine lacks scipy and asks for no interval

    return float(stdtrit(n - 1, 0.975))


def student_interval(values: Sequence[float]) -> tuple[float, float]:
    """Of the mean; everything where nothing or a single value shows no spread to judge by."""
    if len(values) < 2:
        return -math.inf, math.inf
    mean = student(values)
    return mean.low, mean.high


def paired_difference(high: Sequence[float], low: Sequence[float]) -> Mean:
    """The mean of `high` - `low` over the same seeds: what both owe to a seed cancels."""
    return student([a - b for a, b in zip(high, low, strict=True)])
