"""Asynchronous rounds: by hand, against the synchronous ones, bounded staleness, resumed, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from covey import Experiment, run
from covey.algorithms.averaging import GlobalModel, LocalModel
from covey.algorithms.fedavg import FedAvg
from covey.algorithms.ifca import IFCA, ClusterModels, ClusterUpdate
from covey.errors import CoveyError
from covey.rounds.asynchronous import UnderWay, arrive, rebased


def experiment(algorithm: Any = "fedavg", rounds: int = 4, **participation: Any) -> Experiment:
    return Experiment.of(
        dataset="digits",
        model="softmax",
        clients=6,
        clusters=2,
        algorithm=algorithm,
        training={"rounds": rounds, "epochs": 1},
        participation=participation,
        engine={"workers": 1},
    )


def final(result: Any) -> torch.Tensor:
    state = result.state
    return state.model if hasattr(state, "model") else state.models


def test_who_arrives_when() -> None:
    """Durations 1, 1, 3: the third comes when the others are in their third round; with buffer 2."""
    durations, way = np.array([1.0, 1.0, 3.0]), UnderWay()
    seen = []
    for round in (1, 2, 3, 4):
        arrivals = arrive(way, round, f"state {round}", 2, 10, durations)
        seen.append((arrivals.begun, arrivals.way.clock))
        way = arrivals.way
    # At time 3 both 0 (begun at 2) and 2 (begun at 0) are done, and so is 1: numbers decide, 2 is next.
    assert seen == [
        ({0: 1, 1: 1}, 1.0),
        ({0: 2, 1: 2}, 2.0),
        ({0: 3, 1: 3}, 3.0),
        ({2: 1, 0: 4}, 4.0),
    ]
    assert set(way.states) == {4} and arrivals.states == {1: "state 1", 4: "state 4"}
    assert arrivals.notes(4) == {"simulated_time": 4.0, "staleness": 1.5, "stalest": 3.0, "discarded": 0.0}


def test_too_old_is_thrown_away_and_begun_anew() -> None:
    durations, way = np.array([1.0, 1.0, 3.0]), UnderWay()
    for round in (1, 2, 3, 4):
        arrivals = arrive(way, round, None, 2, 2, durations)
        way = arrivals.way
    assert arrivals.discarded == 1 and arrivals.begun == {0: 4, 1: 4} and way.begun == {2: 4}


def test_what_an_old_reply_changes_by_hand() -> None:
    """FedAvg: 10 + 4^-½ · (5 − 1) = 12; IFCA: of the chosen cluster; a fresh one is the very object."""
    way = UnderWay(begun={0: 1}, due={0: 0.0}, states={1: GlobalModel(torch.tensor([1.0]))})
    state = GlobalModel(torch.tensor([10.0]))
    arrivals = arrive(way, 4, state, 2, 10, np.array([1.0, 1.0]))
    fresh = LocalModel(torch.tensor([11.0]), 3)
    replies = iter([(0, LocalModel(torch.tensor([5.0]), 3)), (1, fresh)])
    (_, old), (_, new) = rebased(replies, arrivals, FedAvg(), state, 4, 0.5)
    assert old == LocalModel(torch.tensor([12.0]), 3) and new is fresh
    sent, now = ClusterModels(torch.tensor([[1.0], [2.0]])), ClusterModels(torch.tensor([[10.0], [20.0]]))
    moved = IFCA().rebased(sent, now, ClusterUpdate(torch.tensor([6.0]), 1, 3), 0.5)
    assert moved == ClusterUpdate(torch.tensor([22.0]), 1, 3)


@pytest.mark.parametrize("algorithm", ["fedavg", "ifca"])
def test_a_buffer_of_all_without_delays_is_the_synchronous_run(algorithm: str) -> None:
    together = run(experiment(algorithm), quiet=True)
    buffered = run(experiment(algorithm, buffer=6), quiet=True)
    assert torch.equal(final(together), final(buffered))
    assert [r["accuracy"] for r in together.records] == [r["accuracy"] for r in buffered.records]
    assert all(r["extra"]["stalest"] == 0 for r in buffered.records)


def test_the_slow_do_not_set_the_pace(tmp_path: Path) -> None:
    """Same number of trainings, less simulated time, no reply older than the bound; and resumed bit for bit."""
    slow = {"delay": 4.0}
    together = run(experiment(rounds=4, **slow), quiet=True)
    what = experiment(rounds=12, buffer=2, max_staleness=5, **slow)
    whole = run(what, out=tmp_path / "whole", quiet=True)
    assert whole.records[-1]["extra"]["simulated_time"] < together.records[-1]["extra"]["simulated_time"]
    ages = [r["extra"]["stalest"] for r in whole.records]
    assert 0 < max(ages) <= 5 and all(r["participants"] == 2 for r in whole.records)

    def stop(record: dict[str, Any], state: Any) -> None:
        if record["round"] == 7:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(what, out=tmp_path / "cut", quiet=True, callbacks=[stop])
    again = run(what, out=tmp_path / "cut", quiet=True, resume=True)
    assert torch.equal(final(whole), final(again)) and ages == [r["extra"]["stalest"] for r in again.records]


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ({"participation": {"buffer": 2, "share": 0.5}}, "all clients are at work"),
        ({"participation": {"buffer": 7}}, "of 6 clients"),
        ({"participation": {"buffer": -1}}, "must not be negative"),
        ({"participation": {"buffer": 2}, "algorithm": "scaffold"}, "takes no replies to older models"),
        ({"participation": {"buffer": 3}, "encryption": "secagg"}, "opens the sum of one round's replies"),
        ({"participation": {"buffer": 2}, "algorithm": {"name": "fedavg", "min_group": 3}}, "every round would be withheld"),
        ({"participation": {"buffer": 2}, "algorithm": "ifca", "defence": "client_dp"}, "who is in which round"),
        ({"participation": {"buffer": 2}, "compression": "eight_bit"}, "of a round's own model"),
    ],
)  # fmt: skip
def test_what_cannot_be_asynchronous_is_refused(what: dict[str, Any], words: str) -> None:
    with pytest.raises(CoveyError, match=words):
        Experiment.of({"dataset": "digits", "clients": 6, "clusters": 2, "algorithm": "fedavg", **what})
