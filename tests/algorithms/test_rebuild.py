"""Rebuilding by hand and by property: sums with counts, empty and coinciding clusters, the ablations, the gauges."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from covey.algorithms import rebuild


def test_two_clusters_by_hand() -> None:
    # Three clients of cluster 0 with model 1, two of cluster 1 with model 10; one of each shows the other's cluster too.
    counts = np.array([[3.0, 1.0], [1.0, 2.0]])
    sums = np.array([[3 * 1 + 10.0], [1 + 2 * 10.0]])
    models, known = rebuild.solve(counts, sums)
    assert known == [True, True]
    assert models[:, 0] == pytest.approx([1.0, 10.0])


def test_means_with_raw_counts_shrink_the_models_as_the_paper_prints_it() -> None:
    counts = np.array([[3.0, 1.0], [1.0, 2.0]])
    means = np.array([[13.0 / 4], [21.0 / 3]])
    wrong, _ = rebuild.solve(counts, means)
    assert np.abs(wrong[:, 0]).max() < 4  # the true models are 1 and 10
    normalised, _ = rebuild.solve(counts / counts.sum(1, keepdims=True), means)
    assert normalised[:, 0] == pytest.approx([1.0, 10.0])


def test_an_empty_cluster_is_not_known_and_the_others_are_exact() -> None:
    counts = np.array([[2.0, 0.0, 1.0], [1.0, 0.0, 1.0], [1.0, 0.0, 3.0]])
    truth = np.array([[1.0, -2.0], [7.0, 7.0], [0.5, 4.0]])
    models, known = rebuild.solve(counts, counts @ truth)
    assert known == [True, False, True]
    assert models[[0, 2]] == pytest.approx(truth[[0, 2]])
    assert not models[1].any()


def test_clusters_whose_columns_coincide_are_not_known() -> None:
    # Everyone of clusters 0 and 1 shows both: the sums tell only what the two have together.
    counts = np.array([[2.0, 3.0, 0.0], [2.0, 3.0, 0.0], [0.0, 0.0, 4.0]])
    models, known = rebuild.solve(counts, counts @ np.array([[1.0], [2.0], [3.0]]))
    assert known == [False, False, True]
    assert models[2, 0] == pytest.approx(3.0)


@settings(max_examples=60, deadline=None)
@given(st.integers(2, 8), st.integers(0, 2**32 - 1))
def test_equal_members_are_rebuilt_exactly_whatever_they_show(k: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    truth = random.normal(size=(k, 3))
    own = random.integers(0, k, 12 * k)
    shows = random.random((12 * k, k)) < 0.5
    shows[np.arange(12 * k), own] = True
    counts = shows.T.astype(float) @ np.eye(k)[own]
    models, known = rebuild.solve(counts, counts @ truth)
    for b in range(k):
        if known[b]:
            assert models[b] == pytest.approx(truth[b], abs=1e-6)
        else:
            assert np.linalg.matrix_rank(counts) < k


def test_mingled_means_and_the_ideal_matrix_by_hand() -> None:
    sums, sizes = np.array([[8.0], [0.0]]), np.array([4, 0])
    means, known = rebuild.mingled_means(sums, sizes)
    assert means[0, 0] == 2.0 and known == [True, False]
    # At rate 1 / 2 and k = 2 a group is two thirds its own: means 2 and 5 come from (4 − 5) / 1 = −1 and (10 − 2) / 1 = 8.
    models, known = rebuild.ideal(np.array([[4.0], [10.0]]), np.array([2, 2]), 0.5)
    assert models[:, 0] == pytest.approx([-1.0, 8.0]) and known == [True, True]


def test_condition_and_noise_gain() -> None:
    alone = np.diag([4.0, 9.0])
    assert rebuild.noise_gain(alone) == pytest.approx(max(2 / 4, 3 / 9))
    assert rebuild.condition(alone) == pytest.approx(9 / 4)
    assert rebuild.condition(np.array([[4.0, 0.0], [1.0, 0.0]])) == pytest.approx(1.0)  # the empty column is left out
    assert rebuild.condition(np.array([[5.0, 4.9], [4.9, 5.0]])) > 90
