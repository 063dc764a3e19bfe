"""Averages under masks, in whole runs: the same answers, who may be asked for what, who may be missing, and who is blamed."""

from __future__ import annotations

import dataclasses
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
import torch

from covey import roles
from covey.algorithms.averaging import GlobalModel, LocalModel
from covey.algorithms.contract import Client, Server, Setting, declaration_under, make_keys, own_keys
from covey.algorithms.fedavg import FedAvg
from covey.algorithms.fedprox import FedProx
from covey.algorithms.ifca import IFCA
from covey.algorithms.sums import masking
from covey.crypto.openings.secagg import UnmaskingAdvice
from covey.crypto.openings.threshold import OpeningQuestion
from covey.errors import CoveyError
from covey.experiment.experiment import Experiment
from covey.learn.work import Plan
from covey.rounds.loop import run


def small(algorithm: Any = "fedavg", **more: Any) -> Experiment:
    table: dict[str, Any] = {
        "dataset": "digits",
        "algorithm": algorithm,
        "encryption": "secagg",
        "clients": 12,
        "clusters": 3,
        "model": "softmax",
        "partition": {"name": "label_sets", "public": 20},
        "training": {"rounds": 3, "epochs": 1, "batch_size": 20, "lr": 0.1},
        "engine": {"workers": 1},
    }
    return Experiment.of(table, **more)


def vectors(result: Any) -> torch.Tensor:
    state = result.state
    return state.models if hasattr(state, "models") else state.model


@pytest.mark.parametrize(
    "algorithm",
    ["fedavg", {"name": "fedavg", "weighting": "clients"}, "fedprox", "ifca", {"name": "ifca", "weighting": "samples"}],
)
def test_the_same_run_as_in_the_clear(algorithm: Any) -> None:
    masked, clear = run(small(algorithm), quiet=True), run(small(algorithm, encryption="none"), quiet=True)
    assert masked.accuracy["client_mean"] == pytest.approx(clear.accuracy["client_mean"], abs=1e-3)
    assert torch.allclose(vectors(masked), vectors(clear), atol=1e-5)
    assert [r["clusters"] for r in masked.records] == [r["clusters"] for r in clear.records]
    assert [r["extra"]["unopened"] for r in masked.records] == [0.0] * 3


def test_processes_and_shared_layers_change_nothing() -> None:
    layers = {"layers": {"personal": 1}, "model": "mlp", "training": {"rounds": 2, "epochs": 1}}
    one, two = (run(small("ifca", **layers, engine={"workers": n}), quiet=True) for n in (1, 2))
    clear = run(small("ifca", **layers, encryption="none"), quiet=True)
    assert one.accuracy == two.accuracy and one.bytes == two.bytes
    assert torch.allclose(vectors(one), vectors(clear), atol=1e-5)


@pytest.mark.parametrize("name", ["fedavg", "ifca"])
def test_drop_outs_before_the_upload_and_after_it(name: str) -> None:
    """Two thirds must help, and be in the sums. What is lost before the upload is left out of them as in the clear, and who
    vanishes after it is not missed; where too few are left the model stays as it is, and the next round goes on.
    """
    away = {"participation": {"dropout": 0.15, "vanish": 0.2}, "training": {"rounds": 6, "epochs": 1, "lr": 0.1}}
    table = small(name, **away)
    sent, helping = [], []
    for r in range(1, 7):
        there, _ = table.participation.participants(table.seed, r, 12)
        gone = table.participation.vanished(table.seed, r, 12)
        sent.append(len(there))
        helping.append(sum(not gone[i] for i in there))
    result = run(table, quiet=True)
    lost = [float(n < 8) for n in helping]
    assert [r["extra"]["unopened"] for r in result.records] == lost
    assert 0 < sum(lost) < 6 and min(sent) < 12
    if name == "fedavg":
        drops = [[r, i] for r in range(1, 7) for i in range(12) if lost[r - 1]]
        clear = run(
            small(name, encryption="none", **{**away, "participation": {"dropout": 0.15, "drops": drops}}), quiet=True
        )
        assert torch.allclose(vectors(result), vectors(clear), atol=1e-5)


def test_clusters_of_two_stay_masked_and_keep_their_model() -> None:
    """As in the clear with `min_group = 3`: 8 clients in 3 clusters, of which one has two."""
    few = {"clients": 8, "partition": {"name": "label_sets", "public": 20}}
    masked = run(small("ifca", **few), quiet=True)
    clear = run(small({"name": "ifca", "min_group": 3}, encryption="none", **few), quiet=True)
    assert sorted(np.bincount(masked.records[-1]["clusters"])) == [2, 3, 3]
    assert [r["extra"]["unopened"] for r in masked.records] == [0.0] * 3
    assert torch.allclose(vectors(masked), vectors(clear), atol=1e-5)


def test_settings_that_cannot_be() -> None:
    for algorithm in (FedAvg, FedProx, IFCA):
        for quorum in (1, -1):
            with pytest.raises(CoveyError, match=r"algorithm\.quorum is"):
                algorithm(quorum=quorum)
    for table, why in (
        (
            {"algorithm": {"name": "fedavg", "quorum": 3}, "encryption": "none"},
            "models come in the clear: take encryption",
        ),
        ({"algorithm": {"name": "fedavg", "quorum": 13}}, "quorum"),
        ({"clients": 2, "clusters": 1}, "sums of at least 3 are unmasked"),
        ({"algorithm": {"name": "ifca", "aggregation": "median"}}, "can neither compare what silos send"),
        ({"algorithm": {"name": "fedavg", "bound": 0.01}}, "largest magnitude"),
        ({"algorithm": {"name": "fedavg", "bound": -1.0}}, "finite bound above 0"),
        ({"algorithm": {"name": "fedavg", "bound": 1e9}}, "bits after the point"),
    ):
        with pytest.raises(CoveyError, match=why):
            run(small(**table), quiet=True)
    for name in ("mingledpie", "routing", "scaffold", "fedem"):
        with pytest.raises(CoveyError, match=f"{name} cannot run with encryption = 'secagg'"):
            small(name)
    with pytest.raises(CoveyError, match="fedavg cannot run with encryption = 'threshold'; it can with: none, secagg"):
        small(encryption="threshold")
    with pytest.raises(CoveyError, match="its replies are sealed"):
        small(compression="top_k")


def test_what_is_declared_depends_on_the_encryption() -> None:
    clear, masked = (declaration_under(IFCA(), name) for name in ("none", "secagg"))
    assert roles.carries(clear.replies[0], roles.Model) and not clear.consults
    assert masked.replies == (masking.MaskedClusterModel,) and masked.consults == (OpeningQuestion,)
    assert not roles.carries(masked.replies[0], roles.Model, roles.Count) and roles.carries(
        masked.replies[0], roles.Identity
    )


# ---------------------------------------------------------------- what a client refuses, and what a server makes of liars

SETTING = Setting(0, 6, 2, 5, Plan(), torch.zeros(2, 4), torch.ones(4, dtype=torch.bool), "secagg")
ALGORITHM = FedAvg(weighting="clients")
KEYS = make_keys(ALGORITHM, SETTING)


def client(i: int, round: int = 1, memory: dict[str, Any] | None = None, run_id: str = "") -> Client:
    held, kept = own_keys(KEYS["clients"], i), {} if memory is None else memory
    return Client(i, round, 0, 10, Plan(), SETTING, kept, held, data=lambda: None, run=run_id)  # type: ignore


def worked(turn: Any) -> Any:
    """What a coroutine returns that asks for one computation."""
    try:
        work = next(turn)
        turn.send(work.function(*work.arguments))
    except StopIteration as stop:
        return stop.value
    raise AssertionError("it asks for more")


SENT = GlobalModel(torch.zeros(4))
REPLIES = {
    i: worked(masking.hidden(client(i), SENT, LocalModel(torch.full((4,), float(i)), 10), "clients")) for i in range(6)
}


def asked(groups: list[list[int]], j: int = 0, least: int = 1, round: int = 1, **more: Any) -> Any:
    senders = sorted({i for group in groups for i in group if i in REPLIES})
    question = OpeningQuestion(groups, {i: REPLIES[i].boxes[j] for i in senders})
    return worked(masking.help_unmask(client(j, round, **more), question, least))


def test_disjoint_groups_of_two_thirds_are_unmasked() -> None:
    for groups in ([[0, 1, 2, 3, 4, 5]], [[0, 1, 2, 3]], [[0, 1, 5], [2, 3, 4]]):
        advice = asked(groups)
        assert isinstance(advice, UnmaskingAdvice) and advice.unreadable == []


@pytest.mark.parametrize(
    ("groups", "why"),
    [
        ([], "of at least 4 they are taken off"),
        ([[0, 1, 2]], "of at least 4 they are taken off"),
        ([[0, 1, 2, 3], [4]], "the sum of 1 clients is asked for: sums of at least 3 are unmasked"),
        ([[0, 1], [2, 3, 4]], "the sum of 2 clients is asked for"),  # either knows the other's part
        ([[], [0, 1, 2, 3]], "the sum of 0 clients is asked for"),
        ([[0, 1, 2, 3], [0, 1, 2, 3]], "in two sums"),  # both kinds of shares of one client
        ([[0, 1, 2, 3], [3, 4, 5]], "in two sums"),
        ([[0, 0, 1, 2]], "no set of clients below 6"),
        ([[0, 1, 2, 6]], "no set of clients below 6"),
        ([[0, 1, 2, True]], "no set of clients below 6"),
    ],
)
def test_what_would_tell_single_clients_apart_is_refused(groups: list[list[int]], why: str) -> None:
    with pytest.raises(CoveyError, match=why):
        asked(groups)


def test_one_set_of_survivors_a_round() -> None:
    """A second one would have both kinds of shares of who is in one of them only."""
    memory: dict[str, Any] = {}
    asked([[0, 1, 2, 3, 4, 5]], memory=memory)
    asked([[0, 1, 2, 3, 4, 5]], memory=memory)
    for other in ([[0, 1, 2, 3, 4]], [[0, 1, 2], [3, 4, 5]]):
        with pytest.raises(CoveyError, match="sums of other groups were opened in round 1"):
            asked(other, memory=memory)
    assert asked([[0, 1, 2, 3]], round=2, memory=memory).unreadable == [0, 1, 2, 3]  # boxes of round 1
    assert asked([[0, 1, 2, 3]], run_id="other").shares == {}


def test_min_group_and_questions_that_are_none() -> None:
    with pytest.raises(CoveyError, match="sums of at least 4 are unmasked"):
        asked([[0, 1, 2], [3, 4, 5]], least=4)
    with pytest.raises(CoveyError, match="a LocalModel was sent"):
        worked(masking.help_unmask(client(0), LocalModel(torch.ones(4), 1), 1))
    clear = dataclasses.replace(client(0), setting=dataclasses.replace(SETTING, encryption="none"))
    with pytest.raises(CoveyError, match="nothing is masked here"):
        worked(masking.help_unmask(clear, OpeningQuestion([[0, 1]], {}), 1))


def desk(silent: tuple[int, ...] = (), change: Any = lambda j, advice: advice) -> Server:
    def consult(questions: Any, enough: int) -> dict[int, Any]:
        there = {j: q for j, q in questions.items() if j not in silent}
        return {j: change(j, worked(masking.help_unmask(client(j), q, 1))) for j, q in there.items()}

    return Server(1, 0, SETTING, KEYS["server"], lambda *_: None, lambda _: nullcontext(), consult=consult)


def mean(server: Server, replies: dict[int, Any]) -> list[float] | None:
    state = ALGORITHM.start(SETTING)
    after = ALGORITHM.aggregate(server, state, iter(replies.items()))
    return None if after is state else after.model.tolist()


def test_who_vanishes_is_not_missed_and_below_the_quorum_nothing_opens() -> None:
    assert mean(desk(), REPLIES) == [2.5] * 4
    assert mean(desk(silent=(0, 5)), REPLIES) == [2.5] * 4
    assert mean(desk(silent=(1,)), {i: REPLIES[i] for i in (0, 1, 2, 4, 5)}) == pytest.approx([2.4] * 4, abs=1e-6)
    server = desk(silent=(0, 1, 2))
    assert mean(server, REPLIES) is None and server.notes["unopened"] == 1.0 and not server.suspected
    assert mean(desk(), {i: REPLIES[i] for i in (0, 1, 2)}) is None


def test_liars_are_left_aside_suspected_or_blamed() -> None:
    server = desk(
        change=lambda j, a: UnmaskingAdvice({i: bytes(len(s)) for i, s in a.shares.items()}, []) if j < 2 else a
    )
    assert mean(server, REPLIES) == [2.5] * 4 and server.cleared == set(range(6))
    for broken in (None, UnmaskingAdvice({}, [])):
        assert mean(desk(change=lambda j, a, b=broken: b if j < 2 else a), REPLIES) == [2.5] * 4
        assert mean(desk(change=lambda j, a, b=broken: b if j < 3 else a), REPLIES) is None
    server = desk()
    garbage = dataclasses.replace(REPLIES[3], boxes=[b"\1" * len(box) for box in REPLIES[3].boxes])
    assert mean(server, {**REPLIES, 3: garbage}) is None and server.blamed == {3} and not server.cleared
    server = desk()
    assert mean(server, {**REPLIES, 3: dataclasses.replace(REPLIES[3], boxes=[])}) == pytest.approx([2.4] * 4, abs=1e-6)
    assert server.blamed == {3} and server.cleared == {0, 1, 2, 4, 5}
    server = desk()
    swapped = dataclasses.replace(REPLIES[3], masked=REPLIES[2].masked)
    assert mean(server, {**REPLIES, 3: swapped}) is None and server.suspected == set(range(6)) and not server.blamed


def test_of_clients_that_were_sent_different_models_nothing_adds_up() -> None:
    """Pasquini et al. 2022: a server that shows all but one a model with dead units reads that one's update in the sum."""
    other = masking.hidden(client(3), GlobalModel(torch.ones(4)), LocalModel(torch.full((4,), 3.0), 10), "clients")
    server = desk()
    assert mean(server, {**REPLIES, 3: worked(other)}) is None and server.suspected == set(range(6))
    same = masking.hidden(client(3), GlobalModel(torch.zeros(4)), LocalModel(torch.full((4,), 3.0), 10), "clients")
    assert mean(desk(), {**REPLIES, 3: worked(same)}) == [2.5] * 4
