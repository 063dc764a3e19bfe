"""Distances, agglomeration and sketches of updates."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from covey.clustering import agglomerative
from covey.clustering.agglomerative import agglomerated, apart, in_order, sketched
from covey.randomness import generator

RNG = generator(0, "test")


def test_distances_by_hand() -> None:
    rows = torch.tensor([[3.0, 4.0], [6.0, 8.0], [-4.0, 3.0], [0.0, 0.0]])
    assert apart(rows, "euclidean", RNG)[0].tolist() == pytest.approx([0, 5, 50**0.5, 5])
    assert apart(rows, "manhattan", RNG)[0].tolist() == pytest.approx([0, 7, 8, 7])
    assert apart(rows, "cosine", RNG)[0].tolist() == pytest.approx([0, 0, 1, 1], abs=1e-6)


def test_clusters_merge_within_the_threshold_or_down_to_a_number() -> None:
    far = apart(torch.tensor([[0.0], [1.0], [5.0], [6.5], [20.0]]), "euclidean", RNG)
    assert agglomerated(far, "single", 2.0, 0).tolist() == [0, 0, 1, 1, 2]
    assert agglomerated(far, "single", 4.0, 0).tolist() == [0, 0, 0, 0, 1]
    assert agglomerated(far, "complete", 0.0, 3).tolist() == [0, 0, 1, 1, 2]
    assert agglomerated(far, "average", 0.0, 9).tolist() == [0, 1, 2, 3, 4]
    assert agglomerated(np.zeros((1, 1)), "average", 0.0, 2).tolist() == [0]


def test_groups_are_numbered_as_they_come() -> None:
    assert in_order(np.array([7, 2, 7, 5])).tolist() == [0, 1, 0, 2]


def test_a_sketch_keeps_cosines(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    centres = torch.randn(3, 20_000)
    rows = centres.repeat_interleave(4, 0) + torch.randn(12, 20_000)
    exact = apart(rows, "cosine", RNG)
    assert sketched(rows, RNG) is rows
    monkeypatch.setattr(agglomerative, "EXACT", 0.0)
    assert sketched(rows, RNG).shape == (12, agglomerative.SKETCH)
    assert np.abs(apart(rows, "cosine", RNG) - exact).max() < 0.1
    assert agglomerated(apart(rows, "cosine", RNG), "average", 0.0, 3).tolist() == [0] * 4 + [1] * 4 + [2] * 4
