"""How much noise an (ε, δ) asks for, and what ε a noise buys. σ is always in units of the sensitivity.

Two calibrations of the Gaussian mechanism stand side by side because the papers use the first and only the second is always
true: the classic σ = √(2 ln(1.25/δ)) / ε is proved for ε ≤ 1 alone (Dwork and Roth 2014, Theorem A.1; above 1 it can promise
too much), the analytic one is exact for every ε (Balle and Wang 2018; computed by dp-accounting).
"""

from __future__ import annotations

import math
from functools import lru_cache

from covey.errors import CoveyError


def check_budget(epsilon: float, delta: float, where: str = "defence") -> None:
    """Refuses budgets that mean nothing. ε = inf is admitted: it switches the noise off."""
    if not epsilon > 0:
        raise CoveyError(f"{where}.epsilon is {epsilon}: a privacy budget must be above 0")
    check_delta(delta, where)


def check_delta(delta: float, where: str = "defence") -> None:
    if not 0 < delta < 1:
        raise CoveyError(f"{where}.delta is {delta}: a failure probability lies strictly between 0 and 1, e.g. 1e-5")


def classic_sigma(epsilon: float, delta: float) -> float:
    """σ of the classic bound, as the papers print it; a guarantee for ε ≤ 1 only."""
    check_budget(epsilon, delta, "calibration")
    return math.sqrt(2 * math.log(1.25 / delta)) / epsilon


def classic_epsilon(sigma: float, delta: float) -> float:
    """The ε whose classic σ this is: the papers' own reading of a noise, true up to 1 only."""
    check_delta(delta, "calibration")
    return math.sqrt(2 * math.log(1.25 / delta)) / sigma if sigma > 0 else math.inf


@lru_cache(maxsize=1024)  # searched by bisection, and asked for the same few in every round and trial
def analytic_sigma(epsilon: float, delta: float) -> float:
    """The smallest σ that gives (ε, δ), for any ε."""
    check_budget(epsilon, delta, "calibration")
    from dp_accounting import get_sigma_gaussian

    return float(get_sigma_gaussian(epsilon, delta))


@lru_cache(maxsize=1024)
def analytic_epsilon(sigma: float, delta: float) -> float:
    """The smallest ε that a σ gives at this δ."""
    check_delta(delta, "calibration")
    if not sigma >= 0:
        raise CoveyError(f"sigma is {sigma}: a standard deviation must not be negative")
    from dp_accounting import get_epsilon_gaussian

    return float(get_epsilon_gaussian(sigma, delta))
