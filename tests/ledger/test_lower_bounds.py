"""Bounds on ε from below: by hand, and against mechanisms whose ε is known."""

from __future__ import annotations

import math

import numpy as np
import pytest

from covey.errors import CoveyError
from covey.ledger.calibration import analytic_epsilon
from covey.ledger.lower_bounds import (
    Rates,
    deviation_of_rates,
    epsilon_of_guesses,
    epsilon_of_rates,
    guesses_p_value,
)
from covey.statistics import clopper_pearson


def test_clopper_and_pearson_by_hand() -> None:
    # All of n right: the rate p with p^n = tail. None: 1 - p with the same.
    low, high = clopper_pearson(100, 100, 0.05)
    assert low == pytest.approx(0.05 ** (1 / 100)) and high == 1.0
    low, high = clopper_pearson(0, 100, 0.05)
    assert low == 0.0 and high == pytest.approx(1 - 0.05 ** (1 / 100))
    assert clopper_pearson(0, 0) == (0.0, 1.0)


def test_two_worlds_by_hand() -> None:
    # Every canary seen, no false alarm, 500 of each: ln((t - δ) / (1 - t)) with t^500 = 0.025.
    seen = Rates(500, 500, 0, 500)
    true = 0.025 ** (1 / 500)
    assert epsilon_of_rates(seen, 0.01) == pytest.approx(math.log((true - 0.01) / (1 - true)))
    assert epsilon_of_rates(Rates(250, 500, 250, 500), 1e-5) == 0.0
    # The same test read the other way round shows as much.
    assert epsilon_of_rates(Rates(100, 500, 0, 500), 0.0) == pytest.approx(
        epsilon_of_rates(Rates(500, 500, 400, 500), 0.0)
    )


def test_guesses_by_hand() -> None:
    # One coin: under ε it is guessed with q = e^ε / (1 + e^ε), and δ adds 2 δ (1 - q).
    q = 1 / (1 + math.exp(-1.0))
    assert guesses_p_value(1, 1, 1, 1.0, 0.0) == pytest.approx(q)
    assert guesses_p_value(1, 1, 1, 1.0, 0.1) == pytest.approx(q + 2 * 0.1 * (1 - q))
    # Two coins, both right: q², and δ's part is the larger of P[1 right] and P[0 or 1 right] / 2.
    steepest = max(2 * q * (1 - q), (1 - q**2) / 2)
    assert guesses_p_value(2, 2, 2, 1.0, 0.05) == pytest.approx(q**2 + 2 * 2 * 0.05 * steepest)
    # All of 100 right, no δ: q^100 = 0.05.
    accuracy = 0.05 ** (1 / 100)
    assert epsilon_of_guesses(100, 100, 100, 0.0) == pytest.approx(math.log(accuracy / (1 - accuracy)), abs=1e-5)
    # Abstaining costs nothing but δ's part, which counts all canaries.
    assert epsilon_of_guesses(1000, 100, 100, 0.0) == pytest.approx(epsilon_of_guesses(100, 100, 100, 0.0))
    assert epsilon_of_guesses(1000, 100, 100, 1e-4) < epsilon_of_guesses(100, 100, 100, 1e-4)
    assert epsilon_of_guesses(100, 100, 50, 0.0) == epsilon_of_guesses(100, 0, 0, 0.0) == 0.0


def test_guesses_that_cannot_be() -> None:
    with pytest.raises(CoveyError, match="3 right of 2 guesses"):
        guesses_p_value(5, 2, 3, 1.0, 0.0)


def test_randomised_response_is_bounded_by_its_epsilon() -> None:
    """Every coin answered truly with probability e^ε / (1 + e^ε): the bound is near ε, and above it in 5 % at most."""
    epsilon, coins, repeats = 1.5, 400, 100
    right = np.random.default_rng(0).binomial(coins, 1 / (1 + math.exp(-epsilon)), repeats)
    bounds = np.array([epsilon_of_guesses(coins, coins, int(v), 0.0) for v in right])
    assert (bounds > epsilon).mean() <= 0.06
    assert 1.0 < np.median(bounds) < epsilon


def test_gaussian_mechanism_is_bounded_by_its_epsilon() -> None:
    """N(0, 1) against N(μ, 1), threshold in the middle: neither bound lies above the truth in more than 5 %."""
    rng, apart, trials, delta = np.random.default_rng(1), 1.0, 500, 1e-5
    truth, free, gaussian = analytic_epsilon(1 / apart, delta), [], []
    for _ in range(300):
        hits = int((rng.standard_normal(trials) + apart > apart / 2).sum())
        alarms = int((rng.standard_normal(trials) > apart / 2).sum())
        seen = Rates(hits, trials, alarms, trials)
        free.append(epsilon_of_rates(seen, delta))
        gaussian.append(deviation_of_rates(seen))
    assert max(free) < truth
    assert (np.array(gaussian) > apart).mean() <= 0.05
    assert np.median(gaussian) > 0.75
