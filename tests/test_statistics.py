"""Intervals by hand: figures from textbooks, or computed with pencil from the formula in another form."""

from __future__ import annotations

import math

import numpy as np
import pytest

from covey.statistics import (
    deviation,
    normal_interval,
    paired_difference,
    standard_error,
    student,
    student_interval,
    tallied,
    wilson,
)


def test_wilson_is_what_its_equation_says() -> None:
    """Its ends solve (p - p̂)² = z² p (1 - p) / n: of n = 10, p̂ = 0.8 they are 0.4901625 and 0.9433178."""
    assert wilson(0.8, 10) == pytest.approx((0.4901625, 0.9433178), abs=1e-6)
    for value, n in ((0.8, 10), (0.31, 120), (0.5, 2)):
        for end in wilson(value, n):
            assert (end - value) ** 2 == pytest.approx(1.959963985**2 * end * (1 - end) / n, abs=1e-7)


def test_wilsons_centre_is_drawn_to_a_half() -> None:
    """The centre is (n p̂ + z²/2) / (n + z²), with z² = 3.8414588; of 3 out of 4 that is 0.6275273."""
    low, high = wilson(0.75, 4)
    assert (low + high) / 2 == pytest.approx((3 + 1.9207294) / (4 + 3.8414588), abs=1e-6)
    assert (low + high) / 2 == pytest.approx(0.6275273, abs=1e-6)


def test_wilson_at_its_ends() -> None:
    assert wilson(0.0, 4) == pytest.approx((0.0, 3.8414588 / 7.8414588), abs=1e-6)
    assert wilson(1.0, 4) == pytest.approx((4 / 7.8414588, 1.0), abs=1e-6)
    assert wilson(0.5, 0) == (0.0, 1.0)


def test_a_normal_interval_is_z_errors_wide_and_stays_a_share() -> None:
    assert normal_interval(0.5, 0.1) == pytest.approx((0.5 - 0.1959964, 0.5 + 0.1959964), abs=1e-7)
    assert normal_interval(0.05, 0.1)[0] == 0.0
    assert normal_interval(0.95, 0.1)[1] == 1.0


def test_the_deviation_divides_by_one_less() -> None:
    assert deviation([1.0, 2.0, 3.0, 6.0]) == pytest.approx(math.sqrt((4 + 1 + 0 + 9) / 3))
    assert deviation([0.1, 0.1, 0.1]) == 0.0  # numpy's is 1.7e-17
    assert deviation([5.0]) == 0.0
    assert standard_error([1.0, 2.0, 3.0, 6.0]) == pytest.approx(math.sqrt(14 / 3) / 2)


@pytest.mark.parametrize("numbers", [[], [0], [3, 1, 3, 0], [10**12, 5, 5]])
def test_tallied_is_numpys_unique(numbers: list[int]) -> None:
    for got, right in zip(tallied(np.array(numbers, np.int64)), np.unique(numbers, return_counts=True), strict=True):
        assert got.tolist() == right.tolist()


def test_students_interval_by_the_printed_table() -> None:
    """t at 97.5 % is 12.7062 for one degree of freedom and 2.7764 for four."""
    assert student_interval([0.0, 2.0]) == pytest.approx((1 - 12.7062, 1 + 12.7062), abs=1e-4)
    mean = student([1.0, 2.0, 3.0, 4.0, 5.0])
    assert mean.value == 3 and mean.n == 5
    assert mean.half == pytest.approx(2.776445 * math.sqrt(2.5 / 5), abs=1e-5)


def test_one_value_or_none_says_nothing_about_its_spread() -> None:
    assert student_interval([0.7]) == student_interval([]) == (-math.inf, math.inf)
    assert student([0.7]).half == math.inf


def test_a_paired_difference_forgets_what_seeds_share() -> None:
    base = [0.1, 0.9, 0.5, 0.3]
    gap = paired_difference([b + g for b, g in zip(base, (0.01, 0.03, 0.02, 0.02))], base)
    assert gap.value == pytest.approx(0.02)
    assert gap.half == pytest.approx(3.182446 * math.sqrt(0.0002 / 3) / 2, abs=1e-6)
    assert gap.low > 0
    with pytest.raises(ValueError):
        paired_difference([1.0], [1.0, 2.0])
