"""Soft spectral clustering: each step by hand, then found groups, then the awkward inputs."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from covey.clustering.agreement import adjusted_rand_index
from covey.clustering.spectral import affinities, distances, enforce_size, exposed, soft_memberships, soft_spectral
from covey.errors import CoveyError


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def groups(
    sizes: list[int], apart: float, spread: float, dimension: int = 30, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    truth = np.repeat(np.arange(len(sizes)), sizes)
    centres = apart * np.eye(len(sizes), dimension)
    return centres[truth] + rng(seed).normal(0, spread, (truth.size, dimension)), truth


def test_affinity_by_hand() -> None:
    """Rows 0, 5 and 10 apart on a line: the norm is not squared."""
    a, gamma = affinities([[0.0, 0.0], [3.0, 4.0], [6.0, 8.0]], gamma=2.5)
    e = np.exp(-1.0)
    assert np.allclose(a, [[1, e, e**2], [e, 1, e], [e**2, e, 1]], atol=1e-12)
    assert gamma == 2.5


def test_median_scaling_by_hand() -> None:
    """Distances 5, 5 and 10 have the median 5; afterwards the unit of the rows does not matter."""
    rows = np.array([[0.0, 0.0], [3.0, 4.0], [6.0, 8.0]])
    a, gamma = affinities(rows, gamma=0.5, median=True)
    assert gamma == pytest.approx(2.5)
    assert np.allclose(a, affinities(rows, 2.5)[0])
    assert np.allclose(affinities(1000 * rows, 0.5, median=True)[0], a)


def test_distances_of_equal_rows_far_from_the_origin_are_zero() -> None:
    row = rng().normal(0, 1, 5000)
    rows = np.stack([row, row, row + 1e-7, -row]) + 1e3
    got = distances(rows)
    assert got[0, 1] == 0.0
    assert got[0, 2] == pytest.approx(1e-7 * np.sqrt(5000), rel=1e-3)
    assert got[0, 3] == pytest.approx(2 * np.linalg.norm(row), rel=1e-9)


def test_memberships_by_hand() -> None:
    phi = soft_memberships([[0.9, 0.3, 0.3], [0.6, 0.6, 0.0], [0.1, 0.1, 0.1], [0.5, 0.4, 0.1]])
    assert phi.tolist() == [[1, 0, 0], [1, 1, 0], [1, 1, 1], [1, 1, 0]]


@settings(max_examples=200, deadline=None)
@given(st.lists(st.floats(1e-300, 1), min_size=1, max_size=30), st.booleans())
def test_everybody_belongs_somewhere(values: list[float], equal: bool) -> None:
    """Also where rounding puts the mean of equal numbers above each of them."""
    row = [values[0]] * len(values) if equal else values
    phi = soft_memberships([row])
    assert phi.any()
    assert phi.all() or not equal


def test_small_clusters_dissolve_by_hand() -> None:
    phi = [[1, 0, 0], [1, 0, 0], [0, 1, 0], [1, 1, 0], [0, 0, 1]]
    towards = [[0.9, 0.1, 0.2], [0.9, 0.1, 0.2], [0.1, 0.9, 0.3], [0.7, 0.7, 0.1], [0.3, 0.4, 0.9]]
    # Cluster 2 (one member) goes first: row 4 moves to cluster 1, which then has three and stays.
    got, dissolved = enforce_size(phi, towards, 3)
    assert got.astype(int).tolist() == [[1, 0], [1, 0], [0, 1], [1, 1], [0, 1]]
    assert dissolved == 1
    # With four asked for, the smaller or first of equals goes as well and one cluster for all is left.
    got, dissolved = enforce_size(phi, towards, 4)
    assert got.astype(int).tolist() == [[1]] * 5 and dissolved == 2
    assert enforce_size(phi, towards, 1)[0].astype(int).tolist() == phi


def test_who_could_compute_whom() -> None:
    """Clusters {0,1,2} and {0,1,2,3}: whoever is in both gets 3 by subtraction; 3 itself is in one of them only."""
    got = exposed([[1, 1], [1, 1], [1, 1], [0, 1]])
    assert got[:3].astype(int).tolist() == [[0, 0, 0, 1]] * 3
    assert not got[3].any()
    assert exposed([[1], [1]]).tolist() == [[False, True], [True, False]]  # a cluster of two
    assert not exposed([[1], [1], [1]]).any()


def test_separated_groups_are_found_and_kept_apart() -> None:
    rows, truth = groups([6, 7, 8], apart=10.0, spread=0.1)
    order = rng(1).permutation(len(rows))
    found = soft_spectral(rows[order], 3, 0.5, rng())
    assert adjusted_rand_index(found.labels, truth[order]) == 1.0
    assert np.array_equal(found.memberships.sum(1), np.ones(len(rows)))  # far apart: nobody is in two
    assert adjusted_rand_index(found.memberships.argmax(1), truth[order]) == 1.0
    assert found.eigengap > 0.5 and found.dissolved == 0
    assert found.eigenvalues.shape == (4,) and abs(found.eigenvalues[0]) < 1e-12
    assert found.affinity_quantiles.shape == (5,) and np.all(np.diff(found.affinity_quantiles) >= 0)


def test_the_smoothest_eigenvectors_are_the_right_ones() -> None:
    """With the roughest ones instead, as the paper's text can be read, k-means finds nothing."""
    rows, truth = groups([10, 10], apart=6.0, spread=0.3)
    a, _ = affinities(rows, 0.5, median=True)
    root = 1 / np.sqrt(a.sum(1))
    vectors = np.linalg.eigh(np.eye(20) - root[:, None] * a * root)[1]
    signs = vectors[:, 1] > 0
    assert adjusted_rand_index(signs, truth) == 1.0
    assert adjusted_rand_index(vectors[:, -1] > 0, truth) < 0.5
    assert adjusted_rand_index(soft_spectral(rows, 2, 0.5, rng(), median=True).labels, truth) == 1.0


def test_no_structure_shows_no_eigengap() -> None:
    loose = soft_spectral(rng().normal(0, 1, (30, 50)), 3, 0.5, rng(), median=True)
    tight = soft_spectral(groups([10, 10, 10], 8.0, 0.3)[0], 3, 0.5, rng(), median=True)
    assert loose.eigengap < 0.1 * tight.eigengap


def test_a_common_blind_changes_nothing() -> None:
    rows, _ = groups([5, 6], apart=2.0, spread=0.4)
    blind = rng(9).uniform(-100, 100, rows.shape[1])
    plain, blinded = (soft_spectral(x, 2, 0.5, rng(4), median=True) for x in (rows, rows + blind))
    assert np.array_equal(plain.memberships, blinded.memberships)
    assert np.allclose(plain.eigenvalues, blinded.eigenvalues, atol=1e-9)


def test_the_same_generator_gives_the_same_clusters() -> None:
    rows = rng(5).normal(0, 1, (25, 10))
    first, second = (soft_spectral(rows, 4, 0.5, rng(2), median=True) for _ in range(2))
    assert np.array_equal(first.memberships, second.memberships)
    assert np.array_equal(first.labels, second.labels)


@pytest.mark.filterwarnings("error")
@settings(max_examples=60, deadline=None)
@given(
    n=st.integers(1, 12),
    clusters=st.integers(1, 15),
    copies=st.booleans(),
    median=st.booleans(),
    scale=st.sampled_from([0.0, 1e-9, 1.0, 1e6]),
    seed=st.integers(0, 1000),
)
def test_awkward_inputs(n: int, clusters: int, copies: bool, median: bool, scale: float, seed: int) -> None:
    rows = scale * rng(seed).normal(0, 1, (n, 4))
    if copies:
        rows[n // 2 :] = rows[0]
    for min_size in {1, min(n, 3)}:
        found = soft_spectral(rows, clusters, 0.5, rng(seed), median=median, min_size=min_size)
        phi = found.memberships
        assert phi.shape[0] == n and 1 <= phi.shape[1] <= clusters
        assert phi.any(1).all() and phi.sum(0).min() >= min(min_size, n)
        assert np.isnan(found.eigengap) == (n <= clusters)


def test_identical_rows_make_one_cluster() -> None:
    found = soft_spectral(np.ones((6, 3)), 4, 0.5, rng())
    assert found.memberships.tolist() == [[True]] * 6
    assert found.affinity_quantiles.tolist() == [1.0] * 5


def test_equal_rows_are_told_apart_by_nothing() -> None:
    """With more clusters than different rows, eigenvectors of one eigenvalue are whatever the processor makes of them."""
    for seed in range(20):
        rows = rng(seed).normal(0, 1, (3, 4))[rng(seed).permutation(np.repeat([0, 1, 2], 4))]
        found = soft_spectral(rows, 6, 0.5, rng(seed), min_size=1)
        twins = (rows[:, None] == rows).all(2)
        assert (found.memberships[:, None] == found.memberships).all(2)[twins].all()
        assert found.memberships.shape[1] <= 3


def test_one_cluster_holds_everybody() -> None:
    found = soft_spectral(rng().normal(0, 1, (7, 3)), 1, 0.5, rng())
    assert found.memberships.tolist() == [[True]] * 7


def test_what_cannot_be_clustered_is_refused() -> None:
    rows = rng().normal(0, 1, (4, 3))
    with pytest.raises(CoveyError, match="cannot form"):
        soft_spectral(rows[:2], 2, 0.5, rng())
    with pytest.raises(CoveyError, match="not finite"):
        soft_spectral(np.where(rows > 0, np.nan, rows), 2, 0.5, rng())
    with pytest.raises(CoveyError, match="gamma"):
        soft_spectral(rows, 2, 0.0, rng())
    with pytest.raises(CoveyError, match="clusters >= 1"):
        soft_spectral(rows, 0, 0.5, rng())
