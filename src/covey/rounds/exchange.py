"""The messages of a round on their way: counted in bytes, seen by whoever sees them, with what clients noted and spent."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from covey.algorithms.contract import Server, Setting
from covey.attacks.observe import Observers
from covey.compression.replies import unpack
from covey.engines.calls import Call
from covey.engines.cohort import Outcomes
from covey.engines.hosts.host import Outcome
from covey.engines.simulate import Hosts
from covey.experiment.experiment import Experiment
from covey.messages import size
from covey.names import came_up_elsewhere
from covey.rounds.record import Facts, Spend, Traffic, timed

WAITED = "waited"  # the phase in which hosts are waited for


@dataclass
class Exchange:
    """Those of one round."""

    round: int
    experiment: Experiment
    setting: Setting
    hosts: Hosts
    observers: Observers
    keys: Mapping[str, Any]  # of all parties
    spends: list[Spend]  # of the run: what this round spends is added
    party: str  # that clients talk to
    traffic: Traffic = field(default_factory=Traffic)
    facts: Facts = field(default_factory=Facts)
    seconds: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    _coming: Iterator[Outcome | Outcomes] = field(default_factory=lambda: iter(()))

    def send(self, calls: Sequence[Call]) -> None:
        """What clients are sent."""
        self.traffic.send(calls)
        for client, broadcast, _ in calls if self.observers else ():
            self.observers.see(self.round, self.party, f"client:{client}", broadcast)

    def replies(self, calls: Sequence[Call]) -> Iterator[tuple[Any, Any]]:
        """The clients' replies as they come in."""
        self._coming = self.hosts.run(self.round, calls)
        sent = {client: broadcast for client, broadcast, _ in calls} if self.experiment.compression else {}
        while True:
            begin = time.perf_counter()
            try:
                outcome: Outcome | Outcomes | None = next(self._coming, None)
            except Exception as error:
                came_up_elsewhere(error)  # who adds the replies up waits for this
                raise
            self.seconds[WAITED] += time.perf_counter() - begin
            if outcome is None:
                return
            if isinstance(outcome, Outcomes):
                yield from self._replies_as_one(outcome)
                continue
            client, reply = outcome.client, outcome.reply
            self.traffic.up += size(reply)
            self.facts.of_each[client] = outcome.notes
            if outcome.events:
                self.spends.extend((self.round, client, event) for event in outcome.events)
            # Bytes are those that crossed the wire; whoever saw them can unpack them.
            if sent:
                reply = unpack(self.experiment.compression, self.setting, sent[client], reply)
            self.observers.see(self.round, f"client:{client}", self.party, reply)
            yield client, reply

    def _replies_as_one(self, outcomes: Outcomes) -> Iterator[tuple[Any, Any]]:
        """The replies of clients that ran as one: as one message in rows, unless somebody looks at what is in them."""
        self.traffic.up += outcomes.bytes_sent()
        if self.experiment.participation.buffer or self.observers.read_rows(outcomes.reply):
            for client, reply, notes in outcomes.each():
                self.facts.of_each[client] = notes
                self.observers.see(self.round, f"client:{client}", self.party, reply)
                yield client, reply
            return
        for client, reply, notes in outcomes.without_rows().each() if self.observers else ():
            self.facts.of_each[client] = notes
            self.observers.see(self.round, f"client:{client}", self.party, reply)
        self.observers.check_kind(f"client:{outcomes.clients[0]}", outcomes.reply)
        if outcomes.notes and not self.observers:
            self.facts.in_rows.append((outcomes.clients, outcomes.notes))
        yield outcomes.clients, outcomes.reply

    def server(self) -> Server:
        """The desk of the server that clients send their replies to."""
        server = self._desk(self.party)
        server.consult = self._consult
        return server

    def _desk(self, party: str) -> Server:
        """A server's in this round; what it asks another one crosses the wire, and views see it."""
        notes: dict[str, Any] = {}

        def ask(other: str, question: Any) -> Any:
            desk = self._desk(other)
            self.observers.see(self.round, party, other, question)
            given = self.experiment.algorithm.answer(desk, question)
            notes.update(desk.notes)
            return self.observers.see(self.round, other, party, given)

        keys, phase = self.keys.get(party, {}), partial(timed, self.seconds)
        return Server(self.round, self.setting.seed, self.setting, keys, ask, phase, notes)

    def _consult(self, questions: Mapping[int, Any], enough: int) -> dict[int, Any]:
        """What clients answer to a further question of the round; some may have vanished since they replied."""
        begin = time.perf_counter()
        # Hosts do one thing at a time: whoever consults before all have replied waits for the rest.
        self._coming = iter(list(self._coming))
        self.seconds[WAITED] += time.perf_counter() - begin
        lost = self.experiment.participation.vanished(self.setting.seed, self.round, self.setting.clients)
        for client, question in questions.items():
            self.traffic.down += size(question)
            self.observers.see(self.round, self.party, f"client:{client}", question)
        plan = self.experiment.training.plan(self.round)
        calls = [(client, question, plan) for client, question in questions.items() if not lost[client]]
        answers: dict[int, Any] = {}
        begin = time.perf_counter()
        outcomes = list(self.hosts.advise(self.round, calls))
        self.seconds[WAITED] += time.perf_counter() - begin
        for outcome in outcomes:
            client, reply = outcome.client, outcome.reply
            self.traffic.up += size(reply)
            self.spends.extend((self.round, client, event) for event in outcome.events)
            answers[client] = self.observers.see(self.round, f"client:{client}", self.party, reply)
        return answers
