"""Newcomers without labels: placed by their samples where a method can, and no work with labels is done for them."""

from __future__ import annotations

from contextlib import nullcontext
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch

from covey import Experiment, run
from covey.algorithms.averaging import LocalModel
from covey.algorithms.clustered.flux import Moments, _nearest
from covey.algorithms.clustered.groups import Grouping
from covey.algorithms.clustered.pacfl import PACFL, Introduction, Subspaces, Vectors
from covey.algorithms.contract import Server, Setting
from covey.deploy.keys import deployed
from covey.engines.prepare import make_host, prepare
from covey.engines.settle import settle
from covey.errors import CoveyError
from covey.learn.work import Plan
from covey.rounds.result import Result

BEFORE = 4


def _table(algorithm: str, labels: bool = False, **more: Any) -> dict[str, Any]:
    return {
        "algorithm": algorithm,
        "partition": {"name": "label_sets", "in_turn": True},
        "participation": {"initial": 15, "join": 5, "join_every": BEFORE, "newcomer_labels": labels},
        "training": {"rounds": BEFORE + 2, "lr": 0.2},
        "start": {"common": False, "pretrain_epochs": 0},
        "evaluation": {"every": 1},
        **more,
    }


@cache
def _ran(algorithm: str) -> Result:
    return run(Experiment.of(_table(algorithm)), quiet=True)


def _after(result: Result, age: str) -> float:
    return float(next(r["newcomers"][age]["accuracy"] for r in result.records if age in r.get("newcomers", {})))


@pytest.mark.parametrize("algorithm", ["flux", "pacfl"])
def test_a_newcomer_is_placed_by_its_samples_and_takes_part_once(algorithm: str) -> None:
    result = _ran(algorithm)
    assert [r["participants"] for r in result.records] == [15] * BEFORE + [20, 15]
    assert _after(result, "0") < 0.8 and _after(result, "1") > 0.9
    assert _after(result, "1") > _after(_ran("fedavg"), "1") + 0.05


def test_who_comes_is_asked_whatever_is_drawn() -> None:
    table = _table("pacfl")
    table["participation"] |= {"share": 0.4, "initial": 15, "newcomer_samples": 5}
    counts = [r["participants"] for r in run(Experiment.of(table), quiet=True).records]
    assert counts[:BEFORE] == [6] * BEFORE and 5 < counts[BEFORE] <= 8 + 5 and counts[BEFORE + 1] <= 8


def test_one_model_is_used_and_nobody_is_asked() -> None:
    assert {r["participants"] for r in _ran("fedavg").records} == {15}


@pytest.mark.parametrize("algorithm", ["ifca", "fedgroup", "fedavg_ft", "local"])
def test_methods_that_need_labels_refuse_in_words(algorithm: str) -> None:
    with pytest.raises(CoveyError, match=f"newcomer_labels = false: {algorithm} finds or makes .* \\(flux, pacfl\\)"):
        Experiment.of(_table(algorithm))


def test_it_is_of_newcomers_and_of_simulations() -> None:
    with pytest.raises(CoveyError, match="of clients that join later"):
        Experiment.of(participation={"newcomer_labels": False})
    with pytest.raises(CoveyError, match="the defence is of updates"):
        Experiment.of(_table("flux", defence={"name": "ldp"}))
    with pytest.raises(CoveyError, match="hide labels that are there"):
        deployed(Experiment.of(_table("flux")))


def test_the_host_gives_no_labels_and_does_no_work_with_them() -> None:
    experiment, given = settle(Experiment.of(_table("flux")), None)
    federation, network, setting = prepare(experiment, given)
    host = make_host(experiment, network, federation, setting, {}, {})
    message = experiment.algorithm.start(setting).asked
    plan = experiment.training.plan(1)
    there, unlabelled = host._clients(1, [(0, message, plan), (15, message, plan)])
    assert there.labelled and len(there.data()[1]) == there.samples
    assert not unlabelled.labelled and len(unlabelled.data()[0]) == unlabelled.samples and not len(unlabelled.data()[1])
    with pytest.raises(CoveyError, match=r"client 15 has no labels .* flux needs for its train"):
        host._answers.advance([unlabelled], [experiment.algorithm.client(unlabelled, message)], [message])
    (outcome,) = host.run(1, [(15, message, plan)])
    assert isinstance(outcome.reply, Moments) and outcome.reply.moments.shape == (2, 10)


def test_the_nearest_mean_of_moments_by_hand() -> None:
    known = {0: torch.tensor([[0.0, 0.0], [1.0, 1.0]]), 1: torch.tensor([[2.0, 0.0], [1.0, 1.0]])}
    known[2] = torch.tensor([[9.0, 9.0], [1.0, 1.0]])
    place = {0: 1, 1: 1, 2: 3}  # centres: (1, 0) and (9, 9)
    new = {7: torch.tensor([[1.0, 1.0], [0.0, 0.0]]), 8: torch.tensor([[6.0, 6.0], [1.0, 1.0]]), 9: torch.zeros(2, 5)}
    assert _nearest(new, known, place) == {7: 1, 8: 3}  # who sends another shape is placed nowhere
    assert _nearest(new, {}, {}) == {}


def test_a_subspace_without_a_model_founds_no_group_and_counts_in_no_mean() -> None:
    """Two groups, along x and along y; threshold 10 degrees, both newcomers at 45 or more."""
    axes = {0: torch.tensor([[1.0], [0.0], [0.0]]), 1: torch.tensor([[0.0], [1.0], [0.0]])}
    grouping = Grouping.of(torch.zeros(2), torch.tensor([[1.0, 1.0], [2.0, 2.0]]), torch.zeros(0, 2), {0: 1, 1: 2})
    setting = Setting(0, 4, 2, 9, Plan(), torch.zeros(2, 2), torch.ones(2, dtype=torch.bool))
    server = Server(5, 0, setting, {}, lambda party, message: None, lambda phase: nullcontext())
    slanted = torch.tensor([[0.9], [0.1], [0.42]])
    replies = [
        (0, LocalModel(torch.tensor([5.0, 5.0]), 1)),
        (2, Vectors(slanted / slanted.norm())),
        (3, Introduction(torch.tensor([7.0, 7.0]), 1, torch.tensor([[0.0], [0.0], [1.0]]))),
    ]
    after = PACFL(vectors=1, threshold=10.0).aggregate(server, Subspaces(grouping, axes), iter(replies))
    assert after.grouping.place == {0: 1, 1: 2, 2: 1, 3: 3}
    np.testing.assert_array_equal(after.grouping.models.numpy(), [[5, 5], [2, 2], [7, 7]])
