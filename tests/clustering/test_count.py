"""Counting clusters where their number is known: balanced, unbalanced, noisy, and none at all."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from covey.clustering.count import ESTIMATORS, directions, estimated, mean_silhouette
from covey.errors import CoveyError
from covey.randomness import generator

SEEDS = 3


def rows_of(sizes: list[int], noise: float, seed: int) -> np.ndarray:  # type: ignore[type-arg]
    rng = np.random.default_rng(seed)
    centres, labels = rng.standard_normal((len(sizes), 200)), np.repeat(np.arange(len(sizes)), sizes)
    updates = centres[labels] + noise * rng.standard_normal((len(labels), 200))
    return directions(torch.from_numpy(updates), 10)


def right(name: str, sizes: list[int], noise: float) -> int:
    """How often the answer is the true number."""
    counts = [estimated(name, rows_of(sizes, noise, s), 10, generator(s, "count")).clusters for s in range(SEEDS)]
    return sum(count == len(sizes) for count in counts)


@pytest.mark.parametrize("name", ESTIMATORS)
def test_no_clusters_are_one_and_well_apart_ones_are_counted(name: str) -> None:
    assert right(name, [20], 1.0) == right(name, [10, 10], 0.7) == right(name, [12] * 5, 0.7) == SEEDS
    assert right(name, [30, 15, 6, 4], 0.7) == SEEDS  # unbalanced


def test_where_they_fail() -> None:
    # One cluster of 50 beside one of 5 and one of 3: silhouette alone sees the small ones every time.
    assert right("silhouette", [50, 5, 3], 0.7) == SEEDS
    assert right("eigengap", [50, 5, 3], 0.7) < SEEDS
    # Noise as long as twice the distance of centres from the middle: no gap is left among the eigenvalues.
    assert right("silhouette", [12] * 5, 2.0) == SEEDS and right("eigengap", [12] * 5, 2.0) == 0
    # Two rows of a cluster of their own are not seen by any where they lie as far apart as others do.
    assert all(right(name, [1] * 12, 1.0) == 0 for name in ESTIMATORS)


def test_a_silhouette_by_hand() -> None:
    x = np.array([0.0, 1.0, 4.0, 5.0, 20.0])
    far = np.abs(x[:, None] - x)
    scores = [(4.5 - 1) / 4.5, (3.5 - 1) / 3.5, (3.5 - 1) / 3.5, (4.5 - 1) / 4.5, 0.0]  # who is alone has 0
    assert mean_silhouette(far, np.array([0, 0, 1, 1, 2])) == pytest.approx(np.mean(scores))
    assert mean_silhouette(far, np.zeros(5, np.int64)) == 0.0


def test_too_little_to_count() -> None:
    rng = generator(0, "count")
    for rows in (np.zeros((0, 2)), np.ones((9, 2)), np.eye(2)):
        assert estimated("silhouette", rows, 5, rng).clusters == 1
    assert estimated("gap", np.eye(6), 1, rng).clusters == 1
    with pytest.raises(CoveyError, match="choose silhouette, gap, eigengap"):
        estimated("elbow", np.eye(4), 3, rng)
