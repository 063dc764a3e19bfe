"""Coordinator, silos and second server under arbitrary order, loss, repetition, corruption and restarts: a state machine.

Whatever happens to letters: no traceback, no two answers of one round, no privacy loss that the silo's ledger lacks, no question
beyond the agreed ones. `COVEY_PROTOCOL_STEPS` makes it longer (`make protocol`).
"""

from __future__ import annotations

import os
import shutil
import tempfile
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from torch import Tensor

from covey.algorithms.contract import Server
from covey.deploy import keys
from covey.deploy.letters import Hello, Letter, Refused, RoundReply, unpack
from covey.deploy.second_server import SecondServer
from covey.errors import CoveyError
from covey.files import read_state
from covey.messages import decode, encode
from support.deployment import Deployment, rehearsal

ROUNDS = 3
STEPS = int(os.environ.get("COVEY_PROTOCOL_STEPS", "30"))
KINDS: dict[str, Any] = {
    "noised": lambda: rehearsal("ifca", defence={"name": "ldp", "epsilon": 5.0}, training={"rounds": ROUNDS}),
    "sealed": lambda: rehearsal("routing", encryption="bfv", training={"rounds": ROUNDS}),
    "two servers": lambda: rehearsal({"name": "fedcaprivacy", "min_size": 2}, encryption="bfv"),
}


class Protocol(RuleBasedStateMachine):
    kind: str
    prepared: Path  # a folder with keys and data of this kind

    @initialize()
    def begin(self) -> None:
        self.folder = Path(tempfile.mkdtemp())
        shutil.copytree(self.prepared, self.folder, dirs_exist_ok=True)
        self.deployment = Deployment.opened(self.folder, KINDS[self.kind]())
        self.coordinator = self.deployment.coordinator()
        self.state, _ = self.coordinator._begin()
        self.round = 1
        self.replies: dict[int, Any] = {}  # of this round
        self.post: list[tuple[str, bytes]] = []  # letters to parties, ever written: any may come again
        self.mail: list[bytes] = []  # answers, ever written
        self.answers: dict[tuple[str, int], bytes] = {}  # (silo, round) -> the one answer that has left it

    def teardown(self) -> None:
        if hasattr(self, "folder"):
            shutil.rmtree(self.folder, ignore_errors=True)

    # ------------------------------------------------------------ what parties do

    def deliver(self, name: str, data: bytes) -> None:
        try:
            answer = self.deployment.parties[name].handle(data)
        except CoveyError:
            return  # refused in words; anything else fails the test
        letter: Letter = decode(unpack(answer).payload)
        self.mail.append(answer)
        if letter.kind in ("round", "finish"):
            at, body = (name, unpack(answer).round), encode(letter.body)
            assert self.answers.setdefault(at, body) == body, f"{at} was answered twice"
            assert at[1] <= ROUNDS + 2
        assert isinstance(letter.body, Hello | RoundReply | Refused) or letter.kind == "ask"

    @rule(silo=st.integers(0, 3), kind=st.sampled_from(["round", "round", "round", "hello", "finish", "exec"]))
    def write(self, silo: int, kind: str) -> None:
        """The coordinator writes to a silo about its own round."""
        session, round = self.coordinator.session, self.round if kind == "round" else ROUNDS + 1
        body = self.coordinator.algorithm.broadcast(self.state, silo)
        data, _ = session.mailbox.write(session.run, kind, f"client:{silo}", round, body)
        self.post.append((self.deployment.names[silo], data))

    @rule(silo=st.integers(0, 1), round=st.integers(1, ROUNDS + 2), scale=st.sampled_from([1.0, 1.0, 0.5, -2.0]))
    def lie(self, silo: int, round: int, scale: float) -> None:
        """… or about another one, with the same or other words, and it arrives at once."""
        session, kind = self.coordinator.session, "round" if round <= ROUNDS else "finish"
        body = _changed(self.coordinator.algorithm.broadcast(self.state, silo), scale)
        data, _ = session.mailbox.write(session.run, kind, f"client:{silo}", round, body)
        self.post.append((self.deployment.names[silo], data))
        self.deliver(*self.post[-1])

    @rule(silo=st.integers(0, 3), round=st.sampled_from([0, ROUNDS + 3, 10**6]))
    def ask_for_more(self, silo: int, round: int) -> None:
        """Rounds that nobody agreed to."""
        session, name = self.coordinator.session, self.deployment.names[silo]
        body, before = self.coordinator.algorithm.broadcast(self.state, silo), self.deployment.parties[name].state
        for kind in ("round", "finish"):
            with pytest.raises(CoveyError):
                letter = session.mailbox.write(session.run, kind, f"client:{silo}", round, body)[0]
                self.deployment.parties[name].handle(letter)
        assert self.deployment.parties[name].state is before

    @precondition(lambda self: self.post)
    @rule(data=st.data())
    def arrive(self, data: Any) -> None:
        """Any letter arrives, for the first time or again."""
        name, letter = data.draw(st.sampled_from(self.post))
        self.deliver(name, letter)

    @precondition(lambda self: self.post)
    @rule()
    def arrive_in_order(self) -> None:
        self.deliver(*self.post[-1])

    @precondition(lambda self: self.post)
    @rule(data=st.data(), at=st.integers(0, 400), flip=st.integers(1, 255), cut=st.booleans())
    def corrupt(self, data: Any, at: int, flip: int, cut: bool) -> None:
        name, letter = data.draw(st.sampled_from(self.post))
        damaged = bytearray(letter[: at + 1] if cut else letter)
        damaged[min(at, len(damaged) - 1)] ^= flip
        with pytest.raises(CoveyError):
            self.deployment.parties[name].handle(bytes(damaged))

    @precondition(lambda self: self.post)
    @rule(data=st.data(), other=st.integers(0, 3))
    def misdeliver(self, data: Any, other: int) -> None:
        _, letter = data.draw(st.sampled_from(self.post))
        self.deliver(self.deployment.names[other], letter)

    @rule(silo=st.integers(0, 3))
    def restart(self, silo: int) -> None:
        name = self.deployment.names[silo]
        self.deployment.parties[name] = self.deployment.silo(name)

    @rule()
    def restart_coordinator(self) -> None:
        self.coordinator = self.deployment.coordinator()
        self.state, done = self.coordinator._begin()
        self.round, self.replies = done + 1, {}

    @rule()
    def aggregate(self) -> None:
        """The coordinator takes what has come for its round, and goes on if there is something."""
        for answer in self.mail:
            try:
                verified = self.coordinator.session.mailbox.read(answer)
            except CoveyError:
                continue
            if verified.letter.kind == "round" and verified.round == self.round and self.round <= ROUNDS:
                body, sender = verified.letter.body, int(verified.sender.removeprefix("client:"))
                if isinstance(body, RoundReply):
                    self.replies[sender] = body.reply
        if not self.replies or self.round > ROUNDS:
            return
        coordinator = self.coordinator
        server = Server(
            self.round,
            coordinator.setting.seed,
            coordinator.setting,
            coordinator.keys,
            self.ask,
            lambda name: _nothing(),
        )
        came = iter(sorted(self.replies.items()))
        try:
            self.state = coordinator.algorithm.aggregate(server, self.state, came)
        except CoveyError:
            return
        coordinator._save(self.state, self.round)
        self.round, self.replies = self.round + 1, {}

    def ask(self, party: str, question: Any) -> Any:
        session = self.coordinator.session
        data, _ = session.mailbox.write(session.run, "ask", party, self.round, question)
        self.post.append((party, data))
        answer = self.deployment.parties[party].handle(data)
        return session.mailbox.read(answer).letter.body

    @precondition(lambda self: "csp" in self.deployment.parties)
    @rule()
    def restart_second_server(self) -> None:
        party, agreed = keys.load(self.folder / "keys" / "csp")
        self.deployment.parties["csp"] = SecondServer(party, agreed, self.folder / "csp", say=lambda text: None)

    # ------------------------------------------------------------ what always holds

    @invariant()
    def every_answer_is_paid_for(self) -> None:
        if not hasattr(self, "deployment"):
            return
        for name in self.deployment.names:
            silo = self.deployment.parties[name]
            paid = {round for round, _ in silo.state.spends}
            replied = {r for (n, r), body in self.answers.items() if n == name and r <= ROUNDS and _is_reply(body)}
            assert len(paid) == len(silo.state.spends)  # each once
            if self.kind == "noised":
                assert replied <= paid, f"{name} answered {replied} and booked {paid}"
            path = silo.folder / "state.bin"
            assert not path.is_file() or encode(read_state(path)) == encode(
                silo.state
            )  # what is not on disk has not happened

    @invariant()
    def nothing_of_ours_broke(self) -> None:
        if hasattr(self, "deployment"):
            assert not any("failures.log" in said for said in self.deployment.said)


def _is_reply(body: bytes) -> bool:
    return isinstance(decode(body), RoundReply)


def _changed(message: Any, scale: float) -> Any:
    """Other words of the same kind: models scaled, sealed sums swapped."""
    values = {f.name: getattr(message, f.name) for f in fields(message)}
    return replace(
        message,
        **{
            name: value * scale if isinstance(value, Tensor) else value[::-1] if isinstance(value, list) else value
            for name, value in values.items()
        },
    )


class _nothing:
    def __enter__(self) -> None: ...
    def __exit__(self, *error: Any) -> None: ...


@pytest.mark.parametrize("kind", KINDS)
def test_the_protocol(kind: str, tmp_path: Path) -> None:
    Deployment(tmp_path, KINDS[kind]())
    machine = type(f"Protocol of {kind}", (Protocol,), {"kind": kind, "prepared": tmp_path})
    examples = max(8, STEPS // 6)
    machine.TestCase.settings = settings(
        max_examples=examples,
        stateful_step_count=STEPS,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        derandomize=STEPS == 30,
        database=None,
        phases=[Phase.generate, Phase.shrink] if STEPS > 30 else [Phase.generate],
    )
    machine.TestCase("runTest").runTest()
