"""What singular vectors and moments of a client's samples tell of its labels and pictures, and what noise takes from that."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from covey import Experiment, run
from covey.attacks.preference.described_labels import from_vectors


def findings(**algorithm: Any) -> dict[str, Any]:
    table = {
        "dataset": "digits",
        "clients": 12,
        "clusters": 4,
        "partition": {"name": "label_sets", "samples": 40, "public": 100},
        "training": {"rounds": 1, "epochs": 1},
        "algorithm": {"name": "pacfl", **algorithm},
        "attacks": ["described_labels", "singular_pictures"],
        "evaluation": {"every": 1},
        "engine": {"workers": 1},
    }
    return {finding.attack: finding for finding in run(Experiment.of(table), quiet=True).findings}


def test_shares_by_hand() -> None:
    # Two labels along two axes; the client's mean is (3, 1): three parts of the first. Inside: cos², .9 and .1.
    x, y = np.eye(2), np.array([0, 1])
    first = np.array([[3.0], [1.0]]) / 10**0.5
    assert from_vectors(first, x, y, 3) == pytest.approx(np.array([0.75 + 1.0, 0.25, 0.0]))
    assert from_vectors(-first, x, y, 3) == pytest.approx(
        np.array([0.75 + 1.0, 0.25, 0.0])
    )  # signs are the sender's whim


def test_singular_vectors_tell_the_labels_and_noise_hides_them() -> None:
    told, noised = findings()["described_labels"], findings(noise=2.0)["described_labels"]
    assert told.value > 0.9 and told.low > max(told.controls.values())
    assert noised.value < 0.3


def test_pictures_are_scored_beside_public_ones() -> None:
    found = findings()["singular_pictures"]
    assert 0 < found.value < 1 and found.controls
