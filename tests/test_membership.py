"""Membership inference: the score, its calibration, and the attacks through the real loop, against their defence."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from covey.attacks.membership import (
    FeatureMembership,
    area,
    matched,
    nearest,
    power,
    samples_at,
    simulated_power,
    unused,
)
from covey.data.features import principal_components
from covey.data.federation import Dataset, Federation
from covey.data.sources import load
from covey.errors import CoveyError
from covey.experiment import Experiment
from covey.run import run


def test_nearest_by_hand() -> None:
    points = torch.tensor([[0.0, 0.0], [3.0, 4.0]])
    noisy = torch.tensor([[3.0, 4.0], [0.0, 2.0]])
    assert nearest(points, noisy).tolist() == [2.0, 0.0]
    # In units of (1, 4) the first point is 3/1 + 4/4 = 4 from one row and 2/4 from the other.
    assert nearest(points, noisy, torch.tensor([1.0, 4.0])).tolist() == [0.5, 0.0]


def test_power_by_hand() -> None:
    controls = np.arange(1.0, 40.0)  # 39: the threshold at 5 % is the second smallest, 2.0
    assert power(np.array([0.0, 1.9, 2.0, 30.0]), controls) == 0.5
    with pytest.raises(CoveyError, match="18 controls cannot calibrate"):
        power(np.zeros(3), np.arange(18.0))


def test_few_controls_do_not_inflate_the_false_positives() -> None:
    rng = np.random.default_rng(0)
    passed = [power(rng.random(200), rng.random(40)) for _ in range(2000)]
    # 2/41 expected; the interpolated quantile would give .07.
    assert np.mean(passed) == pytest.approx(2 / 41, abs=0.003)


def test_area_by_hand() -> None:
    assert area(np.array([1.0, 2.0]), np.array([2.0, 3.0])) == (1 + 1 + 0.5 + 1) / 4
    assert area(np.array([5.0]), np.array([1.0, 2.0])) == 0.0


def test_a_noiseless_reference_is_recognised_and_drowned_rows_are_not() -> None:
    rng = np.random.default_rng(1)
    features = rng.standard_normal((800, 20)).astype(np.float32)
    assert simulated_power(features, np.inf, rng, rows=400) == 1.0
    drowned = [simulated_power(features, 0.1, rng, rows=400, score=s) for s in ("euclidean", "scaled_l1") * 10]
    assert np.mean(drowned) == pytest.approx(0.05, abs=0.02)
    with pytest.raises(CoveyError, match="800 features cannot give"):
        simulated_power(features, 1.0, rng, rows=401)
    with pytest.raises(CoveyError, match="choose 'euclidean'"):
        simulated_power(features, 1.0, rng, rows=100, score="cosine")


def test_controls_come_in_the_clients_proportions() -> None:
    y = np.repeat(np.arange(3), 300)
    x = np.zeros((900, 4, 4), np.uint8)
    dataset = Dataset("toy", x, y, x[:3], y[[0, 300, 600]] * 0, ("a", "b", "c"))
    mine = np.r_[0:150, 300:450]  # labels 0 and 1
    fed = Federation(dataset, (mine,), None, y[:3], np.ones((1, 1)), public=(np.arange(600, 700),))
    free = unused(fed)
    assert set(free) == set(range(900)) - set(mine) - set(range(600, 700))
    others = matched(fed, mine, free, np.random.default_rng(0))
    assert np.bincount(y[others], minlength=3).tolist() == [150, 150, 0]
    assert not set(others) & set(mine)
    # Where clients hold almost everything, the test set stands in, its samples numbered after the training rows.
    full = Federation(dataset, (np.arange(890),), None, y[:3], np.ones((1, 1)))
    assert unused(full).tolist() == [900, 901, 902]
    x_at, y_at = samples_at(full, np.array([899, 900, 0]))
    assert x_at.shape == (3, 4, 4) and y_at.tolist() == [2, 0, 0]


def pqfed(epsilon: float, attacks: list[str], **more: Any) -> Experiment:
    return Experiment.of(
        {
            "dataset": "digits",
            "algorithm": {"name": "pqfed", "components": 20, "epsilon": epsilon, "strategy": "all"},
            "clients": 6,
            "clusters": 1,
            "partition": {"name": "feature_clusters", "components": 20, "rows": 30, "public": 100},
            "training": {"rounds": 1, "batch_size": 10, "lr": 0.1},
            "engine": {"workers": 1},
            "attacks": attacks,
        },
        **more,
    )


@pytest.mark.parametrize("attack", ["membership", "membership_l1"])
def test_noise_on_features_is_what_protects_them(attack: str) -> None:
    found = {e: run(pqfed(e, [attack]), quiet=True).findings[0] for e in (float("inf"), 0.2)}
    bare, noised = found[float("inf")], found[0.2]
    assert bare.value == 1.0
    assert bare.verdict == "broken"
    assert len(bare.details["per client"]) == 6
    assert noised.verdict == "no leak seen"
    assert noised.value < 0.15
    assert max(f.controls["samples that were never there"] for f in found.values()) < 0.15


def test_the_l1_score_is_the_stronger_at_moderate_noise() -> None:
    euclidean, scaled = run(pqfed(8.0, ["membership", "membership_l1"]), quiet=True).findings
    assert scaled.value > euclidean.value + 0.05


def test_a_model_that_memorised_betrays_its_samples() -> None:
    digits = load("digits")
    rng = np.random.default_rng(0)
    # Labels without any rule: whatever a model knows about its samples, it has by heart.
    dataset = replace(digits, y_train=rng.integers(0, 10, len(digits.y_train)))
    rows = rng.permutation(len(digits.y_train))
    shares = np.full((4, 10), 0.1)
    federation = Federation(dataset, tuple(np.split(rows[:200], 4)), np.array([0, 0, 1, 1]), digits.y_test, shares)
    table: dict[str, Any] = {
        "dataset": "digits",
        "algorithm": "ifca",
        "clients": 4,
        "clusters": 2,
        "start": {"common": False},
        "training": {"rounds": 15, "epochs": 20, "batch_size": 10, "lr": 0.2},
        "engine": {"workers": 1},
        "attacks": ["loss_membership"],
    }
    (learned,) = run(Experiment.of(table), federation=federation, quiet=True).findings
    assert learned.value > 0.8
    assert learned.verdict in ("leaks", "broken")
    assert learned.controls["the model before training"] < 0.6
    gentle = Experiment.of(table, training={"rounds": 2, "epochs": 1, "batch_size": 0, "lr": 0.001})
    (fresh,) = run(gentle, federation=federation, quiet=True).findings
    assert fresh.verdict == "no leak seen"


def test_nothing_seen_is_no_finding() -> None:
    attack = run(pqfed(1.0, ["loss_membership"]), quiet=True).findings[0]  # one round: features only, no model
    assert (attack.value, attack.low, attack.high) == (0.5, 0.0, 1.0)
    table = pqfed(1.0, ["membership"], algorithm="fedavg")
    assert run(table, quiet=True).findings[0].used == "no noisy features were seen"


def test_a_rate_is_a_share() -> None:
    with pytest.raises(CoveyError, match="strictly between"):
        FeatureMembership(rate=1.0)


@pytest.mark.data
@pytest.mark.skipif("COVEY_DATA" not in os.environ, reason="needs MNIST: set COVEY_DATA")
def test_the_figures_of_the_paper_on_mnist() -> None:
    mnist = load("mnist")
    rng = np.random.default_rng(0)
    public = mnist.x_train[rng.permutation(60_000)[:500]]
    features = principal_components(public, 50, rng, 1 / 255)(mnist.x_train)

    def mean(epsilon: float, score: str, repeats: int) -> float:
        return float(np.mean([simulated_power(features, epsilon, rng, 1200, score) for _ in range(repeats)]))

    for epsilon in (0.1, 1.0):
        assert mean(epsilon, "euclidean", 10) == pytest.approx(0.05, abs=0.02)
    ten = mean(10.0, "euclidean", 10)
    assert 0.15 <= ten <= 0.40
    assert mean(10.0, "scaled_l1", 5) > ten + 0.1
    assert mean(100.0, "euclidean", 2) >= 0.99
