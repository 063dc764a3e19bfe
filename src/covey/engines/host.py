"""A host: owns clients with their data and memory, takes messages, gives replies.

It advances its clients' coroutines in step, so that equal requests of many clients reach the machine as one batch. A
simulation has a few hosts with many clients each, a silo is a host with one. Messages cross between hosts; coroutines,
memories and keys never do.
"""

from __future__ import annotations

import math
import time
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import repeat
from operator import is_
from typing import Any
from weakref import ReferenceType, ref

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from covey.algorithms.contract import Algorithm, Client, Coroutine, Predictor, Setting, own_keys
from covey.compression.replies import Compression, pack
from covey.crypto.noise.source import SecretNoise
from covey.data.federation import Federation
from covey.defences.contract import Defence, defend
from covey.engines.calls import Alike
from covey.engines.cohort import Alone, Apart, Cohort, Outcomes, Sheet, alike, in_rows, is_own, reads_in_rows
from covey.engines.evaluation import Examiner, Score, Scores
from covey.engines.spill import Spill
from covey.errors import CoveyError, CoveyWarning, NotFinite
from covey.experiment.exposure import Exposure, expose
from covey.learn.kernels.vectors.doubts import Doubt
from covey.learn.kernels.vectors.pending import kept, settled
from covey.learn.machine import Machine
from covey.learn.rowwise import by_rows, on_cpu, on_rows, owned
from covey.learn.schedule import WAVES, stacked, there
from covey.learn.work import (
    VECTORS,
    Bundle,
    Compute,
    Fisher,
    Gradient,
    GradientNorms,
    Job,
    Logits,
    Losses,
    Plan,
    SampleGradients,
    SampleLosses,
    Train,
    Work,
)
from covey.messages import copied, message, to_device
from covey.randomness import Streams, key

PROOFS = 3  # rounds in which an own algorithm's word about rows is tried, each on as many clients
PHASES: dict[type, str] = {Train: "train", Losses: "identity", SampleLosses: "identity"}  # of work for the machine
KNOWN = 4096  # clients whose rows and last losses are kept at hand
OWN_BUFFERS = "model buffers"  # where a client's memory has them


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
    memories: dict[int, dict[str, Any]] = field(default_factory=dict)  # as of the last round that is known to be whole
    seconds: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    replaced: dict[int, Any] = field(default_factory=dict)  # client -> attacker that runs in its place
    private_seed: int | None = None  # of the clients' own randomness, where it must not be everyone's: in a silo
    compression: Compression | None = None
    secret: SecretNoise | None = None  # where noise and batches must not be foreseen: in a silo; None: they are keyed
    reticent: bool = False  # a refusal would tell what replies hide: see the contract's `reticent`
    spill: Spill = field(default_factory=lambda: Spill(math.inf))  # where memories are kept that are too many
    unlabelled: Callable[[int], bool] | None = None  # who has no labels; None: everybody has
    run_id: str = ""  # which of several runs with the same keys this is: in a silo
    _staged: dict[int, dict[str, Any]] = field(default_factory=dict)  # memories that the round under way has changed
    _staged_round: int = 0
    _shared: dict[tuple[int, str], tuple[Any, Any]] = field(default_factory=dict)
    _rows: dict[tuple[int, int], Tensor] = field(default_factory=dict)
    _joined: dict[tuple[bytes, int], tuple[Tensor, NDArray[np.int64]]] = field(default_factory=dict)
    _losses: dict[tuple[bytes, int], tuple[Tensor, int, Tensor]] = field(
        default_factory=dict
    )  # models, version, losses
    # The same of one client; who takes part seldom must not keep the models of its last round alive.
    _losses_of: dict[tuple[int, int], tuple[ReferenceType[Tensor], int, Tensor]] = field(default_factory=dict)
    _ahead: dict[tuple[bytes, int], Streams] = field(default_factory=dict)  # by clients and round
    _sheets: dict[bytes, Sheet] = field(default_factory=dict)
    _staged_sheets: dict[bytes, Sheet] = field(default_factory=dict)
    _proofs: set[int] = field(default_factory=set)  # rounds
    _doubts: list[Doubt] = field(default_factory=list)  # of this round's trainings, whose check is put off
    _marks: list[tuple[str, torch.cuda.Event, torch.cuda.Event]] = field(default_factory=list)  # phase, begin, end

    def run(self, round: int, calls: Sequence[tuple[int, Any, Plan]]) -> list[Outcome]:
        """One round of these clients: (client, message, plan) in, outcomes out."""
        return self._take_turns(round, calls, self._turn, self.compression)

    def run_as_one(self, round: int, calls: Sequence[tuple[int, Any, Plan]]) -> Outcomes | None:
        """The same of clients that can run as one; None: they cannot."""
        if not self.as_one or (cohort := self._cohort(round, calls)) is None:
            return None
        self._begin(round)
        with self._unless_apart():
            reply = self._advance_as_one(cohort, self.algorithm.client, calls[0][1])
            outcomes = Outcomes(cohort.ids, in_rows(reply, len(cohort.ids)), cohort.notes)
            self._prove(cohort, outcomes, calls)
            self._stage(cohort)
            return outcomes
        return None

    def advise(self, round: int, calls: Sequence[tuple[int, Any, Plan]]) -> list[Outcome]:
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
        turn = expose(self.exposure, self.federation, me, begin(me, received))
        return defend(self.defence, me, turn)

    def _take_turns(
        self,
        round: int,
        calls: Sequence[tuple[int, Any, Plan]],
        begin: Callable[[Client, Any], Coroutine],
        compression: Compression | None = None,
    ) -> list[Outcome]:
        self._begin(round)
        clients = self._clients(round, calls)
        messages = [message for _, message, _ in calls]
        if self.replaced:
            messages = [copied(m) if i in self.replaced else m for i, m, _ in calls]
        turns = [begin(me, received) for me, received in zip(clients, messages)]
        replies = self.advance(clients, turns, messages)
        if self.replaced:
            replies = [copied(r) if me.id in self.replaced else r for me, r in zip(clients, replies)]
        if compression is not None:
            with self._timed("compress"):
                replies = [pack(compression, me, m, r) for me, m, r in zip(clients, messages, replies)]
        self._stage_each(clients)
        return [Outcome(me.id, reply, me.notes, me.events) for me, reply in zip(clients, replies)]

    def _stage_each(self, clients: Sequence[Client]) -> None:
        owned([me.memory for me in clients if me.memory])
        for me in clients:
            if me.memory:
                self._staged[me.id] = self.spill.put(me.id, me.memory)

    def _begin(self, round: int) -> None:
        if round != self._staged_round:
            self._settle(self._staged_round)
            self._staged_round = round
            self._doubts.clear()
            self._read_marks()  # of who never asks for seconds

    def check(self) -> None:
        """Raises what was wrong with trainings of this round that were not waited for."""
        doubts = list(self._doubts)
        self._doubts.clear()
        for doubt in doubts:
            doubt.check()

    def sum_up(self) -> None:
        """The replies so far were taken: what nobody has added up is, so that no check keeps it."""
        for doubt in self._doubts:
            doubt.sum_up()

    def _settle(self, done: int) -> None:
        """Round `done` is whole."""
        if self._staged_round <= done:
            self.memories |= self._staged
            self._sheets |= self._staged_sheets
            self._staged, self._staged_sheets = {}, {}
            self.spill.rest()

    def snapshot(self, done: int) -> dict[int, dict[str, Any]]:
        """The clients' memories as they were after round `done`; what a later, unfinished round changed is not in them."""
        self._settle(done)
        in_rows = {i: memory for sheet in self._sheets.values() for i, memory in sheet.memories()}
        return self.memories | in_rows if in_rows else self.memories

    def restore(self, memories: dict[int, dict[str, Any]]) -> None:
        """Memories that a checkpoint, or another process, had; they may come in parts."""
        self.memories |= {i: self.spill.put(i, memory) for i, memory in memories.items()}
        self._staged, self._sheets, self._staged_sheets = {}, {}, {}

    def changed(self, clients: Sequence[int]) -> dict[int, dict[str, Any]]:
        """The memories of these clients that the round under way has changed."""
        return {i: self._staged[i] for i in clients if i in self._staged}

    def uses(self, round: int, calls: Sequence[tuple[int, Any, Plan]]) -> list[Predictor]:
        """The model that each of these clients would predict with."""
        clients = self._clients(round, calls)
        turns = [self.algorithm.use(me, m) for me, (_, m, _) in zip(clients, calls)]
        uses = self.advance(clients, turns, [m for _, m, _ in calls])
        if not self.machine.network.local:
            return uses
        return [replace(use, models=self._with_own(me, use.models)) for me, use in zip(clients, uses)]

    def predictors(self, round: int, calls: Sequence[tuple[int, Any, Plan]]) -> list[tuple[int, Predictor]]:
        """(client, what it predicts with), for what is kept of a run."""
        return [(client, use) for (client, _, _), use in zip(calls, self.uses(round, calls))]

    # Clients as one: see `cohort`. What they remember lies in sheets, one for each set of clients that went together, and is newer
    # than what `memories` has of them. For a set that has no sheet, or a client alone, those that it is in are spread again.

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

    def _prove(self, cohort: Cohort, outcomes: Outcomes, calls: Sequence[tuple[int, Any, Plan]]) -> None:
        """An own algorithm's word that its `client` reads the same in rows is tried on some clients, in its first rounds. What it
        makes of replies in `aggregate` is not.
        """
        if not is_own(self.algorithm) or len(calls) < 2 or cohort.round in self._proofs or len(self._proofs) >= PROOFS:
            return
        some = calls[:PROOFS]
        clients = self._clients(cohort.round, some)
        messages = [message for _, message, _ in some]
        turns = [self.algorithm.client(me, received) for me, received in zip(clients, messages)]
        replies = self.advance(clients, turns, messages)
        for me, alone, (_, reply, notes), memory in zip(clients, replies, outcomes.each(), cohort.memories()):
            if not (alike(reply, alone) and alike(notes, me.notes) and alike(memory, me.memory)):
                self._doubt(f"client {me.id}'s reply, notes or memory come out otherwise than alone")
                raise Alone
        self._proofs.add(cohort.round)

    def _cohort(self, round: int, calls: Sequence[tuple[int, Any, Plan]]) -> Cohort | None:
        if not isinstance(calls, Alike):
            clients, messages, plans = zip(*calls)
            if not all(map(is_, messages, repeat(messages[0]))) or not all(map(is_, plans, repeat(plans[0]))):
                return None
            calls = Alike(np.fromiter(clients, np.int64, len(clients)), messages[0], plans[0])
        ids = calls.clients
        if self.unlabelled is not None and any(map(self.unlabelled, ids.tolist())):
            return None
        sizes = self._joined_rows(ids, round)[1]
        members = partial(self._clients, round, calls)
        return Cohort(
            ids, round, self.setting.seed, sizes, calls.plan, self.setting, self._recall, members, keys=self.keys
        )

    def _advance_as_one(self, me: Cohort, begin: Callable[..., Coroutine], message: Any) -> Any:
        turn, answer = begin(me, message), None
        self._share_of([message])
        while True:
            try:
                request = turn.send(answer)
            except StopIteration as stop:
                return stop.value
            answer = self._answer_as_one(me, request, message)

    def _answer_as_one(self, me: Cohort, work: Work | list[Work], message: Any) -> Any:
        rows, sizes = self._joined_rows(me.ids, me.round)
        if isinstance(work, Train):
            if any(one is not None for one in (work.on, work.weights, work.head, work.moves)):
                raise Alone
            streams = self._streams(me.ids, me.round)
            # The host does not wait for a GPU: it goes on to what comes after training.
            waits = self.machine.device.type == "cpu"
            ahead = None if waits else partial(self._look_ahead, me, work.purpose)
            bundle = Bundle(work, streams, rows, sizes, ahead, self._doubts)
            with self._timed(PHASES[Train]):
                return self.machine.train_bundle(bundle)
        if isinstance(work, Losses) and work.on is None and work.models.dim() == 2:
            return self._losses_as_one(me, work.models, rows, sizes)
        if isinstance(work, Compute) and work.rowwise:
            with self._timed(work.phase):
                return on_rows(work, self.machine.device)
        if isinstance(work, Compute) and work.shared:
            whose = tuple(me.clients[0] if argument is me else argument for argument in work.arguments)
            return self._compute(replace(work, arguments=whose), message)
        if isinstance(work, Compute):
            with self._timed(work.phase):
                return me.each(work)
        raise Alone

    def _streams(self, ids: NDArray[np.int64], round: int) -> Streams:
        known = self._ahead.pop((ids.tobytes(), round), None)
        return Streams(self.setting.seed, round, ids.tolist()) if known is None else known

    def _look_ahead(self, me: Cohort, purpose: str) -> None:
        """Keys of the next round, should the same clients train in it: they are drawn while the device computes."""
        if len(self._ahead) >= WAVES:
            self._ahead.clear()
        streams = self._ahead[me.ids.tobytes(), me.round + 1] = Streams(me.seed, me.round + 1, me.ids.tolist())
        streams.of(purpose, "order")

    def _losses_as_one(self, me: Cohort, models: Tensor, rows: Tensor, sizes: NDArray[np.int64]) -> Tensor:
        """Those by which models were chosen for the evaluation of a round are asked for again when the next one begins."""
        at = (me.ids.tobytes(), self.federation.phase(me.round))
        known = self._losses.get(at)
        if known is not None and known[0] is models and known[1] == models._version:
            return known[2]
        with self._timed(PHASES[Losses]):
            losses = self.machine.losses_of_bundle(models, rows, sizes)
        if len(self._losses) >= WAVES:
            self._losses.clear()
        self._losses[at] = (models, models._version, losses)
        return losses

    def _joined_rows(self, ids: NDArray[np.int64], round: int) -> tuple[Tensor, NDArray[np.int64]]:
        """The rows of these clients on the machine's device, one's after the other's, and how many each has."""
        at = (ids.tobytes(), self.federation.phase(round))
        if at not in self._joined:
            if len(self._joined) >= WAVES:
                self._joined.clear()
            rows, sizes = self.federation.at(round).holdings.joined(ids)
            self._joined[at] = (there(torch.from_numpy(rows), self.machine.device), sizes)
        return self._joined[at]

    def _recall(self, ids: NDArray[np.int64]) -> dict[str, Tensor]:
        at = ids.tobytes()
        sheet = self._staged_sheets.get(at) or self._sheets.get(at)
        if sheet is not None:
            return {name: settled(column) for name, column in sheet.columns.items()}
        self._spread(ids)
        memories = [self._memory(i) for i in ids.tolist()]
        names = memories[0].keys()
        if any(m.keys() != names or not all(isinstance(v, Tensor) for v in m.values()) for m in memories):
            raise Apart
        n, device = len(ids), self.machine.device
        return {name: stacked([m[name] for m in memories], device).expand(n, -1) for name in names}

    def _stage(self, me: Cohort) -> None:
        if me.went_singly:
            if me.remembers or any(one.notes or one.events for one in me.clients):
                raise Alone  # what each remembers would be written in two places, what each says in none
            self._stage_each(me.clients)
        if not me.remembers:
            return
        sheet = Sheet(me.ids, {name: kept(rows, len(me.ids)) for name, rows in me.memory.items()})
        at = me.ids.tobytes()
        others = self._sheets | self._staged_sheets  # the one before of the same clients goes when the round is whole
        held = sheet.nbytes + sum(one.nbytes for of, one in others.items() if of != at)
        if held > self.spill.limit:
            self._spread(me.ids)  # else the sheet before, of which this is more, would be taken for the newer one
            self._staged |= self._laid_by(sheet)
        else:
            self._staged_sheets[at] = sheet

    def _spread(self, clients: Sequence[int] | NDArray[np.int64]) -> None:
        """What these clients remember is where each can find its own, and that of those who shared a sheet with one of them."""
        for sheets, memories in ((self._sheets, self.memories), (self._staged_sheets, self._staged)):
            for at, sheet in list(sheets.items()):
                if np.isin(sheet.ids, clients).any():
                    memories |= self._laid_by(sheet)
                    del sheets[at]

    def _laid_by(self, sheet: Sheet) -> dict[int, dict[str, Any]]:
        """Each client's own, in memory of its own."""
        memories = dict(sheet.memories())
        owned(list(memories.values()))
        return {i: self.spill.put(i, memory) for i, memory in memories.items()}

    def score_as_one(self, round: int, calls: Sequence[tuple[int, Any, Plan]]) -> Scores | None:
        """`score` of clients that can run as one; None: they cannot."""
        if not self.as_one or (cohort := self._cohort(round, calls)) is None:
            return None
        with self._unless_apart():
            use = self._advance_as_one(cohort, self.algorithm.use, calls[0][1])
            with self._timed("evaluate"):
                return self.examiner.scores_as_one(cohort.ids, use, self.federation.at(round).distributions, round)
        return None

    def score(self, round: int, calls: Sequence[tuple[int, Any, Plan]]) -> list[Score]:
        """Accuracy of the model each of these clients would use, on its own distribution and everywhere."""
        uses = self.uses(round, calls)
        with self._timed("evaluate"):
            return self.examiner.scores([i for i, _, _ in calls], uses, self.federation.at(round).distributions, round)

    def advance(self, clients: Sequence[Client], turns: list[Coroutine], messages: Sequence[Any]) -> list[Any]:
        """Runs coroutines to their ends, in step; returns what they return."""
        self._share_of(messages)
        done: list[Any] = [None] * len(turns)
        answers: dict[int, Any] = dict.fromkeys(range(len(turns)))
        while answers:
            requests: list[tuple[int, Work | list[Work]]] = []
            for i, answer in answers.items():
                try:
                    requests.append((i, turns[i].send(answer)))
                except StopIteration as stop:
                    done[i] = stop.value
            answers = self._answer(requests, clients, messages)
        return done

    def _answer(
        self,
        requests: list[tuple[int, Work | list[Work]]],
        clients: Sequence[Client],
        messages: Sequence[Any],
    ) -> dict[int, Any]:
        """Computes all requests of a step; those for the machine go to it by phase, so that time is accounted to it."""
        answers: dict[int, list[Any]] = {}
        places: dict[str, list[tuple[int, int]]] = defaultdict(
            list
        )  # by phase: whose request, and where its answer goes
        jobs: dict[str, list[Job]] = defaultdict(list)
        arithmetic: list[Compute] = []
        functions: dict[str, list[tuple[int, int, Compute]]] = defaultdict(list)
        local, secret, reticent = self.machine.network.local, self.secret, self.reticent
        for i, request in requests:
            many = request if isinstance(request, list) else (request,)
            answers[i] = [None] * len(many)
            for position, work in enumerate(many):
                if isinstance(work, Compute):
                    if work.rowwise:
                        places[work.phase].append((i, position))
                        arithmetic.append(work)
                    elif work.shared:
                        answers[i][position] = self._compute(work, messages[i])
                    else:
                        functions[work.phase].append((i, position, work))
                    continue
                me = clients[i]
                if isinstance(work, Losses) and (known := self._known_losses(me, work)) is not None:
                    answers[i][position] = known
                    continue
                if not me.labelled and not isinstance(work, Logits):
                    raise CoveyError(
                        f"client {me.id} has no labels (participation.newcomer_labels), which {self.algorithm.name} needs for its "
                        f"{PHASES.get(type(work), 'measurements')}: leave that out, or choose another algorithm"
                    )
                own = self._whole(me, work) if local else work
                stream = key(me.seed, me.round, me.id, position)
                phase = PHASES.get(type(work), "measure")
                places[phase].append((i, position))
                jobs[phase].append(Job(self._own_rows(me.id, me.round), stream, own, secret, reticent))
        if arithmetic:
            with self._timed(VECTORS):
                for (i, position), rows in zip(places[VECTORS], by_rows(arithmetic)):
                    answers[i][position] = rows
        for phase, asked in functions.items():
            with self._timed(phase):  # once: each time a GPU is waited for
                given = on_cpu([work for _, _, work in asked])
                for (i, position, work), arguments in zip(asked, given):
                    answers[i][position] = work.function(*arguments)
        for phase, of_phase in jobs.items():
            with self._timed(phase):
                try:
                    results = self.machine.compute(of_phase)
                except NotFinite as error:
                    raise error.by([clients[places[phase][j][0]].id for j in error.of]) from None
            for (i, position), job, result in zip(places[phase], of_phase, results):
                answers[i][position] = self._kept(clients[i], job.work, result) if local else result
                if isinstance(job.work, Losses):
                    self._keep_losses(clients[i], job.work, result)
        return {i: answers[i] if isinstance(request, list) else answers[i][0] for i, request in requests}

    # Where each client keeps its model's running statistics (`layers.buffers = "local"`), work is asked of the machine with the
    # client's own, and what training made of them stays in its memory. One set: trainings side by side leave the last one's.

    def _with_own(self, me: Client, vectors: Tensor) -> Tensor:
        """`[..., d]` with this client's buffers behind."""
        own = me.memory.get(OWN_BUFFERS)
        own = self.machine.network.fresh_local if own is None else own
        return torch.cat([vectors, own.to(vectors.device).expand(*vectors.shape[:-1], -1)], dim=-1)

    def _whole(self, me: Client, work: Work) -> Work:
        if isinstance(work, Losses | SampleLosses | Logits):
            return replace(work, models=self._with_own(me, work.models))
        if isinstance(work, Train):
            return replace(work, start=self._with_own(me, work.start))
        if isinstance(work, Gradient | GradientNorms | SampleGradients | Fisher):
            return replace(work, at=self._with_own(me, work.at))
        return work

    def _kept(self, me: Client, work: Work, result: Tensor) -> Tensor:
        """The part of a result that algorithms see."""
        tail = self.machine.network.size - self.machine.network.d
        if isinstance(work, Train):
            me.memory[OWN_BUFFERS] = result[-tail:].clone().cpu()
            return result[:-tail]
        return result[: self.machine.network.d] if isinstance(work, Gradient | Fisher) else result

    # The losses by which clients choose a model for the evaluation of a round are asked for again when the next one begins.

    def _known_losses(self, me: Client, work: Losses) -> Tensor | None:
        known = self._losses_of.get((me.id, self.federation.phase(me.round)))
        same = known is not None and work.on is None and known[0]() is work.models and known[1] == work.models._version
        return known[2] if known is not None and same else None

    def _keep_losses(self, me: Client, work: Losses, losses: Tensor) -> None:
        if work.on is not None or self.machine.network.local:  # own buffers change what a model is
            return
        if len(self._losses_of) > KNOWN:
            self._losses_of.clear()
        self._losses_of[me.id, self.federation.phase(me.round)] = (ref(work.models), work.models._version, losses)

    def _share_of(self, messages: Sequence[Any]) -> None:
        """What clients share of other broadcasts than these is forgotten."""
        live = {id(m) for m in messages}
        self._shared = {at: kept for at, kept in self._shared.items() if at[0] in live}

    def _compute(self, work: Compute, broadcast: Any) -> Any:
        """What is the same for all clients of a broadcast."""
        # Keyed by the identity of the broadcast, which is kept alive beside the result so that its id stays its own.
        at = (id(broadcast), work.phase)
        if at not in self._shared:
            with self._timed(work.phase):
                self._shared[at] = (broadcast, work.function(*work.arguments))
        return self._shared[at][1]

    def _clients(self, round: int, calls: Sequence[tuple[int, Any, Plan]]) -> list[Client]:
        """These clients as their own code sees them. A round may have thousands: what they share is looked up once."""
        seed = self.setting.seed if self.private_seed is None else self.private_seed
        setting, keys, secret, run_id = self.setting, self.keys, self.secret, self.run_id
        chooser = getattr(self.defence, "choose", None)
        if self._sheets or self._staged_sheets:
            self._spread([i for i, _, _ in calls])
        clients = []
        for i, _, plan in calls:
            rows, labelled = self._own_rows(i, round), self.unlabelled is None or not self.unlabelled(i)
            me = Client(
                id=i,
                round=round,
                seed=seed,
                samples=rows.shape[0],
                plan=plan,
                setting=setting,
                memory=self._memory(i),
                keys=own_keys(keys, i),
                data=partial(self._data, rows, labelled),
                labelled=labelled,
                secret=secret,
                run=run_id,
                chooser=chooser,
            )
            clients.append(self._apart(me, rows) if i in self.replaced else me)
        return clients

    def _memory(self, i: int) -> dict[str, Any]:
        """What a client remembers, where its machine computes: the spill is not there."""
        memory = dict(self._staged.get(i) or self.memories.get(i) or ())
        if memory and self.spill.mapped and self.machine.device.type != "cpu":
            return dict(to_device(memory, self.machine.device.type))
        return memory

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

    def _own_rows(self, i: int, round: int) -> Tensor:
        at = (i, self.federation.phase(round))
        rows = self._rows.get(at)
        if rows is None:
            if len(self._rows) > KNOWN:
                self._rows.clear()
            rows = torch.from_numpy(np.ascontiguousarray(self.federation.at(round).clients[i]))
            self._rows[at] = rows
        return rows

    @contextmanager
    def _timed(self, phase: str) -> Iterator[None]:
        """A GPU takes the time itself: waiting for it here would keep the host from preparing what comes next."""
        if self.machine.device.type == "cuda":
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()  # type: ignore[no-untyped-call]
            try:
                yield
            finally:
                end.record()  # type: ignore[no-untyped-call]
                self._marks.append((phase, begin, end))
            return
        started = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[phase] += time.perf_counter() - started

    def _read_marks(self) -> None:
        for phase, begin, end in self._marks:
            end.synchronize()  # type: ignore[no-untyped-call]
            self.seconds[phase] += 1e-3 * begin.elapsed_time(end)  # type: ignore[no-untyped-call]
        self._marks.clear()

    def take_seconds(self) -> dict[str, float]:
        """Seconds by phase since the last call."""
        self._read_marks()
        spent, self.seconds = dict(self.seconds), defaultdict(float)
        return spent


def heterogeneous(plan: Plan, share: float) -> Plan:
    """E_i = d_i E_m, at least one epoch (or step)."""
    if plan.steps:
        return plan.but(steps=max(1, round(plan.steps * share)))
    return plan.but(epochs=max(1, round(plan.epochs * share)))
