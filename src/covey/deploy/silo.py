"""A silo: one client with its own data, keys, memory and randomness, that answers the coordinator's letters.

It follows the experiment that it was given with its keys, not what a letter says: a coordinator cannot change the learning
rate, switch off a defence or ask for another algorithm. It answers each round once. Asked again with the same words (the
coordinator was restarted) it repeats its answer; asked again with others it refuses, since two answers of one round would
say more than one. What it must remember is on disk before an answer leaves, so a restart changes nothing.
"""

from __future__ import annotations

import hashlib
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from covey import files
from covey.algorithms.contract import declaration
from covey.crypto.noise.source import SecretNoise
from covey.data.federation import Dataset, Federation
from covey.deploy.agreed import Agreed, digest, experiment_of, network_of, setting_of
from covey.deploy.keys import Party
from covey.deploy.letters import Hello, Mailbox, RoundReply, VerifiedLetter, largest_message, report_refusals
from covey.deploy.model import SiloModel
from covey.deploy.transcript import Transcript
from covey.engines.evaluation import Examiner
from covey.engines.host import Host, heterogeneous
from covey.engines.prepare import device_of
from covey.errors import CoveyError
from covey.learn.machine import Machine
from covey.ledger.events import price
from covey.messages import decode, encode, message
from covey.version import __version__

Samples = tuple[np.ndarray[Any, Any], np.ndarray[Any, Any], np.ndarray[Any, Any], np.ndarray[Any, Any]]


@message
@dataclass(frozen=True)
class SiloState:
    """What survives a restart."""

    run: str
    round: int  # the last that was answered
    asked: str  # digest of what was asked in it
    memory: dict[str, Any]  # the client's, after that round
    seed: int  # of all randomness that nobody else may know
    spends: list[Any]  # (round, event) for the ledger


class Silo:
    """See the module's docstring. `handle` takes a letter's bytes and gives the answer's."""

    def __init__(
        self,
        party: Party,
        agreed: Agreed,
        samples: Samples,
        folder: Path,
        *,
        device: str = "auto",
        share_accuracy: bool = False,
        say: Callable[[str], None] = print,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.folder, self.say, self.share_accuracy = folder, say, share_accuracy
        self.agreed, self.digest, self.role = agreed, digest(agreed), party.role
        self.experiment = experiment_of(agreed, {"device": device, "workers": 1})
        self.setting = setting_of(agreed, self.experiment)
        self.number = int(party.role.removeprefix("client:"))
        self.finished: float | None = None  # when
        self.transcript = Transcript(folder / "transcript.jsonl")
        deployment = self.experiment.deployment
        sent = declaration(self.experiment.algorithm).rounds_sent
        limit = largest_message(self.setting, deployment.max_megabytes, sent)
        self.mailbox = Mailbox(party.role, party.signing, party.known, deployment.round_seconds + 300, limit)
        (self.server,) = (role for role in party.known if not role.startswith("client:"))
        self.state = self._load()
        self.host = self._host(party.keys, samples)
        self.host.memories[self.number] = self.state.memory

    def handle(self, data: bytes) -> bytes:
        """The answer to a letter; a CoveyError, told to the user as well, where it is refused."""
        with report_refusals(self.folder, self.say):
            return self._answer(self.mailbox.read(data))

    def _answer(self, verified: VerifiedLetter) -> bytes:
        letter = verified.letter
        if verified.sender != self.server:
            raise CoveyError(f"a letter came from '{verified.sender}', this silo takes those of '{self.server}' only")
        if letter.kind == "hello":
            body: Any = Hello(self.digest, __version__, self.state.run, self.state.round)
        elif letter.kind in ("round", "finish"):
            self._check_run(letter.run)
            body = (self._round if letter.kind == "round" else self._finish)(verified)
        else:
            raise CoveyError(f"a letter of the kind '{letter.kind}' came, a silo answers hello, round and finish")
        return self.mailbox.write(letter.run, letter.kind, verified.sender, verified.round, body, letter.number)[0]

    def _check_run(self, run: str) -> None:
        if self.state.run not in ("", run):
            raise CoveyError(
                f"this silo takes part in run {self.state.run}, the coordinator leads run {run}: "
                "answer a new run from a new --state folder, and mind that privacy losses add up over runs"
            )

    def _round(self, verified: VerifiedLetter) -> Any:
        round, asked = verified.round, hashlib.sha256(encode(verified.letter.body)).hexdigest()
        if round < self.state.round or (round == self.state.round and asked != self.state.asked):
            raise CoveyError(
                f"round {round} was asked for{' with other words' if round == self.state.round else ''}, "
                f"but round {self.state.round} has been answered: no round is answered twice"
            )
        if round == self.state.round:
            self.say(f"round {round}: asked again, answered as before")
            return decode((self.folder / "reply.bin").read_bytes())
        begin, rounds = time.perf_counter(), self.experiment.training.rounds
        self.say(f"round {round} of {rounds}: at work")
        plan = self.experiment.training.plan(round)
        slowest = self.experiment.participation.slowest
        if slowest < 1:
            speeds = self.experiment.participation.speeds(self.setting.seed, self.setting.clients)
            plan = heterogeneous(plan, float(speeds[self.number]))
        self.host.memories[self.number] = self.state.memory  # not that of a try whose answer could not be stored
        (outcome,) = self.host.run(round, [(self.number, verified.letter.body, plan)])
        memory = self.host.snapshot(round).get(self.number, {})
        accuracy = None
        if self.share_accuracy and self.experiment.deployment.report_accuracy:
            accuracy = self.host.score(round, [(self.number, verified.letter.body, plan)])[0].own
        answer = RoundReply(outcome.reply, accuracy)
        spends = [*self.state.spends, *((round, event) for event in outcome.events)]
        files.write_atomically(self.folder / "reply.bin", encode(answer), mode=0o600)
        self._save(SiloState(verified.letter.run, round, asked, memory, self.state.seed, spends))
        self.transcript.add(round, verified.sender, self.role, verified.letter.body)
        self.transcript.add(round, self.role, verified.sender, answer.reply)
        self.say(f"round {round} of {rounds}: answered after {time.perf_counter() - begin:.1f} s")
        return answer

    def _finish(self, verified: VerifiedLetter) -> Any:
        """The last broadcast: the model that this silo goes home with."""
        round, broadcast = verified.round, verified.letter.body
        if broadcast is None:
            self.finished = time.monotonic()
            self.say("finished: this experiment trains no model for this silo")
            return RoundReply(None, None)
        call = (self.number, broadcast, self.experiment.training.plan(round))
        (use,) = self.host.uses(round, [call])
        accuracy = self.host.score(round, [call])[0].own if len(self.host.examiner.rows) else None
        network = self.agreed
        model = SiloModel(
            use.models.cpu(),
            use.index or 0,
            None if use.weights is None else use.weights.cpu(),
            self.experiment.model,
            network.shape,
            network.classes,
            network.kind,
            network.vocabulary,
            accuracy,
        )
        files.write_atomically(self.folder / "model.bin", encode(model), mode=0o600)
        self.write_summary(accuracy)
        self.finished = time.monotonic()
        measured = "" if accuracy is None else f", {accuracy:.1%} right on this silo's test samples"
        self.say(f"finished: the model is in {self.folder / 'model.bin'}{measured}")
        shared = accuracy if self.share_accuracy and self.experiment.deployment.report_accuracy else None
        return RoundReply(None, shared)

    def write_summary(self, accuracy: float | None) -> None:
        """What this silo may tell its owner: rounds, its privacy loss, its accuracy."""
        spends = [(round, self.number, event) for round, event in self.state.spends]
        summary = {
            "role": self.role,
            "run": self.state.run,
            "round": self.state.round,
            "accuracy": accuracy,
            "privacy": price(spends) if spends else {},
        }
        files.write_json(self.folder / "summary.json", summary)

    def _host(self, keys: dict[str, Any], samples: Samples) -> Host:
        x, y, x_test, y_test = samples
        network, nobody = network_of(self.agreed), np.zeros(0, np.int64)
        dataset = Dataset("silo", x, y, x_test, y_test, tuple(self.agreed.classes), self.agreed.kind)
        rows = tuple(np.arange(len(y)) if i == self.number else nobody for i in range(self.setting.clients))
        tested = np.zeros(len(y_test), np.int64)
        federation = Federation(dataset, rows, None, tested, np.ones((self.setting.clients, 1)))
        device = device_of(self.experiment)
        machine = Machine(network, x, y, device=device)
        examiner = Examiner(
            Machine(network, x_test, y_test, device=device), np.arange(len(y_test), dtype=np.int64), tested, 1
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
            private_seed=self.setting.seed if self.experiment.deployment.rehearsal else self.state.seed,
            secret=None if self.experiment.deployment.rehearsal else SecretNoise(),
        )

    def _load(self) -> SiloState:
        path = self.folder / "state.bin"
        if not path.is_file():
            return SiloState("", 0, "", {}, secrets.randbits(256), [])
        state = decode(path.read_bytes())
        if not isinstance(state, SiloState):
            raise CoveyError(f"{path} is not a silo's state: choose another --state folder")
        return state

    def _save(self, state: SiloState) -> None:
        files.write_atomically(self.folder / "state.bin", encode(state), mode=0o600)
        self.state = state
