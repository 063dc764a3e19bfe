"""Forests grown on a device are scikit-learn's, tree by tree and to the bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from covey.attacks.property import score, trees
from covey.attacks.property.score import OTHER, PLACEBO, PROPERTY, Evidence, forests

DEVICES = [
    "cpu",
    pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")),
]


def sample(rows: int, features: int, seed: int) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    """With ties, features of two values, constant ones and ones that are constant in most nodes."""
    random = np.random.default_rng(seed)
    x = random.normal(size=(rows, features)).round(1)
    x[:, ::4] = x[:, ::4] > 1
    x[:, 1::5] = np.where(random.random((rows, len(x[0, 1::5]))) < 0.9, 3.0, x[:, 1::5])
    x[:, 2::9] = 7.0
    return x.astype(np.float32), x[:, 3] + random.normal(size=rows) > 0.2


def assert_equal(own: trees.Tree, tree: Any) -> None:
    inner = tree.feature >= 0
    assert np.array_equal(np.array(own.feature) >= 0, inner)
    assert np.array_equal(np.array(own.feature)[inner], tree.feature[inner])
    assert np.array_equal(np.array(own.threshold)[inner], tree.threshold[inner])
    assert np.array_equal(np.array(own.children)[inner], np.stack([tree.children_left, tree.children_right], 1)[inner])
    assert np.array_equal(own.share, tree.value[:, 0, 1])


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("at_once", [9000, trees.VALUES])  # a few trees, all of them
def test_every_tree_is_scikit_learns(device: str, at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    from sklearn.ensemble import RandomForestClassifier

    monkeypatch.setattr(trees, "VALUES", at_once)
    samples = [sample(90, 40, 1), sample(50, 40, 2), sample(120, 40, 3)]
    grown = trees.grow(samples, 6, 11, torch.device(device))
    for (x, y), own in zip(samples, grown):
        fitted = RandomForestClassifier(6, min_samples_leaf=2, random_state=11).fit(x, y)
        for mine, theirs in zip(own, fitted.estimators_, strict=True):
            assert_equal(mine, theirs.tree_)
        assert max(len(tree.feature) for tree in own) > 10


def evidence() -> Evidence:
    (x, _), (seen, _) = sample(180, 40, 4), sample(30, 40, 5)
    whole, size = np.arange(30), np.repeat([2, 1], 90)
    kind = np.tile(np.repeat([OTHER, PROPERTY, PLACEBO], 30), 2)
    return Evidence(x, kind, size, seen, whole, whole, seen, np.full(30, np.nan))


WANTED = [(PROPERTY, 2), (PROPERTY, 1), (PLACEBO, 1)]


@pytest.mark.parametrize("device", DEVICES)
def test_probabilities_are_scikit_learns(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    theirs = forests(evidence(), WANTED, 8, 3, score.CPU)
    grown_on: list[torch.device] = []

    def watched(samples: Any, count: int, seed: int, where: torch.device) -> list[list[trees.Tree]]:
        grown_on.append(where)
        return trees.grow(samples, count, seed, torch.device(device))

    monkeypatch.setattr(score, "grow", watched)
    own = forests(evidence(), WANTED, 8, 3, torch.device("meta"))  # whatever is no CPU
    assert grown_on == [torch.device("meta")]
    for mine, other in zip(own, theirs, strict=True):
        assert np.array_equal(mine(evidence().observed), other(evidence().observed))
        assert len(mine(evidence().observed[:0])) == 0


def other_trees(samples: Any, count: int, seed: int, _: torch.device) -> list[list[trees.Tree]]:
    """As if scikit-learn drew in another way one day."""
    return trees.grow(samples, count, seed + 1, score.CPU)


def no_memory(*_: Any) -> list[list[trees.Tree]]:
    raise torch.OutOfMemoryError("CUDA out of memory")


@pytest.mark.parametrize("grown", [other_trees, no_memory])
def test_where_trees_differ_or_find_no_room_scikit_learns_count(grown: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    theirs = forests(evidence(), WANTED, 8, 3, score.CPU)
    monkeypatch.setattr(score, "grow", grown)
    for mine, other in zip(forests(evidence(), WANTED, 8, 3, torch.device("meta")), theirs, strict=True):
        assert np.array_equal(mine(evidence().observed), other(evidence().observed))
