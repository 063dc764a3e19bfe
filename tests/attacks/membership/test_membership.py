"""Membership inference: the score, its calibration, and the attacks through the real loop, against their defence."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from covey.attacks.membership.features import FeatureMembership
from covey.attacks.membership.loss import LossMembership
from covey.attacks.membership.scores import SCORES, area, crowding, nearest, power, simulated_power
from covey.attacks.membership.strangers import matched, samples_at, unused
from covey.clustering.features import principal_components
from covey.data.dataset import Dataset
from covey.data.federation import Federation
from covey.data.sources.load import load
from covey.errors import CoveyError
from covey.experiment.experiment import Experiment
from covey.rounds.loop import run


def test_nearest_by_hand() -> None:
    points = torch.tensor([[0.0, 0.0], [3.0, 4.0]])
    noisy = torch.tensor([[3.0, 4.0], [0.0, 2.0]])
    assert nearest(points, noisy).tolist() == [2.0, 0.0]
    # In units of (1, 4) the first point is 3/1 + 4/4 = 4 from one row and 2/4 from the other.
    unit = torch.tensor([1.0, 4.0])
    assert nearest(points, noisy, unit).tolist() == [0.5, 0.0]
    # With a handicap of 5 on the second row the first point's best is the first row, at 4.
    assert nearest(points, noisy, unit, torch.tensor([0.0, 5.0])).tolist() == [4.0, 0.0]


def test_a_row_in_a_crowd_says_less() -> None:
    public = torch.tensor([[0.0, 0.0], [0.0, 0.0], [10.0, 0.0]])
    rows = torch.tensor([[0.0, 0.0], [10.0, 4.0]])
    # In units of (1, 4): distances 0, 0, 10 of the first row, 11, 11, 1 of the second.
    by_hand = np.log([2 + np.exp(-10.0), 2 * np.exp(-11.0) + np.exp(-1.0)])
    assert crowding(rows, public, torch.tensor([1.0, 4.0])).numpy() == pytest.approx(by_hand, rel=1e-5)


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
    public = rng.standard_normal((300, 20)).astype(np.float32)
    assert simulated_power(features, np.inf, rng, rows=800) == 1.0
    for score in SCORES:
        drowned = [simulated_power(features, 0.1, rng, rows=800, score=score, public=public) for _ in range(10)]
        assert np.mean(drowned) == pytest.approx(0.05, abs=0.03)
    with pytest.raises(CoveyError, match="800 features cannot give a reference and a held-out set of 401 each"):
        simulated_power(features, 1.0, rng, rows=802)
    with pytest.raises(CoveyError, match="choose 'euclidean'"):
        simulated_power(features, 1.0, rng, rows=100, score="cosine")
    with pytest.raises(CoveyError, match="needs public samples"):
        simulated_power(features, 1.0, rng, rows=100, score="likelihood_ratio")


def test_each_score_is_stronger_than_the_one_before() -> None:
    rng = np.random.default_rng(2)
    # Coordinates of different range, as principal components have them; some rows in the crowd, some at its edge.
    made = rng.standard_normal((1700, 20)) * rng.uniform(0.3, 1, (1700, 1)) / np.sqrt(np.arange(1, 21))
    features, public = np.split(made.astype(np.float32), [1200])
    found = [
        np.mean([simulated_power(features, 16.0, rng, 1200, score, public=public) for _ in range(5)])
        for score in SCORES
    ]
    assert found[1] > found[0] + 0.1
    assert found[2] > found[1] + 0.1


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


@pytest.mark.parametrize("attack", ["membership", "membership_l1", "membership_ratio"])
def test_noise_on_features_is_what_protects_them(attack: str) -> None:
    found = {e: run(pqfed(e, [attack]), quiet=True).findings[0] for e in (float("inf"), 0.2)}
    bare, noised = found[float("inf")], found[0.2]
    assert bare.value == 1.0
    assert bare.verdict == "broken"
    assert len(bare.details["per client"]) == 6
    assert noised.verdict == "no leak seen"
    assert noised.value < 0.15
    assert max(f.controls["samples that were never there"] for f in found.values()) < 0.15


def test_the_paper_s_score_is_the_weakest_at_moderate_noise() -> None:
    names = ["membership", "membership_l1", "membership_ratio"]
    euclidean, scaled, ratio = run(pqfed(8.0, names), quiet=True).findings
    assert scaled.value > euclidean.value + 0.05
    assert ratio.value > scaled.value + 0.05


def by_heart() -> Federation:
    """Four clients whose labels follow no rule: whatever a model knows about its samples, it has by heart."""
    digits = load("digits")
    rng = np.random.default_rng(0)
    dataset = replace(digits, y_train=rng.integers(0, 10, len(digits.y_train)))
    rows = rng.permutation(len(digits.y_train))
    shares = np.full((4, 10), 0.1)
    groups, public = tuple(np.split(rows[:200], 4)), (rows[-100:],)
    return Federation(dataset, groups, np.array([0, 0, 1, 1]), digits.y_test, shares, public=public)


def memorising(algorithm: Any, **more: Any) -> Experiment:
    table: dict[str, Any] = {
        "dataset": "digits",
        "algorithm": algorithm,
        "clients": 4,
        "clusters": 2,
        "start": {"common": False},
        "training": {"rounds": 15, "epochs": 20, "batch_size": 10, "lr": 0.2},
        "engine": {"workers": 1},
        "attacks": ["loss_membership"],
    }
    return Experiment.of(table, **more)


def test_a_model_that_memorised_betrays_its_samples() -> None:
    (learned,) = run(memorising("ifca"), federation=by_heart(), quiet=True).findings
    assert learned.value > 0.8
    assert learned.verdict in ("leaks", "broken")
    assert learned.controls["the model before training"] < 0.6
    gentle = memorising("ifca", training={"rounds": 2, "epochs": 1, "batch_size": 0, "lr": 0.001})
    (fresh,) = run(gentle, federation=by_heart(), quiet=True).findings
    assert fresh.verdict == "no leak seen"


class Neighbour(LossMembership):
    """The same attack of another observer of the same run: findings go by name."""

    name = "neighbour"


EVERYBODY = {"name": "pqfed", "components": 10, "epsilon": float("inf"), "strategy": "all"}


@pytest.mark.parametrize(
    "algorithm",
    ["fedavg", "fedprox", "feddyn", "scaffold", "fedem", "fedsoft", "sattler", EVERYBODY, EVERYBODY | {"target": -1}],
    ids=str,
)
def test_the_loss_betrays_samples_under_every_algorithm(algorithm: Any) -> None:
    attacks = [LossMembership(vantage="server"), Neighbour(vantage="client:1")]
    table = memorising(algorithm, attacks=[], training={"rounds": 8, "epochs": 20, "batch_size": 10, "lr": 0.2})
    findings = run(table, attacks=attacks, federation=by_heart(), quiet=True).findings
    assert [finding.vantage for finding in findings] == ["server", "client:1"]
    for finding in findings:
        assert finding.value > 0.65 and finding.verdict in ("leaks", "broken"), finding.vantage


@pytest.mark.parametrize(
    ("algorithm", "encryption"),
    [({"name": "mingledpie", "threshold": 1}, "ckks"), ("routing", "ckks"), ("fedcaprivacy", "bfv")],
    ids=["mingledpie", "routing", "fedcaprivacy"],
)
def test_a_sealed_model_is_read_by_who_has_the_key(algorithm: Any, encryption: str) -> None:
    plan = {"rounds": 4, "epochs": 20, "batch_size": 10, "lr": 0.2}
    server = "bs" if algorithm == "fedcaprivacy" else "server"
    attacks = [Neighbour(vantage="client:1"), LossMembership(vantage=server)]
    table = memorising(algorithm, attacks=[], encryption=encryption, training=plan)
    reader, blind = run(table, attacks=attacks, federation=by_heart(), quiet=True).findings
    assert (reader.vantage, blind.vantage) == ("client:1", server)
    assert reader.value > 0.65 and reader.used != "no model was seen that it could read"
    assert blind.value <= 0.65 and blind.used == "no model was seen that it could read"


def test_nothing_seen_is_no_finding() -> None:
    attack = run(pqfed(1.0, ["loss_membership"]), quiet=True).findings[0]  # one round: features only, no model
    assert (attack.value, attack.low, attack.high) == (0.5, 0.0, 1.0)
    table = pqfed(1.0, ["membership"], algorithm="fedavg")
    assert run(table, quiet=True).findings[0].used == "no noisy features were seen"


def test_a_rate_is_a_share() -> None:
    with pytest.raises(CoveyError, match="strictly between"):
        FeatureMembership(rate=1.0)


@pytest.mark.slow
@pytest.mark.data
@pytest.mark.skipif("COVEY_DATA" not in os.environ, reason="needs MNIST: set COVEY_DATA")
def test_the_figures_of_the_paper_on_mnist() -> None:
    mnist = load("mnist")
    rng = np.random.default_rng(0)
    rows = rng.permutation(60_000)
    public = mnist.x_train[rows[:500]]
    project = principal_components(public, 50, rng, 1 / 255)
    features = project(mnist.x_train[rows[500:]])

    def mean(epsilon: float, score: str, repeats: int) -> float:
        own = project(public)
        return float(
            np.mean([simulated_power(features, epsilon, rng, 1200, score, public=own) for _ in range(repeats)])
        )

    for epsilon in (0.1, 1.0):
        assert mean(epsilon, "euclidean", 10) == pytest.approx(0.05, abs=0.02)
    assert 0.15 <= mean(10.0, "euclidean", 10) <= 0.40
    assert mean(10.0, "scaled_l1", 10) > 0.4  # where the paper promises less
    assert mean(10.0, "likelihood_ratio", 5) > 0.75
    assert mean(100.0, "euclidean", 2) >= 0.99
