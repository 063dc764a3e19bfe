"""Sattler's bipartition: by hand, and against trying every split."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from covey.clustering.bipartition import bipartition, cosine_similarities, is_separated, wants_split
from covey.errors import CoveyError


def largest_across(similarity: np.ndarray, inside: np.ndarray) -> float:
    return float(similarity[np.ix_(inside, ~inside)].max())


def test_four_clients_by_hand() -> None:
    similarity = np.array(
        [
            [1.0, 0.9, 0.1, 0.2],
            [0.9, 1.0, 0.3, 0.0],
            [0.1, 0.3, 1.0, 0.8],
            [0.2, 0.0, 0.8, 1.0],
        ]
    )
    split = bipartition(similarity)
    assert (split.first.tolist(), split.second.tolist(), split.cross) == ([0, 1], [2, 3], 0.3)


def test_an_outlier_is_cut_off() -> None:
    similarity = np.array([[1.0, -0.5, -0.6], [-0.5, 1.0, 0.2], [-0.6, 0.2, 1.0]])
    split = bipartition(similarity)
    assert (split.first.tolist(), split.second.tolist(), split.cross) == ([0], [1, 2], -0.5)


@settings(max_examples=150, deadline=None)
@given(st.integers(2, 7), st.integers(0, 2**32), st.booleans())
def test_no_split_is_better(n: int, seed: int, ties: bool) -> None:
    rng = np.random.default_rng(seed)
    values = rng.integers(-2, 3, (n, n)) / 2 if ties else rng.uniform(-1, 1, (n, n))
    similarity = np.triu(values, 1) + np.triu(values, 1).T
    splits = [((np.arange(n) == 0) | (code >> np.arange(n) & 1 == 1)) for code in range(0, 2**n, 2)]
    best = min(largest_across(similarity, inside) for inside in splits if not inside.all())
    split = bipartition(similarity)
    inside = np.isin(np.arange(n), split.first)
    assert sorted([*split.first, *split.second]) == list(range(n))
    assert split.second.size and 0 in split.first
    assert split.cross == best == largest_across(similarity, inside)


def test_cosine_by_hand() -> None:
    got = cosine_similarities([[2.0, 0.0], [0.0, 5.0], [-1.0, 0.0], [1.0, 1.0], [0.0, 0.0]])
    half = np.sqrt(0.5)
    expected = [[1, 0, -1, half, 0], [0, 1, 0, half, 0], [-1, 0, 1, -half, 0], [half, half, -half, 1, 0], [0] * 5]
    assert np.allclose(got, expected, atol=1e-15)


def test_opposite_groups_are_found() -> None:
    rng = np.random.default_rng(1)
    truth = rng.permutation([0] * 5 + [1] * 7)
    updates = np.where(truth[:, None] == 0, 1.0, -1.0) + rng.normal(0, 0.5, (12, 40))
    split = bipartition(cosine_similarities(updates))
    assert {frozenset(split.first), frozenset(split.second)} == {
        frozenset(np.flatnonzero(truth == 0)),
        frozenset(np.flatnonzero(truth == 1)),
    }


def test_when_to_split() -> None:
    opposed = [[3.0, 4.0], [-3.0, -4.0]]  # norms 5, plain mean 0, weighted mean (1.5, 2) of norm 2.5
    assert wants_split(opposed, [1, 1], eps1=0.1, eps2=4.9)
    assert not wants_split(opposed, [1, 1], eps1=0.1, eps2=5.1)  # nobody pulls hard enough
    assert not wants_split(opposed, [3, 1], eps1=2.4, eps2=4.9)  # the mean still moves
    assert wants_split(opposed, [3, 1], eps1=2.6, eps2=4.9)


def test_separation_by_hand() -> None:
    assert is_separated(-1.0, 0.99) and not is_separated(-1.0, 1.0)  # sqrt(2/2) = 1
    assert is_separated(0.5, 0.49) and not is_separated(0.5, 0.51)  # sqrt(.5/2) = .5
    assert not is_separated(1.0, 0.0)


@pytest.mark.parametrize("bad", [np.ones((1, 1)), np.ones((2, 3)), np.full((2, 2), np.nan)])
def test_impossible_similarities_are_refused(bad: np.ndarray) -> None:
    with pytest.raises(CoveyError, match="similarities"):
        bipartition(bad)
