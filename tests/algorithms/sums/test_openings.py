"""Sums that clients open together, in whole runs: the same answers, who may be asked for what, and who may be missing."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import numpy as np
import pytest
import torch

from covey.algorithms.contract import Client, Setting, make_keys, own_keys
from covey.algorithms.mingledpie.mingledpie import MingledPie
from covey.algorithms.routing import Routing
from covey.algorithms.sums import openings
from covey.attacks.contract import Finding, Knowledge, Truth, View
from covey.crypto.openings.threshold import OpeningAdvice, OpeningQuestion, fuse, open_unpadded
from covey.crypto.sealing import sealing
from covey.errors import CoveyError
from covey.experiment.experiment import Experiment
from covey.learn.work import Plan
from covey.rounds.loop import run


def small(algorithm: Any = "mingledpie", **more: Any) -> Experiment:
    table: dict[str, Any] = {
        "dataset": "digits",
        "algorithm": algorithm,
        "encryption": "threshold",
        "clients": 20,
        "clusters": 5,
        "model": "softmax",
        "partition": {"name": "label_sets", "public": 20},
        "training": {"rounds": 3, "epochs": 1, "batch_size": 20, "lr": 0.1},
        "engine": {"workers": 1},
    }
    return Experiment.of(table, **more)


@pytest.mark.parametrize("name", ["mingledpie", "routing"])
def test_the_same_run_as_under_a_shared_key(name: str) -> None:
    together, shared = run(small(name), quiet=True), run(small(name, encryption="bfv"), quiet=True)
    assert together.accuracy["client_mean"] == pytest.approx(shared.accuracy["client_mean"], abs=1e-3)
    assert [r["clusters"] for r in together.records] == [r["clusters"] for r in shared.records]
    assert [r["extra"]["unopened"] for r in together.records] == [0.0] * 3
    assert together.bytes["up"] < shared.bytes["up"] + 20 * 8300 + 5 * 8200 + 20 * 60


def test_processes_and_shared_layers_change_nothing() -> None:
    layers = {"layers": {"personal": 1}, "model": "mlp"}
    one, two = (run(small(**layers, engine={"workers": n}), quiet=True) for n in (1, 2))
    assert one.accuracy == two.accuracy and one.bytes == two.bytes


@pytest.mark.parametrize("name", ["mingledpie", "routing"])
def test_some_may_be_gone_when_sums_are_opened_and_too_many_cost_the_round(name: str) -> None:
    """Of twenty clients eleven are enough; where fewer are left the models stay as they are, and the next round goes on."""
    table = small(
        name, participation={"vanish": 0.45}, training={"rounds": 6, "epochs": 1, "batch_size": 20, "lr": 0.1}
    )
    left = [20 - int(table.participation.vanished(table.seed, r, 20).sum()) for r in range(1, 7)]
    result = run(table, quiet=True)
    assert [r["extra"]["unopened"] for r in result.records] == [float(n < 11) for n in left]
    assert min(left) < 11 <= max(n for n in left if n < 20)
    for n, before, after in zip(left[1:], result.records, result.records[1:]):
        if n < 11:
            assert after["accuracy"] == before["accuracy"]


@pytest.mark.parametrize("quorum", [2, 20])
def test_other_quorums(quorum: int) -> None:
    result = run(small({"name": "mingledpie", "quorum": quorum}, training={"rounds": 1}), quiet=True)
    assert result.records[0]["extra"]["unopened"] == 0.0
    assert len(result.state.opening.advisers) == quorum


def test_quorums_that_cannot_be() -> None:
    for algorithm in (MingledPie, Routing):
        for quorum in (1, -1):
            with pytest.raises(CoveyError, match=r"algorithm\.quorum is"):
                algorithm(quorum=quorum)
    with pytest.raises(CoveyError, match=r"every client opens sums alone"):
        run(small({"name": "mingledpie", "quorum": 3}, encryption="bfv"), quiet=True)
    with pytest.raises(CoveyError, match=r"quorum"):
        run(small({"name": "mingledpie", "quorum": 21}), quiet=True)
    with pytest.raises(CoveyError, match=r"ifca cannot run with encryption = 'threshold'"):
        small("ifca")


# ---------------------------------------------------------------- what a client refuses


SETTING = Setting(0, 6, 2, 5, Plan(), torch.zeros(2, 4), torch.ones(4, dtype=torch.bool), "threshold")


@functools.cache
def issued() -> Any:
    return make_keys(Routing(), SETTING)


MEMORY: dict[str, Any] = {}


def client(i: int, round: int = 1, memory: dict[str, Any] | None = None, run_id: str = "") -> Client:
    held = own_keys(issued()["clients"], i)
    kept = {} if memory is None else memory
    return Client(i, round, 0, 1, Plan(), SETTING, kept, held, data=lambda: None, run=run_id)  # type: ignore


@functools.cache
def sealed() -> Any:
    return {i: openings.Seals.of(client(i)).seal([np.full(4, float(i))])[1] for i in range(6)}


def asked(groups: list[list[int]], j: int = 0, boxes: Any = None, round: int = 1, least: int = 2, **more: Any) -> Any:
    boxes = boxes or sealed()
    senders = sorted({i for group in groups for i in group if i in boxes})
    question = OpeningQuestion(groups, {i: boxes[i][j] for i in senders})
    turn = openings.help_open(client(j, round, **more), question, least)
    work = next(turn)
    try:
        turn.send(work.function(*work.arguments))  # type: ignore
    except StopIteration as stop:
        return stop.value


def test_groups_of_enough_clients_are_opened() -> None:
    assert isinstance(asked([[0, 1, 2], [3, 4, 5]]), OpeningAdvice)
    assert isinstance(asked([[0, 1, 2, 3, 4, 5]]), OpeningAdvice)


@pytest.mark.parametrize(
    ("groups", "why"),
    [
        ([[3]], "the sum of 1 clients is asked for"),  # one client's upload presented as a sum
        ([[]], "the sum of 0 clients"),
        ([], "the sum of 0 clients"),
        ([[0, 1, 2], [0, 1, 2, 3]], "a combination"),  # S and S without one client
        ([[0, 1], [1, 2], [0, 2]], "a combination"),  # of three: twice client 1
        ([[0, 1, 2, 3], [0, 1], [2]], "the sum of 1"),
        ([[0, 0, 1]], "no set of clients below 6"),  # scaled: client 0 twice
        ([[0, -1]], "no set of clients below 6"),
        ([[0, 6]], "no set of clients below 6"),
    ],
)
def test_what_would_tell_single_clients_apart_is_refused(groups: list[list[int]], why: str) -> None:
    with pytest.raises(CoveyError, match=why):
        asked(groups)


def test_min_group_is_the_least_that_is_opened() -> None:
    assert openings.least_opened(SETTING, 1) == 2 and openings.least_opened(SETTING, 4) == 4
    assert openings.least_opened(dataclasses.replace(SETTING, encryption="bfv"), 1) == 1
    with pytest.raises(CoveyError, match="sums of at least 4 are opened"):
        asked([[0, 1, 2]], least=4)


def test_a_second_question_of_the_round_is_refused_and_the_same_one_answered() -> None:
    memory: dict[str, Any] = {}
    asked([[0, 1, 2], [3, 4, 5]], memory=memory)
    assert isinstance(asked([[3, 4, 5], [0, 1, 2]], memory=memory), OpeningAdvice)
    for other in ([[0, 1, 2, 3]], [[0, 1, 3], [2, 4, 5]], [[0, 1, 2]]):
        with pytest.raises(CoveyError, match="sums of other groups were opened in round 1"):
            asked(other, memory=memory)
    later = {i: openings.Seals.of(client(i, 2)).seal([np.zeros(4)])[1] for i in range(6)}
    assert isinstance(asked([[0, 1, 3], [2, 4, 5]], boxes=later, round=2, memory=memory), OpeningAdvice)


def test_shares_of_another_round_or_run_are_refused() -> None:
    """Else one client's vectors of two rounds would stand in sums that differ by nothing else."""
    with pytest.raises(CoveyError, match="does not open"):
        asked([[0, 1, 2]], round=2)
    with pytest.raises(CoveyError, match="does not open"):
        asked([[0, 1, 2]], run_id="another run")


def test_two_questions_to_two_halves() -> None:
    """Of six clients four must help. Two that side with the server bridge two halves, and the sums differ by client 0; with one
    of them nobody is left for the second question: the bound is 2 t - n > c, as the page says.
    """
    public, everyone, others = issued()["clients"]["sealing"], [[0, 1, 2, 3, 4, 5]], [[1, 2, 3, 4, 5]]
    sealed = {i: openings.Seals.of(client(i)).seal([np.full(4, i + 0.5)]) for i in range(6)}
    boxes = {i: kept for i, (_, kept) in sealed.items()}
    sums = []
    for groups, half in ((everyone, (0, 1)), (others, (2, 3))):
        answers = {
            j: asked(groups, j, boxes) for j in (*half, 4, 5)
        }  # 4 and 5 answer both: they forget what they answered
        mixer = sealing.mixer(public, 1, 4)
        for i in groups[0]:
            mixer.add(sealed[i][0][0], [0])
        opening = fuse(public, answers, openings.occasion("", 1), [0], [0])
        sums.append(openings.Seals.of(client(5)).open(mixer.sums(), opening)[0])
    assert np.allclose(sums[0] - sums[1], 0.5)  # client 0's vector: a coordinator that lies, with c = 2 t - n clients
    memories: dict[int, dict[str, Any]] = {j: {} for j in range(5)}
    for j in (0, 1, 2):
        asked(everyone, j, boxes, memory=memories[j])
    refused = 0
    for j in range(5):
        try:
            asked(others, j, boxes, memory=memories[j])
        except CoveyError:
            refused += 1
    assert 5 - refused + 1 < 4


def test_routing_opens_no_fewer_than_its_min_group() -> None:
    senders = {i: sealed()[i][0] for i in range(3)}
    question = OpeningQuestion([[0, 1, 2]], senders)
    with pytest.raises(CoveyError, match="sums of at least 4 are opened"):
        next(Routing(min_group=4).advise(client(0), question))
    assert next(Routing(min_group=3).advise(client(0), question))


def test_keys_that_are_not_what_was_agreed() -> None:
    """Who hands out a roster must not be able to lower the quorum in it."""
    held = own_keys(issued()["clients"], 0)
    Routing().check_keys(held, 0, "threshold")
    with pytest.raises(CoveyError, match=r"open sums with 4 silos and a bound of 16, agreed are 5 and 16"):
        Routing(quorum=5).check_keys(held, 0, "threshold")
    with pytest.raises(CoveyError, match=r"agreed are 4 and 8"):
        Routing(bound=8.0).check_keys(held, 0, "threshold")


def test_a_question_of_another_kind_is_refused() -> None:
    with pytest.raises(CoveyError, match="expected the groups"):
        next(openings.help_open(client(0), "open it", 2))


@dataclasses.dataclass
class Watcher:
    """Whatever passes, by class."""

    name = "watcher"
    vantage: str = "server"
    memory: dict[str, Any] = dataclasses.field(default_factory=dict)
    seen: dict[str, list[View]] = dataclasses.field(default_factory=dict)

    def begin(self, knowledge: Knowledge) -> None: ...
    def observe(self, view: View) -> None:
        self.seen.setdefault(type(view.message).__name__, []).append(view)

    def end_round(self, round: int) -> None: ...
    def finding(self, truth: Truth) -> Finding:
        return Finding("watcher", "server", "accuracy", 0.5, 0.5, 0.4, 0.6, {}, "", {})


def test_the_exchange_is_seen_and_counted() -> None:
    watcher = Watcher()
    result = run(small(training={"rounds": 1}), attacks=[watcher], quiet=True)  # type: ignore
    assert {name: len(views) for name, views in watcher.seen.items()} == {
        "MingledSums": 20,
        "MingledUpdate": 20,
        "OpeningQuestion": 20,
        "OpeningAdvice": 20,
    }
    assert result.records[0]["bytes"]["down"] > 20 * 8192  # every client is sent a share of everybody's key


def test_attacks_that_read_broadcasts_and_replies_pass_over_the_exchange() -> None:
    attacks = [{"name": "loss_membership", "vantage": "client:0"}, "a1_intersection", "a2"]
    found = run(small(training={"rounds": 2, "epochs": 1}, attacks=attacks), quiet=True).attacks
    assert found["loss_membership"]["verdict"] and found["a1_intersection"]["value"] > 0.2


def test_a_sum_that_everybody_may_see_is_opened_without_pads_and_alone() -> None:
    """Noise protects one sum: of two sums that hold the same noise a difference could be taken."""
    public = issued()["clients"]["sealing"]
    sealed = {i: openings.Seals.of(client(i)).seal([np.full(4, i + 0.5)]) for i in range(6)}
    everyone = OpeningQuestion([[0, 1, 2, 3, 4, 5]], {})

    def answer(j: int, question: OpeningQuestion) -> Any:
        boxes = {i: kept[j] for i, (_, kept) in sealed.items()}  # type: ignore[index]
        turn = openings.help_open(client(j), dataclasses.replace(question, boxes=boxes), 6, for_all=True)
        work = next(turn)
        with pytest.raises(StopIteration) as stop:
            turn.send(work.function(*work.arguments))  # type: ignore
        return stop.value.value

    answers = {j: answer(j, everyone) for j in range(4)}
    mixer = sealing.mixer(public, 1, 4)
    for i in range(6):
        mixer.add(sealed[i][0][0], [0])
    opening = fuse(public, answers, openings.occasion("", 1), [0], [0])
    assert np.allclose(open_unpadded(public, mixer.sums(), opening)[0], 18.0)
    with pytest.raises(CoveyError, match="sums of 2 groups of clients are asked for"):
        answer(0, OpeningQuestion([[0, 1, 2], [3, 4, 5]], {}))
    with pytest.raises(CoveyError, match="the sum of 5 clients is asked for: sums of at least 6 are opened"):
        answer(0, OpeningQuestion([[0, 1, 2, 3, 4]], {}))
