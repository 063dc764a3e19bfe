"""Metrics are scikit-learn's, weighted as a client's own distribution says; totals of groups mix to totals of clients."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from covey.errors import CoveyError
from covey.metrics import METRICS
from covey.metrics.metric import Metric, chosen, measure, resolve
from covey.metrics.spread import IN_FULL, per_class, spread
from covey.metrics.totals import CLASSES, LABELS, NUMBERS, OnDevice, Totals, by_group, of_samples, predictions

RNG = np.random.default_rng(0)


@pytest.fixture
def classes():
    """Four classes of which one is rare and one never there; some samples weigh nothing."""
    rng = np.random.default_rng(1)
    y = rng.choice(4, 60, p=[0.7, 0.25, 0.05, 0.0])
    raw = torch.from_numpy(rng.normal(size=(1, 60, 4)).astype(np.float32))
    weights = rng.random(60) * (rng.random(60) > 0.2)
    return predictions(CLASSES, raw, torch.from_numpy(y)), y, weights / weights.sum()


@pytest.fixture
def labels():
    y = (RNG.random((50, 3)) < [0.1, 0.5, 0.8]).astype(np.float32)
    raw = torch.from_numpy(RNG.normal(size=(1, 50, 3)).astype(np.float32))
    weights = RNG.random(50)
    return predictions(LABELS, raw, torch.from_numpy(y)), y, weights / weights.sum()


@pytest.fixture
def numbers():
    y, raw = RNG.normal(size=(40, 2)).astype(np.float32), RNG.normal(size=(1, 40, 2)).astype(np.float32)
    weights = RNG.random(40)
    return predictions(NUMBERS, torch.from_numpy(raw), torch.from_numpy(y)), y, weights / weights.sum()


def test_classes_are_measured_as_scikit_learn_does(classes) -> None:
    from sklearn import metrics as sk

    said, y, weights = classes
    guess, p = said.chosen.numpy(), said.probabilities().astype(np.float64)
    keep = weights > 0  # scikit-learn takes a class of samples without weight for one that is there
    y, guess, p, w = y[keep], guess[keep], p[keep], weights[keep]
    expected = {
        "accuracy": sk.accuracy_score(y, guess, sample_weight=w),
        "balanced_accuracy": sk.recall_score(
            y, guess, labels=np.unique(y), average="macro", sample_weight=w, zero_division=0
        ),
        "f1": sk.f1_score(y, guess, average="macro", sample_weight=w, zero_division=0),
        "loss": sk.log_loss(y, p / p.sum(1, keepdims=True), labels=range(4), sample_weight=w),
        "auc": np.mean([sk.roc_auc_score(y == c, p[:, c], sample_weight=w) for c in np.unique(y)]),
    }
    found = {name: measure(resolve(name), said, weights) for name in expected}
    assert found == pytest.approx(expected, rel=1e-5)
    with pytest.warns(UserWarning):  # a class is predicted that is not there
        assert found["balanced_accuracy"] == pytest.approx(sk.balanced_accuracy_score(y, guess, sample_weight=w))


def test_auc_of_all_classes_is_scikit_learns_one_against_the_rest() -> None:
    from sklearn import metrics as sk

    y, raw = RNG.integers(0, 3, 40), torch.from_numpy(RNG.normal(size=(1, 40, 3)).astype(np.float32))
    said, w = predictions(CLASSES, raw, torch.from_numpy(y)), np.full(40, 1 / 40)
    whole = sk.roc_auc_score(y, said.probabilities().astype(np.float64), multi_class="ovr", average="macro")
    assert measure(resolve("auc"), said, w) == pytest.approx(whole, rel=1e-6)


def test_labels_are_measured_as_scikit_learn_does(labels) -> None:
    from sklearn import metrics as sk

    said, y, w = labels
    p = said.probabilities()
    guess = p > 0.5
    expected = {
        "accuracy": sk.accuracy_score(y, guess, sample_weight=w),
        "f1": sk.f1_score(y, guess, average="macro", sample_weight=w, zero_division=0),
        "auc": sk.roc_auc_score(y, p, average="macro", sample_weight=w),
        "balanced_accuracy": np.mean([sk.balanced_accuracy_score(a, b, sample_weight=w) for a, b in zip(y.T, guess.T)]),
        "loss": np.mean([sk.log_loss(a, b.astype(float), sample_weight=w) for a, b in zip(y.T, p.T)]),
    }
    assert {name: measure(resolve(name), said, w) for name in expected} == pytest.approx(expected, rel=1e-5)


def test_numbers_are_measured_as_scikit_learn_does(numbers) -> None:
    from sklearn import metrics as sk

    said, y, w = numbers
    p = said.probabilities()
    expected = {
        "rmse": sk.root_mean_squared_error(y, p, sample_weight=w),
        "mae": sk.mean_absolute_error(y, p, sample_weight=w),
        "loss": sk.mean_squared_error(y, p, sample_weight=w),
    }
    assert {name: measure(resolve(name), said, w) for name in expected} == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("kind", ["classes", "labels", "numbers"])
def test_a_client_s_totals_are_the_mixture_of_its_groups(kind: str, request) -> None:
    said, y, _ = request.getfixturevalue(kind)
    groups = np.arange(len(y)) % 3
    sizes = np.bincount(groups).astype(float)
    share = np.array([0.5, 0.2, 0.3])
    mixed = share @ by_group(said, groups, sizes)
    assert mixed == pytest.approx(of_samples(said, (share / sizes)[groups]).vector)


def test_a_mixture_of_models_mixes_probabilities() -> None:
    raw = torch.tensor([[[4.0, 0.0]], [[0.0, 1.0]]])  # two models, one sample
    said = predictions(CLASSES, raw, torch.tensor([1]), torch.tensor([0.5, 0.5]))
    p = 0.5 * (1 / (1 + math.exp(4)) + 1 / (1 + math.exp(-1)))
    assert of_samples(said, np.ones(1)).loss == pytest.approx(-math.log(p), rel=1e-5)


def test_what_cannot_be_said_is_said_so() -> None:
    one = predictions(CLASSES, torch.zeros(1, 5, 2), torch.zeros(5, dtype=torch.int64))
    assert math.isnan(measure(resolve("auc"), one, np.full(5, 0.2)))  # one class: nothing to rank
    entry = spread(resolve("auc"), {0: math.nan, 1: math.nan}, {}, [0, 1], full=True)
    assert entry == {"mean": None, "unknown": 2}


def test_the_spread_says_who_is_worst_off() -> None:
    values = {0: 0.9, 1: 0.5, 2: 0.7, 3: math.nan}
    entry = spread(resolve("accuracy"), values, {0: 0, 1: 0, 2: 1, 3: 1}, range(5), full=False)
    assert entry["mean"] == pytest.approx(0.7) and entry["worst"] == 0.5 and entry["best"] == 0.9
    assert entry["gap"] == pytest.approx(0.4) and entry["p10"] == pytest.approx(0.54) and entry["unknown"] == 1
    assert entry["spread"] == pytest.approx(0.2) and entry["per_cluster"] == pytest.approx([0.7, 0.7])
    assert entry["clients"] == [0.9, 0.5, 0.7, None, None]
    loss = spread(resolve("loss"), {0: 0.1, 1: 2.0}, {}, [0, 1], full=False)
    assert loss["worst"] == 2.0 and loss["p10"] > loss["median"]


def test_many_clients_are_listed_in_the_last_round_only() -> None:
    many = dict.fromkeys(range(IN_FULL + 1), 0.5)
    assert "clients" not in spread(resolve("accuracy"), many, {}, range(len(many)), full=False)
    assert len(spread(resolve("accuracy"), many, {}, range(len(many)), full=True)["clients"]) == len(many)


def test_classes_of_which_one_is_rare_are_uneven() -> None:
    def table(true):
        return Totals(CLASSES, np.array([0.0, 1.0, *true, *true, *true])).vector

    assert per_class(CLASSES, [table([0.97, 0.03])], full=True)["uneven"]
    assert not per_class(CLASSES, [table([0.5, 0.3, 0.2 + 0.1])], full=True)["uneven"]
    assert not per_class(CLASSES, [table([1.0, 0.0])], full=True)["uneven"]  # one class: there is nothing to balance


def test_the_usual_metrics_follow_the_task() -> None:
    assert {m.name for m in chosen(CLASSES, [])} == {"accuracy", "balanced_accuracy", "loss"}
    assert {m.name for m in chosen(LABELS, [])} == {"accuracy", "balanced_accuracy", "f1", "loss"}
    assert {m.name for m in chosen(NUMBERS, [])} == {"loss", "rmse", "mae"}
    with pytest.raises(CoveyError, match="'rmse', which is for numbers, and this data's targets are classes"):
        chosen(CLASSES, ["rmse"])
    with pytest.raises(CoveyError, match="did you mean 'accuracy'"):
        resolve("acuracy")
    assert set(METRICS) >= {"accuracy", "auc", "f1", "mae", "rmse"}


def test_a_metric_gives_one_number(classes) -> None:
    said, _, weights = classes
    with pytest.raises(CoveyError, match="metric 'both' gave a list: expected one number"):
        measure(Metric("both", "both", of_samples=lambda *_: [1.0]), said, weights)
    with pytest.raises(CoveyError, match="is a float: expected a function"):
        resolve("math:pi")
    assert math.isnan(measure(Metric("none", "none", of_samples=lambda *_: math.inf), said, weights))


def test_without_its_package_a_metric_says_why(monkeypatch: pytest.MonkeyPatch, classes) -> None:
    said, _, weights = classes
    lost = Metric("lost", "lost", of_samples=lambda *_: 1.0, needs="package_that_is_not_there")
    assert math.isnan(measure(lost, said, weights))
    assert spread(lost, {0: math.nan}, {}, [0], full=True)["why"] == "package_that_is_not_there is not installed here"


@pytest.mark.parametrize(
    "device",
    [
        "cpu",
        pytest.param(
            "cuda",
            marks=[pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")],
        ),
    ],
)
def test_totals_of_many_models_on_their_device(device: str) -> None:
    rng = np.random.default_rng(3)
    raw, y = torch.from_numpy(rng.normal(size=(3, 50, 4)).astype(np.float32)), rng.integers(0, 4, 50)
    groups = rng.choice([0, 2, 3], 50)  # of four, one is empty
    sizes = np.bincount(groups, minlength=4).astype(np.float64)
    targets = torch.from_numpy(y)
    expected = [by_group(predictions(CLASSES, one[None], targets), groups, sizes) for one in raw]
    found = OnDevice(targets.to(device), groups, sizes, 4).totals(raw.to(device))
    np.testing.assert_allclose(found, np.stack(expected), rtol=1e-6, atol=0)
