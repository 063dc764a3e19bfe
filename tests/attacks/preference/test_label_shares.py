"""Label shares from output biases: the algebra by hand, and real clients with and without what stops it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from covey.attacks.finding import NOTHING_SEEN, Finding
from covey.attacks.preference.label_shares import (
    PRIOR,
    LabelShares,
    correlation,
    correlation_interval,
    dominant,
    shares,
)
from covey.audit.matrix import LEAKING
from covey.audit.questions import Questions
from covey.experiment.experiment import Experiment
from covey.rounds.loop import run

TABLE: dict[str, Any] = {
    "dataset": "digits",
    "algorithm": "fedavg",
    "clients": 12,
    "clusters": 1,
    "partition": {"name": "dirichlet", "beta": 0.5, "public": 100},
    "training": {"rounds": 2, "epochs": 1, "batch_size": 10, "lr": 0.1},
    "evaluation": {"every": 50, "samples": 50},
    "engine": {"workers": 1},
    "attacks": ["label_shares"],
}


def found(**changes: Any) -> Finding:
    content = run(Experiment.of(TABLE, **changes), quiet=True).attacks["label_shares"]
    finding = Finding.of("label_shares", content)
    assert finding is not None
    return finding


def test_what_the_model_said_already_is_taken_off() -> None:
    """Labels in shares h, on a model that knows most of label 0."""
    true = np.array([0.6, 0.1, 0.3])
    says = np.array([[0.8, 0.2, 0.0], [0.1, 0.8, 0.1], [0.2, 0.2, 0.6]])
    moved = 0.07 * (true - says.T @ true)
    np.testing.assert_allclose(shares(moved, says, way=0.07), true, atol=1e-9)
    unscaled = shares(moved, says)  # one of many solutions: not the shares, but much like them
    np.testing.assert_allclose(unscaled - says.T @ unscaled, moved / moved.max() * (unscaled - says.T @ unscaled).max())
    assert correlation(unscaled, true) > 0.9
    assert moved.argmax() == 2 and true.argmax() == 0  # the bias alone would have named another label
    assert shares(moved, np.zeros((0, 0))).argmax() == 2


def test_a_guess_of_nothing_has_no_correlation_and_ties_are_right_either_way() -> None:
    counts = np.array([[5.0, 5.0, 1.0], [1.0, 2.0, 9.0]])
    assert correlation(np.ones(3), counts[0]) == 0.0
    guesses = {0: np.array([0.1, 0.8, 0.1]), 1: np.array([0.8, 0.1, 0.1])}
    assert dominant(guesses, counts) == 0.5


def test_two_clients_of_two_labels_prove_nothing() -> None:
    """Each is right by a coin: two that are right are seen in a quarter of cases."""
    low, high = correlation_interval([1.0, 1.0], 2)
    assert low < 0 < high == pytest.approx(1.0)
    assert correlation_interval([1.0] * 20, 2)[0] > 0.6 and correlation_interval([1.0], 2) == (0.0, 1.0)


@pytest.mark.parametrize(
    "change", [{}, {"partition": {"public": 0}}, {"algorithm": "scaffold"}, {"algorithm": "sattler"}]
)
def test_plain_uploads_tell_the_labels(change: dict[str, Any]) -> None:
    one = found(**change)
    assert one.verdict in LEAKING and one.value > 0.6 and abs(one.controls[PRIOR]) < 0.5
    (named,) = one.variants
    assert named.attack == "label_shares_dominant" and named.value > named.controls[PRIOR]


def test_enough_noise_stops_it() -> None:
    silent = found(defence={"name": "ldp", "epsilon": 0.01}, training={"epochs": 0, "steps": 1})
    assert silent.verdict == NOTHING_SEEN and abs(silent.value) < 0.4


def test_sealed_uploads_are_not_read() -> None:
    sealed = Experiment.of(TABLE, algorithm="mingledpie", encryption="ckks", clusters=2)
    assert "no message to a client carries" in Questions(sealed).unfit("label_shares")


def test_nothing_is_told_where_all_labels_are_alike() -> None:
    attack = LabelShares()
    assert attack._nothing("no upload").verdict == "not measured"
