"""The round loop: broadcast, clients in waves, aggregate, evaluate, observe, record, checkpoint."""

from __future__ import annotations

import contextlib
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from covey.algorithms.contract import Server, make_keys, server_of, wanted
from covey.attacks.contract import Attack, Truth
from covey.attacks.observe import Observers
from covey.compression.replies import unpack
from covey.data.federation import Federation
from covey.engines.calls import Alike, Call, heterogeneous
from covey.engines.cohort import Outcomes, sends_alike
from covey.engines.hosts.host import Outcome
from covey.engines.listing import listed
from covey.engines.prepare import device_of, prepare, refuse_phases
from covey.engines.settle import data_line, settle, settled, unpinned
from covey.engines.spill import Spill
from covey.engines.start import start_engine
from covey.errors import CoveyError
from covey.experiment.experiment import Experiment
from covey.learn.kernels.kernels import taken
from covey.measures import CLOCK
from covey.messages import copied, size, to_device
from covey.metrics.metric import chosen
from covey.metrics.totals import NUMBERS
from covey.report.format import size as in_words
from covey.report.progress import Progress
from covey.results.folder import RunFolder
from covey.results.provenance import Sitting, sitting
from covey.rounds.asynchronous import Arrivals, UnderWay, ages_in_words, arrive, rebased
from covey.rounds.process import old_objects_left_alone, single_threaded
from covey.rounds.record import (
    Facts,
    Traffic,
    chosen_clusters,
    clusters_of,
    data_summary,
    federation_summary,
    means_of,
    memberships_of,
    pictures_of,
    timed,
)
from covey.rounds.result import Result, priced, summarise, summarise_seeds
from covey.rounds.scoring import Scoring
from covey.rounds.unharmed import unharmed_ends

HEAVY = 20e6  # bytes to a client and round that nobody expects
ATTACK = "attack"  # the phase of a round in which attacks think
Callback = Callable[[dict[str, Any], Any], None]  # (this round's record, the server's state)


def run(
    experiment: Experiment,
    *,
    out: str | Path | None = None,
    attacks: Sequence[Attack] = (),
    callbacks: Sequence[Callback] = (),
    federation: Federation | None = None,
    resume: bool = False,
    quiet: bool = False,
    command: str = "",
    figures_only: bool = False,
) -> Result:
    """Runs an experiment to its end; with `out` also writes its folder, from which an interrupted run resumes.

    Args:
        attacks: observers beside those that the experiment names.
        callbacks: called after every round; raising StopIteration ends the run there. One that also has `begin(experiment, done)`
            and `end(result)` is told of both, with None for the result where the run broke off (see `covey.loggers`).
        federation: own data (`covey.Federation.from_arrays` and others) instead of the experiment's dataset; where it names no
            clients, the experiment's partition cuts it. The run is written down under its name and fingerprint.
        resume: go on from the checkpoint in `out`, with the same data: others are refused.
        figures_only: for tables of many runs: without what is there to be looked at, the report and the pictures of findings, and
            without models in `out`.
    """
    folder = RunFolder(Path(out)) if out else None
    if experiment.seeds > 1:
        return _run_seeds(experiment, folder, attacks, callbacks, federation, resume, quiet, command, figures_only)
    loop = _Loop(experiment, folder, list(attacks), federation, command, figures_only)
    with single_threaded(), old_objects_left_alone(), folder.owned() if folder else contextlib.nullcontext():
        return loop.run(callbacks, resume, quiet)


def _run_seeds(
    experiment: Experiment,
    folder: RunFolder | None,
    attacks: Sequence[Attack],
    callbacks: Sequence[Callback],
    federation: Federation | None,
    resume: bool,
    quiet: bool,
    command: str,
    figures_only: bool,
) -> Result:
    """One run per seed, each in a folder of its own, then their mean and standard deviation."""
    if attacks:
        raise CoveyError(
            "own attack objects cannot be repeated over seeds: name them in the experiment, or run each seed"
        )
    experiment = settled(experiment, federation)
    if folder and not resume:
        folder.clear()
        folder.write_config(experiment)  # what `covey resume` reads
    results = []
    for seed in range(experiment.seed, experiment.seed + experiment.seeds):
        once = replace(experiment, seed=seed, seeds=1)
        own = folder.seed(seed) if folder else None
        out, going_on = (own.path, resume and own.begun) if own else (None, False)
        results.append(
            run(
                once,
                out=out,
                callbacks=callbacks,
                federation=federation,
                resume=going_on,
                quiet=quiet,
                figures_only=figures_only,
            )
        )
    return summarise_seeds(results, folder, command, figures_only)


@dataclass
class _Loop:
    """One run of one seed."""

    experiment: Experiment
    folder: RunFolder | None
    attacks: list[Attack]
    given: Federation | None
    command: str
    figures_only: bool = False
    records: list[dict[str, Any]] = field(default_factory=list)
    notes: list[dict[int, dict[str, Any]]] = field(default_factory=list)
    spends: list[tuple[int, int, Any]] = field(default_factory=list)  # round, client, event
    saved: tuple[int, float] = (0, 0.0)  # round and time of the last checkpoint
    sittings: list[Sitting] = field(default_factory=list)  # who computed which rounds
    # The round that began last: its number, and how much was spent and who was under way before it.
    begun: tuple[int, int, UnderWay] = (0, 0, UnderWay())
    coming: Iterator[Outcome | Outcomes] = field(default_factory=lambda: iter(()))  # of the round under way

    def run(self, callbacks: Sequence[Callback], resume: bool, quiet: bool) -> Result:
        content, keys = self.folder.load(self._spill().keep) if resume and self.folder else ({}, {})
        begin = time.perf_counter()
        if (
            resume and self.folder
        ):  # before the fingerprint in the experiment is compared: the folder knows what differs
            self.folder.refuse_other_data(data_summary(settle(unpinned(self.experiment), self.given)[1]))
        self.experiment, given = settle(self.experiment, self.given)
        self.data = data_summary(given)
        self.federation, self.network, self.setting = prepare(self.experiment, given)
        refuse_phases(self.experiment, self.federation, bool(self.experiment.attacks or self.attacks))
        self.metrics = chosen(self.network.task, self.experiment.evaluation.metrics)
        if self.network.task == NUMBERS and self.experiment.training.target:
            raise CoveyError(
                f"training.target = {self.experiment.training.target} is an accuracy, and this data's targets are numbers, "
                "which have none: leave it out"
            )
        self.keys = keys or make_keys(self.experiment.algorithm, self.setting)
        self.observers = Observers(
            [*_instances(self.experiment.attacks), *self.attacks],
            self.setting,
            self.network,
            self.federation,
            self.keys,
            device_of(self.experiment),
            self.experiment.algorithm,
            self.experiment.defence,
        )
        if self.observers and self.setting.clients > self.experiment.evaluation.clients:
            everybody = replace(self.experiment.evaluation, clients=0)  # attacks are scored on clients of any number
            self.experiment = replace(self.experiment, evaluation=everybody)
        self.listed = listed(self.experiment, self.federation)
        self.speeds = self.experiment.participation.speeds(self.setting.seed, self.setting.clients)
        self.durations = self.experiment.participation.durations(self.setting.seed, self.setting.clients)
        self.way = UnderWay()
        self.prepared = time.perf_counter() - begin
        if self.folder and not resume:
            self._write_head()
        self.hosts = start_engine(
            self.experiment,
            self.network,
            self.federation,
            self.setting,
            self.keys.get("clients", {}),
            self.observers.replaced,
        )
        self.scoring = Scoring(
            self.experiment,
            self.federation,
            self.network,
            self.setting,
            self.metrics,
            self.listed,
            self.hosts,
            self._calls,
        )
        try:
            state, done = self._begin(content)
            self.sittings = [*content.get("sittings", []), self._sitting(done + 1)]
            result = None
            _tell(callbacks, "begin", self.experiment, done)
            try:
                result = self._rounds(state, done, callbacks, quiet)
                return result
            finally:
                _tell(callbacks, "end", result)
        finally:
            self.hosts.close()

    def _sitting(self, first_round: int) -> Sitting:
        device, engine = device_of(self.experiment), self.experiment.engine
        data = data_line(self.experiment, self.federation)
        kernel = taken(engine.kernel, self.network, torch.device(device))
        return sitting(device, kernel, engine.computes_in, first_round, data)

    def _spill(self) -> Spill:
        return Spill(self.experiment.engine.state_mb * 2**20)

    def _begin(self, content: dict[str, Any]) -> tuple[Any, int]:
        if not content:
            return self.experiment.algorithm.start(self.setting), 0
        self.network.check_fingerprint(content.get("model", ""), "this run")
        done = int(content["round"])
        if self.folder:
            self.records = self.folder.records()[:done]
            self.folder.write_records(self.records)
        device = device_of(self.experiment)
        self.hosts.restore(to_device(content.pop("memories"), device))
        self.observers.restore(content["attacks"])
        self.notes, self.spends, self.saved = content["notes"], content["spends"], (done, time.monotonic())
        self.way = to_device(content.get("way", UnderWay()), device)
        return to_device(content["state"], device), done

    def _rounds(self, state: Any, done: int, callbacks: Sequence[Callback], quiet: bool) -> Result:
        rounds = self.experiment.training.rounds
        title = f"{self.experiment.algorithm.name} on {self.experiment.data_name}"
        self.saved = (done, time.monotonic())
        self.unseeing = [] if done else copied(self.observers.memories())  # of attacks, before the first round
        if not quiet:
            self._warn_of_size(state)
        with Progress(rounds, title, quiet=quiet) as progress:
            progress.update(done=done)
            try:
                for round in range(done + 1, rounds + 1):
                    if done and self.scoring.has_reached(self.records[-1]):
                        break
                    begin = time.perf_counter()
                    state, record = self._round(state, round)
                    done = round
                    self.records.append(record)
                    if self.folder:
                        self.folder.append_record(record)
                    for callback in callbacks:
                        callback(record, state)
                    self._checkpoint(state, done)
                    rate = record["participants"] / max(time.perf_counter() - begin, 1e-9)
                    accuracy = (record["accuracy"] or {}).get("client_mean")
                    progress.update(
                        done=done, accuracy=accuracy, rate=f"{rate:,.0f} clients/s", note=ages_in_words(record["extra"])
                    )
            except StopIteration:
                pass  # a callback has seen enough
            except (KeyboardInterrupt, CoveyError):
                # `state` is the one after round `done`, and so are the records; an interruption may have come before its line.
                cut_short = self._take_back(done)
                if self.folder and cut_short and self.observers:
                    with contextlib.suppress(CoveyError):
                        self._leave_as_saved(self.folder)
                elif done > self.saved[0] or (self.folder and not self.folder.begun):
                    with contextlib.suppress(CoveyError):
                        if self.folder and len(self.folder.records()) < done:
                            self.folder.write_records(self.records)
                        self._checkpoint(state, done, force=True)
                raise
        self._checkpoint(state, done, force=self.experiment.engine.checkpoint_every > 0)
        models = self.scoring.models(state, done)
        noted = [record["extra"] for record in self.records]
        unharmed = partial(unharmed_ends, self.experiment, self.given, self.folder, run)
        ledger, looked_at = partial(priced, self.spends), not self.figures_only
        truth = Truth(self.federation, self.notes, noted, models.predictors, unharmed, ledger, looked_at)
        findings, failed = self.observers.findings(truth)
        result = summarise(
            self.experiment,
            self.records,
            findings,
            self.spends,
            {"prepare": self.prepared, ATTACK: self.observers.seconds()},
            state,
            self.folder,
            self.command,
            self.federation.dataset.stand_in,
            self.data,
            models,
            self.sittings,
            self.scoring.given_away(),
            self.figures_only,
        )
        if failed:  # only now: what was trained and found is written
            raise CoveyError("; ".join(failed))
        return result

    def _warn_of_size(self, state: Any) -> None:
        sent = size(self.experiment.algorithm.broadcast(state, 0))
        if sent > HEAVY:
            print(
                f"every client gets {in_words(sent)} a round; `covey run --dry-run` tells what the whole run costs",
                file=sys.stderr,
            )

    @cached_property
    def _server(self) -> str:
        return server_of(self.experiment.algorithm)

    def _server_of(self, party: str, round: int, seconds: dict[str, float]) -> Server:
        """A server's desk in this round; what it asks another one crosses the wire, and views see it."""
        notes: dict[str, Any] = {}

        def ask(other: str, question: Any) -> Any:
            desk = self._server_of(other, round, seconds)
            self.observers.see(round, party, other, question)
            given = self.experiment.algorithm.answer(desk, question)
            notes.update(desk.notes)
            return self.observers.see(round, other, party, given)

        keys, phase = self.keys.get(party, {}), partial(timed, seconds)
        return Server(round, self.setting.seed, self.setting, keys, ask, phase, notes)

    def _round(self, state: Any, round: int) -> tuple[Any, dict[str, Any]]:
        algorithm = self.experiment.algorithm
        self.begun = (round, len(self.spends), self.way)
        present, lost = self.experiment.participation.participants(self.setting.seed, round, self.setting.clients)
        traffic, seconds = Traffic(), defaultdict[str, float](float)
        arrivals = self._arrivals(state, round)
        calls = (
            self._calls(state, round, wanted(algorithm, state, self._able(present, lost, round)))
            if arrivals is None
            else self._late(arrivals)
        )
        traffic.send(calls)
        for client, broadcast, _ in calls if self.observers else ():
            self.observers.see(round, self._server, f"client:{client}", broadcast)
        watched = self.observers.seconds()
        facts = Facts()
        replies = self._replies(round, calls, traffic, facts, seconds)
        if arrivals is not None:
            replies = rebased(replies, arrivals, algorithm, state, round, self.experiment.participation.staleness_power)
        server = self._server_of(self._server, round, seconds)
        server.consult = partial(self._consult, round, traffic, seconds)
        with timed(seconds, "aggregate"), self._checked_first():
            state = algorithm.aggregate(server, state, replies)
            for _ in replies:  # an algorithm that looks at some replies only still gets all of them computed
                pass
        if self.observers:  # they are shown no round that training has spoilt
            self.hosts.check()
        self.spends.extend((round, client, event) for client, event in server.events)
        seconds[ATTACK] += self.observers.seconds()
        seconds["aggregate"] -= seconds.pop("waited", 0.0) + sum(s for p, s in seconds.items() if p != "aggregate")
        self.observers.end_round(round)
        seconds[ATTACK] += watched + self.observers.seconds()
        with self._checked_first():
            # What is written down of the clients' notes before a GPU is waited for, which may still train.
            chosen, extra = chosen_clusters(facts), {**server.notes, **means_of(facts), **pictures_of(facts)}
            clusters = clusters_of(chosen, self.records[-1]["clusters"] if self.records else None, self.listed)
            noted = {
                "clustering": self.scoring.agreement(round, chosen, clusters),
                "clusters": clusters,
                **self.scoring.cohesion(round, clusters),
                "extra": extra | self._clock(arrivals, present, round),
                **memberships_of(facts, self.listed),
            }
            evaluation = self.scoring.evaluate(state, round) if self.scoring.is_due(round) else {"accuracy": None}
        self.hosts.check()  # only now: a GPU that is waited for after training stands still while the host prepares what follows
        for phase, s in self.hosts.seconds().items():
            seconds[phase] += s
        if self.observers:
            self.notes.append(facts.of_each)
        n = max(len(calls), 1)
        record: dict[str, Any] = {
            "round": round,
            "participants": len(calls),
            "dropped": len(lost),
            "seconds": {p: s for p, s in seconds.items() if s > 0},
            "bytes": {"up": traffic.up / n, "down": traffic.down / n},
        }
        return state, record | evaluation | noted

    @contextlib.contextmanager
    def _checked_first(self) -> Iterator[None]:
        """What breaks on numbers that training has spoilt is told as what it is: training that went wrong."""
        try:
            yield
        except Exception:
            self.hosts.check()
            raise

    def _arrivals(self, state: Any, round: int) -> Arrivals | None:
        """Where rounds are asynchronous: whose replies this one takes, and of which round's model they are."""
        part = self.experiment.participation
        if not part.buffer:
            return None
        arrivals = arrive(self.way, round, state, part.buffer, part.max_staleness, self.durations)
        self.way = arrivals.way
        return arrivals

    def _late(self, arrivals: Arrivals) -> Sequence[Call]:
        """Each with the model that it was sent, and the plan of that round."""
        calls = [c for begun in arrivals.rounds for c in self._calls(arrivals.states[begun], begun, arrivals.of(begun))]
        return sorted(calls, key=lambda call: call[0])

    def _clock(self, arrivals: Arrivals | None, present: Any, round: int) -> dict[str, float]:
        """Simulated time, where clients take any, and how old the round's replies were."""
        if arrivals is not None:
            return arrivals.notes(round)
        if not self.experiment.participation.delay:
            return {}
        slowest = float(self.durations[present].max()) if len(present) else 0.0
        return {CLOCK: (self.records[-1]["extra"].get(CLOCK, 0.0) if self.records else 0.0) + slowest}

    def _replies(
        self, round: int, calls: Sequence[Call], traffic: Traffic, facts: Facts, seconds: dict[str, float]
    ) -> Iterator[tuple[int, Any]]:
        """The clients' replies as they come in, seen by whoever sees them on their way."""
        self.coming, server = self.hosts.run(round, calls), self._server
        sent = {client: broadcast for client, broadcast, _ in calls} if self.experiment.compression else {}
        while True:
            begin = time.perf_counter()
            outcome: Outcome | Outcomes | None = next(self.coming, None)
            seconds["waited"] += time.perf_counter() - begin
            if outcome is None:
                return
            if isinstance(outcome, Outcomes):
                yield from self._replies_as_one(round, outcome, traffic, facts)
                continue
            client, reply = outcome.client, outcome.reply
            traffic.up += size(reply)
            facts.of_each[client] = outcome.notes
            if outcome.events:
                self.spends.extend((round, client, event) for event in outcome.events)
            # Bytes are those that crossed the wire; whoever saw them can unpack them.
            if sent:
                reply = unpack(self.experiment.compression, self.setting, sent[client], reply)
            self.observers.see(round, f"client:{client}", server, reply)
            yield client, reply

    def _replies_as_one(
        self, round: int, outcomes: Outcomes, traffic: Traffic, facts: Facts
    ) -> Iterator[tuple[Any, Any]]:
        """The replies of clients that ran as one: as one message in rows, unless somebody looks at each."""
        traffic.up += outcomes.bytes_sent()
        if self.observers or self.experiment.participation.buffer:
            for client, reply, notes in outcomes.each():
                facts.of_each[client] = notes
                self.observers.see(round, f"client:{client}", self._server, reply)
                yield client, reply
            return
        self.observers.check_kind(f"client:{outcomes.clients[0]}", outcomes.reply)
        if outcomes.notes:
            facts.in_rows.append((outcomes.clients, outcomes.notes))
        yield outcomes.clients, outcomes.reply

    def _consult(
        self, round: int, traffic: Traffic, seconds: dict[str, float], questions: Mapping[int, Any], enough: int
    ) -> dict[int, Any]:
        """What clients answer to a further question of the round; some may have vanished since they replied."""
        begin = time.perf_counter()
        # Hosts do one thing at a time: whoever consults before all have replied waits for the rest.
        self.coming = iter(list(self.coming))
        seconds["waited"] += time.perf_counter() - begin
        lost = self.experiment.participation.vanished(self.setting.seed, round, self.setting.clients)
        for client, question in questions.items():
            traffic.down += size(question)
            self.observers.see(round, self._server, f"client:{client}", question)
        plan = self.experiment.training.plan(round)
        calls = [(client, question, plan) for client, question in questions.items() if not lost[client]]
        answers: dict[int, Any] = {}
        begin = time.perf_counter()
        outcomes = list(self.hosts.advise(round, calls))
        seconds["waited"] += time.perf_counter() - begin
        for outcome in outcomes:
            traffic.up += size(outcome.reply)
            self.spends.extend((round, outcome.client, event) for event in outcome.events)
            answers[outcome.client] = self.observers.see(round, f"client:{outcome.client}", self._server, outcome.reply)
        return answers

    def _calls(self, state: Any, round: int, clients: Sequence[int] | np.ndarray[Any, Any]) -> Sequence[Call]:
        plan, broadcast = self.experiment.training.plan(round), self.experiment.algorithm.broadcast
        if self._asked_once and len(clients):
            return Alike(np.asarray(clients, np.int64), broadcast(state, int(clients[0])), plan)
        numbers = clients.tolist() if isinstance(clients, np.ndarray) else clients
        if self.experiment.participation.slowest < 1:
            return [(i, broadcast(state, i), heterogeneous(plan, float(self.speeds[i]))) for i in numbers]
        return [(i, broadcast(state, i), plan) for i in numbers]

    @cached_property
    def _asked_once(self) -> bool:
        """Whether one message is asked for, for all clients of a call, and they all have one plan."""
        return self.experiment.participation.slowest >= 1 and sends_alike(self.experiment.algorithm)

    def _able(self, present: np.ndarray[Any, Any], lost: np.ndarray[Any, Any], round: int) -> Iterable[int]:
        """Of those without labels the ones that come now, drawn or not, where the algorithm places them: they are asked once."""
        participation = self.experiment.participation
        if participation.newcomer_labels:
            return present
        labelled = [i for i in present.tolist() if not participation.unlabelled(i)]
        if not hasattr(self.experiment.algorithm, "introduce"):
            return labelled
        there = range(participation.initial, participation.joined(round, self.setting.clients))
        gone = set(lost.tolist())
        return labelled + [i for i in there if participation.arrival(i) == round and i not in gone]

    def _take_back(self, done: int) -> bool:
        """Whether the round after `done` was cut short. What it spent, and who was under way in it, comes again with it."""
        round, spent, way = self.begun
        if round > done:
            del self.spends[spent:]
            self.way = way
        return round > done

    def _leave_as_saved(self, folder: RunFolder) -> None:
        """Attacks cannot forget the part of a round that they have seen: resuming begins at the checkpoint before, or anew."""
        if not folder.begun:
            state, self.notes, self.spends, self.way = self.experiment.algorithm.start(self.setting), [], [], UnderWay()
            folder.save(self._content(state, 0, {}, self.unseeing), self.keys)

    def _checkpoint(self, state: Any, done: int, force: bool = False) -> None:
        if self.folder is None or (done == self.saved[0] and self.folder.begun):
            return
        engine = self.experiment.engine
        due = 0 < engine.checkpoint_every <= done - self.saved[0]
        late = time.monotonic() - self.saved[1] >= 60 * engine.checkpoint_minutes
        if force or due or late:
            content = self._content(state, done, self.hosts.memories(done), self.observers.memories())
            self.folder.save(content, self.keys)
            self.saved = (done, time.monotonic())

    def _content(self, state: Any, done: int, memories: Any, attacks: Any) -> dict[str, Any]:
        return {
            "round": done,
            "model": self.network.fingerprint,
            "state": state,
            "memories": memories,
            "attacks": attacks,
            "notes": self.notes,
            "spends": self.spends,
            "sittings": self.sittings,
            "way": self.way,
        }

    def _write_head(self) -> None:
        """What is known before the first round; an old run in the same folder gives way."""
        assert self.folder is not None
        self.folder.clear()
        self.folder.write_config(self.experiment)
        self.folder.write_federation(federation_summary(self.federation, self.data, self.listed))


def _tell(callbacks: Sequence[Callback], moment: str, *facts: Any) -> None:
    for callback in callbacks:
        if hasattr(callback, moment):
            getattr(callback, moment)(*facts)


def _instances(attacks: tuple[Any, ...]) -> list[Attack]:
    """Fresh observers of the experiment's attacks: an experiment may be run twice."""
    return [replace(a, memory={}) for a in attacks]
