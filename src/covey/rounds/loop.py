"""The round loop: broadcast, clients in waves, aggregate, evaluate, observe, record, checkpoint."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch

from covey.algorithms.contract import make_keys, server_of
from covey.attacks.contract import Attack, Outcome, Truth
from covey.attacks.observe import Observers
from covey.data.federation import Federation
from covey.engines.listing import listed
from covey.engines.prepare import arithmetic_of, device_of, prepare, refuse_phases
from covey.engines.settle import data_line, settle, settled, unpinned
from covey.engines.spill import Spill
from covey.engines.start import start_engine
from covey.errors import CoveyError, NotFinite
from covey.experiment.experiment import Experiment
from covey.learn.kernels.kernels import taken
from covey.messages import copied, size, to_device
from covey.metrics.metric import chosen
from covey.metrics.totals import NUMBERS
from covey.report.format import size as in_words
from covey.report.progress import Progress
from covey.results.folder import RunFolder
from covey.results.provenance import Sitting, sitting
from covey.rounds.asynchronous import ages_in_words, rebased
from covey.rounds.checkpoints import Checkpoints, Past
from covey.rounds.exchange import WAITED, Exchange
from covey.rounds.invitations import Invitations
from covey.rounds.process import old_objects_left_alone, single_threaded
from covey.rounds.record import (
    chosen_clusters,
    clusters_of,
    data_summary,
    federation_summary,
    means_of,
    memberships_of,
    pictures_of,
    timed,
)
from covey.rounds.result import Result, is_complete, priced, read_result, summarise, summarise_seeds
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
            without models in `out`, which are computed only where an attack asks for them.
    """
    if not isinstance(experiment, Experiment):
        raise CoveyError(
            f"run was given a {type(experiment).__name__}: expected an Experiment, as Experiment.of(dataset=…, algorithm=…) or "
            "Experiment.read(path of a TOML file)"
        )
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
        if resume and own and is_complete(once, own):  # gone on with, it would be written down as computed twice
            results.append(read_result(own))
            continue
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

    def run(self, callbacks: Sequence[Callback], resume: bool, quiet: bool) -> Result:
        content, keys = self.folder.load(self._spill().keep) if resume and self.folder else ({}, {})
        begin = time.perf_counter()
        if resume and self.folder:
            # Before the fingerprint in the experiment is compared: the folder knows what differs.
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
        if self.network.task == NUMBERS and self.experiment.evaluation.training:
            raise CoveyError(
                "evaluation.training asks for an accuracy, and this data's targets are numbers, which have none: leave it out"
            )
        self.keys = keys or make_keys(self.experiment.algorithm, self.setting)
        self.party = server_of(self.experiment.algorithm)  # the same in every round
        self.observers = Observers(
            [*_instances(self.experiment.attacks), *self.attacks],
            self.setting,
            self.network,
            self.federation,
            self.keys,
            device_of(self.experiment),
            self.experiment.algorithm,
            self.experiment.defence,
            arithmetic_of(self.experiment),
        )
        if self.observers and self.setting.clients > self.experiment.evaluation.clients:
            everybody = replace(self.experiment.evaluation, clients=0)  # attacks are scored on clients of any number
            self.experiment = replace(self.experiment, evaluation=everybody)
        self.listed = listed(self.experiment, self.federation)
        self.invitations = Invitations(self.experiment, self.setting)
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
            self.invitations.calls,
        )
        self.checkpoints = Checkpoints(self.folder, self.experiment.engine, self.network.fingerprint, self.keys)
        try:
            state, done = self._begin(content)
            self.past.sittings = [*self.past.sittings, self._sitting(done + 1)]
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
        kernel = taken(engine.kernel, self.network, torch.device(device)) + ", own loops" * self.hosts.own_loops
        return sitting(device, kernel, engine.computes_in, first_round, data)

    def _spill(self) -> Spill:
        return Spill(self.experiment.engine.state_mb * 2**20)

    def _begin(self, content: dict[str, Any]) -> tuple[Any, int]:
        self.past = Past()
        if not content:
            return self.experiment.algorithm.start(self.setting), 0
        self.network.check_fingerprint(content.get("model", ""), "this run")
        done, device, records = int(content["round"]), device_of(self.experiment), []
        if self.folder:
            records = self.folder.records()[:done]
            self.folder.write_records(records)
        self.hosts.restore(to_device(content.pop("memories"), device))
        self.observers.restore(content["attacks"])
        self.past = Past.restored(content, records, device)
        return to_device(content["state"], device), done

    def _rounds(self, state: Any, done: int, callbacks: Sequence[Callback], quiet: bool) -> Result:
        rounds = self.experiment.training.rounds
        title = f"{self.experiment.algorithm.name} on {self.experiment.data_name}"
        self.checkpoints.begin(done)
        self.unseeing = [] if done else copied(self.observers.memories())  # of attacks, before the first round
        if not quiet:
            self._warn_of_size(state)
        with Progress(rounds, title, quiet=quiet) as progress:
            progress.update(done=done)
            try:
                for round in range(done + 1, rounds + 1):
                    if done and self.scoring.has_reached(self.past.records[-1]):
                        break
                    begin = time.perf_counter()
                    state, record = self._round(state, round)
                    done = round
                    self.past.records.append(record)
                    if self.folder:
                        self.folder.append_record(record)
                    for callback in callbacks:
                        callback(record, state)
                    if self.checkpoints.is_due(done):
                        self._save(state, done)
                    rate = record["participants"] / max(time.perf_counter() - begin, 1e-9)
                    accuracy = (record["accuracy"] or {}).get("client_mean")
                    progress.update(
                        done=done, accuracy=accuracy, rate=f"{rate:,.0f} clients/s", note=ages_in_words(record["extra"])
                    )
            except StopIteration:
                pass  # a callback has seen enough
            except (KeyboardInterrupt, CoveyError):
                # `state` is the one after round `done`, and so are the records; an interruption may have come before its line.
                cut_short = self.past.take_back(done)
                if self.folder:
                    with contextlib.suppress(CoveyError):
                        self._leave(self.folder, state, done, cut_short)
                raise
        if self.checkpoints.is_due(done) or (self.experiment.engine.checkpoint_every and self.checkpoints.lacks(done)):
            self._save(state, done)
        models = cache(partial(self.scoring.models, state, done))
        noted = [record["extra"] for record in self.past.records]
        unharmed = partial(unharmed_ends, self.experiment, self.given, self.folder, run)
        ledger, looked_at = partial(priced, self.past.spends), not self.figures_only
        spoilt: list[NotFinite] = []

        def served() -> Outcome:
            try:
                return models().predictors()
            except NotFinite as error:  # the run's, and not a fault of the attack that asked
                spoilt.append(error)
                raise

        truth = Truth(self.federation, self.past.notes, noted, served, unharmed, ledger, looked_at)
        findings, failed = self.observers.findings(truth)
        if spoilt:
            raise spoilt[0]
        result = summarise(
            self.experiment,
            self.past.records,
            findings,
            self.past.spends,
            {"prepare": self.prepared, ATTACK: self.observers.seconds()},
            state,
            self.folder,
            self.command,
            self.federation.dataset.stand_in,
            self.data,
            None if self.figures_only and self.folder else models(),  # clients may each have gigabytes of their own
            self.past.sittings,
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

    def _round(self, state: Any, round: int) -> tuple[Any, dict[str, Any]]:
        algorithm, past = self.experiment.algorithm, self.past
        past.begin(round)
        present, lost = self.invitations.present(round)
        arrivals = self.invitations.arrivals(past.way, state, round)
        past.way = past.way if arrivals is None else arrivals.way
        calls = self.invitations.of_round(state, round, present, lost, arrivals)
        exchange = Exchange(
            round, self.experiment, self.setting, self.hosts, self.observers, self.keys, past.spends, self.party
        )
        seconds, facts = exchange.seconds, exchange.facts
        exchange.send(calls)
        watched = self.observers.seconds()
        replies, server = exchange.replies(calls), exchange.server()
        if arrivals is not None:
            replies = rebased(replies, arrivals, algorithm, state, round, self.experiment.participation.staleness_power)
        with timed(seconds, "aggregate"), self._checked_first():
            stateless, state = state is None, algorithm.aggregate(server, state, replies)
            for _ in replies:  # an algorithm that looks at some replies only still gets all of them computed
                pass
        if state is None and not stateless:
            raise CoveyError(f"{algorithm.name}'s aggregate returned nothing: expected the state of the next round")
        if self.observers:  # they are shown no round that training has spoilt
            self.hosts.check()
        past.spends.extend((round, client, event) for client, event in server.events)
        seconds[ATTACK] += self.observers.seconds()
        seconds["aggregate"] -= seconds.pop(WAITED, 0.0) + sum(s for p, s in seconds.items() if p != "aggregate")
        self.observers.end_round(round)
        seconds[ATTACK] += watched + self.observers.seconds()
        with self._checked_first():
            # What is written down of the clients' notes before a GPU is waited for, which may still train.
            chosen, extra = chosen_clusters(facts), {**server.notes, **means_of(facts), **pictures_of(facts)}
            clusters = clusters_of(chosen, past.last["clusters"] if past.last else None, self.listed)
            noted = {
                "clustering": self.scoring.agreement(round, chosen, clusters),
                "clusters": clusters,
                **self.scoring.cohesion(round, clusters),
                "extra": extra | self.invitations.clock(arrivals, present, round, past.last),
                **memberships_of(facts, self.listed),
            }
            evaluation = self.scoring.evaluate(state, round) if self.scoring.is_due(round) else {"accuracy": None}
        self.hosts.check()  # only now: a GPU that is waited for after training stands still while the host prepares what follows
        for phase, s in self.hosts.seconds().items():
            seconds[phase] += s
        if self.observers:
            past.notes.append(facts.of_each)
        n = max(len(calls), 1)
        record: dict[str, Any] = {
            "round": round,
            "participants": len(calls),
            "dropped": len(lost),
            "seconds": {p: s for p, s in seconds.items() if s > 0},
            "bytes": {"up": exchange.traffic.up / n, "down": exchange.traffic.down / n},
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

    def _leave(self, folder: RunFolder, state: Any, done: int, cut_short: bool) -> None:
        """A run that is broken off leaves what can be gone on from."""
        if cut_short and self.observers:
            # Attacks cannot forget the part of a round that they have seen: resuming begins at the checkpoint before, or anew.
            if not folder.begun:
                anew, sittings = self.experiment.algorithm.start(self.setting), self.past.sittings
                self.checkpoints.save(Past(sittings=sittings), anew, 0, {}, self.unseeing)
        elif self.checkpoints.lacks(done):
            if len(folder.records()) < done:
                folder.write_records(self.past.records)
            self._save(state, done)

    def _save(self, state: Any, done: int) -> None:
        self.checkpoints.save(self.past, state, done, self.hosts.memories(done), self.observers.memories())

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
