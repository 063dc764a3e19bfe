"""One admitted silo with good keys and bad replies: it costs itself the round, and the run goes on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from covey.algorithms.pqfed.features import NoisyFeatures
from covey.algorithms.pqfed.messages import Idle
from covey.crypto.sealing import mixing, plain
from covey.crypto.sealing.sealing import LABEL_BYTES, Label
from covey.deploy.course import doubts
from covey.deploy.course.doubts import Doubts
from covey.deploy.letters import Letter, RoundReply, unpack
from covey.errors import CoveyError
from covey.files import read_state
from covey.messages import decode
from support.deployment import Deployment, rehearsal, simulated


def spoil(deployment: Deployment, change: Callable[[int, Any], Any], name: str = "north") -> None:
    """From now on this silo's replies are what `change` makes of them: (round, reply) in, well signed out."""
    bad = deployment.parties[name]

    def tamper(sender: str, call: bytes, answer: bytes) -> bytes:
        letter: Letter = decode(unpack(answer).payload)
        if sender != name or letter.kind != "round" or not isinstance(letter.body, RoundReply):
            return answer
        round = unpack(answer).round
        body = RoundReply(change(round, letter.body.reply), None)
        return bytes(bad.mailbox.write(letter.run, "round", letter.receiver, round, body, letter.answers)[0])

    deployment.office.tamper = tamper


def random_residues(sealed: bytes) -> bytes:
    label = Label.read(sealed)
    words = np.frombuffer(sealed, "<u8", offset=LABEL_BYTES)
    drawn = np.random.default_rng(0).integers(0, 2**40, len(words), np.uint64)
    return mixing.write_words(drawn, label, label.length, label.terms)


@pytest.mark.parametrize(("liar", "lie"), [("north", "vector"), ("south", "shares"), ("east", "boxes")])
def test_a_liar_among_silos_that_open_together_is_found(tmp_path: Path, liar: str, lie: str) -> None:
    """Three of four must help. Before, portions of two were asked, whose sums nobody could open; that cleared the liar, an
    honest silo was left out, and all silos stopped for good. No refusal tells of a key here, so none is counted. Who boxes
    garbage is named by the others, and gone after one round.
    """
    experiment = rehearsal(
        "routing",
        encryption="threshold",
        model="softmax",
        training={"rounds": 12, "epochs": 1},
    )
    deployment = Deployment(tmp_path, experiment)
    bad = deployment.parties[liar]

    def tamper(sender: str, call: bytes, answer: bytes) -> bytes:
        letter: Letter = decode(unpack(answer).payload)
        if sender != liar or not isinstance(letter.body, RoundReply):
            return answer
        reply, round = letter.body.reply, unpack(answer).round
        if letter.kind == "round" and lie == "vector":
            reply = replace(reply, blocks=[random_residues(block) for block in reply.blocks])
        elif letter.kind == "round" and lie == "boxes":
            reply = replace(reply, boxes=[bytes(len(box)) for box in reply.boxes])
        elif letter.kind == "consult" and lie == "shares":
            reply = replace(reply, shares=[bytes(len(share)) for share in reply.shares])
        body = RoundReply(reply, None)
        return bytes(bad.mailbox.write(letter.run, letter.kind, letter.receiver, round, body, letter.answers)[0])

    deployment.office.tamper = tamper
    coordinator = deployment.coordinator()
    records = coordinator.run().records
    assert coordinator.doubts.left_out == [deployment.names.index(liar)]
    assert records[-1]["participants"] == 3 and records[-1]["extra"]["unopened"] == 0.0
    assert not any(silo.stopped or silo.state.refusals for silo in deployment.parties.values())
    assert lie != "boxes" or [r["extra"]["unopened"] for r in records] == [1.0] + 11 * [0.0]


def test_a_round_that_came_to_nothing_clears_nobody() -> None:
    suspected = Doubts(None, [], [0, 1, 2, 3], [], 1)
    assert doubts.asked(suspected, range(4), 3) == [0, 1, 2]
    assert doubts.after_idle(suspected).suspects == [0, 1, 2, 3]
    opened = doubts.after_round(suspected, "state", [0, 1, 2])
    assert doubts.after_idle(opened).suspects == [3]  # what these three had sent was opened before the idle round


def plain_vector(sealed: bytes, number: float) -> bytes:
    values = np.frombuffer(sealed, "<f4", offset=LABEL_BYTES).astype(np.float64)
    values[-1] = number
    return plain._write(values, 1)


def models(deployment: Deployment) -> list[Any]:
    return [read_state(deployment.folder / "state" / n / "model.bin") for n in deployment.names]


@pytest.mark.parametrize("bad_round", [1, 2, 5])
def test_random_residues_are_taken_back(tmp_path: Path, bad_round: int) -> None:
    """Before, nothing opened ever again, also not after a restart: the checkpoint kept the bad sum."""
    deployment = Deployment(tmp_path, rehearsal("mingledpie", encryption="ckks", training={"rounds": 5}))
    spoil(
        deployment, lambda r, reply: replace(reply, sealed=random_residues(reply.sealed)) if r == bad_round else reply
    )
    coordinator = deployment.coordinator()
    result = coordinator.run()
    assert len(result.records) == 5 and coordinator.doubts.setbacks == 1
    assert all(bool(torch.isfinite(model.models).all()) for model in models(deployment))
    assert not any(deployment.parties[name].stopped for name in deployment.names)
    if bad_round < 5:
        assert [r["participants"] for r in result.records][bad_round] == 0  # the round that told
        assert not coordinator.doubts.left_out  # once: the portions that followed were good


def test_a_silo_that_never_stops_is_left_out(tmp_path: Path) -> None:
    deployment = Deployment(tmp_path, rehearsal("mingledpie", encryption="ckks", training={"rounds": 7}))
    spoil(deployment, lambda r, reply: replace(reply, sealed=random_residues(reply.sealed)))
    coordinator = deployment.coordinator()
    result = coordinator.run()
    assert 0 in coordinator.doubts.left_out and len(coordinator.doubts.left_out) <= 2
    assert [r["participants"] for r in result.records][-2:] == [2, 2]
    assert all(bool(torch.isfinite(model.models).all()) for model in models(deployment)[1:])
    assert all(deployment.parties[name].state.refusals <= 2 for name in deployment.names)


def test_a_coordinator_started_again_remembers_its_doubts(tmp_path: Path) -> None:
    deployment = Deployment(tmp_path, rehearsal("mingledpie", encryption="ckks", training={"rounds": 5}))
    spoil(deployment, lambda r, reply: replace(reply, sealed=random_residues(reply.sealed)) if r == 2 else reply)

    def stop(done: int, record: Any) -> None:
        if done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        deployment.coordinator().run(stop)
    again = deployment.coordinator()
    assert len(again.run().records) == 5 and again.doubts.setbacks == 1


@pytest.mark.parametrize("number", [float("nan"), float("inf"), 3e38])
def test_numbers_that_are_none_are_refused_in_the_clear(tmp_path: Path, number: float) -> None:
    deployment = Deployment(tmp_path, rehearsal("mingledpie", training={"rounds": 2}))
    spoil(deployment, lambda r, reply: replace(reply, sealed=plain_vector(reply.sealed, number)))
    result = deployment.coordinator().run()
    assert [r["participants"] for r in result.records] == [3, 3]
    assert all(bool(torch.isfinite(model.models).all()) for model in models(deployment))


def test_a_false_indicator_is_taken_back_in_the_clear(tmp_path: Path) -> None:
    deployment = Deployment(tmp_path, rehearsal("mingledpie", training={"rounds": 5}))
    spoil(deployment, lambda r, reply: replace(reply, sealed=plain_vector(reply.sealed, 9.0)) if r == 2 else reply)
    coordinator = deployment.coordinator()
    coordinator.run()
    assert coordinator.doubts.setbacks == 1 and all(bool(torch.isfinite(m.models).all()) for m in models(deployment))


@pytest.mark.parametrize("reply", [Idle(), NoisyFeatures(torch.ones(5, 3))], ids=["idle", "another width"])
def test_pqfed_goes_on_without_a_bad_reply(tmp_path: Path, reply: Any) -> None:
    pqfed = {"name": "pqfed", "components": 8, "k": 3, "strategy": "all", "target": 1}
    deployment = Deployment(tmp_path, rehearsal(pqfed))
    spoil(deployment, lambda r, honest: reply)
    result = deployment.coordinator().run()
    assert len(result.records) == 3 and result.records[1]["participants"] >= 2


def test_a_reply_on_which_the_algorithm_breaks_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deployment = Deployment(tmp_path, rehearsal("fedavg"))
    spoil(deployment, lambda r, reply: replace(reply, samples=12345))
    coordinator = deployment.coordinator()
    aggregate = type(coordinator.algorithm).aggregate

    def breaks(self: Any, server: Any, state: Any, replies: Any) -> Any:
        came = list(replies)
        if any(reply.samples == 12345 for _, reply in came):
            raise ZeroDivisionError
        return aggregate(self, server, state, iter(came))

    monkeypatch.setattr(type(coordinator.algorithm), "aggregate", breaks)
    result = coordinator.run()
    assert [r["participants"] for r in result.records] == [3, 3, 3]
    assert any("breaks on its reply (ZeroDivisionError)" in said for said in deployment.said)


def test_suspects_come_back_in_portions() -> None:
    first = doubts.after_round(Doubts(), "start", [0, 1, 2, 3])
    assert doubts.asked(first, range(4)) == [0, 1, 2, 3]
    told = doubts.after_setback(first, 3)
    assert told.suspects == [0, 1, 2, 3] and doubts.asked(told, range(4)) == [0, 1]
    tried = doubts.after_round(told, "start", [0, 1])
    cleared = doubts.after_round(tried, "one", [0, 1, 2])
    assert cleared.suspects == [2, 3] and doubts.asked(cleared, range(4)) == [0, 1, 2]
    assert doubts.after_setback(cleared, 3).left_out == [2]
    assert doubts.after_setback(tried, 3).left_out == [0, 1]
    assert doubts.after_setback(tried, 9).suspects == [0, 1]


def test_portions_are_no_smaller_than_an_average_may_be(tmp_path: Path) -> None:
    """Before, half of four suspects came back into rounds of which nothing may be averaged below three: nobody was ever cleared."""
    told = Doubts(None, [], [0, 1, 2, 3])
    assert doubts.asked(told, range(4), 3) == [0, 1, 2] and doubts.asked(told, range(2), 3) == [0, 1]
    assert doubts.asked(Doubts(None, [], [2, 3]), range(4), 3) == [0, 1, 2]
    one_cluster = {"name": "mingledpie", "threshold": 1, "min_group": 3, "remember": "never"}
    deployment = Deployment(tmp_path, rehearsal(one_cluster, encryption="ckks", clusters=1, training={"rounds": 7}))
    spoil(deployment, lambda r, reply: replace(reply, sealed=random_residues(reply.sealed)) if r == 2 else reply)
    coordinator = deployment.coordinator()
    result = coordinator.run()
    assert [r["participants"] for r in result.records] == [4, 4, 0, 3, 3, 4, 4] and not coordinator.doubts.suspects
    assert not any(record["extra"].get("withheld") for record in result.records)


@pytest.mark.parametrize("rule", ["krum:0.25", "multikrum:0.25"])
def test_a_deployed_rule_chooses_whom_the_simulation_chooses(tmp_path: Path, rule: str) -> None:
    fedavg = {"name": "fedavg", "weighting": "clients", "aggregation": rule}
    deployment = Deployment(tmp_path, rehearsal(fedavg, clusters=1))
    deployment.coordinator().run()
    _, uses = simulated(deployment.experiment)
    for n, model in enumerate(models(deployment)):
        assert torch.equal(model.models, uses[n].models)


def test_a_minority_that_refuses_costs_itself_the_round(tmp_path: Path) -> None:
    deployment = Deployment(tmp_path, rehearsal("mingledpie", encryption="ckks"))
    north = deployment.parties["north"]
    north.host.run = lambda *a: (_ for _ in ()).throw(CoveyError("no"))
    coordinator = deployment.coordinator()
    result = coordinator.run()
    assert [r["participants"] for r in result.records] == [3, 3, 3] and coordinator.doubts.setbacks == 0
    assert north.stopped  # after three of them, by itself
