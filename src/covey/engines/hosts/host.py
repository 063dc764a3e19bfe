"""A host: owns clients with their data and memory, takes messages, gives replies.

A simulation has a few hosts with many clients each, a silo is a host with one. Messages cross between hosts; coroutines, memories
and keys never do.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import repeat
from operator import is_
from typing import Any

import numpy as np
import torch
from torch import Tensor

from covey.algorithms.contract import Algorithm, Client, Coroutine, Predictor, Setting, check_predictor, own_keys
from covey.algorithms.coroutines import begun
from covey.compression.replies import Compression, pack
from covey.crypto.noise.source import SecretNoise
from covey.data.federation import Federation
from covey.defences.contract import Defence, defend
from covey.engines.calls import Alike, Call
from covey.engines.cohort import Alone, Apart, Cohort, Outcomes, alike, in_rows, is_own, reads_in_rows
from covey.engines.evaluation import Examiner, Score, Scores
from covey.engines.hosts.answers import Answers, Shared
from covey.engines.hosts.as_one import AnswersAsOne
from covey.engines.hosts.buffers import with_own
from covey.engines.hosts.losses import LastLosses
from covey.engines.hosts.memories import Memories
from covey.engines.hosts.rows import KNOWN, Rows
from covey.engines.hosts.timing import Timing
from covey.engines.spill import Spill
from covey.errors import CoveyError, CoveyWarning
from covey.experiment.exposure import Exposure, expose
from covey.learn.machine import Machine
from covey.learn.schedule.waves import WAVES
from covey.messages import copied, message

PROOFS = 3  # rounds in which an own algorithm's word about rows is tried, each on as many clients


@message
@dataclass(frozen=True)
class Outcome:
    """What a client's turn produced: its reply for the server; notes, spends and seconds for the record."""

    client: int
    reply: Any
    notes: dict[str, Any]
    events: list[Any]


@dataclass
class Host:
    """See the module's docstring."""

    algorithm: Algorithm
    setting: Setting
    federation: Federation
    machine: Machine
    examiner: Examiner
    keys: dict[str, Any]
    defence: Defence | None = None
    exposure: Exposure = field(default_factory=Exposure)
    replaced: dict[int, Any] = field(default_factory=dict)  # client -> attacker that runs in its place
    private_seed: int | None = None  # of the clients' own randomness, where it must not be everyone's: in a silo
    compression: Compression | None = None
    secret: SecretNoise | None = None  # where noise and batches must not be foreseen: in a silo; None: they are keyed
    reticent: bool = False  # a refusal would tell what replies hide: see the contract's `reticent`
    spill: Spill = field(default_factory=lambda: Spill(math.inf))  # where memories are kept that are too many
    unlabelled: Callable[[int], bool] | None = None  # who has no labels; None: everybody has
    run_id: str = ""  # which of several runs with the same keys this is: in a silo
    _proofs: set[int] = field(default_factory=set)  # rounds

    def __post_init__(self) -> None:
        machine, phase = self.machine, self.federation.phase
        self.timing, self.memories = Timing(machine.device), Memories(self.spill, machine.device)
        self._rows, shared = Rows(self.federation, machine.device), Shared(self.timing)
        own = (self.secret, self.reticent)
        losses, together = LastLosses(phase, KNOWN), LastLosses(phase, WAVES)
        self._answers = Answers(self.algorithm.name, machine, self._rows, self.timing, shared, losses, *own)
        self._as_one = AnswersAsOne(machine, self._rows, self.timing, shared, together)

    def run(self, round: int, calls: Sequence[Call]) -> list[Outcome]:
        """One round of these clients: (client, message, plan) in, outcomes out."""
        return self._take_turns(round, calls, self._turn, self.compression)

    def run_as_one(self, round: int, calls: Sequence[Call]) -> Outcomes | None:
        """The same of clients that can run as one; None: they cannot."""
        if not self.as_one or (cohort := self._cohort(round, calls)) is None:
            return None
        self._begin(round)
        with self._unless_apart():
            reply = self._as_one.advance(cohort, self.algorithm.client, calls[0][1])
            outcomes = Outcomes(cohort.ids, in_rows(reply, len(cohort.ids)), cohort.notes)
            self._prove(cohort, outcomes, calls)
            self._stage(cohort)
            return outcomes
        return None

    def advise(self, round: int, calls: Sequence[Call]) -> list[Outcome]:
        """What these clients answer to a further question of the round; an attacker answers as an honest client would, unless
        it has an answer of its own.
        """

        def turn(me: Client, question: Any) -> Coroutine:
            acting: Any = self.replaced.get(me.id, self.algorithm)
            acting = acting if hasattr(acting, "advise") else self.algorithm
            answer: Coroutine = acting.advise(me, question)
            return answer

        return self._take_turns(round, calls, turn)

    def _turn(self, me: Client, received: Any) -> Coroutine:
        acting = self.replaced.get(me.id, self.algorithm)
        begin = acting.client if me.labelled else acting.introduce
        turn = expose(self.exposure, self.federation, me, begun(begin, me, received))
        return defend(self.defence, me, turn)

    def _take_turns(
        self,
        round: int,
        calls: Sequence[Call],
        begin: Callable[[Client, Any], Coroutine],
        compression: Compression | None = None,
    ) -> list[Outcome]:
        self._begin(round)
        clients = self._clients(round, calls)
        messages = [message for _, message, _ in calls]
        if self.replaced:
            messages = [copied(m) if i in self.replaced else m for i, m, _ in calls]
        turns = [begin(me, received) for me, received in zip(clients, messages)]
        replies = self._answers.advance(clients, turns, messages)
        if self.replaced:
            replies = [copied(r) if me.id in self.replaced else r for me, r in zip(clients, replies)]
        if compression is not None:
            with self.timing.of("compress"):
                replies = [pack(compression, me, m, r) for me, m, r in zip(clients, messages, replies)]
        self.memories.stage(clients)
        return [Outcome(me.id, reply, me.notes, me.events) for me, reply in zip(clients, replies)]

    def _begin(self, round: int) -> None:
        if self.memories.begin(round):
            self._as_one.forget()
            self.timing.read_marks()  # of who never asks for seconds

    def check(self) -> None:
        """Raises what was wrong with trainings of this round that were not waited for."""
        self._as_one.check()

    def sum_up(self) -> None:
        """The replies so far were taken: what nobody has added up is, so that no check keeps it."""
        self._as_one.sum_up()

    def uses(self, round: int, calls: Sequence[Call]) -> list[Predictor]:
        """The model that each of these clients would predict with."""
        clients = self._clients(round, calls)
        turns = [begun(self.algorithm.use, me, m) for me, (_, m, _) in zip(clients, calls)]
        uses = self._answers.advance(clients, turns, [m for _, m, _ in calls])
        for use in uses:
            check_predictor(self.algorithm.name, use)
        if not self.machine.network.local:
            return uses
        return [replace(use, models=with_own(self.machine.network, me, use.models)) for me, use in zip(clients, uses)]

    def predictors(self, round: int, calls: Sequence[Call]) -> list[tuple[int, Predictor]]:
        """(client, what it predicts with), for what is kept of a run."""
        return [(client, use) for (client, _, _), use in zip(calls, self.uses(round, calls))]

    # Clients as one: see `cohort`.

    @cached_property
    def as_one(self) -> bool:
        """Whether nothing stands between the algorithm's text and the machine that wants to see each client."""
        keyed = bool(self.keys) and (self.setting.encryption != "none" or "own" in self.keys)
        plain = not (self.replaced or keyed or self.reticent or self.compression or self.machine.network.local)
        ours = (
            self.defence is None and self.secret is None and self.private_seed is None and self.exposure == Exposure()
        )
        return plain and ours and reads_in_rows(self.algorithm)

    @contextmanager
    def _unless_apart(self) -> Iterator[None]:
        """What is begun in it is left where clients cannot go as one; an own algorithm's text that breaks in rows is said to."""
        try:
            yield
        except Apart as reason:
            self.as_one = not isinstance(reason, Alone)
        except (CoveyError, torch.OutOfMemoryError):
            raise
        except Exception as error:
            if not is_own(self.algorithm):
                raise
            self._doubt(f"it breaks ({type(error).__name__}: {error})")

    def _doubt(self, why: str) -> None:
        self.as_one = False
        warnings.warn(
            f"{self.algorithm.name} declares in_rows, but for many clients as one {why}: they go one by one; leave in_rows out",
            CoveyWarning,
            stacklevel=2,
        )

    def _prove(self, cohort: Cohort, outcomes: Outcomes, calls: Sequence[Call]) -> None:
        """An own algorithm's word that its `client` reads the same in rows is tried on some clients, in its first rounds. What it
        makes of replies in `aggregate` is not.
        """
        if not is_own(self.algorithm) or len(calls) < 2 or cohort.round in self._proofs or len(self._proofs) >= PROOFS:
            return
        some = calls[:PROOFS]
        clients = self._clients(cohort.round, some)
        messages = [message for _, message, _ in some]
        each = [begun(self.algorithm.client, me, received) for me, received in zip(clients, messages)]
        turns = [cohort.repeated(place, turn) for place, turn in enumerate(each)]
        replies = self._answers.advance(clients, turns, messages)
        for me, alone, (_, reply, notes), memory in zip(clients, replies, outcomes.each(), cohort.memories()):
            # What functions of one client have written is each one's own: they wrote it in the cohort, too.
            remembered = cohort.went_singly or alike(memory, me.memory)
            if not (alike(reply, alone) and alike(notes, me.notes) and remembered):
                self._doubt(f"client {me.id}'s reply, notes or memory come out otherwise than alone")
                raise Alone
        self._proofs.add(cohort.round)

    def _cohort(self, round: int, calls: Sequence[Call]) -> Cohort | None:
        if not isinstance(calls, Alike):
            clients, messages, plans = zip(*calls)
            if not all(map(is_, messages, repeat(messages[0]))) or not all(map(is_, plans, repeat(plans[0]))):
                return None
            calls = Alike(np.fromiter(clients, np.int64, len(clients)), messages[0], plans[0])
        ids = calls.clients
        if self.unlabelled is not None and any(map(self.unlabelled, ids.tolist())):
            return None
        sizes = self._rows.joined(ids, round)[1]
        members = partial(self._clients, round, calls)
        return Cohort(
            ids,
            round,
            self.setting.seed,
            sizes,
            calls.plan,
            self.setting,
            self.memories.of_rows,
            members,
            keys=self.keys,
        )

    def _stage(self, me: Cohort) -> None:
        if me.went_singly:
            if me.remembers or any(one.notes or one.events for one in me.clients):
                raise Alone  # what each remembers would be written in two places, what each says in none
            self.memories.stage(me.clients)
        if me.remembers:
            self.memories.stage_rows(me.ids, me.memory)

    def score_as_one(self, round: int, calls: Sequence[Call]) -> Scores | None:
        """`score` of clients that can run as one; None: they cannot."""
        if not self.as_one or (cohort := self._cohort(round, calls)) is None:
            return None
        with self._unless_apart():
            use = self._as_one.advance(cohort, self.algorithm.use, calls[0][1])
            with self.timing.of("evaluate"):
                return self.examiner.scores_as_one(cohort.ids, use, self.federation.at(round).distributions, round)
        return None

    def score(self, round: int, calls: Sequence[Call]) -> list[Score]:
        """Accuracy of the model each of these clients would use, on its own distribution and everywhere."""
        uses = self.uses(round, calls)
        with self.timing.of("evaluate"):
            return self.examiner.scores([i for i, _, _ in calls], uses, self.federation.at(round).distributions, round)

    def _clients(self, round: int, calls: Sequence[Call]) -> list[Client]:
        """These clients as their own code sees them. A round may have thousands: what they share is looked up once."""
        seed = self.setting.seed if self.private_seed is None else self.private_seed
        setting, keys, secret, run_id = self.setting, self.keys, self.secret, self.run_id
        chooser = getattr(self.defence, "choose", None)
        self.memories.spread([i for i, _, _ in calls])
        clients = []
        for i, _, plan in calls:
            rows, labelled = self._rows.of(i, round), self.unlabelled is None or not self.unlabelled(i)
            me = Client(
                id=i,
                round=round,
                seed=seed,
                samples=rows.shape[0],
                plan=plan,
                setting=setting,
                memory=self.memories.of(i),
                keys=own_keys(keys, i),
                data=partial(self._data, rows, labelled),
                labelled=labelled,
                secret=secret,
                run=run_id,
                chooser=chooser,
            )
            clients.append(self._apart(me, rows) if i in self.replaced else me)
        return clients

    def _apart(self, me: Client, rows: Tensor) -> Client:
        """An attacker's client holds what is its own, and nothing through which it could reach the host or another client."""
        samples = self._data(rows, me.labelled)
        return replace(me, data=lambda: samples, setting=self.setting.copy(), memory=copied(me.memory))

    def _data(self, rows: Tensor, labelled: bool) -> tuple[Tensor, Tensor]:
        """Samples and labels, none of who has none, for code that looks at them itself: on the CPU, wherever the machine keeps
        them.
        """
        samples, there = self.machine.samples, rows.to(self.machine.device)
        labels = samples.labels(there if labelled else there[:0])
        return samples.inputs(there).cpu(), labels.cpu()
