"""Noise in shares: what a vector may be, how the shares add up, and that no sum can wrap around."""

from __future__ import annotations

import math
import time
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chi2, norm

from covey.crypto.noise import discrete
from covey.crypto.noise.shares import LEAST_BITS, SharedNoise, Shares
from covey.crypto.noise.stream import Stream
from covey.crypto.openings import threshold
from covey.crypto.openings.boxes import BoxKey
from covey.crypto.openings.circle import draw_circle
from covey.errors import CoveyError

AGREED = SharedNoise(clip=0.5, noise=1.25, least=10, corrupt=3)
KEY = bytes(range(32))


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.floats(-(2.0**99), 2.0**99, width=32), min_size=1, max_size=40), st.integers(LEAST_BITS, discrete.BITS)
)
def test_no_vector_is_longer_than_agreed(values: list[float], bits: int) -> None:
    """In whole numbers, exactly: Python's integers, no floating point."""
    shares = Shares(AGREED, bits)
    steps = [int(n) for n in shares.steps(values)]
    longest = math.floor((AGREED.clip / shares.step) ** 2)
    assert sum(n * n for n in steps) <= longest
    assert all(n * x >= 0 for n, x in zip(steps, values))


def test_a_short_vector_is_only_rounded_towards_zero() -> None:
    shares = Shares(AGREED, 20)
    vector = np.array([0.1, -0.2, 0.0, 0.3 * shares.step, -0.999 * shares.step])
    assert shares.steps(vector).tolist() == [
        math.floor(0.1 / shares.step),
        -math.floor(0.2 / shares.step),
        0,
        0,
        0,
    ]
    assert shares.steps(np.zeros(3)).tolist() == [0, 0, 0]


def test_a_long_one_is_cut_to_the_bound() -> None:
    shares = Shares(AGREED, 20)
    cut = shares.steps(np.full(10_000, 7.0)) * shares.step
    assert np.linalg.norm(cut) == pytest.approx(AGREED.clip, rel=1e-4)
    assert np.linalg.norm(cut) <= AGREED.clip


@pytest.mark.parametrize("vector", [[math.nan], [math.inf, 1.0], [1e200, 1e200]])
def test_what_is_no_vector_is_refused(vector: list[float]) -> None:
    with pytest.raises(CoveyError, match="check the training"):
        Shares(AGREED, 20).steps(vector)


@pytest.mark.parametrize(
    "wrong",
    [{"clip": 0.0}, {"clip": math.inf}, {"noise": 0.0}, {"noise": math.nan}, {"corrupt": 10}, {"corrupt": -1}],
)
def test_agreements_that_protect_nobody_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(CoveyError):
        SharedNoise(**{"clip": 1.0, "noise": 1.0, "least": 10, "corrupt": 2} | wrong)


def test_honest_shares_add_up_to_what_was_agreed() -> None:
    """Moments of the sum of h shares, and every number's frequency against N_Z(0, h 4^bits)."""
    shares, count = Shares(AGREED, LEAST_BITS), 200_000
    stream = Stream(KEY)
    total = sum(shares.seal(np.zeros(count), stream) for _ in range(AGREED.honest))
    sigma = AGREED.noise * AGREED.clip / shares.step
    assert sigma == pytest.approx(math.sqrt(7) * 256)
    z = np.asarray(total) / sigma
    for power, expected, spread in ((1, 0.0, 1.0), (2, 1.0, 2.0), (3, 0.0, 15.0), (4, 3.0, 96.0)):
        assert abs(np.mean(z**power) - expected) < 4.5 * math.sqrt(spread / count)
    edges = np.arange(-2048, 2049, 64)  # whole numbers from each edge to the next
    every = np.arange(-12 * int(sigma), 12 * int(sigma) + 1)
    masses = np.exp(-(every**2) / (2 * sigma**2))
    masses /= masses.sum()
    expected = count * np.array([masses[(every >= a) & (every < a + 64)].sum() for a in edges[:-1]])
    observed = np.histogram(total, edges)[0]
    statistic = float(((observed - expected) ** 2 / expected).sum())
    assert chi2.sf(statistic, len(expected) - 1) > 1e-4


def test_one_share_less_shows() -> None:
    """The test above has the power to see a client that adds no noise, or the same noise twice."""
    shares, count = Shares(AGREED, LEAST_BITS), 200_000
    stream = Stream(KEY)
    drawn = [shares.seal(np.zeros(count), stream) for _ in range(AGREED.honest)]
    sigma = AGREED.noise * AGREED.clip / shares.step
    missing, reused = sum(drawn[1:]), sum(drawn[1:]) + drawn[1]
    for wrong, ratio in ((missing, 6 / 7), (reused, 9 / 7)):
        variance = float(np.mean((wrong / sigma) ** 2))
        assert variance == pytest.approx(ratio, abs=0.02)
        assert abs(variance - 1.0) > 4.5 * math.sqrt(2 / count)


def test_what_adding_up_costs_is_nothing() -> None:
    """tau of Kairouz, Liu and Steinke; by hand for two shares of a small width, nothing at ours."""
    assert Shares(SharedNoise(1.0, 1.0, 10_000, 0), LEAST_BITS).excess(10**9) == 0.0
    two = Shares(SharedNoise(1.0, 1.0, 2, 0), 0)
    assert two.excess(3) == pytest.approx(30 * math.exp(-(math.pi**2)))


@pytest.mark.parametrize("clients", [3, 8, 120, 1024, 10_000])
@pytest.mark.parametrize("noise", [0.05, 1.0, 30.0])
def test_sums_never_wrap_around(clients: int, noise: float) -> None:
    """All clients at their largest, at once: far more than ten standard deviations, and still within the modulus."""
    circle = draw_circle(16.0, clients, [bytes([i % 251 + 1]) * 32 for i in range(3)], 2)
    agreed = SharedNoise(1.0, noise, clients, clients // 2)
    shares = agreed.fitting(circle.capacity)
    assert shares.largest <= circle.capacity
    worst = clients * shares.largest * 2**circle.gap_bits + 2 ** (circle.gap_bits - 1)
    assert worst < circle.modulus // 2
    assert shares.largest * clients < 2**53  # exact as float64
    assert shares.largest >= 10 * 2**shares.bits + agreed.clip / shares.step


def test_what_the_grid_costs() -> None:
    """By hand: five million numbers, 4000 honest shares of 2^13 steps; at the paper's model and a hundred clients nothing."""
    shares = Shares(SharedNoise(1.0, 1.0, 5000, 1000), 13)
    assert shares.grid(5_000_000) == pytest.approx((2_500_000 + 67) / (4000 * 2**26))
    hundred = SharedNoise(1.0, 1.0, 90, 50).fitting(draw_circle(16.0, 100, [b"1" * 32, b"2" * 32], 2).capacity)
    assert hundred.grid(5 * 159_012) < 1e-12


def test_the_grid_term_bounds_the_distance_from_a_rounded_gaussian() -> None:
    """Number by number: the logarithm of the ratio is what the docstring says, at the coarsest grid there is."""
    sigma = math.sqrt(2) * 2**LEAST_BITS
    n = np.arange(-8 * int(sigma), 8 * int(sigma) + 1)
    rounded = norm.cdf((n + 0.5) / sigma) - norm.cdf((n - 0.5) / sigma)
    rounded = np.where(n > 0, norm.sf((n - 0.5) / sigma) - norm.sf((n + 0.5) / sigma), rounded)
    exact = np.exp(-(n**2) / (2 * sigma**2)) / (math.sqrt(2 * math.pi) * sigma)
    assert np.all(np.abs(np.log(rounded / exact)) <= ((n / sigma) ** 2 + 1) / (12 * sigma**2) + 1e-9)


def test_too_many_clients_for_the_modulus_are_refused() -> None:
    with pytest.raises(CoveyError, match="too short"):
        SharedNoise(1.0, 1e-6, 1000, 1).fitting(2.0**20)


def test_the_largest_numbers_open_exactly() -> None:
    """Three clients at plus or minus their largest, sealed and opened under the scheme itself."""
    keys = [BoxKey.generate() for _ in range(3)]
    public = threshold.circle_of(16.0, 3, [key.public for key in keys], 2)
    circle = draw_circle(16.0, 3, [key.public for key in keys], 2)
    shares = SharedNoise(1.0, 1.0, 3, 1).fitting(circle.capacity)
    numbers = np.array([shares.largest, -shares.largest, 1, 0, -1])
    members = [threshold.member(public, i, key.secret) for i, key in enumerate(keys)]
    sealed = [member.seal([circle.values(numbers)], "run:1") for member in members]
    mixer = threshold.mixer(public, 1, 5)
    for (vector,), _ in sealed:
        mixer.add(vector, [0])
    question = {
        j: threshold.OpeningQuestion([[0, 1, 2]], {i: boxes[j] for i, (_, boxes) in enumerate(sealed)})
        for j in range(2)
    }
    answers = {j: members[j].advise(question[j], "run:1", padded=False) for j in range(2)}
    opening = threshold.fuse(public, answers, "run:1", [0], [0])
    (opened,) = threshold.open_unpadded(public, mixer.sums(), opening)
    assert circle.numbers(opened).tolist() == (3 * numbers).tolist()


def test_a_model_of_the_papers_size_takes_a_moment() -> None:
    shares, vector = SharedNoise(1.0, 1.0, 10, 3).fitting(2.0**40), np.ones(159_010)
    shares.seal(vector, Stream())
    begin = time.process_time()
    shares.seal(vector, Stream())
    assert time.process_time() - begin < 0.2
