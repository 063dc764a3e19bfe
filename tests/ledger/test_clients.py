"""Statements about whole clients."""

import math
from itertools import combinations

import pytest

from covey.crypto.identity_math import false_counts, ruled_out
from covey.errors import CoveyError
from covey.ledger.calibration import analytic_epsilon
from covey.ledger.clients import (
    _pld_epsilon,
    answers_epsilon,
    epsilon_of_truth,
    noise_for,
    sums_epsilon,
    truth_probability,
)
from covey.ledger.events import EVERYONE, ClientRelease, RandomisedAnswer, SubsampledGaussian
from covey.ledger.pricing import price


def test_sums_over_everybody_are_exact_and_a_replaced_client_moves_them_twice_as_far():
    assert sums_epsilon({(1.0, 4.0): 16}, 1e-5) == pytest.approx(analytic_epsilon(1.0, 1e-5))
    assert sums_epsilon({(1.0, 4.0): 16}, 1e-5, replaced=True) == pytest.approx(analytic_epsilon(0.5, 1e-5))


@pytest.mark.parametrize("replaced", [False, True])
def test_the_privacy_loss_distribution_is_the_exact_figure_and_never_below(replaced):
    exact = sums_epsilon({(1.0, 4.0): 10}, 1e-5, replaced)
    by_grid = _pld_epsilon(frozenset({((1.0, 4.0), 10)}), 1e-5, replaced, frozenset())
    assert exact <= by_grid < exact + 1e-4


def test_sampling_helps_and_a_sampled_client_that_is_replaced_costs_more():
    sampled = sums_epsilon({(0.1, 1.0): 20}, 1e-5)
    assert sampled < sums_epsilon({(0.1, 1.0): 20}, 1e-5, replaced=True) < sums_epsilon({(1.0, 1.0): 20}, 1e-5)


@pytest.mark.parametrize(("sums", "sampling"), [(50, 1.0), (100, 0.05)])
def test_the_noise_that_is_searched_is_enough_and_not_much_more(sums, sampling):
    noise = noise_for(3.0, 1e-4, sums, sampling)
    assert sums_epsilon({(sampling, noise): sums}, 1e-4) <= 3.0
    assert sums_epsilon({(sampling, 0.99 * noise): sums}, 1e-4) > 3.0


def test_no_noise_is_no_guarantee_and_no_budget_no_noise():
    assert sums_epsilon({(1.0, 0.0): 1}, 1e-5) == math.inf
    assert noise_for(math.inf, 1e-5, 10) == 0.0
    with pytest.raises(CoveyError, match="epsilon"):
        noise_for(0.0, 1e-5, 10)


def test_what_is_spent_for_everyone_counts_for_each():
    spends = [(t, EVERYONE, ClientRelease(4.0, 1e-5, clients=30)) for t in range(10)]
    assert price(spends)["client_dp"]["epsilon"] == pytest.approx(sums_epsilon({(1.0, 4.0): 10}, 1e-5))
    assert price(spends)["client_dp"]["clients"] == 30
    own = [(t, 3, ClientRelease(2.0, 1e-5)) for t in range(2)]
    worst = price([*spends, *own])["client_dp"]
    assert worst["total"]["client"] == 3
    assert worst["epsilon"] == pytest.approx(sums_epsilon({(1.0, 4.0): 10, (1.0, 2.0): 2}, 1e-5))


def test_units_stand_side_by_side():
    record = price([(1, 0, SubsampledGaussian(0.5, 1.0, 1, 1))])["dp_sgd"]
    assert (
        record["unit"] == "record"
        and record["units"]["client"] is None
        and record["units"]["record"] == record["epsilon"]
    )
    client = price([(1, EVERYONE, ClientRelease(4.0, 1e-5))])["client_dp"]
    assert client["unit"] == "client" and client["units"]["record"] == client["total"]["replaced"] > client["epsilon"]


def test_answers():
    assert truth_probability(math.log(3), 4) == pytest.approx(0.5)
    assert epsilon_of_truth(0.5, 4) == pytest.approx(math.log(3)) and epsilon_of_truth(0.25, 4) == 0.0
    assert epsilon_of_truth(1.0, 4) == math.inf
    assert answers_epsilon([(0.2, 5)], 1e-5) == 0.2
    assert answers_epsilon([(0.2, 5)] * 50, 1e-5) < 0.5 * 10.0  # a δ buys something over many
    entry = price([(t, 0, RandomisedAnswer(0.2, 5)) for t in range(50)])["randomised_response"]
    assert entry["epsilon"] == pytest.approx(10.0) and entry["total"]["at_delta"]["epsilon"] < 5.0


def test_sums_and_answers_together_cost_more_than_either_and_less_than_both():
    spends = [
        (1, EVERYONE, ClientRelease(4.0, 1e-5, clients=2)),
        (1, 0, RandomisedAnswer(1.0, 3)),
        (1, 1, RandomisedAnswer(1.0, 3)),
    ]
    priced = price(spends)
    both = priced["client_dp + randomised_response"]["epsilon"]
    assert max(1.0, priced["client_dp"]["total"]["replaced"]) < both <= 1.0 + priced["client_dp"]["total"]["replaced"]


def test_shown_sets_rule_clusters_out_whatever_epsilon() -> None:
    """By enumeration: Σ max(0, P_1 − e^ε P_2) over all sets is the same δ at every ε."""
    k, rate, threshold = 5, 0.5, 2
    counts = false_counts(k, rate, threshold)

    def probability(shown: frozenset[int], own: int) -> float:
        return counts[len(shown) - 1] / math.comb(k - 1, len(shown) - 1) if own in shown else 0.0

    sets = [frozenset(c) for n in range(1, k + 1) for c in combinations(range(k), n)]
    for epsilon in (0.0, 3.0, 50.0):
        delta = sum(max(0.0, probability(s, 1) - math.exp(epsilon) * probability(s, 2)) for s in sets)
        assert delta == pytest.approx(ruled_out(k, rate, threshold))


def test_a_large_delta_is_said():
    """Of three silos, 1/clients^1.1 is .3: whoever reads ε alone reads too much."""
    large, small = (price([(1, EVERYONE, ClientRelease(4.0, delta))])["client_dp"]["caveat"] for delta in (0.3, 1e-5))
    assert "A δ of 0.3 is large" in large and "large" not in small


def test_of_several_deltas_the_weakest_holds_for_all():
    """Two sums that were asked for with 1e-5 and 1e-3: no smaller δ may stand beside what both cost."""
    spends = [(1, EVERYONE, ClientRelease(4.0, 1e-5)), (2, EVERYONE, ClientRelease(4.0, 1e-3))]
    entry = price(spends)["client_dp"]
    assert entry["delta"] == 1e-3 and entry["epsilon"] == pytest.approx(sums_epsilon({(1.0, 4.0): 2}, 1e-3))
    assert price(spends, 1e-6)["client_dp"]["delta"] == 1e-6
