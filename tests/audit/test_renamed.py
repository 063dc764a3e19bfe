"""Nobody knows an algorithm by its name: one that is called otherwise, with nothing else changed, has the same audit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar

import pytest
import torch

from covey import roles
from covey.algorithms import ALGORITHMS
from covey.algorithms.contract import Client, Coroutine, Predictor, Server, Setting
from covey.attacks.contract import Finding, Knowledge, Truth, View
from covey.attacks.declaration import GOT, Reads
from covey.audit.matrix import Audit, Cell, fill
from covey.audit.questions import Questions, Watch
from covey.audit.runs import audit
from covey.errors import CoveyError
from covey.experiment import encryptions
from covey.experiment.experiment import Experiment
from covey.leaks import CLIENT, EAVESDROPPER, IDENTITY, MEMBERSHIP, OWN, PARTIES, SERVER, Leak
from covey.learn.work import Train
from covey.messages import message
from support.audits import small

NAMES = sorted(ALGORITHMS)


def renamed(experiment: Experiment) -> Experiment:
    """The same experiment with a subclass of its algorithm that has another name."""
    algorithm = experiment.algorithm
    kind = type(f"My{type(algorithm).__name__}", (type(algorithm),), {"name": f"my_{algorithm.name}"})
    return replace(experiment, algorithm=kind(**{f.name: getattr(algorithm, f.name) for f in fields(algorithm)}))


def experiments(name: str) -> Iterator[Experiment]:
    """Under every encryption that it knows, with and without clients that join later."""
    join = {"initial": 6, "join": 2, "join_every": 1}
    for encryption in encryptions.able(ALGORITHMS[name]):
        yield small(algorithm=name, encryption=encryption, clients=12, clusters=4, attacks=[])
        yield small(algorithm=name, encryption=encryption, clients=12, clusters=4, attacks=[], participation=join)


@pytest.mark.parametrize("name", NAMES)
def test_a_renamed_algorithm_is_asked_the_same_and_told_the_same(name: str) -> None:
    for experiment in experiments(name):
        ours, theirs = Questions(experiment), Questions(renamed(experiment))
        assert theirs.protocol.name == f"my_{name}"
        assert theirs.batches() == ours.batches()
        assert fill(theirs, {}, {}) == fill(ours, {}, {})  # what is given, absent, lacking, unknown, with its reasons
        leaking = Finding("x", "v", "m", 0.8, 0.5, 0.7, 0.9)
        done = {watch: (replace(leaking, attack=watch.attack), "") for watch in ours.watches()}
        assert fill(theirs, done, {}) == fill(ours, done, {})  # what carries over to whom


def test_a_renamed_ifca_is_audited_to_the_same_figures(tmp_path: Path) -> None:
    experiment = small(algorithm="ifca")
    ours, theirs = audit(experiment, tmp_path / "a", quiet=True), audit(renamed(experiment), tmp_path / "b", quiet=True)
    assert theirs.algorithm == "my_ifca" and sum(bool(cell.tried) for cell in ours.cells) == 23
    assert [shown(cell) for cell in theirs.cells] == [shown(cell) for cell in ours.cells]
    assert theirs.accuracy == ours.accuracy


def shown(cell: Cell) -> Cell:
    """All that a reader sees: verdict, reason and every score. The runs lie elsewhere."""
    return replace(cell, reports={})


# ---------------------------------------------------------------- algorithms and attacks of one's own


@message
@dataclass(frozen=True)
class Whole:
    weights: Annotated[torch.Tensor, roles.Model]


@dataclass(frozen=True)
class Undeclared:
    """One model for all, and not a word about its messages."""

    name: ClassVar[str] = "undeclared"
    title: ClassVar[str] = "a test's own"
    encryptions: ClassVar[tuple[str, ...]] = ("none",)

    def start(self, setting: Setting) -> Whole:
        return Whole(setting.one_start())

    def broadcast(self, state: Whole, client: int) -> Whole:
        return state

    def client(self, me: Client, message: Whole) -> Coroutine:
        return Whole((yield Train(message.weights, me.plan)))

    def aggregate(self, server: Server, state: Whole, replies: Iterator[tuple[int, Any]]) -> Whole:
        return Whole(torch.stack([reply.weights for _, reply in replies]).mean(0))

    def use(self, me: Client, message: Whole) -> Coroutine:
        return Predictor(message.weights[None])
        yield


class Declared(Undeclared):
    name: ClassVar[str] = "declared"
    sends: ClassVar[tuple[type, ...]] = (Whole,)
    replies: ClassVar[tuple[type, ...]] = (Whole,)
    trains: ClassVar[str] = "one"


def test_an_algorithm_that_declares_nothing_is_not_called_safe_nor_unknown() -> None:
    for cell in fill(Questions(small(algorithm=Undeclared(), attacks=[])), {}, {}):
        assert cell.verdict != "no attack known"
        if cell.verdict == "not measured":
            why = "undeclared declares no messages (sends, replies), so nobody can tell what it shows"
            assert cell.why == why
    assert Questions(small(algorithm=Undeclared(), attacks=[])).batches() == [()]


def test_attacks_fit_what_an_own_algorithm_declares() -> None:
    questions = Questions(small(algorithm=Declared(), attacks=[]))
    assert {watch.attack for watch in questions.watches()} >= {"a2", "label_shares", "loss_membership", "lira"}
    cells = {(cell.row, cell.column): cell for cell in fill(questions, {}, {})}
    assert cells["cluster identity", SERVER].why == "declared has no clusters"
    why = cells["membership", SERVER].why
    assert "no reply carries noised features of samples, and that is all this attack reads; known elsewhere: " in why


@dataclass
class Counting:
    """Says nothing about itself but what every attack must."""

    name: ClassVar[str] = "counting"
    vantage: str = EAVESDROPPER
    memory: dict[str, Any] = field(default_factory=dict)

    def begin(self, knowledge: Knowledge) -> None:
        self.memory.setdefault("seen", 0)

    def observe(self, view: View) -> None:
        self.memory["seen"] += 1

    def end_round(self, round: int) -> None:
        pass

    def finding(self, truth: Truth) -> Finding:
        return Finding(self.name, self.vantage, "messages", 0.9, 0.5, 0.8, 1.0, used=f"{self.memory['seen']} messages")


SPEED = Leak("speed", "how fast a client is")


@dataclass
class Timing(Counting):
    """Brings a row of its own, from two places, for what carries models to clients."""

    name: ClassVar[str] = "timing"
    row: ClassVar[Leak] = SPEED
    seen_from: ClassVar[tuple[str, ...]] = (SERVER, CLIENT)
    reads: ClassVar[tuple[Reads, ...]] = (Reads((roles.Model,), GOT),)
    means: ClassVar[str] = "1 is all"
    own_rows: ClassVar[bool] = False
    vantage: str = "server"


def test_own_attacks_are_audited_beside_ours(tmp_path: Path) -> None:
    experiment = small(algorithm=Declared(), attacks=[Counting(), Timing()], training={"rounds": 2})
    matrix = audit(experiment, tmp_path, quiet=True)
    assert list(matrix.rows)[-2:] == [OWN.name, SPEED.name]
    assert [(cell.column, cell.verdict) for cell in matrix.cells if cell.row == OWN.name and cell.tried] == [
        (EAVESDROPPER, "leaks")
    ]
    timed = {cell.column: cell for cell in matrix.cells if cell.row == SPEED.name}
    assert timed[SERVER].tried[0].vantage == "server" and timed[CLIENT].tried[0].vantage == "client:0"
    assert timed[SERVER].tried[0].means == "1 is all" and not timed[EAVESDROPPER].carried
    assert timed[EAVESDROPPER].tried[0].vantage == EAVESDROPPER  # shown what the server is
    assert Audit.of(matrix.json()) == matrix
    unfit = Questions(small(algorithm="mingledpie", clusters=4, attacks=[Timing()]))
    assert unfit.unfit("timing") == "no message to a client carries a model, and that is all this attack reads"
    assert not [watch for watch in unfit.watches() if watch.attack == "timing"]


def test_an_own_attack_stays_where_it_looks_unless_it_says_from_where_it_can() -> None:
    for vantage, column in (("client:3", CLIENT), ("server+client:1", PARTIES[3]), ("server", SERVER)):
        questions = Questions(small(attacks=[Counting(vantage=vantage)]))
        assert [watch for watch in questions.watches() if watch.attack == "counting"] == [Watch("counting", column)]
        (batch, *_) = [b for b in questions.batches() if Watch("counting", column) in b]
        (own,) = [a for a in questions.watched(batch).attacks if a.name == "counting"]
        assert own.vantage == vantage
    cloud = Questions(small(algorithm="fedcaprivacy", attacks=[Counting(vantage="csp")]))
    assert cloud.declared["counting"].seen_from == (PARTIES[1],)


def test_an_attack_after_one_of_ours_is_audited_beside_it_under_a_name_of_its_own_only() -> None:
    from covey.attacks.preference.identity import A1

    class Taken(A1):
        pass

    class Sharper(A1):
        name = "a1_sharper"

    with pytest.raises(CoveyError, match="has the name of an attack of covey"):
        _ = Questions(small(attacks=[Taken()])).attacks
    questions = Questions(small(attacks=[Sharper()]))
    assert questions.attacks["a1"] is A1 and questions.attacks["a1_sharper"] is Sharper
    assert questions.declared["a1_sharper"].row == IDENTITY and MEMBERSHIP in questions.rows
