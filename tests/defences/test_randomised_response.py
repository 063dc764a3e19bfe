"""Randomised response over clusters."""

from collections import Counter
from types import SimpleNamespace

import pytest
import torch

from covey.crypto.noise.source import SecretNoise
from covey.defences.randomised_response import RandomisedResponse
from covey.errors import CoveyError
from covey.experiment.experiment import Experiment
from covey.ledger.clients import truth_probability
from covey.rounds.loop import run

SMALL = {
    "clients": 8,
    "clusters": 4,
    "model": "softmax",
    "training": {"rounds": 4, "epochs": 1, "batch_size": 20, "lr": 0.1},
    "start": {"common": False},
    "engine": {"workers": 1},
    "evaluation": {"every": 50, "samples": 50},
}


def person(round=1, secret=None, seed=0):
    from covey.algorithms.contract import Client

    return Client(0, round, seed, 10, None, SimpleNamespace(), {}, {}, lambda: None, secret=secret)


@pytest.mark.parametrize("secret", [None, SecretNoise()])
def test_answers_are_true_as_often_as_they_must_be(secret):
    answer = RandomisedResponse(epsilon=1.0).choose
    losses = torch.tensor([3.0, 1.0, 2.0, 4.0])
    told = Counter(answer(person(seed=s, secret=secret), losses) for s in range(3000))
    truth = truth_probability(1.0, 4)
    assert told[1] / 3000 == pytest.approx(truth, abs=0.04)
    for other in (0, 2, 3):
        assert told[other] / 3000 == pytest.approx((1 - truth) / 3, abs=0.035)


def test_an_answer_stands_until_a_new_one_is_due_and_only_new_ones_are_spent():
    response = RandomisedResponse(epsilon=0.1, every=3)
    me, answers, spent = person(), [], 0
    for round in range(1, 7):
        me.round = round
        answers.append(response.choose(me, torch.rand(50, generator=torch.Generator().manual_seed(round))))
        spent = len(me.events)
    assert (
        answers[0] == answers[1] == answers[2] and answers[3] == answers[4] == answers[5] and answers[0] != answers[3]
    )
    assert spent == 2


def test_a_run_prices_its_answers():
    entry = run(
        Experiment.of(SMALL, algorithm="ifca", defence={"name": "randomised_response", "epsilon": 0.5, "every": 2}),
        quiet=True,
    ).privacy
    assert (
        entry["randomised_response"]["epsilon"] == pytest.approx(1.0)
        and entry["randomised_response"]["unit"] == "client's cluster"
    )


def test_model_and_cluster_are_priced_together():
    defence = {"name": "client_dp", "epsilon": 2.0, "delta": 1e-3, "identity_epsilon": 0.5}
    priced = run(Experiment.of(SMALL, algorithm="ifca", defence=defence), quiet=True).privacy
    both = priced["client_dp + randomised_response"]["epsilon"]
    replaced = priced["client_dp"]["total"]["replaced"]
    assert replaced < both <= replaced + 0.5 + 1e-6


def test_an_algorithm_that_tells_no_cluster_is_refused():
    with pytest.raises(CoveyError, match="choose a cluster"):
        Experiment.of(SMALL, algorithm="fedsoft", defence="randomised_response")
