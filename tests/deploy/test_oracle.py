"""A coordinator that alters sums and watches what silos do with them: how many answers it can tell apart."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from itertools import product
from math import comb
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from covey.algorithms import routing
from covey.algorithms.fedavg import FedAvg
from covey.algorithms.fedcaprivacy.two_servers import CloudProvider, CoveredRound, CoveredSums
from covey.algorithms.ifca import ClusterUpdate
from covey.algorithms.pqfed.features import Features
from covey.algorithms.pqfed.incremental import Check
from covey.algorithms.pqfed.messages import Turns
from covey.crypto.blinded import blinded
from covey.crypto.sealing import mixing, sealing
from covey.crypto.sealing.sealing import LABEL_BYTES, Label
from covey.data.own.silo import read_folder
from covey.deploy import keys, second_server
from covey.deploy import silo as silos
from covey.deploy.letters import Refused, RoundReply
from covey.deploy.second_server import SecondServer
from covey.deploy.silo import Silo, SiloState
from covey.errors import CoveyError
from covey.messages import decode, encode
from support.deployment import Deployment, rehearsal

ROUNDS = 3


class Attacker:
    """A coordinator with its real key and letters, and words of its own choice."""

    def __init__(self, deployment: Deployment) -> None:
        self.deployment, self.coordinator = deployment, deployment.coordinator()
        self.state, _ = self.coordinator._begin()

    def ask(self, silo: Silo, round: int, body: Any, kind: str = "round") -> Any:
        """The body of a silo's answer; a CoveyError where it says nothing."""
        session = self.coordinator.session
        number = f"client:{silo.number}"
        answer = silo.handle(session.mailbox.write(session.run, kind, number, round, body)[0])
        return session.mailbox.read(answer).letter.body

    def sums(self) -> Any:
        """Of an honest first round, by other silos than those under attack."""
        names = self.deployment.names
        replies = [(i, self.ask(self.deployment.parties[n], 1, self.state).reply) for i, n in enumerate(names)]
        keys = self.coordinator.keys["sealing"]
        k, d = self.coordinator.setting.start.shape
        mixer = sealing.mixer(keys, k, d + 1)
        for _, reply in replies:
            for b, block in enumerate(reply.blocks):
                mixer.add(block, [b])
        return routing.RoutedSums(mixer.sums())


def altered(state: Any, at: int) -> Any:
    """With another residue in c1 of the first sum's last ciphertext, where its count stands, and a label that fits."""
    label = Label.read(state.sums[0])
    words = np.frombuffer(state.sums[0], "<u8", offset=LABEL_BYTES).copy()
    words[-1 - at] //= 2
    return replace(state, sums=[mixing.write_words(words, label, label.length, label.terms), *state.sums[1:]])


def experiment(**deployment: Any) -> Any:
    table = {"rehearsal": True, **deployment}
    return rehearsal("routing", encryption="bfv", training={"rounds": ROUNDS}, deployment=table)


def fresh(deployment: Deployment, name: str, folder: Path) -> Silo:
    party, agreed = keys.load(deployment.folder / "keys" / "silos" / name)
    samples = read_folder(deployment.folder / "data" / name, agreed)
    return Silo(party, agreed, samples, folder, say=deployment.said.append)


@pytest.fixture
def openings(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Grows with every message that is opened with the secret key."""
    opened: list[int] = []
    open_means = routing._open_means

    def counted(*arguments: Any) -> Any:
        opened.append(1)
        return open_means(*arguments)

    monkeypatch.setattr(routing, "_open_means", counted)
    return opened


def test_forty_questions_open_no_more_than_three(tmp_path: Path, openings: list[int]) -> None:
    """Before, all forty were opened, in one round, and each said whether it had come out well."""
    deployment = Deployment(tmp_path, experiment())
    attacker, north = Attacker(deployment), fresh(deployment, "north", tmp_path / "attacked")
    sums = attacker.sums()
    for question in range(40):
        with suppress(CoveyError):
            attacker.ask(north, 1 + question % ROUNDS, altered(sums, question))
        if question % 10 == 9:
            north = fresh(deployment, "north", tmp_path / "attacked")  # a restart gives nothing back
    assert len(openings) == 3 and "make new keys" in north.stopped
    assert isinstance(attacker.ask(north, ROUNDS, altered(sums, 2)), Refused)  # as before, without opening
    assert isinstance(attacker.ask(north, ROUNDS + 1, sums, "finish"), Refused)
    assert len(openings) == 3 and any("stopped for good" in text for text in deployment.said)


def test_a_refused_round_is_spent(tmp_path: Path, openings: list[int]) -> None:
    deployment = Deployment(tmp_path, experiment())
    attacker, north = Attacker(deployment), fresh(deployment, "north", tmp_path / "attacked")
    sums = attacker.sums()
    for _ in range(2):
        assert isinstance(attacker.ask(north, 1, altered(sums, 0)), Refused)
        north = fresh(deployment, "north", tmp_path / "attacked")
    with pytest.raises(CoveyError, match="other words, but round 1 has been refused"):
        attacker.ask(north, 1, sums)
    assert len(openings) == 1
    assert isinstance(attacker.ask(north, 2, sums), RoundReply)  # one refusal is forgiven


def test_the_last_letter_is_opened_once(tmp_path: Path, openings: list[int]) -> None:
    deployment = Deployment(tmp_path, experiment())
    attacker, north = Attacker(deployment), fresh(deployment, "north", tmp_path / "attacked")
    sums = attacker.sums()
    first = attacker.ask(north, ROUNDS + 1, sums, "finish")
    opened = len(openings)
    assert attacker.ask(north, ROUNDS + 1, sums, "finish") == first == RoundReply(None, None)
    with pytest.raises(CoveyError, match="with other words"):
        attacker.ask(north, ROUNDS + 1, altered(sums, 0), "finish")
    with pytest.raises(CoveyError, match="no round is answered twice"):
        attacker.ask(north, 1, sums)
    assert len(openings) == opened


def test_no_round_beyond_the_agreed_ones(tmp_path: Path) -> None:
    deployment = Deployment(tmp_path, rehearsal("ifca", training={"rounds": 2}))
    attacker, north = Attacker(deployment), deployment.parties["north"]
    for round in (0, 3, 1_000_000):
        with pytest.raises(CoveyError, match="2 are agreed"):
            attacker.ask(north, round, attacker.state)
    with pytest.raises(CoveyError, match="it is round 3"):
        attacker.ask(north, 7, attacker.state, "finish")
    with pytest.raises(CoveyError, match="a ClusterUpdate was sent"):
        attacker.ask(north, 1, ClusterUpdate(attacker.state.models[0], 0, 1))
    assert isinstance(attacker.ask(north, 1, attacker.state), RoundReply)


def test_all_that_can_be_told_apart(tmp_path: Path) -> None:
    """Every way to mix good and altered sums over a whole run: no more histories than trust.md counts."""
    most = 2
    deployment = Deployment(tmp_path, experiment(max_refusals=most))
    attacker = Attacker(deployment)
    sums = attacker.sums()
    bad, histories, sizes = altered(sums, 0), set(), set()
    for pattern in product((False, True), repeat=ROUNDS + 2):
        north = fresh(deployment, "north", tmp_path / "attacked" / "".join("gb"[b] for b in pattern))
        history = []
        for round, wrong in enumerate(pattern, 1):
            kind = "round" if round <= ROUNDS else "finish"
            try:
                answer = attacker.ask(north, round, bad if wrong else sums, kind)
            except CoveyError:
                answer = None  # a second last letter where the first was answered
            history.append(type(answer).__name__)
            if isinstance(answer, Refused):
                sizes.add(len(encode(answer)))
        histories.add(tuple(history))
    assert len(histories) == 12 < sum(comb(ROUNDS + 2, i) for i in range(most + 1)) == 16
    assert len(sizes) == 1


def test_a_refusal_takes_its_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deployment = Deployment(tmp_path, experiment(rehearsal=False))
    attacker, north = Attacker(deployment), fresh(deployment, "north", tmp_path / "attacked")
    sums, slept = attacker.sums(), list[float]()
    monkeypatch.setattr(silos.time, "sleep", slept.append)
    attacker.ask(north, 1, altered(sums, 0))
    assert len(slept) == 1 and 0 < slept[0] < silos.REFUSAL_SECONDS


def test_what_depends_on_no_key_locks_nobody_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk, a silo that is killed at work, and an algorithm without secrets."""
    deployment = Deployment(tmp_path, experiment())
    attacker, north = Attacker(deployment), fresh(deployment, "north", tmp_path / "attacked")
    sums = attacker.sums()
    with monkeypatch.context() as full:
        full.setattr(north, "_store", lambda turn: (_ for _ in ()).throw(CoveyError("the disk is full")))
        with pytest.raises(CoveyError, match="disk is full"):
            attacker.ask(north, 1, sums)
    with monkeypatch.context() as killed:
        killed.setattr(north.host, "run", lambda *a: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            attacker.ask(north, 1, sums)
    north = fresh(deployment, "north", tmp_path / "attacked")
    with pytest.raises(CoveyError, match="round 1 has been begun"):
        attacker.ask(north, 1, altered(sums, 0))
    assert isinstance(attacker.ask(north, 1, sums), RoundReply) and north.state.refusals == 0
    clear = Deployment(tmp_path / "clear", rehearsal("ifca", training={"rounds": 9}))
    attacker, north = Attacker(clear), clear.parties["north"]
    for round in range(1, 9):
        narrow = replace(attacker.state, models=attacker.state.models[:, :3])
        assert isinstance(attacker.ask(north, round, narrow), Refused)
    assert not north.stopped and isinstance(attacker.ask(north, 9, attacker.state), RoundReply)


def test_a_state_of_before_is_read() -> None:
    data = encode(SiloState("run", 2, "", {}, 1, []))
    header = data[8:].replace(b',"outcome":"answered","refusals":0', b"", 1)
    length = len(header).to_bytes(4, "little")
    assert decode(data[:4] + length + header) == SiloState("run", 2, "", {}, 1, [])


def test_the_coordinator_does_not_choose_what_features_say(tmp_path: Path) -> None:
    """Before, a silo answered 64 columns of the identity (or 64,000 of them) where 8 components were agreed and paid for."""
    pqfed = {"name": "pqfed", "components": 8, "k": 3, "strategy": "all", "epsilon": 1.0, "budget": 8.0}
    deployment = Deployment(tmp_path, rehearsal(pqfed))
    attacker = Attacker(deployment)
    agreed = attacker.state.features
    d = len(agreed.mean)
    wide = Features(torch.zeros(d), torch.eye(d).repeat(1, 10), torch.zeros(10 * d), torch.full((10 * d,), 1e-3))
    turned = replace(agreed, axes=agreed.axes.flip(0))
    narrow = replace(agreed, high=agreed.low + 1e-6)  # next to no noise
    unbounded = replace(agreed, low=None, high=None)
    for name, request in zip(deployment.names, (wide, turned, narrow, unbounded), strict=True):
        silo = deployment.parties[name]
        assert isinstance(attacker.ask(silo, 1, request), Refused)
        assert "asks for features by other" in deployment.said[-1] and not silo.state.spends
        answer = attacker.ask(silo, 2, agreed)
        ((_, spend),) = silo.state.spends
        assert answer.reply.rows.shape[1] == spend.coordinates == 8 and silo.state.memory["spent"] == 8.0
        assert isinstance(attacker.ask(silo, 3, agreed), Refused) and len(silo.state.spends) == 1  # beyond the budget


def test_one_round_has_one_answer_for_each_target(tmp_path: Path) -> None:
    """Before, a silo trained as many models in one round as there were targets in the question, known or not."""
    alone = {"name": "pqfed", "components": 8, "k": 3, "strategy": "all"}
    models = FedAvg().start(Deployment(tmp_path / "agreed", rehearsal("fedavg")).parties["north"].setting)
    for n, pqfed in enumerate((alone, {**alone, "target": -1})):
        deployment = Deployment(tmp_path / str(n), rehearsal(pqfed))
        attacker, silo = Attacker(deployment), deployment.parties["south"]
        for round, request in enumerate((Turns(dict.fromkeys(range(9), models)), Check(models.model)), 1):
            assert isinstance(attacker.ask(silo, round, request), Refused)
            assert "no part of what was agreed" in deployment.said[-1]


def two_servers(tmp_path: Path) -> tuple[Deployment, Any, list[bytes]]:
    """A deployment, a way to ask its CSP whatever one likes, and honest rows."""
    deployment = Deployment(tmp_path, rehearsal({"name": "fedcaprivacy", "min_size": 2}, encryption="bfv"))
    session = deployment.coordinator().session
    sealer = blinded.sealer(deployment.coordinator().keys["csp"])
    d = deployment.parties["csp"].setting.start.shape[1]
    cover = blinded.draw_cover(sealer, d, False, None)
    rows = sealer.cover([sealer.seal(np.full(d, n / 4)) for n in range(4)], cover)

    def ask(round: int, question: Any) -> Any:
        csp = deployment.parties["csp"]
        return session.mailbox.read(
            csp.handle(session.mailbox.write("run", "ask", "csp", round, question)[0])
        ).letter.body

    return deployment, ask, rows


def test_a_csp_is_asked_for_a_round_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before, a thousand newcomers could stand in one question, and each was told its nearest cluster: a bit of the key."""
    _, ask, rows = two_servers(tmp_path)
    opened: list[Any] = []
    opens = CloudProvider.open
    monkeypatch.setattr(CloudProvider, "open", lambda self, request: opened.append(1) or opens(self, request))
    known = np.eye(2, dtype=np.uint8)[[0, 0, 1, 1]]
    newcomers = np.concatenate([known, np.zeros((996, 2), np.uint8)])
    for question, why in (
        (CoveredRound(rows + rows[:1] * 996, 2, newcomers, []), "1000 rows were sent, expected 1 to 4"),
        (CoveredRound(rows, 64, None, []), "64 clusters"),
        (CoveredRound(rows, 2, newcomers, []), "do not have the shape"),
        (CoveredRound(rows, 2, None, [0, 1]), "2 kept numbers"),
        (CoveredRound([*rows[:3], rows[3][:-8]], 2, None, []), "all equally long"),
        (CoveredSums(rows[:1]), "0 at most"),
    ):
        with pytest.raises(CoveyError, match=why):
            ask(1, question)
    assert not opened
    assert ask(1, CoveredRound(rows, 2, known, [])).memberships.tolist() == known.tolist()


def test_a_csp_answers_so_many_questions_in_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before, the limit was for each round number, and there was no last one."""
    monkeypatch.setattr(second_server, "RESTARTS", 1)
    deployment, ask, rows = two_servers(tmp_path)
    for round in (0, 4, 10**6):
        with pytest.raises(CoveyError, match="3 are agreed"):
            ask(round, CoveredRound(rows, 2, None, []))
    answered = 0
    for round in (1, 1, 1, 2, 2, 2, 2, 3, 3, 3):
        party, agreed = keys.load(deployment.folder / "keys" / "csp")
        deployment.parties["csp"] = SecondServer(party, agreed, deployment.folder / "csp", say=deployment.said.append)
        with suppress(CoveyError):
            ask(round, CoveredRound(rows, 2, None, []))
            answered += 1
    assert answered == 2 * 3 + 1 and "7 in the run" in deployment.said[-1]
