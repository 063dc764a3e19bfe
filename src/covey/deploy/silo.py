"""A silo: one client with its own data, keys, memory and randomness, that answers the coordinator's letters.

It follows the experiment that it was given with its keys, not what a letter says: a coordinator cannot change the learning
rate, switch off a defence, ask for another algorithm or for more rounds. It answers each round once, and the last letter
("finish") is one round more (and another one if it was refused). Asked again with the same words (the coordinator was
restarted) it repeats its answer; asked again with others it refuses, since two answers of one round would say more than one.
What it must remember is on disk before an answer leaves, so a restart changes nothing.

Whether a sum opens tells something about the key it was opened with, and a coordinator that alters sums could ask for the key
bit by bit. So a round is begun on disk before anything is opened and is spent from then on, whatever comes of it. A silo that
failed says one word (`Refused`), no sooner than after REFUSAL_SECONDS, and after `deployment.max_refusals` of them it stops
for good. Those count that came after opening began and where the silo holds a secret key: no lost letter, restart or full disk
is among them, since they leave the round begun, and the same words are answered then. Words that can be judged without a key
(kind, round, run) are refused before, and cost nothing. The bits that remain are counted in docs/deployment/trust.md.
"""

from __future__ import annotations

import hashlib
import math
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from covey import config, files
from covey.algorithms.contract import Declaration, declaration, is_reticent
from covey.crypto.noise.source import SecretNoise
from covey.data.dataset import Dataset
from covey.data.federation import Federation
from covey.data.own.encoding import Feature
from covey.deploy.agreed import Agreed, digest, experiment_of, network_of, setting_of
from covey.deploy.budget import Budget, BudgetSpent
from covey.deploy.letters import (
    Hello,
    Mailbox,
    Refused,
    RoundReply,
    Spent,
    VerifiedLetter,
    describe_failure,
    largest_message,
    report_refusals,
)
from covey.deploy.membership.records import Party
from covey.deploy.model import SiloModel
from covey.deploy.transcript import Transcript
from covey.deploy.usage import Usage
from covey.deploy.watch.watch import spendings
from covey.engines.calls import heterogeneous
from covey.engines.evaluation import Examiner, Score
from covey.engines.hosts.host import Host
from covey.engines.prepare import device_of
from covey.errors import CoveyError
from covey.learn.machine import Machine
from covey.ledger.pricing import price
from covey.messages import check_fields, encode, message
from covey.metrics.metric import chosen
from covey.version import __version__

Samples = tuple[np.ndarray[Any, Any], np.ndarray[Any, Any], np.ndarray[Any, Any], np.ndarray[Any, Any]]
REFUSAL_SECONDS = 5.0  # after which a refusal leaves: how soon opening failed is not to be seen
BEGUN, ANSWERED, REFUSED, SPENT = "begun", "answered", "refused", "not paid for"  # what came of a round


@message
@dataclass(frozen=True)
class SiloState:
    """What survives a restart."""

    run: str
    round: int  # the last that was begun; one more than there are: the run is over
    asked: str  # digest of what was asked in it
    memory: dict[str, Any]  # the client's, after that round
    seed: int  # of all randomness that nobody else may know
    spends: list[Any]  # (round, event) for the ledger
    outcome: str = ANSWERED  # of that round; begun: this silo was stopped in the middle of it
    refusals: int = 0  # that depended on a secret key
    advised: int = 0  # further questions of rounds that were answered, in the run


@dataclass(frozen=True)
class Turn:
    """What a round has come to."""

    answer: RoundReply
    memory: dict[str, Any]
    events: list[Any] = field(default_factory=list)
    model: SiloModel | None = None  # to go home with
    metrics: dict[str, float] | None = None  # of that model, for this silo's owner


class Silo:
    """See the module's docstring. `handle` takes a letter's bytes and gives the answer's."""

    def __init__(
        self,
        party: Party,
        agreed: Agreed,
        samples: Samples,
        folder: Path,
        *,
        columns: Sequence[Feature] = (),  # how they were read of a table, with its means and deviations
        device: str = "auto",
        share_accuracy: bool = False,
        say: Callable[[str], None] = print,
        keys: Path | None = None,
        budget: float | None = None,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.folder, self.say, self.share_accuracy = folder, say, share_accuracy
        self.agreed, self.digest, self.role = agreed, digest(agreed), party.role
        self.experiment = experiment_of(agreed, {"device": device, "workers": 1})
        self.columns = tuple(columns) or self.experiment.silos.columns
        self.setting = setting_of(agreed, self.experiment)
        self.number, self.server = _number_of(party), _server_of(party)
        self.finished = False
        self.transcript = Transcript(folder / "transcript.jsonl")
        deployment = self.experiment.deployment
        declared = declaration(self.experiment.algorithm)
        limit = largest_message(self.setting, deployment.max_megabytes, declared.rounds_sent)
        if check := getattr(self.experiment.algorithm, "check_keys", None):
            check(party.keys, self.number, self.experiment.encryption)
        self._holds_secrets = holds_secrets(declared, party.keys, party.role)
        self.mailbox = Mailbox(party.role, party.signing, party.known, deployment.round_seconds + 300, limit)
        self.usage = Usage(None if deployment.rehearsal else keys)
        self.budget = Budget(None if deployment.rehearsal else keys, budget)
        self.usage.check_booked(self.budget.booked)
        self.state = self._load()
        self.usage.check_state(self.state.run, self.state.round, self.state.outcome == ANSWERED)
        self.host = self._host(party.keys, samples)
        self.host.memories.whole[self.number] = self.state.memory

    def handle(self, data: bytes) -> bytes:
        """The answer to a letter; a CoveyError, told to the user as well, where it is refused."""
        with report_refusals(self.folder, self.say):
            return self.mailbox.answer(data, self._answer, self.say)

    @property
    def latest(self) -> tuple[int, str]:
        """The last round that was begun, and what came of it."""
        return self.state.round, self.state.outcome if self.state.round else ""

    @property
    def spending(self) -> dict[str, Any]:
        """Its privacy loss so far, and its budget, for its owner."""
        spends = [(round, self.number, event) for round, event in self.state.spends]
        limit = self.budget.account.limit or None
        spent = self.budget.in_words["spent"] if limit else None
        return {"privacy": spendings(price(spends)) if spends else (), "budget": limit, "spent": spent}

    @property
    def stopped(self) -> str:
        """Why this silo answers no more, in words for its owner; empty: it does."""
        if self.state.refusals < self.experiment.deployment.max_refusals:
            return ""
        return (
            f"stopped for good: {self.state.refusals} times what the coordinator sent could not be used with this silo's "
            "secret key, and every further refusal would tell more of that key; ask the other silos and the coordinator what "
            "happened, then make new keys for all with `covey keys make` and begin a new run from a new --state folder"
        )

    def _answer(self, verified: VerifiedLetter) -> bytes:
        letter = verified.letter
        if verified.sender != self.server:
            raise CoveyError(f"a letter came from '{verified.sender}', this silo takes those of '{self.server}' only")
        if letter.kind == "hello":
            body: Any = Hello(self.digest, __version__, self.state.run, self.state.round)
        elif letter.kind in ("round", "finish"):
            self._check_run(letter.run)
            self._check_round(letter.kind, verified.round, letter.body)
            body = self._answer_once(verified)
        elif letter.kind == "consult":
            self._check_run(letter.run)
            body = self._advise(verified.round, letter.body)
        else:
            raise CoveyError(
                f"a letter of the kind '{letter.kind[:40]}' came, a silo answers hello, round, consult and finish"
            )
        return self.mailbox.write(letter.run, letter.kind, verified.sender, verified.round, body, letter.number)[0]

    def _check_run(self, run: str) -> None:
        if self.state.run not in ("", run):
            raise CoveyError(
                f"this silo takes part in run {self.state.run}, the coordinator leads run {run[:40]}: "
                "answer a new run from a new --state folder, and mind that privacy losses add up over runs"
            )

    def _check_round(self, kind: str, round: int, broadcast: Any) -> None:
        """What can be judged without any key."""
        rounds = self.experiment.training.rounds
        if kind == "round" and not 1 <= round <= rounds:
            raise CoveyError(f"round {round} was asked for, {rounds} are agreed: nothing beyond them is answered")
        if kind == "finish" and round not in self._last_rounds:
            raise CoveyError(f"the last letter came as round {round}, it is round {self._last_rounds[-1]} of this run")
        expected = declaration(self.experiment.algorithm).sends
        if expected and type(broadcast) not in expected and not (kind == "finish" and broadcast is None):
            names = " or ".join(sorted(kind.__name__ for kind in expected))
            raise CoveyError(f"a {type(broadcast).__name__} was sent, expected {names}")

    @property
    def _last_rounds(self) -> list[int]:
        """The round after the last, and one more if that was refused: models before those that did not open."""
        first = self.experiment.training.rounds + 1
        refused = self.state.round == first and self.state.outcome == REFUSED
        return [first, first + 1] if refused or self.state.round > first else [first]

    def _answer_once(self, verified: VerifiedLetter) -> RoundReply | Refused | Spent:
        """The answer to a round's first words; see the module's docstring."""
        round, asked = verified.round, hashlib.sha256(encode(verified.letter.body)).hexdigest()
        if round < self.state.round or (round == self.state.round and asked != self.state.asked):
            raise CoveyError(
                f"round {round} was asked for{' with other words' if round == self.state.round else ''}, "
                f"but round {self.state.round} has been {self.state.outcome}: no round is answered twice"
            )
        if round == self.state.round and self.state.outcome != BEGUN:
            self.say(f"round {round}: asked again, {self.state.outcome} as before")
            return self._stored_answer()
        if self.stopped:
            return Refused()
        run, begin = verified.letter.run, time.monotonic()
        self.usage.check_state(run, self.state.round if self.state.run else 0, self.state.outcome != BEGUN)
        before, again = self.state, self.state.round == round
        self._save(replace(self.state, run=run, round=round, asked=asked, outcome=BEGUN))
        with self._back_to(before):
            self.usage.begin(run, round, again)
        try:
            turn = (self._train if verified.letter.kind == "round" else self._go_home)(round, verified.letter.body)
            self._book(run, round, turn.events)
        except BudgetSpent as e:  # by what was booked, which everybody can count: no key and no sample shows in it
            self._save(replace(self.state, outcome=SPENT))
            self.say(str(e))
            return Spent()
        except Exception as e:  # also a mistake of ours: what it depended on, nobody knows
            self._refuse(round, e)
            if not self.experiment.deployment.rehearsal:
                time.sleep(max(0.0, begin + REFUSAL_SECONDS - time.monotonic()))
            return Refused()
        self._store(turn)
        self.usage.answer(run, round)
        if verified.letter.kind == "finish":
            self._end(turn.model, turn.metrics)
        else:
            self.transcript.add(round, verified.sender, self.role, verified.letter.body)
            self.transcript.add(round, self.role, verified.sender, turn.answer.reply)
            self.say(f"round {round}: answered after {time.monotonic() - begin:.1f} s")
        return turn.answer

    def _store(self, turn: Turn) -> None:
        """The state last: until then the round is begun, and the same words are answered anew."""
        if turn.model is not None:
            files.write_state(self.folder / "model.bin", turn.model)
        files.write_state(self.folder / "reply.bin", turn.answer)
        spends = [*self.state.spends, *((self.state.round, event) for event in turn.events)]
        self._save(replace(self.state, memory=turn.memory, spends=spends, outcome=ANSWERED))

    def _end(self, model: SiloModel | None, metrics: dict[str, float] | None) -> None:
        self.finished = True
        if model is None:
            self.say("finished: this experiment trains no model for this silo")
            return
        self.write_summary(model.accuracy, metrics)
        measured = "" if model.accuracy is None else f", {100 * model.accuracy:.1f} % right on this silo's test samples"
        self.say(f"finished: the model is in {self.folder / 'model.bin'}{measured}")

    def _book(self, run: str, round: int, events: list[Any]) -> None:
        """Also beside the keys: a budget that is removed meanwhile, or restored from a copy, is no fresh one."""
        if events:
            self.usage.check_booked(self.budget.reread().booked)
            self.budget.book(run, round, events)
            self.usage.book(self.budget.booked)

    def _stored_answer(self) -> RoundReply | Refused | Spent:
        if self.state.outcome == SPENT:
            return Spent()
        if self.state.outcome == REFUSED:
            return Refused()
        self.usage.answer(self.state.run, self.state.round)  # it may have been stopped between storing and counting it
        if self.state.round > self.experiment.training.rounds:
            self.finished = True
        answer = files.read_state(self.folder / "reply.bin")
        if not isinstance(answer, RoundReply):
            raise CoveyError(f"{self.folder / 'reply.bin'} holds no reply: it was changed since it was written")
        return answer

    def _refuse(self, round: int, error: Exception) -> None:
        """On disk first, then to the owner."""
        refusals = max(self.state.refusals, self.usage.used.refusals)  # of another process with these keys, too
        self.state = replace(self.state, outcome=REFUSED, refusals=refusals + self._holds_secrets)
        self.usage.refuse(self.state.refusals)
        self._save(self.state)
        most = self.experiment.deployment.max_refusals
        counted = f" (refusal {self.state.refusals} of at most {most})" if self._holds_secrets else ""
        self.say(f"round {round}: refused{counted}: {describe_failure(self.folder, error)}")
        if self.stopped:
            self.say(self.stopped)
            self.finished = True

    def _train(self, round: int, broadcast: Any) -> Turn:
        self.say(f"round {round} of {self.experiment.training.rounds}: at work")
        plan = self.experiment.training.plan(round)
        if self.experiment.participation.slowest < 1:
            speeds = self.experiment.participation.speeds(self.setting.seed, self.setting.clients)
            plan = heterogeneous(plan, float(speeds[self.number]))
        call = (self.number, broadcast, plan)
        self.host.run_id = self.state.run
        self.host.memories.whole[self.number] = self.state.memory  # not that of a try whose answer could not be stored
        (outcome,) = self.host.run(round, [call])
        memory = self.host.memories.snapshot(round).get(self.number, {})
        score = self.host.score(round, [call])[0] if self._reports else None
        self._warn(round, outcome.notes)
        if self.budget.account.limit and not (outcome.events or self.state.spends):
            self.say(
                f"round {round}: this silo itself adds no noise that could be counted, so its budget of "
                f"ε = {self.budget.account.limit:g} limits nothing in this run"
            )
        return Turn(RoundReply(outcome.reply, *_reported(score)), memory, outcome.events)

    def _warn(self, round: int, notes: Mapping[str, Any]) -> None:
        """Tells this silo's owner what nobody else is told of its round."""
        for name, measure in declaration(self.experiment.algorithm).measures.items():
            value = notes.get(name)
            if measure.warning and isinstance(value, float) and value >= measure.alarm:
                self.say(f"round {round}: {measure.warning.format(value)}")

    def _advise(self, round: int, question: Any) -> RoundReply:
        """The answer to a further question of the round that was answered last. What may be asked, and how often, its
        algorithm judges by the client's memory, which is on disk before the answer leaves. A refusal depends on the question
        and on who wrote what is in it, not on a key, and is not counted.
        """
        if self.state.round != round or self.state.outcome != ANSWERED:
            raise CoveyError(f"a question of round {round} came, but round {self.state.round} is {self.state.outcome}")
        expected = declaration(self.experiment.algorithm).consults
        if type(question) not in expected:
            names = " or ".join(sorted(kind.__name__ for kind in expected)) or "no question"
            raise CoveyError(f"a {type(question).__name__} was asked, expected {names}")
        if self.stopped:
            raise CoveyError(self.stopped)
        self.usage.check_advice(self.state.run, self.state.advised)
        self.host.run_id = self.state.run
        self.host.memories.whole[self.number] = self.state.memory
        (outcome,) = self.host.advise(round, [(self.number, question, self.experiment.training.plan(round))])
        memory = self.host.memories.snapshot(round).get(self.number, {})
        before = self.state
        self._save(replace(self.state, memory=memory, advised=self.state.advised + 1))
        with self._back_to(before):
            self.usage.advise(self.state.run, self.state.advised)
        self.transcript.add(round, self.server, self.role, question)
        self.transcript.add(round, self.role, self.server, outcome.reply)
        return RoundReply(outcome.reply, None)

    def _go_home(self, round: int, broadcast: Any) -> Turn:
        """With the last broadcast's model."""
        if broadcast is None:
            return Turn(RoundReply(None, None), self.state.memory)
        call = (self.number, broadcast, self.experiment.training.plan(round))
        (use,) = self.host.uses(round, [call])
        score = self.host.score(round, [call])[0] if len(self.host.examiner.rows) else None
        accuracy, metrics = _reported(score)
        model = SiloModel(
            use.models.cpu(),
            use.index or 0,
            None if use.weights is None else use.weights.cpu(),
            config.to_table(self.experiment.model),
            self.agreed.shape,
            self.agreed.classes,
            self.agreed.kind,
            self.agreed.vocabulary,
            accuracy,
            self.agreed.task,
            self.experiment.layers.buffers,
            self.agreed.model,
            [asdict(column) for column in self.columns],
        )
        reported = (accuracy, metrics) if self._reports else (None, None)
        return Turn(RoundReply(None, *reported), self.state.memory, model=model, metrics=metrics)

    @property
    def _reports(self) -> bool:
        return self.share_accuracy and self.experiment.deployment.report_accuracy

    def write_summary(self, accuracy: float | None, metrics: dict[str, float] | None = None) -> None:
        """What this silo may tell its owner: rounds, its privacy loss, its accuracy and metrics."""
        spends = [(round, self.number, event) for round, event in self.state.spends]
        summary = {
            "role": self.role,
            "run": self.state.run,
            "round": self.state.round,
            "accuracy": accuracy,
            "metrics": metrics or {},
            "privacy": price(spends) if spends else {},
            "budget": self.budget.in_words,
        }
        files.write_json(self.folder / "summary.json", summary)

    def _host(self, keys: dict[str, Any], samples: Samples) -> Host:
        x, y, x_test, y_test = samples
        network, nobody = network_of(self.agreed), np.zeros(0, np.int64)
        dataset = Dataset(
            "silo", x, y, x_test, y_test, tuple(self.agreed.classes), self.agreed.kind, task=self.agreed.task
        )
        rows = tuple(np.arange(len(y)) if i == self.number else nobody for i in range(self.setting.clients))
        tested = np.zeros(len(y_test), np.int64)
        federation = Federation(dataset, rows, None, tested, np.ones((self.setting.clients, 1)))
        device = device_of(self.experiment)
        machine = Machine(network, x, y, device=device)
        examiner = Examiner(
            Machine(network, x_test, y_test, device=device),
            np.arange(len(y_test), dtype=np.int64),
            tested,
            1,
            chosen(network.task, self.experiment.evaluation.metrics),
        )
        return Host(
            self.experiment.algorithm,
            self.setting,
            federation,
            machine,
            examiner,
            keys,
            self.experiment.defence,
            self.experiment.exposure,
            compression=self.experiment.compression,
            private_seed=self.setting.seed if self.experiment.deployment.rehearsal else self.state.seed,
            secret=None if self.experiment.deployment.rehearsal else SecretNoise(),
            reticent=not self.experiment.deployment.rehearsal and is_reticent(self.experiment.algorithm, self.setting),
        )

    def _load(self) -> SiloState:
        path, refusals = self.folder / "state.bin", self.usage.used.refusals
        if not path.is_file():
            return SiloState("", 0, "", {}, secrets.randbits(256), [], refusals=refusals)
        try:
            state = files.read_state(path)
        except CoveyError as e:
            raise CoveyError(
                f"{e}; an older copy might answer twice: join as a new silo (`covey keys add`), or in a rehearsal with an "
                "empty --state folder"
            ) from e
        if not isinstance(state, SiloState):
            raise CoveyError(f"{path} is not a silo's state: choose another --state folder")
        check_fields(state)
        return replace(state, refusals=max(state.refusals, refusals))

    @contextmanager
    def _back_to(self, state: SiloState) -> Iterator[None]:
        """If the keys were used by another process meanwhile: else its next question would find this one answered."""
        try:
            yield
        except CoveyError:
            self._save(state)
            raise

    def _save(self, state: SiloState) -> None:
        files.write_state(self.folder / "state.bin", state)
        self.state = state


def _reported(score: Score | None) -> tuple[float | None, dict[str, float] | None]:
    """(accuracy, metrics) of a silo's own test samples, without what cannot be said of them."""
    if score is None:
        return None, None
    known = {name: value for name, value in score.metrics.items() if math.isfinite(value)}
    return score.own if math.isfinite(score.own) else None, known


def _number_of(party: Party) -> int:
    number = party.role.removeprefix("client:")
    if not number.isdecimal() or len(number) > 9:
        raise CoveyError(
            f"party.bin is of '{party.role[:40]}', which is no silo: copy it again from where the keys were made"
        )
    return int(number)


def _server_of(party: Party) -> str:
    servers = [role for role in party.known if not role.startswith("client:")]
    if len(servers) != 1:
        raise CoveyError(
            f"party.bin knows {len(servers)} servers, expected one: copy it again from where the keys were made"
        )
    return servers[0]


def holds_secrets(declared: Declaration, material: Mapping[str, Any], role: str) -> bool:
    """Whether refusals may tell of some of a party's key material, as its algorithm describes it; of what it does not describe
    they may.
    """
    kinds = declared.key_kinds
    described = [kinds[name](value, role) if name in kinds else None for name, value in material.items()]
    return any(kind is None or (kind.secret and not kind.guarded) for kind in described)
