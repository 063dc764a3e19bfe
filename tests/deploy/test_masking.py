"""Silos whose replies are masked: parity with the simulation, drop-outs, liars and keys without a dealer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from covey.crypto.openings.cohort import read_cohort
from covey.deploy import keys
from covey.deploy.course import doubts
from covey.deploy.course.doubts import Doubts
from covey.deploy.letters import Letter, RoundReply, unpack
from covey.deploy.membership.inventory import inspect
from covey.deploy.membership.records import write
from covey.errors import CoveyError
from covey.experiment.experiment import Experiment
from covey.files import read_state
from covey.messages import decode
from support.deployment import NAMES, Deployment, rehearsal, simulated


def averaging(algorithm: Any = "fedavg", **more: Any) -> Experiment:
    return rehearsal(algorithm, encryption="secagg", model="softmax", **more)


def lies(deployment: Deployment, liar: str, kind: str, change: Callable[[int, Any], Any]) -> None:
    """One silo signs other answers of this kind than its own."""
    bad = deployment.parties[liar]

    def tamper(sender: str, call: bytes, answer: bytes) -> bytes:
        letter: Letter = decode(unpack(answer).payload)
        if sender != liar or letter.kind != kind or not isinstance(letter.body, RoundReply):
            return answer
        round = unpack(answer).round
        body = RoundReply(change(round, letter.body.reply), None)
        return bytes(bad.mailbox.write(letter.run, kind, letter.receiver, round, body, letter.answers)[0])

    deployment.office.tamper = tamper


@pytest.mark.parametrize(("algorithm", "clusters"), [("fedavg", 2), ("ifca", 1)])
def test_deployed_is_as_simulated(tmp_path: Path, algorithm: str, clusters: int) -> None:
    experiment = averaging(algorithm, clusters=clusters, training={"rounds": 2, "epochs": 1})
    deployment = Deployment(tmp_path, experiment)
    result = deployment.coordinator().run()
    assert [r["extra"]["unopened"] for r in result.records] == [0.0, 0.0]
    _, uses = simulated(experiment)
    for i, name in enumerate(NAMES):
        own = read_state(tmp_path / "state" / name / "model.bin")
        assert torch.allclose(own.models, uses[i].models, atol=1e-5) and own.index == uses[i].index
    held = {(h.party, h.what) for h in inspect(tmp_path / "keys")}
    assert ("north (client:0)", "own key for masks and boxes between silos (X25519)") in held


def test_silos_that_are_gone_after_their_upload(tmp_path: Path) -> None:
    """Three of four are enough. In round 1 one is lost after its reply, in round 2 two are, in round 3 none."""
    deployment = Deployment(tmp_path, averaging())
    lost = {1: ["north"], 2: ["north", "west"], 3: []}

    def tamper(name: str, call: bytes, answer: bytes) -> bytes | None:
        letter: Letter = decode(unpack(call).payload)
        return None if letter.kind == "consult" and name in lost[unpack(call).round] else answer

    deployment.office.tamper = tamper
    result = deployment.coordinator().run()
    assert [r["extra"]["unopened"] for r in result.records] == [0.0, 1.0, 0.0]
    assert [r["lost"] for r in result.records] == [0, 1, 1]  # so far
    assert any("2 silos answered what 3 must: the round is lost" in line for line in deployment.said)


def noise(round: int, reply: Any) -> Any:
    cohort_words = np.random.default_rng(round).integers(0, 2**63, (len(reply.masked) - 64) // 8, np.uint64)
    return replace(reply, masked=COHORT[0].write(cohort_words, 1))


COHORT: list[Any] = []


@pytest.mark.parametrize("liar", ["north", "east"])
@pytest.mark.parametrize("lie", ["vector", "boxes", "shares"])
def test_one_liar_of_four_costs_rounds_and_not_the_run(tmp_path: Path, liar: str, lie: str) -> None:
    """No silo refuses anything by it, so `deployment.max_refusals` plays no part."""
    deployment = Deployment(tmp_path, averaging(training={"rounds": 6, "epochs": 1}))
    COHORT[:] = [read_cohort(keys.load(tmp_path / "keys" / "server")[0].keys["sealing"])]
    if lie == "vector":
        lies(deployment, liar, "round", noise)
    elif lie == "boxes":
        lies(deployment, liar, "round", lambda r, reply: replace(reply, boxes=[bytes(len(b)) for b in reply.boxes]))
    else:
        wrong = lambda r, advice: replace(advice, shares={i: bytes(len(s)) for i, s in advice.shares.items()})  # noqa: E731
        lies(deployment, liar, "consult", wrong)
    coordinator = deployment.coordinator()
    records = coordinator.run().records
    lost = [r["extra"]["unopened"] for r in records]
    assert lost[-1] == 0.0 and records[-1]["participants"] == (4 if lie == "shares" else 3)
    assert coordinator.doubts.left_out == ([] if lie == "shares" else [NAMES.index(liar)])
    assert sum(lost) == {"shares": 0, "boxes": 1}.get(lie, sum(lost)) and sum(lost) <= 4
    assert not any(silo.state.refusals for silo in deployment.parties.values())


def test_what_a_server_sees_by_itself_halves_the_suspects() -> None:
    start = Doubts()
    assert doubts.after_judgement(start, [], [], []) == start
    spoilt = doubts.after_judgement(start, [0, 1, 2, 3], [], [])
    assert spoilt.suspects == [0, 1, 2, 3] and spoilt.left_out == []
    assert doubts.asked(spoilt, range(4), 3) == [0, 1, 2]
    good = doubts.after_judgement(spoilt, [], [], [0, 1, 2])
    assert good.suspects == [3]
    assert doubts.after_judgement(good, [0, 1, 2, 3], [], []).left_out == [3]
    bad = doubts.after_judgement(spoilt, [0, 1, 2], [], [])
    assert bad.suspects == [0, 1, 2] and doubts.asked(bad, range(4), 3) == [0, 1, 3]
    assert doubts.after_judgement(bad, [0, 1, 3], [], []).suspects == [0, 1]
    assert doubts.after_judgement(spoilt, [], [2], []) == replace(spoilt, suspects=[0, 1, 3], left_out=[2])


def test_keys_that_silos_made_themselves_and_masks_are_a_choice(tmp_path: Path) -> None:
    publics = tmp_path / "publics"
    for name in NAMES:
        keys.make_own(publics / name)
    experiment = averaging(training={"rounds": 1, "epochs": 1})
    keys.make(experiment, NAMES, ["localhost"], tmp_path / "keys", publics)
    with pytest.raises(CoveyError, match=r"put the opening\.key"):
        party, _ = keys.load(tmp_path / "keys" / "silos" / "north")
        experiment.algorithm.check_keys(party.keys, 0, "secagg")
    write(tmp_path / "keys" / "silos" / "north" / "opening.key", (publics / "north.key").read_bytes(), 0o600)
    party, _ = keys.load(tmp_path / "keys" / "silos" / "north")
    experiment.algorithm.check_keys(party.keys, 0, "secagg")
    for other in (replace(experiment.algorithm, quorum=2), replace(experiment.algorithm, bound=8.0)):
        with pytest.raises(CoveyError, match="these keys open sums with 3 silos and a bound of 16"):
            other.check_keys(party.keys, 0, "secagg")
    with pytest.raises(CoveyError, match="they share one"):
        keys.make(replace(experiment, encryption="none"), NAMES, ["localhost"], tmp_path / "none", publics)
    assert "encryption" not in keys.protected({"algorithm": "fedavg", "clients": 5, "clusters": 2})
    with pytest.raises(CoveyError, match="3 silos must help to open a sum and 2 are named"):
        keys.make(experiment, NAMES[:2], ["localhost"], tmp_path / "few")


def test_min_silos_below_what_masks_need_is_refused_before_keys_are_made(tmp_path: Path) -> None:
    """Of exactly three silos nobody may be missing: a sum of two is never unmasked."""
    few = averaging({"name": "fedavg", "quorum": 2}, clients=3, deployment={"min_silos": 2})
    with pytest.raises(CoveyError, match=r"min_silos is 2, and a round with fewer than 3 silos .* set it to 3 or more"):
        keys.make(few, NAMES[:3], [], tmp_path / "keys")
    assert not (tmp_path / "keys").exists()
    keys.make(replace(few, deployment=replace(few.deployment, min_silos=3)), NAMES[:3], [], tmp_path / "keys")
    assert list(keys.remaining(tmp_path / "keys" / "server")) == []


def test_a_large_delta_is_said_where_keys_are_made() -> None:
    def protected(delta: Any) -> list[str]:
        defence = {"name": "client_dp", "epsilon": 4.0, "delta": delta}
        return keys.weak_delta(rehearsal({"name": "fedavg", "weighting": "clients"}, defence=defence))

    assert "not below 1 / 4 clients" in protected("1/clients")[0] and "not below" in protected(0.3)[0]
    assert "a δ of 0.22 is large" in protected("1/clients^1.1")[0]
    assert protected(1e-5) == [] == keys.weak_delta(averaging())
