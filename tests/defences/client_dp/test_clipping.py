"""The bound on a client's contribution, as one vector, and the bound that follows a quantile."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from covey.algorithms.sums.contributions import Contribution
from covey.defences.client_dp.amounts import Amounts
from covey.defences.client_dp.clipping import LEAST, MOST, check_clip, clipped, length, next_clip
from covey.defences.client_dp.correlated import coefficients, column_norm, taken_back
from covey.errors import CoveyError


def test_a_short_contribution_stays_as_it_is():
    part = torch.tensor([0.3, -0.4])
    bounded = clipped(Contribution({1: part}, {1: 1.0}), clip=1.0)
    assert torch.equal(bounded.parts[1], part) and bounded.within == 0.5 and bounded.shares == {1: 1.0}


def test_parts_are_bounded_together():
    # Norms 3 and 4 are 5 together: both shrink to a tenth for C = ½.
    bounded = clipped(Contribution({0: torch.tensor([3.0, 0.0]), 1: torch.tensor([0.0, 4.0])}), clip=0.5)
    assert bounded.within == -0.5
    assert bounded.parts[0].tolist() == pytest.approx([0.3, 0.0], rel=1e-5)
    assert bounded.parts[1].tolist() == pytest.approx([0.0, 0.4], rel=1e-5)


@settings(max_examples=40, deadline=None)
@given(st.floats(1e-6, 1e6), st.floats(1e-3, 1e3), st.integers(0, 10**6))
def test_no_contribution_is_longer_than_the_bound_after_rounding(scale, clip, seed):
    generator = torch.Generator().manual_seed(seed)
    parts = {b: scale * torch.randn(200, generator=generator) for b in range(3)}
    assert length(clipped(Contribution(parts), clip).parts) <= clip


def test_what_is_no_number_adds_nothing():
    bounded = clipped(Contribution({0: torch.tensor([math.nan, 1.0])}, {0: 1.0}), clip=1.0)
    assert bounded.parts[0].tolist() == [0.0, 0.0] and bounded.within == -0.5


def test_shares_count_a_client_once_at_most():
    bounded = clipped(Contribution({0: torch.zeros(1), 1: torch.zeros(1)}, {0: 3.0, 1: 4.0}), clip=1.0)
    assert bounded.shares == {0: pytest.approx(0.6), 1: pytest.approx(0.8)}


def test_the_bound_follows_the_quantile():
    # 8 of 10 below: the sum of shifted bits is 8 · ½ − 2 · ½ = 3; C e^{−.2 (.8 − .5)}.
    assert next_clip(2.0, 3.0, 10, 0.5, 0.2) == pytest.approx(2 * math.exp(-0.06))
    assert next_clip(2.0, 1e9, 10, 0.5, 0.2) == pytest.approx(2 * math.exp(-0.1))  # noise cannot say more than "all"


def test_the_parts_of_a_budget_are_one_release():
    amounts = Amounts.split(2.0, sizes=0.1, within=0.05)
    assert amounts.joint == pytest.approx(2.0)
    assert amounts.sizes == pytest.approx(2 / math.sqrt(0.1)) and amounts.within == pytest.approx(2 / math.sqrt(0.05))
    assert Amounts.split(0.0, 0.1, 0.0).joint == 0.0


def streamed(band: int, independent: torch.Tensor) -> torch.Tensor:
    """ξ [T]: the noises of rounds, from independent ones, as the server makes them."""
    past: list[torch.Tensor] = []
    for z in independent:
        back = taken_back(past[-(band - 1) :] if band > 1 else [], band)
        past.append(z if back is None else z - back)
    return torch.stack(past)


def toeplitz(band: int, rounds: int) -> torch.Tensor:
    c = coefficients(band)
    return torch.tensor(
        [[c[i - j] if 0 <= i - j < band else 0.0 for j in range(rounds)] for i in range(rounds)]
    ).double()


def test_noise_that_is_taken_back_is_the_inverse_of_the_factor():
    assert coefficients(4) == [1.0, 0.5, 0.375, 0.3125]
    z = torch.randn(30, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    assert torch.allclose(toeplitz(5, 30) @ streamed(5, z), z)
    assert torch.equal(streamed(1, z), z)


@pytest.mark.parametrize("band", [4, 16])
def test_an_answer_costs_one_column_and_answers_do_not_overlap(band):
    c = toeplitz(band, 64)
    assert c.norm(dim=0).max().item() == pytest.approx(column_norm(band))
    apart = (c.T @ c)[0, band::band]  # of rounds that are whole turns apart
    assert apart.abs().max().item() == 0.0


def test_prefix_sums_get_better_at_equal_cost():
    # Error of the last models, priced alike: noise 1 against noise ‖c‖.
    rounds, band = 64, 16
    prefix = torch.tril(torch.ones(rounds, rounds, dtype=torch.float64))
    apart = (prefix @ torch.linalg.inv(toeplitz(band, rounds))).norm(dim=1) * column_norm(band)
    assert apart[-1] < 0.75 * prefix.norm(dim=1)[-1]
    assert apart.square().mean() < 0.75 * prefix.norm(dim=1).square().mean()


def test_a_bound_that_nothing_can_be_scaled_to_is_refused():
    """At the smallest float32 numbers a scaled vector is almost twice as long as its bound: a server may have sent that."""
    many, tiny = 10_000, 0.51 * 2.0**-149 * 100
    assert length(clipped(Contribution({0: torch.full((many,), 0.01)}), tiny).parts) > 1.9 * tiny
    assert length(clipped(Contribution({0: torch.full((many,), 0.01)}), LEAST).parts) <= LEAST
    for clip in (tiny, 0.0, -1.0, float("nan"), float("inf"), 1, None):
        with pytest.raises(CoveyError, match=r"the bound that was sent is .*: the bound on what a client adds"):
            check_clip(clip, "the bound that was sent")
    check_clip(LEAST, "the bound")
    assert next_clip(LEAST, 5.0, 10.0, 0.1, 1.0) == LEAST and next_clip(MOST, -5.0, 10.0, 0.9, 1.0) == MOST


def test_shares_that_are_none_count_nowhere():
    assert clipped(Contribution({0: torch.ones(2)}, {0: float("nan"), 1: 1.0}), 1.0).shares == {}
