"""Selecting collaborators: distances by hand, against a general solver, thresholds, and when a selection means nothing."""

from __future__ import annotations

import os

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from covey.clustering import collaborators as c
from covey.data.sources.load import load
from covey.errors import CoveyError
from covey.papers.pqfed.figures import RATES, Clients


def test_distance_by_hand() -> None:
    # Half of the mass moves from bin 0 to bin 2, which is 5 away.
    ground = np.array([[0.0, 3.0, 5.0], [3.0, 0.0, 4.0], [5.0, 4.0, 0.0]])
    found = c.earth_movers(np.array([2.0, 2.0, 0.0]), np.array([[0.0, 5.0, 5.0], [7.0, 7.0, 0.0]]), ground)
    assert found == pytest.approx([2.5, 0.0])


def test_label_ground_is_the_area_between_cumulative_shares() -> None:
    rng = np.random.default_rng(0)
    counts = rng.multinomial(500, rng.dirichlet(np.ones(5)), size=6)
    matrix = c.distance_matrix(counts, c.ground_distances(np.zeros((5, 3), np.float32), "label"))
    shares = counts / counts.sum(1, keepdims=True)
    by_hand = np.abs(np.cumsum(shares[:, None] - shares[None, :], axis=2)).sum(2)
    assert matrix == pytest.approx(by_hand)
    with pytest.raises(CoveyError, match="choose 'centroid' or 'label'"):
        c.ground_distances(np.zeros((5, 3), np.float32), "colour")


@settings(max_examples=40, deadline=None)
@given(st.integers(2, 5), st.integers(0, 10_000))
def test_duality_agrees_with_the_solver(k: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    ground = c.ground_distances(rng.standard_normal((k, 3)).astype(np.float32))
    one, *others = rng.multinomial(100, rng.dirichlet(np.full(k, 0.5)), size=4) / 100
    by_solver = c.earth_movers(one, np.array(others), ground)
    assert c.earth_movers_by_duality(one, np.array(others), ground) == pytest.approx(by_solver, abs=1e-12)


def test_distances_are_a_metric() -> None:
    rng = np.random.default_rng(3)
    counts = rng.multinomial(300, rng.dirichlet(np.ones(4)), size=8) + rng.integers(0, 50, (8, 4))
    d = c.distance_matrix(counts, c.ground_distances(rng.standard_normal((4, 2)).astype(np.float32)))
    assert (d == d.T).all() and (np.diag(d) == 0).all()
    assert (d[:, None, :] <= d[:, :, None] + d[None, :, :] + 1e-12).all()


def test_thresholds_by_hand() -> None:
    distances = np.array([0.0, 1.0, 3.0, 3.1, 6.0, 6.1, 10.0])
    assert c.select(distances, 0, 0.3) == [1, 2]
    assert c.select(distances, 0, 0.6) == [1, 2, 3, 4]
    assert c.select(distances, 0, at_most=3) == [1, 2, 3]
    assert c.select(distances, 0) == [1, 2, 3, 4, 5, 6]
    assert c.select(np.array([5.0, 0.0, 5.0]), 1, 0.3) == []  # everybody is equally far
    assert c.nearest_first(np.array([2.0, 0.0, 1.0, 2.0]), 1) == [2, 0, 3]


def test_counts_follow_the_rows() -> None:
    rng = np.random.default_rng(0)
    centres = np.array([[0.0, 0.0], [10.0, 0.0]], np.float32)
    rows = [
        (centres[np.repeat([0, 1], [a, b])] + rng.normal(0, 0.1, (a + b, 2))).astype(np.float32)
        for a, b in [(9, 1), (2, 8)]
    ]
    counts, found = c.cluster_counts(rows, 2, rng)
    first = int(found[:, 0].argmin())  # the number of a cluster is arbitrary
    assert counts[:, [first, 1 - first]].tolist() == [[9, 1], [2, 8]]
    with pytest.raises(CoveyError, match="cannot form 21 clusters"):
        c.cluster_counts(rows, 21, rng)


def test_a_sample_of_the_rows_finds_the_same_clusters(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    rows = [
        (rng.normal(0, 1, (500, 4)) + 8 * (rng.random((500, 1)) < share)).astype(np.float32) for share in (0.2, 0.7)
    ]
    whole, _ = c.cluster_counts(rows, 2, np.random.default_rng(1))
    monkeypatch.setattr(c, "FIT_ROWS", 200)
    part, _ = c.cluster_counts(rows, 2, np.random.default_rng(1))
    assert sorted(part[0].tolist()) == sorted(whole[0].tolist())


def test_noise_has_the_scale_that_was_asked_for() -> None:
    rng = np.random.default_rng(0)
    exact = np.zeros((200_000, 2), np.float32)
    noisy = c.laplace_noised(exact, 4.0, np.array([1.0, 8.0]), rng)
    assert np.abs(noisy).mean(0) == pytest.approx([0.25, 2.0], rel=0.02)  # E|Laplace(b)| = b = Δ/ε
    assert c.laplace_noised(exact, np.inf, np.array([1.0, 8.0]), rng) is exact


def test_only_sampling_noise_is_refused_and_a_difference_is_not() -> None:
    rng = np.random.default_rng(0)
    ground = c.ground_distances(rng.standard_normal((4, 3)).astype(np.float32))
    alike = rng.multinomial(400, [0.4, 0.3, 0.2, 0.1], size=10)
    verdicts = [
        c.spread(rng.multinomial(400, [0.4, 0.3, 0.2, 0.1], size=10), ground, 0, rng, repeats=40) for _ in range(20)
    ]
    assert all(v.drowned for v in verdicts)
    differing = alike.copy()
    differing[5:] = rng.multinomial(400, [0.0, 0.1, 0.2, 0.7], size=5)
    for target in (0, None):
        assert not c.spread(differing, ground, target, rng).drowned
        with pytest.raises(CoveyError, match=r"no selection: .* epsilon = 2 has drowned"):
            c.refuse_drowned(c.spread(alike, ground, target, rng), 2.0)
    with pytest.raises(CoveyError, match=r"alone gives: the clients are alike"):
        c.refuse_drowned(c.spread(alike, ground, 0, rng), np.inf)


def test_identical_clients_have_no_range() -> None:
    counts = np.tile([5, 5, 0], (4, 1))
    ground = c.ground_distances(np.eye(3, dtype=np.float32))
    found = c.spread(counts, ground, 0, np.random.default_rng(0), repeats=20)
    assert found.seen == 0.0
    assert found.drowned


@pytest.mark.slow
@pytest.mark.data
@pytest.mark.skipif("COVEY_DATA" not in os.environ, reason="needs MNIST: set COVEY_DATA")
def test_the_curve_of_the_paper_on_mnist() -> None:
    load("mnist")
    clients = Clients("mnist", 0)
    bare, _ = clients.distances(np.inf, "data", "centroid", np.random.default_rng(0))
    rates = np.array(RATES)
    assert np.corrcoef(np.argsort(np.argsort(bare[2:])), np.arange(10))[0, 1] >= 0.99
    assert 8 <= bare[-1] / bare[2] <= 12
    for sensitivity in ("data", "public"):
        ten, spread = clients.distances(10.0, sensitivity, "centroid", np.random.default_rng(1))
        assert not spread.drowned
        assert {0.0, 0.1, 0.2} <= set(rates[np.array(c.select(ten, 0, 0.3)) - 1])
        assert {0.0, 0.1, 0.2, 0.3, 0.4, 0.5} <= set(rates[np.array(c.select(ten, 0, 0.6)) - 1])
    _, spread = clients.distances(0.1, "public", "centroid", np.random.default_rng(2))
    assert spread.drowned
