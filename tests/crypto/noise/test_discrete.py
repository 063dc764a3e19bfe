"""The discrete samplers: known answers, the exact probabilities at every number, tails, coins that need exact arithmetic."""

from __future__ import annotations

import math
from decimal import Decimal, localcontext
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chi2, norm

from covey.crypto.noise import discrete
from covey.crypto.noise.discrete import BITS, STRIPS, Coin, flips, gaussians, laplaces
from covey.crypto.noise.stream import Stream

KEY = bytes(range(32))
KNOWN = {
    "gaussian": [-2265169293, 5578280114, 4193193535, 811739074, 5659975955, -1929181420],
    "laplace": [-2265169293, 6920457394, 4730064447, 811739074, 7270588691, -1929181420],
    "coarse": [141, -322, -255, 50, -339, 124],
}
SAMPLERS = {"gaussian": gaussians, "laplace": laplaces}


class Written:
    """Words that a test wrote."""

    def __init__(self, *words: int) -> None:
        self.left = list(words)

    def words(self, count: int) -> np.ndarray:
        given, self.left = self.left[:count], self.left[count:]
        return np.array(given + [0] * (count - len(given)), np.uint64)


def probabilities(kind: str, bits: int, numbers: np.ndarray) -> np.ndarray:
    """P(n), summed over all n by brute force."""
    s = 2.0**bits

    def weight(n: np.ndarray) -> np.ndarray:
        return np.exp(-(n**2) / (2 * s * s)) if kind == "gaussian" else np.exp(-np.abs(n) / s)

    every = np.arange(-int(60 * s), int(60 * s) + 1, dtype=np.float64)
    return np.asarray(weight(numbers.astype(np.float64)) / weight(every).sum())


def test_the_stream_is_chacha20_as_published() -> None:
    """RFC 8439, A.1, test vectors 1 and 3: the keystream of the all-zero key, and of the key that ends in 1 at block 1."""
    assert Stream(bytes(32)).words(2).tobytes().hex() == "76b8e0ada0f13d90405d6ae55386bd28"
    words = Stream(bytes(31) + b"\x01").words(16)
    assert words[8:10].tobytes().hex() == "3aeb5224ecf849929b9d828db1ced4dd"


def test_words_go_on_where_they_ended_and_no_two_streams_agree() -> None:
    stream = Stream(KEY)
    assert np.array_equal(np.concatenate([stream.words(5), stream.words(7)]), Stream(KEY).words(12))
    assert not np.array_equal(Stream().words(4), Stream().words(4))


def test_known_words_give_known_numbers() -> None:
    """The map from words to numbers must not change silently."""
    assert gaussians(6, Stream(KEY)).tolist() == KNOWN["gaussian"]
    assert laplaces(6, Stream(KEY)).tolist() == KNOWN["laplace"]
    assert gaussians(6, Stream(KEY), bits=8).tolist() == KNOWN["coarse"]


def test_a_number_by_hand() -> None:
    """Strip 0 (word 0), 5 within it, positive, a coin that shows 0; then the same, negative."""
    positive, negative = 5, 5 + (1 << (BITS - STRIPS))
    assert gaussians(2, Written(0, positive, 0, negative, *[0] * 99)).tolist() == [5, -5]
    assert laplaces(2, Written(0, positive, 0, negative, *[0] * 99)).tolist() == [5, -5]


def test_zero_has_one_sign() -> None:
    """A negative zero is thrown away: the next two words give the number."""
    negative_zero = 1 << (BITS - STRIPS)
    assert gaussians(1, Written(0, negative_zero, 0, 7, *[0] * 99)).tolist() == [7]


@pytest.mark.parametrize("kind", SAMPLERS)
@pytest.mark.parametrize("bits", [4, 7])
def test_every_number_has_its_exact_probability(kind: str, bits: int) -> None:
    """χ² over all numbers that are expected 10 times or more, and the rest as one; a million draws, quantile 1 − 1e-9."""
    drawn = SAMPLERS[kind](1_000_000, Stream(KEY), bits=bits)
    numbers = np.arange(-60 * 2**bits, 60 * 2**bits + 1)
    expected = probabilities(kind, bits, numbers) * len(drawn)
    seen = np.bincount(drawn - numbers[0], minlength=len(numbers))
    many = expected >= 10
    pairs = [*zip(seen[many], expected[many]), (seen[~many].sum(), expected[~many].sum())]
    statistic = sum((s - e) ** 2 / e for s, e in pairs if e > 0)
    assert statistic < chi2.isf(1e-9, len(pairs) - 1)


@pytest.mark.parametrize("kind", SAMPLERS)
def test_the_fine_sampler_has_its_moments_and_its_tails(kind: str) -> None:
    n = 2_000_000
    z = SAMPLERS[kind](n, Stream(KEY)) / 2.0**BITS
    variance, fourth = (1.0, 3.0) if kind == "gaussian" else (2.0, 24.0)
    assert abs(z.mean()) < 6 * math.sqrt(variance / n)
    assert abs((z**2).mean() - variance) < 6 * math.sqrt((fourth - variance**2) / n)
    for beyond in (1.0, 2.0, 3.0, 4.0, 4.5):
        share = 2 * norm.sf(beyond) if kind == "gaussian" else math.exp(-beyond)
        assert abs((np.abs(z) > beyond).sum() - n * share) < 6 * math.sqrt(n * share) + 1
    low = np.abs(SAMPLERS[kind](n, Stream(KEY))) & 0xFF  # the lowest bits of the grid are as even as they must be
    assert ((np.bincount(low, minlength=256) - n / 256) ** 2 / (n / 256)).sum() < chi2.isf(1e-9, 255)


@pytest.mark.parametrize(("kind", "furthest"), [("gaussian", 13.6), ("laplace", 94.0)])
def test_tails_reach_as_far_as_128_bits_do(kind: str, furthest: float) -> None:
    """Keyed normals end at 5.89. Here the largest words give the last strip: beyond lies less than 2^-128."""
    last = 2**64 - 1
    (far,) = SAMPLERS[kind](1, Written(last, 0, last, *[0] * 99)).tolist()
    assert far / 2.0**BITS > furthest
    assert (2 * norm.sf(far / 2.0**BITS) if kind == "gaussian" else math.exp(-far / 2.0**BITS)) < 2.0**-128


def test_how_often_six_deviations_are_exceeded_is_in_the_table() -> None:
    """No draw shows 2e-9: the table's 128-bit probabilities say it, strip by strip."""
    table = discrete._table(True)
    thresholds = [(int(h) << 64) + int(low) for h, low in zip(table.high, table.low)]
    assert all(a <= b for a, b in pairwise(thresholds)) and thresholds[-1] == 2**128 - 1
    with localcontext() as context:
        context.prec = 60
        masses = [(-((Decimal(i) / 16) ** 2) / 2).exp() for i in range(len(thresholds))]
        for i in (0, 1, 16, 96, 150):  # 0, 1, 6 and 9.4 deviations
            exact = sum(masses[: i + 1]) / sum(masses) * 2**128
            assert abs(thresholds[i] - exact) <= 1
    beyond_six = 1 - thresholds[95] / 2**128
    assert beyond_six == pytest.approx(float(sum(masses[96:]) / sum(masses)), rel=1e-6)


def test_a_tie_with_the_table_is_decided_by_the_next_64_bits() -> None:
    table = discrete._table(True)
    high, low = int(table.high[20]), int(table.low[20])
    assert 0 < low < 2**64 - 1
    for tie, strip in ((low - 1, 20), (low, 21)):
        (size,) = gaussians(1, Written(high, 0, tie, *[0] * 99)).tolist()
        assert size >> (BITS - STRIPS) == strip


@pytest.mark.parametrize("gaussian", [True, False])
@pytest.mark.parametrize("above", [False, True])
def test_a_coin_that_floats_cannot_decide_is_decided_exactly(gaussian: bool, above: bool) -> None:
    """Its known bits are those of exp(−t) itself, so the next 128 decide: all 0 is below, all 1 above."""
    strip, within = 30, (1 << 27) + 12345
    x, y = Decimal(within) / 2**BITS, Decimal(strip) / 16
    with localcontext() as context:
        context.prec = 60
        limit = (-x * (2 * y + x) / 2 if gaussian else -x).exp()
        known_bits = 63 - BITS + STRIPS
        coin = Coin(strip, within, BITS, int(limit * 2**known_bits), known_bits)
    words = [2**64 - 1] * 2 if above else [0, 0]
    assert flips(coin, gaussian, Written(*words)) is not above
    # The sampler itself comes to the same coin, and takes its outcome: kept below, else the next number.
    lead = int(discrete._table(gaussian).high[strip - 1]) + 1
    word = within + (coin.known << (BITS - STRIPS + 1))
    stream = Written(lead, word, *[9] * 16, *words, *[11] * 99)
    drawn = (gaussians if gaussian else laplaces)(1, stream).tolist()
    assert (drawn == [(strip << (BITS - STRIPS)) + within]) is not above


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 70_000))
def test_any_number_of_numbers(count: int) -> None:
    assert len(gaussians(count, Stream())) == count


def test_no_two_draws_agree() -> None:
    assert not np.array_equal(gaussians(9, Stream()), gaussians(9, Stream()))
