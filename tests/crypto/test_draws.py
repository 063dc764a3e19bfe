"""The Gaussian against its own definition, and known answers for known words."""

import hashlib
import math
from decimal import Decimal

import numpy as np

from covey.crypto import draws
from covey.crypto.draws import SIGMA, TAIL, gaussians, uniform
from covey.crypto.noise.stream import Stream


def test_thresholds_are_the_cumulative_probabilities():
    thresholds, leading = draws._thresholds()
    weights = [math.exp(-x * x / (2 * SIGMA**2)) * (2 if x else 1) for x in range(TAIL + 1)]
    for i in (0, 1, 20, 60):
        expected = Decimal(sum(weights[: i + 1])) / Decimal(sum(weights))
        assert abs(Decimal(thresholds[i]) / 2**126 - expected) < Decimal("1e-14")
    assert thresholds == sorted(thresholds) and thresholds[-1] < 2**126
    assert [t >> 95 for t in thresholds] == leading.tolist()


def test_moments_and_frequencies():
    drawn = gaussians(Stream(bytes(range(32))), 400_000)
    assert abs(drawn.mean()) < 5 * SIGMA / math.sqrt(400_000)
    assert abs(drawn.std() / SIGMA - 1) < 5 / math.sqrt(800_000)
    total = sum(math.exp(-x * x / (2 * SIGMA**2)) for x in range(-TAIL, TAIL + 1))
    for x in (-40, -1, 0, 1, 7, 40):
        share = math.exp(-x * x / (2 * SIGMA**2)) / total
        assert abs((drawn == x).mean() - share) < 5 * math.sqrt(share / 400_000)


class Words:
    """A stream of words that a test chooses."""

    def __init__(self, *words):
        self.left = list(words)

    def words(self, count):
        taken, self.left = self.left[:count], self.left[count:]
        return np.array(taken, "<u8")


def test_a_number_that_is_level_with_a_threshold_is_decided_by_more_bits():
    thresholds, leading = draws._thresholds()
    rest = thresholds[3] & (2**95 - 1)
    wide = rest << (128 - 95)
    level = int(leading[3])
    for more, expected in ((wide, 4), (wide - (1 << 33), 3)):
        assert gaussians(Words(level, more >> 64, more % 2**64), 1).tolist() == [expected]
    assert gaussians(Words(level | 1 << 31, wide >> 64, wide % 2**64), 1).tolist() == [-4]
    assert gaussians(Words(2**31 - 1, 2**64 - 1, 2**64 - 1), 1).tolist() == [TAIL]
    assert gaussians(Words(0), 1).tolist() == [0]


def test_known_answers():
    """Whoever changes how numbers are drawn changes these, on purpose."""
    drawn = gaussians(Stream(b"k" * 32), 1000)
    assert hashlib.sha256(drawn.astype("<i8").tobytes()).hexdigest()[:16] == "db538848ca784d4c"
    assert hashlib.sha256(uniform(Stream(b"k" * 32), 1000, 3847).tobytes()).hexdigest()[:16] == "b60a0094db8539ea"


def test_uniform_residues_stay_below_and_fill_the_range():
    for modulus in (2, 3, 3847, 2**58 - 27):
        drawn = uniform(Stream(), 20_000, modulus)
        assert len(drawn) == 20_000 and int(drawn.max()) < modulus
        assert abs(float(drawn.mean()) / ((modulus - 1) / 2) - 1) < 0.05
    assert len(uniform(Stream(), 0, 5)) == 0
