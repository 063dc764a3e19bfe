"""The coordinator: the algorithm's server, over real silos.

The rounds are the simulation's: broadcast, replies, aggregate. What differs is that silos come, go, dawdle and err. A round
ends when every silo that was asked has answered, or has been gone or silent for too long and enough others have (see
`Deployment`). Replies are checked before the algorithm sees them; what is refused counts as not sent, and each reason
is said once. State is on disk after every round: started again in the same folder, the coordinator goes on where it was.
"""

from __future__ import annotations

import secrets
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from covey import __version__, checkpoint
from covey.algorithms.admission import admit
from covey.algorithms.contract import Server, server_of, wanted
from covey.deploy.agreed import Agreed, digest, experiment_of, setting_of
from covey.deploy.keys import Party
from covey.deploy.letters import ANYONE, Hello, Post, Told, largest_message
from covey.deploy.transcript import Transcript
from covey.errors import CoveyError
from covey.messages import size, to_device
from covey.prepare import device_of
from covey.result import Result, summarise

POLL_SECONDS = 0.1
TRIES = 3  # of a round in which nobody gives a usable answer
GONE_SECONDS = 10.0  # a silo that Flower has not listed for so long is gone
STRANGER = "a node"


class Mail(Protocol):
    """How letters travel: `flower.Link`."""

    nodes: dict[str, int]
    authenticated: bool

    def admit(self, name: str, public: bytes) -> None: ...
    def present(self) -> set[int]: ...
    def send(self, node: int, data: bytes, seconds: float) -> str: ...
    def receive(self, ids: list[str]) -> Iterator[tuple[str, bytes | None]]: ...


@dataclass
class Sent:
    """A letter on its way."""

    role: str
    number: str
    kind: str
    round: int
    node: int
    missed: float = 0.0  # since when its node is not listed


@dataclass
class Round:
    """What a round's letters have brought so far."""

    told: dict[int, Told] = field(default_factory=dict)
    failed: set[int] = field(default_factory=set)
    up: int = 0
    down: int = 0
    wire: int = 0


class Coordinator:
    """See the module's docstring."""

    def __init__(
        self,
        party: Party,
        agreed: Agreed,
        mail: Mail,
        out: Path,
        *,
        refresh: Callable[[], tuple[Party, dict[str, bytes]]] | None = None,
        say: Callable[[str], None] = print,
        command: str = "",
    ) -> None:
        self.party, self.mail, self.out, self.say, self.command = party, mail, out, say, command
        self.refresh = refresh  # the party as its folder has it now, and its nodes' public keys: silos may be added
        self.experiment = experiment_of(agreed, {"workers": 1})
        self.algorithm = self.experiment.algorithm
        self.setting, self.digest = setting_of(agreed, self.experiment), digest(agreed)
        self.deployment = self.experiment.deployment
        self.role = server_of(self.algorithm)
        self.further = tuple(getattr(self.algorithm, "further", ()))
        limit = largest_message(self.setting, self.deployment.max_megabytes, getattr(self.algorithm, "history", 1)) * (
            max(1, self.setting.clients) if self.further else 1
        )
        self.post = Post(self.role, party.signing, party.known, self.deployment.round_seconds + 300, limit)
        self.transcript = Transcript(out / "transcript.jsonl")
        self.run_id = secrets.token_hex(8)
        self.records: list[dict[str, Any]] = []
        self.at: dict[str, int] = {}  # role -> node that answered to it
        self._greeted: dict[int, Sent] = {}
        self._hellos: dict[str, Sent] = {}
        self._said: set[tuple[str, str]] = set()
        self._gathered = False  # since this process began

    # ------------------------------------------------------------ the run

    def run(self, progress: Callable[[int, dict[str, Any]], None] = lambda done, record: None) -> Result:
        state, done = self._begin()
        for round in range(done + 1, self.experiment.training.rounds + 1):
            self.gather()
            state, record = self._round(state, round)
            self.records.append(record)
            # State first: a crash between the two redoes nothing and loses only a line, which the checkpoint still has.
            self._save(state, round)
            checkpoint.write_lines(self.out / "metrics.jsonl", self.records)
            progress(round, record)
        accuracy = self._finish(state)
        if accuracy is not None and self.records:
            self.records[-1]["accuracy"] = accuracy
            checkpoint.write_lines(self.out / "metrics.jsonl", self.records)
        stand_in = "" if self.experiment.dataset == "silos" else "a rehearsal: samples of a public dataset"
        return summarise(self.experiment, self.records, [], [], {}, state, self.out, self.command, stand_in)

    def _begin(self) -> tuple[Any, int]:
        if not (self.out / "checkpoint" / "state.bin").is_file():
            self.out.mkdir(parents=True, exist_ok=True)
            checkpoint.write_atomically(self.out / "config.toml", self.experiment.toml().encode())
            self._save(self.algorithm.start(self.setting), 0)
        content, _ = checkpoint.load(self.out / "checkpoint")
        if content.get("agreed") != self.digest:
            raise CoveyError(f"{self.out} holds a run of other keys or another experiment: choose another --out")
        self.run_id, done = content["run"], int(content["round"])
        self.records = content["records"]
        if done:
            self.say(f"going on after round {done}")
        return to_device(content["state"], device_of(self.experiment)), done

    def _save(self, state: Any, done: int) -> None:
        content = {
            "run": self.run_id,
            "agreed": self.digest,
            "round": done,
            "state": state,
            "records": self.records,
        }
        checkpoint.save(self.out / "checkpoint", content, {})

    def _round(self, state: Any, round: int) -> tuple[Any, dict[str, Any]]:
        seconds: dict[str, float] = defaultdict(float)
        drawn, _ = self.experiment.participation.participants(self.setting.seed, round, self.setting.clients)
        here = [int(i) for i in drawn if f"client:{i}" in self.at]
        asked = wanted(self.algorithm, state, here)
        begin = time.perf_counter()
        got = self._ask_silos(state, round, asked)
        seconds["silos"] = time.perf_counter() - begin
        server = Server(
            round,
            self.setting.seed,
            self.setting,
            self.party.keys,
            partial(self._ask_further, round, got),
            partial(_timed, seconds),
        )
        with _timed(seconds, "aggregate"):
            state = self.algorithm.aggregate(server, state, iter([(i, got.told[i].reply) for i in sorted(got.told)]))
        seconds["aggregate"] -= sum(s for p, s in seconds.items() if p not in ("aggregate", "silos"))
        n = max(len(got.told), 1)
        reported = [t.accuracy for t in got.told.values() if t.accuracy is not None]
        return state, {
            "round": round,
            "participants": len(got.told),
            "dropped": len(asked) - len(got.told),
            "seconds": dict(seconds),
            "bytes": {"up": got.up / n, "down": got.down / max(len(asked), 1)},
            "wire": got.wire,
            "accuracy": _accuracy(reported) if reported else None,
            "clustering": None,
            "clusters": None,
            "extra": {k: v for k, v in server.notes.items() if k != "order"},
        }

    # ------------------------------------------------------------ silos

    def gather(self) -> None:
        """Waits until enough silos, and every further server, are there.

        Before the first round that is every silo, unless the experiment says fewer. A coordinator that was started again
        waits for all of them, too, but not longer than for a round: one may have left for good.
        """
        told, until = False, time.monotonic() + self.deployment.round_seconds
        while True:
            self._look_around()
            silos = {role for role in self.at if role.startswith("client:")}
            absent = [r for r in self.further if r not in self.at]
            patient = not self.records or (not self._gathered and time.monotonic() < until)
            expected = self.deployment.min_silos or (len(self.party.silos) if patient else 1)
            if len(silos) >= expected and not absent:
                self._gathered = True
                return
            if not told:
                names = [n for n, i in sorted(self.party.silos.items()) if f"client:{i}" not in silos]
                self.say(f"waiting for {', '.join([*names, *absent])}")
                told = True
            time.sleep(POLL_SECONDS * 5)

    def _look_around(self) -> None:
        """Lets added silos in, greets new nodes, reads their answers, forgets those who left."""
        if self.refresh is not None:
            self.party, nodes = self.refresh()
            self.post.learn(self.party.known)
            for name, public in nodes.items():
                self.mail.admit(name, public)
        present = self.mail.present()
        for role in [r for r, node in self.at.items() if node not in present]:
            self.say(f"{self._name(role)} is gone")
            self._greeted.pop(self.at.pop(role), None)
        for node in present - set(self._greeted):
            data, number = self.post.write(self.run_id, "hello", ANYONE, 0, None)
            self._greeted[node] = Sent(STRANGER, number, "hello", 0, node)
            self._hellos[self.mail.send(node, data, 60.0)] = self._greeted[node]
        for id, answer in self.mail.receive(list(self._hellos)):
            sent = self._hellos.pop(id)
            try:
                self._welcome(sent, answer)
            except CoveyError as e:
                self._refuse(sent.role, 0, str(e))

    def _welcome(self, sent: Sent, data: bytes | None) -> None:
        sender, hello = self._open(sent, data)
        if not isinstance(hello, Hello) or hello.agreed != self.digest:
            raise CoveyError(f"{self._name(sender)} was given another experiment or other start models")
        if hello.run not in ("", self.run_id):
            raise CoveyError(f"{self._name(sender)} takes part in another run ({hello.run})")
        if self.mail.authenticated and self.mail.nodes.get(self._name(sender)) != sent.node:
            raise CoveyError(f"{self._name(sender)} answers from a node that is not its own")
        if self.at.get(sender) != sent.node:
            version = "" if hello.version == __version__ else f" (covey {hello.version}, here {__version__})"
            self.say(f"{self._name(sender)} is there{version}")
        self.at[sender] = sent.node

    def _ask_silos(self, state: Any, round: int, asked: list[int]) -> Round:
        """Letters to all, answers of as many as the experiment wants. A silo that errs is not asked again."""
        got = Round()
        outgoing = {i: self.algorithm.broadcast(state, i) for i in asked}
        for i, broadcast in outgoing.items():
            got.down += size(broadcast)
            self.transcript.add(round, self.role, f"client:{i}", broadcast)
        tries = 0
        while True:
            open_letters: dict[str, Sent] = {}  # to those who are late already, anew: theirs may be lost
            waiting = [i for i in asked if i not in got.told and i not in got.failed and f"client:{i}" in self.at]
            for i in waiting:
                self._post(open_letters, f"client:{i}", "round", round, outgoing[i], got)
            self._await(open_letters, round, got)
            missing = [i for i in asked if i not in got.told and i not in got.failed]
            enough = max(1, self.deployment.min_silos)
            if got.failed and not got.told and not missing:
                tries += 1
                if tries == TRIES:
                    raise CoveyError(
                        f"round {round}: every silo's answer was refused, {TRIES} times; see the reasons above"
                    )
                got.failed.clear()
            elif not missing or (self.deployment.missing == "go_on" and len(got.told) >= enough):
                break
            if missing:
                self.say(f"round {round}: still waiting for {', '.join(self._name(f'client:{i}') for i in missing)}")
            self._look_around()
            time.sleep(POLL_SECONDS * 5)
        for i in sorted(got.told):
            self.transcript.add(round, f"client:{i}", self.role, got.told[i].reply)
        return got

    def _await(self, letters: dict[str, Sent], round: int, got: Round) -> None:
        """Until every letter is answered, its silo is gone, or the round's time is up."""
        until = time.monotonic() + self.deployment.round_seconds
        looked = 0.0
        while letters and time.monotonic() < until:
            for id, data in self.mail.receive(list(letters)):
                sent = letters.pop(id)
                client = int(sent.role.removeprefix("client:"))
                try:
                    _, told = self._open(sent, data)
                    if not isinstance(told, Told):
                        raise CoveyError(f"found a {type(told).__name__}, expected the reply to a round")
                    admit(self.algorithm, self.setting, self.party.keys, told.reply)
                    got.told[client] = told if _is_share(told.accuracy) else Told(told.reply, None)
                    got.up += size(told.reply)
                    got.wire += len(data or b"")
                except CoveyError as e:
                    got.failed.add(client)
                    self._refuse(sent.role, round, str(e))
            if time.monotonic() - looked > 1.0:
                looked = time.monotonic()
                self._drop_the_gone(letters, round)
            time.sleep(POLL_SECONDS)

    def _drop_the_gone(self, letters: dict[str, Sent], round: int) -> None:
        present = self.mail.present()
        for id, sent in list(letters.items()):
            sent.missed = 0.0 if sent.node in present else sent.missed or time.monotonic()
            if sent.missed and time.monotonic() - sent.missed > GONE_SECONDS:
                self.say(f"round {round}: {self._name(sent.role)} is gone")
                self._greeted.pop(self.at.pop(sent.role, -1), None)
                del letters[id]

    def _ask_further(self, round: int, got: Round, party: str, question: Any) -> Any:
        """Another server's answer; without it there is no round, so this waits for it."""
        self.transcript.add(round, self.role, party, question)
        while True:
            letters: dict[str, Sent] = {}
            if party in self.at:
                self._post(letters, party, "ask", round, question, got)
            until = time.monotonic() + self.deployment.round_seconds
            while letters and time.monotonic() < until:
                for id, data in self.mail.receive(list(letters)):
                    _, answer = self._open(letters.pop(id), data)
                    self.transcript.add(round, party, self.role, answer)
                    got.wire += len(data or b"")
                    return answer
                self._drop_the_gone(letters, round)
                time.sleep(POLL_SECONDS)
            self.say(f"round {round}: waiting for {party}")
            self._look_around()
            time.sleep(POLL_SECONDS * 5)

    def _finish(self, state: Any) -> dict[str, Any] | None:
        """The last models go out; silos that are not there now find them when they come back, as long as we run."""
        round, got, letters = self.experiment.training.rounds + 1, Round(), dict[str, Sent]()
        clients = [int(r.removeprefix("client:")) for r in self.at if r.startswith("client:")]
        served = wanted(self.algorithm, state, sorted(clients), "serves")
        for i in clients:
            last = self.algorithm.broadcast(state, i) if i in served else None
            self._post(letters, f"client:{i}", "finish", round, last, got)
        for party in self.further:
            if party in self.at:
                self._post(letters, party, "finish", round, None, got)
        until, reported = time.monotonic() + min(self.deployment.round_seconds, 120.0), []
        while letters and time.monotonic() < until:
            for id, data in self.mail.receive(list(letters)):
                sent = letters.pop(id)
                try:
                    _, told = self._open(sent, data)
                    if isinstance(told, Told) and _is_share(told.accuracy) and told.accuracy is not None:
                        reported.append(told.accuracy)
                except CoveyError as e:
                    self._refuse(sent.role, round, str(e))
            self._drop_the_gone(letters, round)
            time.sleep(POLL_SECONDS)
        return _accuracy(reported) if reported else None

    # ------------------------------------------------------------ letters

    def _post(self, letters: dict[str, Sent], role: str, kind: str, round: int, body: Any, got: Round) -> None:
        data, number = self.post.write(self.run_id, kind, role, round, body)
        got.wire += len(data)
        node = self.at[role]
        # Flower keeps it longer than we wait: lateness is ours to judge, and an expired message looks like an error.
        seconds = 2 * self.deployment.round_seconds + 60
        letters[self.mail.send(node, data, seconds)] = Sent(role, number, kind, round, node)

    def _open(self, sent: Sent, data: bytes | None) -> tuple[str, Any]:
        """(sender, body) of an answer that fits the question."""
        if data is None:
            raise CoveyError("it answered with an error; its own log says which")
        opened = self.post.read(data)
        letter = opened.letter
        if sent.role not in (opened.sender, STRANGER):
            raise CoveyError(f"{self._name(opened.sender)} answered in its place")
        if (letter.run, letter.kind, letter.answers) != (self.run_id, sent.kind, sent.number):
            raise CoveyError("its letter answers another one: stale, or a replay")
        if opened.round != sent.round:
            raise CoveyError(f"its letter is of round {opened.round}, not {sent.round}")
        return opened.sender, letter.body

    def _name(self, role: str) -> str:
        number = role.removeprefix("client:")
        return next((n for n, i in self.party.silos.items() if str(i) == number), role)

    def _refuse(self, role: str, round: int, why: str) -> None:
        """Said once per party and reason; every case is in events.jsonl."""
        name = self._name(role)
        checkpoint.append_line(self.out / "events.jsonl", {"round": round, "refused": name, "why": why})
        if (name, why) not in self._said:
            self._said.add((name, why))
            self.say(f"round {round}: refused {name}: {why}")


def _accuracy(reported: list[float]) -> dict[str, Any]:
    """What silos chose to report, as a record has accuracies; nothing is known of clusters or of common test samples."""
    mean = sum(reported) / len(reported)
    return {"client_mean": mean, "per_cluster": [mean], "average_cluster": mean, "global": mean}


def _is_share(value: Any) -> bool:
    return value is None or (isinstance(value, float) and 0 <= value <= 1)


@contextmanager
def _timed(seconds: dict[str, float], phase: str) -> Iterator[None]:
    begin = time.perf_counter()
    try:
        yield
    finally:
        seconds[phase] += time.perf_counter() - begin
