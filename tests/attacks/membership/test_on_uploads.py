"""Membership on uploads: scores by hand, then real clients with and without what stops them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from covey.attacks import ATTACKS
from covey.attacks.finding import NOTHING_SEEN, Finding
from covey.attacks.membership.on_uploads import BEFORE, Split
from covey.attacks.membership.shadows import Reference, confidence, draws
from covey.audit.matrix import LEAKING
from covey.audit.questions import Questions
from covey.data.dataset import Dataset
from covey.data.federation import Federation
from covey.errors import CoveyError
from covey.experiment.experiment import Experiment
from covey.rounds.loop import run

READERS = ("upload_membership", "lira", "rmia", "source")
TABLE: dict[str, Any] = {
    "dataset": "digits",
    "algorithm": "fedavg",
    "clients": 20,
    "clusters": 1,
    "partition": {"name": "iid", "public": 100},
    "training": {"rounds": 2, "epochs": 5, "batch_size": 10, "lr": 0.1},
    "evaluation": {"every": 50, "samples": 50},
    "engine": {"workers": 1},
    "attacks": [{"name": name, "shadows": 12, "rounds": 2, "clients": 6} for name in ("lira", "rmia")] + ["source"],
}


def found(**changes: Any) -> dict[str, Finding]:
    """Every finding and variant, by name."""
    content = run(Experiment.of(TABLE, **changes), quiet=True).attacks
    findings = [one for name, entry in content.items() if (one := Finding.of(name, entry)) is not None]
    return {one.attack: one for finding in findings for one in (finding, *finding.variants)}


def test_confidence_by_hand() -> None:
    logits = torch.tensor([[[2.0, 1.0, 0.0]]])
    p = float(logits.softmax(2)[0, 0, 1])
    assert float(confidence(logits, torch.tensor([1]))) == pytest.approx(np.log(p / (1 - p)), abs=1e-6)


def test_every_candidate_is_in_some_shadows_and_out_of_others() -> None:
    inside = draws(30, 60, 8, np.random.default_rng(0))
    assert (inside.sum(1) == 30).all() and (inside.sum(0) == 4).all()
    few = draws(30, 40, 8, np.random.default_rng(0))  # fewer strangers than members: they overlap
    assert (few.sum(1) == 30).all() and few.sum(0).min() >= 4


def reference(seen: list[float]) -> Reference:
    """Two candidates, four shadows; with the sample the confidence is 2 higher; shadows scatter by 1 in all."""
    inside = np.array([[1, 0], [0, 1], [1, 0], [0, 1]], bool)
    shadows = np.where(inside, 3.0, 1.0) + np.array([[0.5], [0.5], [-0.5], [-0.5]])
    population = np.zeros(4)
    return Reference(np.array(seen), shadows, inside, population, np.zeros((4, 4)))


def test_likelihood_ratios_by_hand() -> None:
    """Means 3 and 1, variance 1/2 (four squares of a half over two degrees of freedom): log ratio (2 φ − 4) / (1/2) · 1."""
    one = reference([3.0, 1.0]).lira()
    np.testing.assert_allclose(one, [4.0, -4.0])
    np.testing.assert_allclose(reference([2.0, 2.0]).lira(), [0.0, 0.0], atol=1e-12)
    np.testing.assert_allclose(reference([2.0, 1.0]).lira(online=False), [np.sqrt(2.0), 0.0])


def test_a_population_of_which_the_upload_says_the_same_is_the_yardstick() -> None:
    """The population's likelihood is as ever: ratio 1. A candidate whose likelihood rose is above all of it, else below."""
    assert reference([4.0, 0.0]).rmia().tolist() == [1.0, 0.0]


def test_power_and_area_of_a_split() -> None:
    split = Split(np.array([3.0, 2.0, 0.0]), np.arange(-100.0, 1.0))
    assert split.power(0.01) == pytest.approx(2 / 3) and split.area() == pytest.approx((2 + 100.5 / 101) / 3)
    low, high = split.power_interval(0.01, np.random.default_rng(0))
    assert 0 <= low <= split.power(0.01) <= high <= 1


@pytest.fixture(scope="module")
def plain() -> dict[str, Finding]:
    return found()


def test_shadows_tell_members_where_a_loss_does_not(plain: dict[str, Finding]) -> None:
    for name in ("lira", "lira_offline", "rmia"):
        assert plain[name].verdict in LEAKING and plain[name].value > 0.6
        assert abs(plain[name].controls[BEFORE] - 0.5) < 0.06
    low = plain["lira_at_1%"]
    assert low.verdict in LEAKING and low.chance == 0.01 and "lira_at_0.1%" not in plain  # too few strangers to tell
    (first, *_) = plain["lira"].details["records"]
    assert first["client"] == 0 and len(first["members"]) > 30 < len(first["strangers"])


def test_records_are_traced_to_their_clients(plain: dict[str, Finding]) -> None:
    assert plain["source_raised"].value > 0.1 > 2 * plain["source"].controls["largest client"] - 0.01
    assert "by the label alone" in plain["source"].note


def test_noise_stops_them() -> None:
    silent = found(defence={"name": "dp_sgd", "clip": 1.0, "noise": 8.0})
    assert {one.verdict for one in silent.values()} == {NOTHING_SEEN}


def test_sealed_uploads_are_not_read() -> None:
    sealed = Questions(Experiment.of(TABLE, algorithm="mingledpie", encryption="ckks", clusters=2))
    assert all(sealed.unfit(name) for name in READERS)


@pytest.mark.parametrize(
    ("name", "wrong"), [("lira", {"shadows": 3}), ("upload_membership", {"rounds": 0}), ("source", {"cases": 0})]
)
def test_what_makes_no_sense_is_refused(name: str, wrong: dict[str, Any]) -> None:
    with pytest.raises(CoveyError, match=name):
        ATTACKS[name](**wrong)


def test_what_is_no_class_is_read_by_its_loss() -> None:
    """Six clients with numbers to predict, few samples and many steps: shadows tell whose those are."""
    random = np.random.default_rng(0)
    x = random.normal(size=(400, 6)).astype(np.float32)
    y = random.normal(size=(400, 1)).astype(np.float32)  # nothing to learn but by heart
    data = Dataset("own", x[:300], y[:300], x[300:], y[300:], ("size",), kind="real", task="numbers")
    held = tuple(np.array_split(np.arange(120), 6))
    federation = Federation(data, held, None, np.zeros(100, np.int64), np.ones((6, 1)), (np.arange(120, 160),))
    table = {**TABLE, "dataset": "own", "clients": 6, "start": {"pretrain_epochs": 0}, "partition": {"name": "iid"}}
    table |= {"training": {"rounds": 2, "epochs": 30, "batch_size": 10, "lr": 0.05}, "attacks": []}
    attacks = [ATTACKS["lira"](shadows=12), ATTACKS["source"](), ATTACKS["rmia"](shadows=12)]
    told = run(Experiment.of(table), attacks=attacks, federation=federation, quiet=True).attacks
    assert told["lira"]["value"] > 0.7 and told["lira"]["verdict"] in LEAKING
    assert told["source"]["value"] > 0.4 and not told["source"]["note"]
    assert told["rmia"]["verdict"] == "not measured" and "predicted numbers have none" in told["rmia"]["used"]
