"""Answers to what clients' coroutines ask for. They are advanced in step, so that equal requests of many clients reach the machine
as one batch.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any, get_args

from covey.algorithms.contract import Client, Coroutine
from covey.crypto.noise.source import SecretNoise
from covey.engines.hosts.buffers import kept, whole
from covey.engines.hosts.losses import LastLosses
from covey.engines.hosts.rows import Rows
from covey.engines.hosts.timing import Timing
from covey.errors import CoveyError, NotFinite
from covey.learn.machine import Machine
from covey.learn.rowwise import by_rows, on_cpu
from covey.learn.work import VECTORS, Compute, Job, Logits, Losses, SampleLosses, Train, Work
from covey.randomness import key

WORKS = frozenset(get_args(Work))
PHASES: dict[type, str] = {Train: "train", Losses: "identity", SampleLosses: "identity"}  # of work for the machine
Requests = list[tuple[int, Work | list[Work]]]  # of one step, with the place of who asks


class Shared:
    """What is the same for all clients of a broadcast, computed once."""

    def __init__(self, timing: Timing) -> None:
        self._timing = timing
        self._known: dict[tuple[int, str], tuple[Any, Any]] = {}

    def keep_of(self, messages: Sequence[Any]) -> None:
        """What clients share of other broadcasts than these is forgotten."""
        live = {id(m) for m in messages}
        self._known = {at: known for at, known in self._known.items() if at[0] in live}

    def compute(self, work: Compute, broadcast: Any) -> Any:
        # Keyed by the identity of the broadcast, which is kept alive beside the result so that its id stays its own.
        at = (id(broadcast), work.phase)
        if at not in self._known:
            with self._timing.of(work.phase):
                self._known[at] = (broadcast, work.function(*work.arguments))
        return self._known[at][1]


class Answers:
    """`secret`, `reticent`: as the host has them; `name`: of the algorithm, for refusals."""

    def __init__(
        self,
        name: str,
        machine: Machine,
        rows: Rows,
        timing: Timing,
        shared: Shared,
        losses: LastLosses,
        secret: SecretNoise | None,
        reticent: bool,
    ) -> None:
        self._name, self._machine, self._rows, self._timing = name, machine, rows, timing
        self._shared, self._losses, self._secret, self._reticent = shared, losses, secret, reticent

    def advance(self, clients: Sequence[Client], turns: list[Coroutine], messages: Sequence[Any]) -> list[Any]:
        """Runs coroutines to their ends, in step; returns what they return."""
        self._shared.keep_of(messages)
        done: list[Any] = [None] * len(turns)
        answers: dict[int, Any] = dict.fromkeys(range(len(turns)))
        while answers:
            requests: Requests = []
            for i, answer in answers.items():
                try:
                    requests.append((i, turns[i].send(answer)))
                except StopIteration as stop:
                    done[i] = stop.value
            answers = self._answer(requests, clients, messages)
        return done

    def _answer(self, requests: Requests, clients: Sequence[Client], messages: Sequence[Any]) -> dict[int, Any]:
        """Computes all requests of a step; those for the machine go to it by phase, so that time is accounted to it."""
        answers: dict[int, list[Any]] = {}
        places: dict[str, list[tuple[int, int]]] = defaultdict(list)  # by phase: whose request, where its answer goes
        jobs: dict[str, list[Job]] = defaultdict(list)
        arithmetic: list[Compute] = []
        functions: dict[str, list[tuple[int, int, Compute]]] = defaultdict(list)
        network = self._machine.network
        for i, request in requests:
            many = request if isinstance(request, list) else (request,)
            answers[i] = [None] * len(many)
            for position, work in enumerate(many):
                if isinstance(work, Compute):
                    if work.rowwise:
                        places[work.phase].append((i, position))
                        arithmetic.append(work)
                    elif work.shared:
                        answers[i][position] = self._shared.compute(work, messages[i])
                    else:
                        functions[work.phase].append((i, position, work))
                    continue
                if type(work) not in WORKS:
                    raise CoveyError(
                        f"a client of {self._name} asked for a {type(work).__name__}: expected work, as Train(model, me.plan)"
                    )
                me = clients[i]
                if isinstance(work, Losses) and work.on is None:
                    answers[i][position] = self._losses.of(me.id, me.round, work.models)
                    if answers[i][position] is not None:
                        continue
                self._check_labels(me, work)
                own = whole(network, me, work) if network.local else work
                stream = key(me.seed, me.round, me.id, position)
                phase = PHASES.get(type(work), "measure")
                places[phase].append((i, position))
                jobs[phase].append(Job(self._rows.of(me.id, me.round), stream, own, self._secret, self._reticent))
        if arithmetic:
            with self._timing.of(VECTORS):
                for (i, position), rows in zip(places[VECTORS], by_rows(arithmetic)):
                    answers[i][position] = rows
        for phase, asked in functions.items():
            with self._timing.of(phase):  # once: each time a GPU is waited for
                given = on_cpu([work for _, _, work in asked])
                for (i, position, work), arguments in zip(asked, given):
                    answers[i][position] = work.function(*arguments)
        for phase, of_phase in jobs.items():
            with self._timing.of(phase):
                try:
                    results = self._machine.compute(of_phase)
                except NotFinite as error:
                    raise error.by([clients[places[phase][j][0]].id for j in error.of]) from None
            for (i, position), job, result in zip(places[phase], of_phase, results):
                answers[i][position] = kept(network, clients[i], job.work, result) if network.local else result
                if isinstance(job.work, Losses) and job.work.on is None and not network.local:
                    self._losses.keep(clients[i].id, clients[i].round, job.work.models, result)
        return {i: answers[i] if isinstance(request, list) else answers[i][0] for i, request in requests}

    def _check_labels(self, me: Client, work: Work) -> None:
        if not me.labelled and not isinstance(work, Logits):
            raise CoveyError(
                f"client {me.id} has no labels (participation.newcomer_labels), which {self._name} needs for its "
                f"{PHASES.get(type(work), 'measurements')}: leave that out, or choose another algorithm"
            )
