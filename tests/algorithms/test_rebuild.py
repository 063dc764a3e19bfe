"""Rebuilding by hand and by property: sums with counts, empty and coinciding clusters, the ablations, the gauges."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from covey.algorithms import rebuild
from covey.crypto.identity_math import false_counts, pairing


def solved(counts: np.ndarray, sums: np.ndarray) -> tuple[np.ndarray, list[bool]]:
    models, known = rebuild.solve(counts, torch.from_numpy(sums))
    return models.numpy(), known


def test_two_clusters_by_hand() -> None:
    # Three clients of cluster 0 with model 1, two of cluster 1 with model 10; one of each shows the other's cluster too.
    counts = np.array([[3.0, 1.0], [1.0, 2.0]])
    sums = np.array([[3 * 1 + 10.0], [1 + 2 * 10.0]])
    models, known = solved(counts, sums)
    assert known == [True, True]
    assert models[:, 0] == pytest.approx([1.0, 10.0])


def test_means_with_raw_counts_shrink_the_models_as_the_paper_prints_it() -> None:
    counts = np.array([[3.0, 1.0], [1.0, 2.0]])
    means = np.array([[13.0 / 4], [21.0 / 3]])
    wrong, _ = solved(counts, means)
    assert np.abs(wrong[:, 0]).max() < 4  # the true models are 1 and 10
    normalised, _ = solved(counts / counts.sum(1, keepdims=True), means)
    assert normalised[:, 0] == pytest.approx([1.0, 10.0])


def test_an_empty_cluster_is_not_known_and_the_others_are_exact() -> None:
    counts = np.array([[2.0, 0.0, 1.0], [1.0, 0.0, 1.0], [1.0, 0.0, 3.0]])
    truth = np.array([[1.0, -2.0], [7.0, 7.0], [0.5, 4.0]])
    models, known = solved(counts, counts @ truth)
    assert known == [True, False, True]
    assert models[[0, 2]] == pytest.approx(truth[[0, 2]])
    assert not models[1].any()


def test_clusters_whose_columns_coincide_are_not_known() -> None:
    # Everyone of clusters 0 and 1 shows both: the sums tell only what the two have together.
    counts = np.array([[2.0, 3.0, 0.0], [2.0, 3.0, 0.0], [0.0, 0.0, 4.0]])
    models, known = solved(counts, counts @ np.array([[1.0], [2.0], [3.0]]))
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
    models, known = solved(counts, counts @ truth)
    for b in range(k):
        if known[b]:
            assert models[b] == pytest.approx(truth[b], abs=1e-6)
        else:
            assert np.linalg.matrix_rank(counts) < k


def test_mingled_means_and_the_ideal_matrix_by_hand() -> None:
    sums, sizes = np.array([[8.0], [0.0]]), np.array([4, 0])
    means, known = rebuild.mingled_means(torch.from_numpy(sums), sizes)
    assert means[0, 0] == 2.0 and known == [True, False]
    # At rate 1 / 2 and k = 2 a group is two thirds its own: means 2 and 5 come from (4 − 5) / 1 = −1 and (10 − 2) / 1 = 8.
    models, known = rebuild.ideal(torch.tensor([[4.0], [10.0]]), np.array([2, 2]), 0.5)
    assert models[:, 0].tolist() == pytest.approx([-1.0, 8.0]) and known == [True, True]


gpu = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")]


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=gpu)])
@pytest.mark.parametrize("kind", [np.float32, np.float64])  # in the clear, and decrypted
@pytest.mark.parametrize("columns", [7, rebuild._STRETCH, 2 * rebuild._STRETCH + 1])
def test_models_are_those_of_one_product_bit_for_bit(columns: int, kind: type, device: str) -> None:
    random = np.random.default_rng(columns)
    counts = (random.integers(0, 12, (5, 5)) + np.diag(random.integers(5, 30, 5))).astype(float)
    counts[:, 3] = 0.0  # a cluster that nobody chose
    sizes, opened = np.array([9, 4, 0, 7, 13]), random.normal(size=(6, columns + 5)).astype(kind)
    there = torch.from_numpy(opened).to(device)[:5, :-5]
    sums = opened[:5, :-5].astype(np.float64)
    means = sums / np.maximum(sizes, 1)[:, None]
    shares = (0.3 + 0.7 * np.eye(5)) / (1.0 + 4 * 0.3)
    inverse = np.linalg.pinv(counts, rcond=1e-9) * (np.arange(5) != 3)[:, None]
    models, known = rebuild.solve(counts, there)
    assert known == [True, True, True, False, True]
    for ours, product in (
        (models, inverse @ sums),
        (rebuild.mingled_means(there, sizes)[0], means),
        (rebuild.ideal(there, sizes, 0.3)[0], np.linalg.inv(shares) @ means),
    ):
        assert ours.device.type == device
        assert np.array_equal(ours.cpu().numpy(), product.astype(np.float32))


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=gpu)])
def test_term_by_term_is_what_blas_does(device: str) -> None:
    """In float64, of which a model's float32 hides most."""
    random = np.random.default_rng(4)
    for k in (2, 5, 10):
        matrix, sums = random.normal(size=(k, k)), random.normal(size=(k, 5000))
        ours = rebuild._term_by_term(matrix, torch.from_numpy(sums).to(device))
        assert np.array_equal(ours.cpu().numpy(), matrix @ sums)
        last = rebuild._product(matrix, torch.from_numpy(sums[:, -1:].copy()).to(device))  # a stretch of one column
        assert np.array_equal(last.cpu().numpy(), (matrix @ sums)[:, -1:])


def drawn(clients: int, k: int, rate: float, threshold: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """(A [k, n], the clients' clusters) of sets drawn as clients draw them."""
    rng = np.random.default_rng(seed)
    clusters = np.concatenate([np.arange(k), rng.integers(0, k, clients - k)])
    sizes = rng.choice(k, clients, p=false_counts(k, rate, threshold))
    shows = np.zeros((k, clients))
    for i, (own, false) in enumerate(zip(clusters, sizes, strict=True)):
        shows[[own, *rng.choice(np.delete(np.arange(k), own), false, replace=False)], i] = 1
    return shows, clusters


@pytest.mark.parametrize(("clients", "k", "rate", "threshold"), [(83, 6, 0.4, 3), (120, 5, 0.5, 2), (300, 10, 0.5, 5)])
def test_the_noise_gain_is_what_noise_gains(clients: int, k: int, rate: float, threshold: int) -> None:
    shows, clusters = drawn(clients, k, rate, threshold, seed=1)
    counts = shows @ np.eye(k)[clusters]
    noise = np.random.default_rng(2).normal(size=(clients, 4000))  # what clients of one cluster differ by
    models, known = solved(counts, shows @ noise)
    spread = models.std(axis=1) * np.sqrt(np.bincount(clusters))  # in units of an average's over its members
    assert all(known) and spread.max() > 2.3  # the defaults of the paper: 2.8 in the median
    assert rebuild.noise_gain(counts, pairing(k, rate, threshold)) == pytest.approx(spread.max(), rel=0.1)


def test_what_is_shown_together_is_known_where_sets_have_two_members() -> None:
    shows = np.array([[1, 1, 0, 0, 1], [1, 0, 1, 1, 0], [0, 1, 1, 1, 1]])
    clusters = np.array([0, 2, 1, 1, 0])
    counts = (shows @ np.eye(3)[clusters]).astype(float)
    assert pairing(3, 0.0001, 2) < 0.001
    assert rebuild.shown_together(counts, 0.0).tolist() == (shows @ shows.T).tolist()


def test_condition_and_noise_gain() -> None:
    alone = np.diag([4.0, 9.0])
    assert rebuild.noise_gain(alone, 1.0) == pytest.approx(1.0)  # nobody shows another cluster: plain averages
    assert rebuild.condition(alone) == pytest.approx(9 / 4)
    assert rebuild.condition(np.array([[4.0, 0.0], [1.0, 0.0]])) == pytest.approx(1.0)  # the empty column is left out
    assert rebuild.condition(np.array([[5.0, 4.9], [4.9, 5.0]])) > 90


EVERY = np.ones(4000, dtype=bool)


def mingled(step: float, spread: float, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """(H, S, the last models, the means of the members) where models took a step and members differ."""
    shows, clusters = drawn(83, 6, 0.4, 3, seed)
    rng = np.random.default_rng(seed + 100)
    last = rng.normal(size=(6, 4000))
    clients = (last + step * rng.normal(size=last.shape))[clusters] + spread * rng.normal(size=(83, 4000))
    means = np.stack([clients[clusters == b].mean(0) for b in range(6)])
    return shows @ np.eye(6)[clusters], shows @ clients, last, means


def off(models: np.ndarray, truth: np.ndarray) -> float:
    return float(np.sqrt(((models - truth) ** 2).mean()))


def test_steady_is_exact_where_members_are_equal_and_rests_where_nothing_moved() -> None:
    counts, sums, last, means = mingled(step=0.3, spread=0.0)
    assert rebuild.steady(counts, sums, last, 1.2, EVERY) == pytest.approx(means, abs=1e-5)
    assert rebuild.steady(counts, counts @ last, last, 1.2, EVERY) == pytest.approx(last)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("step", [0.02, 0.1, 0.5])
def test_steady_is_never_further_off_than_solving_and_nearer_where_models_move_little(step: float, seed: int) -> None:
    counts, sums, last, means = mingled(step, 0.3, seed)
    ours = off(rebuild.steady(counts, sums, last, pairing(6, 0.4, 3), EVERY), means)
    plain = off(solved(counts, sums)[0], means)
    assert ours < 1.02 * plain
    if step < 0.1:
        assert ours < 0.5 * plain


def test_steady_leaves_clusters_that_nobody_chose_and_asks_rebuilt_coordinates_alone() -> None:
    counts, sums, last, means = mingled(step=0.3, spread=0.0)
    empty = counts.copy()
    empty[:, 2] = 0.0
    kept = rebuild.steady(empty, empty @ means, last, 1.2, EVERY)
    assert kept[2] == pytest.approx(last[2]) and kept[[0, 1]] == pytest.approx(means[[0, 1]], abs=1e-5)
    wild = sums.copy()
    wild[:, 3000:] += 1e6  # shared layers: whatever is there, the others are rebuilt alike
    own = EVERY & (np.arange(4000) < 3000)
    assert rebuild.steady(counts, wild, last, 1.2, own)[:, :3000] == pytest.approx(means[:, :3000], abs=1e-5)
    nobody = counts.copy()
    nobody[4] = 0.0  # a cluster that nobody showed has an empty sum
    assert np.isfinite(rebuild.steady(nobody, nobody @ means, last, 1.2, EVERY)).all()


@pytest.mark.parametrize("clusters", [2, 6, 10, 40])
def test_products_are_too_small_for_blas_to_wake_threads(clusters: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With six clusters or more it took OpenBLAS 10 ms for each of 427 products of a model, where they compute for .4."""
    seen, product = [], rebuild._product
    monkeypatch.setattr(rebuild, "_product", lambda matrix, part: seen.append(part.shape[1]) or product(matrix, part))
    random = np.random.default_rng(clusters)
    counts, models = (
        np.eye(clusters) * 9 + random.integers(0, 3, (clusters, clusters)),
        random.normal(size=(clusters, 40_000)),
    )
    solved, known = rebuild.solve(counts, torch.from_numpy(counts @ models))
    assert all(known) and np.abs(solved.numpy() - models).max() < 1e-5
    assert sum(seen) == 40_000 and max(seen) * clusters**2 <= 1 << 18 and max(seen) <= rebuild._STRETCH
