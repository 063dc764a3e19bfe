"""Agreement scores against values worked out by hand, by brute force, and by scikit-learn."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from covey.clustering.agreement import accuracy, adjusted_rand_index, contingency, normalised_mutual_information
from covey.errors import CoveyError

labels = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 4)), min_size=1, max_size=25)


def test_contingency_by_hand() -> None:
    assert contingency([5, 5, 9, 9], ["a", "b", "b", "b"]).tolist() == [[1, 1], [0, 2]]


def test_accuracy_by_hand() -> None:
    assert accuracy([1, 1, 0, 0], [0, 0, 1, 1]) == 1.0
    assert accuracy([0, 0, 0, 1, 1, 1], [0, 0, 1, 1, 1, 0]) == pytest.approx(4 / 6)
    assert accuracy([0, 1, 2, 3], [0, 0, 1, 1]) == 0.5  # two groups too many: one member of each pair is unmatched
    assert accuracy([0, 0, 0, 0], [0, 0, 1, 1]) == 0.5  # one too few
    # Greedy matching would take the 3 first and end at 3; the best matching gives 2 + 2.
    assert accuracy([0, 0, 0, 0, 0, 1, 1], [0, 0, 0, 1, 1, 0, 0]) == pytest.approx(4 / 7)


def test_rand_index_by_hand() -> None:
    assert adjusted_rand_index([0, 0, 1, 1], [7, 7, 3, 3]) == 1.0
    # No pair is together in both; 2 are in each, of 6.
    assert adjusted_rand_index([0, 0, 1, 1], [0, 1, 0, 1]) == pytest.approx((0 - 4 / 6) / (2 - 4 / 6))
    # Found pairs: 3 + 3 = 6, true pairs: 1 + 1 + 1 = 3, shared: 1 + 1 = 2, of 15.
    assert adjusted_rand_index([0, 0, 0, 1, 1, 1], [0, 0, 1, 1, 2, 2]) == pytest.approx((2 - 1.2) / (4.5 - 1.2))
    assert adjusted_rand_index([0, 0, 0], [1, 1, 1]) == 1.0
    assert adjusted_rand_index([0, 1, 2], [5, 6, 7]) == 1.0
    assert adjusted_rand_index([0], [3]) == 1.0
    assert adjusted_rand_index([0, 0, 0], [0, 1, 2]) == 0.0


@settings(max_examples=100, deadline=None)
@given(labels)
def test_rand_index_equals_scikit_learn(pairs: list[tuple[int, int]]) -> None:
    from sklearn.metrics import adjusted_rand_score

    found, truth = zip(*pairs)
    assert adjusted_rand_index(found, truth) == pytest.approx(adjusted_rand_score(truth, found), abs=1e-12)


@settings(max_examples=60, deadline=None)
@given(labels)
def test_accuracy_equals_brute_force(pairs: list[tuple[int, int]]) -> None:
    found, truth = zip(*pairs)
    names = range(5)  # found labels are 0..3, so that every injection into the true labels is tried
    best = max(sum(names_for[f] == t for f, t in pairs) for names_for in itertools.permutations(names, 4))
    assert accuracy(found, truth) == pytest.approx(best / len(pairs))


def test_different_lengths_are_refused() -> None:
    for found, truth in (([0, 1], [0]), ([], []), (np.zeros((2, 2)), np.zeros((2, 2)))):
        with pytest.raises(CoveyError, match="one length"):
            accuracy(found, truth)


def test_mutual_information_by_hand() -> None:
    assert normalised_mutual_information([0, 0, 1, 1], [5, 5, 3, 3]) == pytest.approx(1.0)
    assert normalised_mutual_information([0, 1, 0, 1], [0, 0, 1, 1]) == pytest.approx(0.0)
    assert normalised_mutual_information([0, 0], [1, 1]) == 1.0  # one group, both times
    assert normalised_mutual_information([0, 0, 0, 0], [0, 0, 1, 1]) == 0.0
    # of three: found {0, 1}, {2} against {0}, {1, 2}: I = log 3 - (2/3) log 4 + (1/3) log 2 ... over the entropy of a third
    third = -(np.log(1 / 3) / 3 + 2 * np.log(2 / 3) / 3)
    shared = sum(np.log((1 / 3) / (a * b)) / 3 for a, b in ((2 / 3, 1 / 3), (2 / 3, 2 / 3), (1 / 3, 2 / 3)))
    assert normalised_mutual_information([0, 0, 1], [0, 1, 1]) == pytest.approx(shared / third)
