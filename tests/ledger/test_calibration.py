"""Noise for a budget and back: by hand, against the library's exact accountant, and one calibration against the other."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from covey.errors import CoveyError
from covey.ledger.accountants import gaussian_epsilon, laplace_epsilon, moments_epsilon, subsampled_gaussian_epsilon
from covey.ledger.calibration import (
    analytic_epsilon,
    analytic_sigma,
    classic_epsilon,
    classic_sigma,
)

DELTAS = st.floats(1e-8, 1e-3)


def test_the_classic_sigma_is_the_papers_formula():
    assert classic_sigma(1.0, 1e-5) == pytest.approx(4.844805262605389)  # √(2 · ln 125000)
    assert classic_sigma(4.0, 1e-5) == pytest.approx(4.844805262605389 / 4)
    assert classic_epsilon(classic_sigma(3.0, 1e-6), 1e-6) == pytest.approx(3.0)
    assert classic_sigma(math.inf, 1e-5) == 0.0


@settings(deadline=None, max_examples=40)
@given(epsilon=st.floats(0.01, 1.0), delta=DELTAS)
def test_where_the_classic_bound_is_proved_it_asks_for_more_noise_than_needed(epsilon, delta):
    assert classic_sigma(epsilon, delta) > analytic_sigma(epsilon, delta)


def test_beyond_its_proof_the_classic_bound_promises_too_much():
    sigma = classic_sigma(20.0, 1e-5)
    assert sigma < analytic_sigma(20.0, 1e-5)
    assert analytic_epsilon(sigma, 1e-5) > 25


@settings(deadline=None, max_examples=30)
@given(sigma=st.floats(0.2, 50), delta=DELTAS)
def test_analytic_epsilon_fulfils_the_formula_of_balle_and_wang(sigma, delta):
    epsilon = analytic_epsilon(sigma, delta)

    def cumulative(x):
        return math.erfc(-x / math.sqrt(2)) / 2

    if epsilon > 0:
        spent = cumulative(1 / (2 * sigma) - epsilon * sigma)
        spent -= math.exp(epsilon) * cumulative(-1 / (2 * sigma) - epsilon * sigma)
        assert spent == pytest.approx(delta, rel=1e-4)


@pytest.mark.parametrize("sigma", [0.5, 1.0, 5.0])
def test_analytic_epsilon_agrees_with_the_privacy_loss_distribution(sigma):
    import dp_accounting
    from dp_accounting.pld import PLDAccountant

    account = PLDAccountant(value_discretization_interval=1e-3).compose(dp_accounting.GaussianDpEvent(sigma), 10)
    assert gaussian_epsilon(10 / sigma**2, 1e-5) == pytest.approx(account.get_epsilon(1e-5), rel=1e-4)


def test_subsampled_steps_agree_with_the_library_composing_them_itself():
    import dp_accounting
    from dp_accounting.rdp import RdpAccountant

    from covey.ledger.accountants import ORDERS

    steps = {(0.1, 1.0): 300, (0.02, 0.8): 500}
    account = RdpAccountant(ORDERS)
    for (q, noise), count in steps.items():
        account.compose(dp_accounting.PoissonSampledDpEvent(q, dp_accounting.GaussianDpEvent(noise)), count)
    assert subsampled_gaussian_epsilon(steps, 1e-5) == pytest.approx(account.get_epsilon(1e-5), rel=1e-9)


def test_our_orders_lose_little_against_the_librarys_own():
    import dp_accounting
    from dp_accounting.rdp import RdpAccountant

    for q, noise, count in ((0.1, 1.0, 1000), (0.05, 4.0, 1000), (0.185, 0.5, 1)):
        event = dp_accounting.PoissonSampledDpEvent(q, dp_accounting.GaussianDpEvent(noise))
        theirs = RdpAccountant().compose(event, count).get_epsilon(1e-5)
        assert subsampled_gaussian_epsilon({(q, noise): count}, 1e-5) < theirs * 1.01


def test_the_moments_accountant_by_hand():
    """σ = .2 is decided at α = 2: ln(1 + q² (e²⁵ − 1)) + ln(1/δ)."""
    by_hand = math.log(1 + 0.185**2 * (math.exp(25) - 1)) + math.log(1e5)
    assert moments_epsilon(0.185, 0.2, 1, 1e-5) == pytest.approx(by_hand, rel=1e-9)


def test_no_noise_costs_everything_and_no_step_nothing():
    assert subsampled_gaussian_epsilon({(0.5, 0.0): 1}, 1e-5) == math.inf
    assert subsampled_gaussian_epsilon({(0.5, 1.0): 0}, 1e-5) == 0.0
    assert moments_epsilon(0.5, 0.0, 1, 1e-5) == math.inf
    assert gaussian_epsilon(0.0, 1e-5) == 0.0
    assert gaussian_epsilon(math.inf, 1e-5) == math.inf


def test_laplace_composition_is_never_worse_than_adding_up():
    assert laplace_epsilon({10.0: 1}, 1e-5) <= 10.0
    assert laplace_epsilon({0.1: 50}, 1e-5) < 0.8 * 50 * 0.1
    assert laplace_epsilon({math.inf: 1}, 1e-5) == math.inf


@pytest.mark.parametrize("epsilon", [0.0, -1.0, math.nan])
def test_budgets_that_mean_nothing_are_refused(epsilon):
    with pytest.raises(CoveyError, match="epsilon"):
        classic_sigma(epsilon, 1e-5)
    with pytest.raises(CoveyError, match="epsilon"):
        analytic_sigma(epsilon, 1e-5)


@pytest.mark.parametrize("delta", [0.0, 1.0, -1e-5, 2.0, math.nan])
def test_deltas_outside_the_open_interval_are_refused(delta):
    for calibrate in (classic_sigma, classic_epsilon, analytic_sigma, analytic_epsilon):
        with pytest.raises(CoveyError, match="delta"):
            calibrate(1.0, delta)
