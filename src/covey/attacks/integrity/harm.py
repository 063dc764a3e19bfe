"""What one participant did to the others: what they predict in the end, beside the same run without it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from covey.algorithms.contract import Predictor
from covey.attacks.contract import Outcome, Truth
from covey.data.federation import Federation
from covey.learn.flat import Network
from covey.learn.predict import probabilities
from covey.randomness import generator
from covey.statistics import student, wilson

WITHOUT = "the same run without it"
CASES = 2000  # test samples, at most

Floats = NDArray[np.float64]
Whole = NDArray[np.int64]


def sharing(truth: Truth, attacker: int, round: int) -> list[int]:
    """The others who shared a model with it in this round; all others where nobody noted whose model is whose."""
    notes = truth.notes[round - 1] if round <= len(truth.notes) else {}
    own = notes.get(attacker, {}).get("cluster")
    others = [i for i in range(len(truth.federation.clients)) if i != attacker]
    return [i for i in others if own is not None and notes.get(i, {}).get("cluster") == own] or others


@dataclass(frozen=True)
class Tests:
    """Test samples, and how much each counts for each victim: by its own distribution over their groups."""

    network: Network
    x: NDArray[np.generic]
    y: Whole
    weights: Mapping[int, Floats]  # victim -> [n], sums to 1

    @classmethod
    def of(cls, federation: Federation, network: Network, victims: Sequence[int], counted: NDArray[np.bool_]) -> Tests:
        """`counted` [test samples]: those that the attack is about. Victims who have none of them are left out."""
        rows = np.flatnonzero(counted)
        rows = np.sort(generator("harm", len(rows)).permutation(rows)[:CASES])
        groups = federation.test_groups[rows]
        there = np.bincount(groups, minlength=federation.distributions.shape[1])
        each = {i: (federation.distributions[i] / np.maximum(there, 1))[groups] for i in victims}
        weights = {i: w / w.sum() for i, w in each.items() if w.sum() > 0}
        return cls(network, federation.dataset.x_test[rows], federation.dataset.y_test[rows], weights)

    @property
    def count(self) -> int:
        """Samples that count for anybody."""
        return int((np.sum(list(self.weights.values()), axis=0) > 0).sum()) if self.weights else 0

    def said(self, outcome: Outcome, x: NDArray[np.generic] | None = None) -> dict[int, Whole]:
        """victim -> the class [n] that the model it ends with gives each sample. A model of many is asked once."""
        asked: dict[tuple[int, bool], Whole] = {}
        given: dict[int, Whole] = {}
        for i in self.weights:
            if (one := outcome.get(i)) is not None:
                at = (one.models.data_ptr(), one.weights is None)
                if one.weights is not None or at not in asked:
                    asked[at] = self._classes(one, self.x if x is None else x)
                given[i] = asked[at]
        return given

    def _classes(self, one: Predictor, x: NDArray[np.generic]) -> Whole:
        return np.asarray(probabilities(self.network, one.models, one.weights, x).argmax(1), np.int64)

    def shares(self, said: Mapping[int, Whole], wanted: Whole) -> Floats:
        """[victims] how much of its samples is given the wanted class."""
        return np.array([float(self.weights[i] @ (classes == wanted)) for i, classes in said.items()])


def share_interval(shares: Floats, samples: int) -> tuple[float, float, float]:
    """(mean, low, high) of a share over victims. They share models and test samples, so both are drawn: the errors add up."""
    mean = float(shares.mean())
    low, high = wilson(mean, samples)
    between = student(shares.tolist()).half if len(shares) > 1 else 0.0
    return mean, max(0.0, mean - math.hypot(mean - low, between)), min(1.0, mean + math.hypot(high - mean, between))


def fall_interval(after: Floats, before: Floats, samples: int) -> tuple[float, float, float]:
    """(mean, low, high) of 1 − after / before over victims, both being shares of the same number of samples."""
    falls = 1 - after / np.maximum(before, 1e-12)
    mean, level = float(falls.mean()), max(float(before.mean()), 1e-12)
    errors = [max(m - low, high - m) for m, low, high in (share_interval(s, samples) for s in (after, before))]
    half = math.hypot(*errors) / level
    return mean, max(-1.0, mean - half), min(1.0, mean + half)
