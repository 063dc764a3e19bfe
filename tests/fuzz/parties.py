"""Targets that are parties: letters by an admitted party that lies, to silos, coordinator and second server.

Every letter is well signed (or tampered with after that, and then it must be refused). What is in it is a valid message with
something changed. Beyond refusals in words: no round has two answers, every answer that noise protects is in the ledger, and
what a coordinator has taken from a liar leaves its models numbers.
"""

from __future__ import annotations

import shutil
import time
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from covey import files, roles
from covey.algorithms.contract import Server
from covey.algorithms.fedcaprivacy.two_servers import CoveredRound, CoveredSums
from covey.crypto.blinded import blinded
from covey.crypto.signatures import Signer
from covey.deploy.coordinator import Coordinator
from covey.deploy.course.asking import ask_silos
from covey.deploy.course.exchange import Tally
from covey.deploy.letters import ANYONE, PURPOSE, Hello, Letter, Mailbox, RoundReply, pack, unpack
from covey.deploy.session import PendingLetter
from covey.errors import CoveyError
from covey.messages import decode, encode
from fuzz.engine import Attempt, Choices, Fault, Target, flip
from fuzz.mutation import changed, changed_encoding, odd
from support.deployment import Deployment, rehearsal

ROUNDS = 3
FRESH = 400  # letters after which a silo begins anew


def sealed_content(letter: Letter, signer: Signer, round: int, choices: Choices) -> bytes:
    """A letter as its own writer would sign it, whatever is in it."""
    try:
        content = encode(letter)
    except Exception:
        content = encode(None)
    if choices.below(8) == 7:
        content = changed_encoding(content, choices)
    return pack(signer.sign(content, PURPOSE, round))


def tampered(data: bytes, choices: Choices) -> bytes:
    """The same letter with other bytes on its way; the same bytes where the change changes nothing."""
    return flip(data, Random(choices.below(2**32)))


# ---------------------------------------------------------------- letters


def _letters(folder: Path) -> Attempt:
    server, silo = Signer.generate("server"), Signer.generate("client:0")
    known = {"server": server.public}
    mailbox = Mailbox("client:0", silo.secret, known, 300.0, 1 << 20)
    honest = Letter("run", "round", "client:0", "0" * 16, "", RoundReply({"a": [1.5, b"x" * 40]}, None))

    def attempt(data: bytes) -> None:
        choices = Choices(data)
        who = choices.of((server, server, server, silo))
        letter = changed(honest, choices) if choices.below(4) else odd(choices)
        round = choices.of((0, 1, 2**62))
        written = sealed_content(letter, who, round, choices)
        on_its_way = tampered(written, choices) if choices.below(2) else written
        try:
            read = mailbox.read(on_its_way)
        finally:
            mailbox._verifier.seen.clear()
        if on_its_way != written or who is not server:
            raise Fault("a letter was taken that its sender did not sign as it came")
        if read.round != round or read.sender != "server" or read.letter.receiver not in ("client:0", ANYONE):
            raise Fault("a letter was taken for another one")

    return attempt


# ---------------------------------------------------------------- a silo


@dataclass
class Watched:
    """A silo, and all that has left it."""

    deployment: Deployment
    coordinator: Coordinator
    state: Any
    booked: bool
    letters: int = 0
    fresh: int = 0
    questions: list[Any] = field(default_factory=list)  # of a round, where silos open sums together
    answers: dict[int, bytes] = field(default_factory=dict)
    post: list[bytes] = field(default_factory=list)

    def renew(self) -> None:
        self.letters, self.fresh, self.answers, self.post = 0, self.fresh + 1, {}, []
        shutil.rmtree(self.deployment.folder / "state" / "north", ignore_errors=True)
        self.restart()

    def restart(self) -> None:
        self.deployment.parties["north"] = self.deployment.silo("north")

    def check(self, round: int, answer: bytes) -> None:
        silo = self.deployment.parties["north"]
        letter: Letter = decode(unpack(answer).payload)
        if letter.kind in ("round", "finish"):
            body = encode(letter.body)
            if self.answers.setdefault(round, body) != body:
                raise Fault(f"round {round} was answered twice")
            if not 1 <= round <= ROUNDS + 2:
                raise Fault(f"round {round} was answered, {ROUNDS} are agreed")
            replied = isinstance(letter.body, RoundReply) and round <= ROUNDS
            if self.booked and replied and round not in {r for r, _ in silo.state.spends}:
                raise Fault(f"round {round} was answered and is not in the ledger")
        elif letter.kind == "consult" and isinstance(letter.body, RoundReply):
            if silo.state.advised < 1:
                raise Fault("a question was answered and not counted")
        elif not isinstance(letter.body, Hello):
            raise Fault(f"a {letter.kind} was answered with a {type(letter.body).__name__}")
        path = silo.folder / "state.bin"
        if path.is_file() and encode(files.read_state(path)) != encode(silo.state):
            raise Fault("what a silo knows is not on its disk")


def _silos(folder: Path) -> Attempt:
    kinds = {
        "noised": rehearsal("ifca", defence={"name": "ldp", "epsilon": 5.0}, training={"rounds": ROUNDS}),
        "sealed": rehearsal("routing", encryption="bfv", training={"rounds": ROUNDS}),
        "features": rehearsal({"name": "pqfed", "components": 4, "k": 3, "strategy": "all", "epsilon": 1.0}),
        "mingled": rehearsal("mingledpie", training={"rounds": ROUNDS}),
    }
    watched = []
    for name, experiment in kinds.items():
        deployment = Deployment(folder / name, experiment)
        coordinator = deployment.coordinator()
        state, _ = coordinator._begin()
        watched.append(Watched(deployment, coordinator, state, name == "noised"))
    watched.append(_together(folder / "together", "routing", "threshold"))
    watched.append(_together(folder / "masked", "fedavg", "secagg"))

    def attempt(data: bytes) -> None:
        choices = Choices(data)
        one = choices.of(watched)
        silo, session = one.deployment.parties["north"], one.coordinator.session
        one.letters += 1
        if one.letters > FRESH or silo.finished or silo.stopped:
            one.renew()
            silo = one.deployment.parties["north"]
        action = choices.below(16)
        if action == 15:
            one.restart()
            return
        if action == 14 and one.post:
            written = choices.of(one.post)
        else:
            kind = choices.of(
                ("round", "round", "round", "finish", "hello", "ask", "", "\x1b[2J", "consult", "consult")
            )
            round = choices.of((1, 1, 1, 2, 2, 3, ROUNDS + 1, ROUNDS + 2, 0, 10**6, 2**62))
            body = one.coordinator.algorithm.broadcast(one.state, 0)
            if kind == "consult" and one.questions:
                body = choices.of(one.questions)
            if choices.below(4):
                body = changed(body, choices)
            run = choices.of((session.run, session.run, session.run, "another"))
            letter = Letter(run, kind, "client:0", "0" * 16, "", body)
            written = sealed_content(letter, session.mailbox._signer, round, choices)
            one.post = [*one.post[-40:], written]
        on_its_way = tampered(written, choices) if choices.below(8) == 7 else written
        round = unpack(on_its_way).round if len(on_its_way) > 120 else 0
        answer = silo.handle(on_its_way)
        if on_its_way != written:
            raise Fault("a letter that was altered on its way was answered")
        one.check(round, answer)

    return attempt


def _together(folder: Path, algorithm: str, encryption: str) -> Watched:
    """Silos that open sums together: an honest first round shows what they are asked for."""
    deployment = Deployment(folder, rehearsal(algorithm, encryption=encryption, training={"rounds": ROUNDS}))
    coordinator = deployment.coordinator()
    state, _ = coordinator._begin()
    questions: list[Any] = []

    def heard(name: str, call: bytes, answer: bytes) -> bytes:
        letter: Letter = decode(unpack(call).payload)
        if name == "north" and letter.kind == "consult":
            questions.append(letter.body)
        return answer

    deployment.office.tamper = heard
    coordinator.gather()
    coordinator._round(state, 1)
    return Watched(deployment, coordinator, state, False, questions=questions)


# ---------------------------------------------------------------- the coordinator


PROTOCOLS: dict[str, Any] = {
    "fedavg": "fedavg",
    "ifca": "ifca",
    "median": {"name": "ifca", "aggregation": "median"},
    "krum": {"name": "fedavg", "weighting": "clients", "aggregation": "multikrum"},
    "fedem": "fedem",
    "fedsoft": "fedsoft",
    "scaffold": "scaffold",
    "sattler": "sattler",
    "feddyn": "feddyn",
    "fedper": "fedper",
    "pqfed": {"name": "pqfed", "components": 4, "k": 3, "strategy": "all"},
    "mingledpie": "mingledpie",
    "routing": "routing",
    "masked": "fedavg",
    "packed": "ifca",
    "topk": "scaffold",
}
SEALED = {"routing": "bfv", "masked": "secagg"}
COMPRESSED = {"packed": "eight_bit", "topk": "top_k"}
DIFFERENT_STARTS = ("fedem", "fedsoft")


@dataclass
class Round:
    """A coordinator in its first round, with honest replies of all silos."""

    coordinator: Coordinator
    state: Any
    came: dict[int, Any]  # as replies cross the wire
    replies: dict[int, Any]  # as the algorithm reads them
    signers: dict[int, Signer]

    @classmethod
    def of(cls, name: str, folder: Path) -> Round:
        more: dict[str, Any] = {"start": {"common": False}} if name in DIFFERENT_STARTS else {}
        if name in COMPRESSED:
            more["compression"] = COMPRESSED[name]
        experiment = rehearsal(PROTOCOLS[name], encryption=SEALED.get(name, "none"), **more)
        deployment = Deployment(folder, experiment)
        coordinator = deployment.coordinator()
        state, _ = coordinator._begin()
        coordinator.session.look_around()
        coordinator.session.look_around()
        tally = ask_silos(coordinator.exchange, state, 1, [0, 1, 2, 3], False)
        signers = {i: deployment.parties[n].mailbox._signer for i, n in enumerate(deployment.names)}
        return cls(coordinator, state, dict(tally.came), {i: r.reply for i, r in tally.replies.items()}, signers)


def _replies(folder: Path) -> Attempt:
    rounds = [Round.of(name, folder / name) for name in PROTOCOLS]

    def attempt(data: bytes) -> None:
        choices = Choices(data)
        round, liar = choices.of(rounds), choices.below(4)
        coordinator, reply = round.coordinator, round.came[liar]
        for _ in range(1 + choices.below(2)):
            reply = changed(reply, choices)
        accuracy = odd(choices) if choices.below(4) == 3 else None
        body: Any = RoundReply(reply, accuracy) if choices.below(12) else odd(choices)
        session = coordinator.session
        number = "0" * 16 if choices.below(12) else "1"
        letter = Letter(session.run, "round", "server", "1" * 16, number, body)
        who = round.signers[liar if choices.below(12) else (liar + 1) % 4]
        written = sealed_content(letter, who, 1, choices)
        tally = Tally()
        try:
            tally = _taken(coordinator, round.state, liar, written)
        finally:
            session.mailbox._verifier.seen.clear()
        tally.replies |= {i: RoundReply(r, None) for i, r in round.replies.items() if i != liar}
        server = Server(1, 0, coordinator.setting, coordinator.keys, _nobody, lambda name: nullcontext())
        after = coordinator._aggregate(server, round.state, 1, tally)
        try:
            roles.refuse_infinite(after)
        except CoveyError as e:
            raise Fault(f"the state after a lie in {type(coordinator.algorithm).__name__}: {e}") from e
        encode(after)
        for i in range(4):
            coordinator.algorithm.broadcast(after, i)

    return attempt


def _taken(coordinator: Coordinator, state: Any, liar: int, written: bytes) -> Tally:
    """As `ask_silos` takes an answer, without its waiting."""
    tally = Tally()
    sent = {"1": PendingLetter(f"client:{liar}", "0" * 16, "round", 1, liar)}
    coordinator.exchange.take(sent.pop("1"), written, 1, state, tally)
    if tally.failed:
        raise CoveyError("refused")
    return tally


def _nobody(party: str, question: Any) -> Any:
    raise CoveyError("there is no other server")


def _greetings(folder: Path) -> Attempt:
    """Nodes that introduce themselves."""
    deployment = Deployment(folder, rehearsal("fedavg"))
    coordinator = deployment.coordinator()
    coordinator._begin()
    session, signer = coordinator.session, deployment.parties["north"].mailbox._signer
    honest = Hello(coordinator.digest, "0.1", "", 0)

    def attempt(data: bytes) -> None:
        choices = Choices(data)
        hello = changed(honest, choices) if choices.below(4) else odd(choices)
        letter = changed(Letter(session.run, "hello", "server", "1" * 16, "0" * 16, hello), choices)
        if choices.below(2):
            letter = Letter(session.run, "hello", "server", "1" * 16, "0" * 16, hello)
        sent = PendingLetter("a node", "0" * 16, "hello", 0, choices.below(2))
        session.at.clear()
        session._greeted[sent.node] = time.monotonic()  # who answers was greeted
        try:
            session._welcome(sent, sealed_content(letter, signer, choices.below(2), choices))
        except CoveyError as e:
            session.refuse("a node", 0, str(e))
            raise
        finally:
            session.mailbox._verifier.seen.clear()
            session._said.clear()
            session.events.unlink(missing_ok=True)
        if session.at != {"client:0": 0}:
            raise Fault(f"somebody else than north was let in: {session.at}")

    return attempt


# ---------------------------------------------------------------- the second server


def _second_servers(folder: Path) -> Attempt:
    desks = []
    for mitigation in ("none", "sums", "sketch"):
        algorithm = {"name": "fedcaprivacy", "min_size": 2, "mitigation": mitigation, "threads": 1}
        deployment = Deployment(folder / mitigation, rehearsal(algorithm, encryption="bfv", training={"rounds": 40}))
        coordinator = deployment.coordinator()
        sealer, d = blinded.sealer(coordinator.keys["csp"]), coordinator.setting.start.shape[1]
        rows = sealer.cover(
            [sealer.seal(np.full(d, n / 4)) for n in range(4)], blinded.draw_cover(sealer, d, False, None)
        )
        known = np.eye(2, dtype=np.uint8)[[0, 0, 1, 1]]
        questions = [
            CoveredRound(rows, 2, None, [] if mitigation != "sketch" else list(range(8))),
            CoveredRound(rows, 2, known, []),
            CoveredSums(rows[:2]),
        ]
        desks.append((deployment, coordinator.session, questions))

    def attempt(data: bytes) -> None:
        choices = Choices(data)
        deployment, session, questions = choices.of(desks)
        csp = deployment.parties["csp"]
        csp._diary.questions.clear()
        csp._diary.failures = 0
        csp._diary.path.unlink(missing_ok=True)
        question = choices.of(questions)
        if choices.below(8):
            question = changed(question, choices)
        kind = choices.of(("ask", "ask", "ask", "ask", "ask", "hello", "finish", "round", ""))
        letter = Letter("run", kind, "csp", "1" * 16, "", question)
        round = choices.of((1, 2, 3, 40, 41, 0, 2**62))
        written = sealed_content(letter, session.mailbox._signer, round, choices)
        opened = _counted(csp, written)
        if opened and not csp._diary.path.read_text().startswith('{"round":'):
            raise Fault("rows were opened and the question is not written down")

    return attempt


def _counted(csp: Any, written: bytes) -> bool:
    """Whether the question came as far as the opening key."""
    opened: list[int] = []
    algorithm = csp.experiment.algorithm
    answer = type(algorithm).answer

    def counted(self: Any, server: Any, message: Any) -> Any:
        opened.append(1)
        return answer(self, server, message)

    type(algorithm).answer = counted
    try:
        csp.handle(written)
    finally:
        type(algorithm).answer = answer
    return bool(opened)


TARGETS = (
    Target(
        "letters",
        _letters,
        longest=300,
        modules=("covey.messages", "covey.deploy.letters", "covey.crypto.signatures"),
        weight=4,
    ),
    Target("silos", _silos, longest=300, modules=("covey.deploy.silo", "covey.messages"), weight=5),
    Target("replies", _replies, longest=300, modules=("covey.roles", "covey.algorithms"), weight=5),
    Target("greetings", _greetings, longest=300, modules=("covey.deploy.session", "covey.messages"), weight=1),
    Target("second-servers", _second_servers, longest=300, modules=("covey.algorithms.fedcaprivacy",), weight=3),
)
