"""Silos that open sums together: who may be missing, what a silo answers and after a restart, and keys without a dealer."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from covey.algorithms.routing import RoutedSums
from covey.crypto.openings.threshold import OpeningAdvice, OpeningQuestion
from covey.data.own.silo import read_folder
from covey.deploy import keys
from covey.deploy.export import export
from covey.deploy.letters import Letter, Mailbox, RoundReply, unpack
from covey.deploy.membership.inventory import inspect
from covey.deploy.membership.records import write
from covey.deploy.serve import check_same
from covey.deploy.silo import Silo
from covey.errors import CoveyError
from covey.experiment.experiment import Experiment
from covey.messages import decode
from support.deployment import NAMES, Deployment, rehearsal


def routing(**more: Any) -> Experiment:
    return rehearsal("routing", encryption="threshold", model="softmax", **more)


def letter_of(data: bytes) -> Letter:
    letter: Letter = decode(unpack(data).payload)
    return letter


def test_some_may_be_gone_when_sums_are_opened_and_fewer_than_the_quorum_cost_the_round(tmp_path: Path) -> None:
    """Three of four silos are enough. In round 1 one is lost after its reply, in round 2 two are, in round 3 none."""
    deployment = Deployment(tmp_path, routing())
    lost = {1: ["north"], 2: ["north", "west"], 3: []}

    def tamper(name: str, call: bytes, answer: bytes) -> bytes | None:
        round = unpack(call).round
        return None if letter_of(call).kind == "consult" and name in lost[round] else answer

    deployment.office.tamper = tamper
    result = deployment.coordinator().run()
    assert [r["extra"]["unopened"] for r in result.records] == [0.0, 1.0, 0.0]
    assert [r["participants"] for r in result.records] == [4, 4, 4]
    assert any("2 silos answered what 3 must: the round is lost" in line for line in deployment.said)
    assert result.state.opening.occasion.endswith(":3") and len(result.state.opening.advisers) == 3


class Asked:
    """A deployment after its first round, and letters to one silo of it."""

    def __init__(self, folder: Path, experiment: Experiment | None = None, copied: Path | None = None) -> None:
        self.deployment = Deployment(folder, experiment or routing(training={"rounds": 2, "epochs": 1}))
        self.questions: list[OpeningQuestion] = []

        def tamper(name: str, call: bytes, answer: bytes) -> bytes | None:
            if letter_of(call).kind == "consult" and name == "north":
                self.questions.append(letter_of(call).body)
            if letter_of(call).kind == "round" and name == "north" and copied:
                shutil.copytree(folder / "state" / "north", copied)
                self.twin = self.deployment.silo("north", copied)
            return answer

        self.deployment.office.tamper = tamper
        self.coordinator = self.deployment.coordinator()
        state, _ = self.coordinator._begin()
        self.coordinator.gather()
        self.state, _ = self.coordinator._round(state, 1)
        party, _ = keys.load(folder / "keys" / "server")
        self.mailbox = Mailbox(party.role, party.signing, {}, 300, 1 << 24)
        self.answers = Mailbox(party.role, party.signing, party.known, 300, 1 << 24)

    def ask(self, body: Any, round: int = 1, run: str = "", silo: Any = None, kind: str = "consult") -> Any:
        run = run or self.coordinator.session.run
        data, _ = self.mailbox.write(run, kind, "client:0", round, body)
        answer = self.answers.read((silo or self.deployment.parties["north"]).handle(data)).letter.body
        assert isinstance(answer, RoundReply)
        return answer.reply


def test_a_silo_helps_to_open_one_set_of_sums_a_round_also_after_a_restart(tmp_path: Path) -> None:
    asked = Asked(tmp_path)
    (question,) = asked.questions
    assert question.groups == [[0, 1, 2, 3]]
    other = replace(question, groups=[[0, 1, 2]])
    single = replace(question, groups=[[3]])
    for silo in (asked.deployment.parties["north"], asked.deployment.silo("north")):
        assert isinstance(asked.ask(question, silo=silo), OpeningAdvice)
        with pytest.raises(CoveyError, match="sums of other groups were opened in round 1"):
            asked.ask(other, silo=silo)
        with pytest.raises(CoveyError, match="the sum of 1 clients is asked for"):
            asked.ask(single, silo=silo)
    with pytest.raises(CoveyError, match="a question of round 2 came, but round 1 is answered"):
        asked.ask(question, round=2)
    with pytest.raises(CoveyError, match="takes part in run"):
        asked.ask(question, run="another")
    with pytest.raises(CoveyError, match="expected OpeningQuestion"):
        asked.ask(None)
    assert asked.deployment.parties["north"].state.refusals == 0  # none of these depended on a key


def test_a_copy_of_a_state_from_before_it_helped_helps_nobody(tmp_path: Path) -> None:
    """It runs beside the silo, was started before that helped, and is asked for other sums; then in a new run, with old boxes."""
    experiment = routing(training={"rounds": 2, "epochs": 1}, deployment={"rehearsal": False})
    asked = Asked(tmp_path, experiment, copied=tmp_path / "copy")
    (question,) = asked.questions
    assert isinstance(asked.ask(question), OpeningAdvice)
    for body in (replace(question, groups=[[0, 1, 2]]), question):
        with pytest.raises(CoveyError, match="knows of 0: it is an old copy"):
            asked.ask(body, silo=asked.twin)
    fresh = asked.deployment.silo("north", tmp_path / "new")
    with pytest.raises(CoveyError, match="has come to round 0"):
        asked.ask(RoutedSums([]), silo=fresh, kind="round")
    assert asked.ask(RoutedSums([]), silo=fresh, kind="round", run="another").boxes
    with pytest.raises(CoveyError, match="the share of client 0: a box does not open"):
        asked.ask(question, silo=fresh, run="another")


def test_keys_that_silos_made_themselves(tmp_path: Path) -> None:
    """Nobody deals keys out, and the run is the same."""
    experiment = routing(training={"rounds": 1, "epochs": 1})
    publics = tmp_path / "publics"
    fingerprints = {name: keys.make_own(publics / name) for name in NAMES}
    with pytest.raises(CoveyError, match="never overwritten"):
        keys.make_own(publics / "north")
    with pytest.raises(CoveyError, match="cannot be read"):
        keys.make(experiment, ["north", "nobody", "west", "east"], ["localhost"], tmp_path / "none", publics)
    with pytest.raises(CoveyError, match="they share one"):
        keys.make(replace(experiment, encryption="bfv"), NAMES, ["localhost"], tmp_path / "none", publics)
    keys.make(experiment, NAMES, ["localhost"], tmp_path / "keys", publics)
    assert not any("X25519" in h.what and h.party == "authority" for h in inspect(tmp_path / "keys"))
    folder = tmp_path / "keys" / "silos" / "north"
    export(experiment, tmp_path / "data", NAMES)
    samples = read_folder(tmp_path / "data" / "north", keys.read_agreed(folder))
    with pytest.raises(CoveyError, match=r"put the opening\.key that `covey keys own` made"):
        Silo(*keys.load(folder), samples, tmp_path / "state" / "north")
    write(folder / "opening.key", (publics / "south.key").read_bytes(), 0o600)
    with pytest.raises(CoveyError, match="not the one that the circle knows"):
        Silo(*keys.load(folder), samples, tmp_path / "state" / "north")
    for name in NAMES:
        write(tmp_path / "keys" / "silos" / name / "opening.key", (publics / f"{name}.key").read_bytes(), 0o600)
    (folder / "opening.key").chmod(0o644)
    with pytest.raises(CoveyError, match="others on this machine can read it"):
        keys.load(folder)
    (folder / "opening.key").chmod(0o600)
    deployment = Deployment.opened(tmp_path, experiment)
    assert deployment.coordinator().run().records[0]["extra"]["unopened"] == 0.0
    shown = [h for h in inspect(folder) if "X25519" in h.what]
    assert len(shown) == 1 and shown[0].secret
    assert len(set(fingerprints.values())) == 4
    with pytest.raises(CoveyError, match=r"'fifth' is not among them|5 silos for 4 clients"):
        keys.add(tmp_path / "keys", "fifth")


def test_a_quorum_of_silos_that_are_not_named_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CoveyError, match=r"3 silos must help to open a sum and 2 are named: set algorithm\.quorum"):
        keys.make(routing(), NAMES[:2], ["localhost"], tmp_path / "keys")


def test_a_deployment_shares_no_key_unless_told(tmp_path: Path) -> None:
    table = {k: v for k, v in routing().table().items() if k not in ("encryption", "deployment", "out")}
    assert keys.protected(table)["encryption"] == "threshold"
    assert keys.protected({**table, "encryption": "bfv"})["encryption"] == "bfv"
    assert "encryption" not in keys.protected({**table, "clients": 2})
    assert "encryption" not in keys.protected({**table, "algorithm": {"name": "ifca"}})
    assert "encryption" not in keys.protected({**table, "deployment": {"rehearsal": True}})
    keys.make(Experiment.of(keys.protected(table)), NAMES, ["localhost"], tmp_path / "keys")
    check_same(table, tmp_path / "keys" / "server")
