"""The machine: takes the requests of many clients, groups equal ones, computes each group the fastest way it can.

How a result is computed (kernel, chunk, order of the jobs) changes it by floating-point noise at most.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from covey.errors import CoveyError, NotFinite
from covey.learn import evaluate
from covey.learn.flat import Network
from covey.learn.kernels.graph import Recordings
from covey.learn.kernels.kernels import choose
from covey.learn.kernels.keys.keys import drawing
from covey.learn.kernels.vectors.doubts import Doubt
from covey.learn.objective import activations
from covey.learn.precision import check, precision
from covey.learn.samples import Samples
from covey.learn.schedule.waves import Together, lay_out, lay_out_bundle
from covey.learn.work import (
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
from covey.randomness import Draw

Array = Tensor | NDArray[np.generic]
RECORDED = 2**29  # bytes of activations up to which a GPU records an evaluation: a recording keeps its memory
NO_SAMPLES = "a client has no samples to compute on: give every client at least one, or leave it out"
HUGE = "a model holds huge or undefined values: lower training.lr"


class Machine:
    """A device with a dataset on it. Jobs name rows of that dataset. For one thread: its kernels reuse their buffers.

    Args:
        kernel: auto, linear, loop, stacked or streams; one that cannot do the network is refused.
        chunk: clients side by side, except in the loop kernel; 0: as many as the cache or the GPU's memory suits.
        arithmetic: of a GPU, see `precision`: ieee, torch, tf32 or bf16.
        own_loops: narrow convolutions by covey's own loops, where this process computes in one thread and means to train for long.
    """

    def __init__(
        self,
        network: Network,
        x: Array,
        y: Array,
        *,
        device: str | torch.device = "cpu",
        kernel: str = "auto",
        chunk: int = 0,
        arithmetic: str = "ieee",
        own_loops: bool = False,
    ) -> None:
        self.network = network
        self.device = torch.device(device)
        if self.device.type == "cuda" and not torch.cuda.is_available():
            raise CoveyError("device 'cuda' was asked for, torch finds no GPU: use 'cpu', or install torch for CUDA")
        check(arithmetic, self.device)
        self._precision = arithmetic
        self.samples = Samples(network, x, y, self.device)
        self._together = Together(self.device)
        self._recordings = Recordings(self.device)
        self._losses_recorded = Recordings(self.device, 2)  # each keeps its activations
        self.kernel = choose(kernel, network, self.samples, self.device, chunk, own_loops)

    @cached_property
    def draw(self) -> Draw:
        """Of the keys of bundles."""
        return drawing(self.device)

    def compute(self, jobs: Sequence[Job]) -> list[Tensor]:
        """The result of each job, in the order of the jobs, on this machine's device."""
        results: list[Tensor | None] = [None] * len(jobs)
        groups: dict[tuple[object, ...], list[int]] = defaultdict(list)
        plans = {id(job.work.plan): job.work.plan for job in jobs if isinstance(job.work, Train)}
        equal: dict[
            Plan, int
        ] = {}  # a number for all plans that are equal: hashing one for every job would cost more than the rest
        numbers = {at: equal.setdefault(plan, len(equal)) for at, plan in plans.items()}
        for plan in equal:
            self._check_plan(plan)
        for index, job in enumerate(jobs):
            self._check(job)
            groups[_kind(job, numbers)].append(index)
        checks: list[tuple[_Check, list[int]]] = []
        with precision(self._precision, self.device):
            for work, members in self._parts(jobs, groups):
                answers, check = self._group(work, [jobs[i] for i in members])
                checks.append((check, members))
                for index, answer in zip(members, answers):
                    results[index] = answer
        for check, members in checks:  # only now: a GPU computes one group while the host prepares the next
            check.make(members)
        return [result for result in results if result is not None]

    def train_bundle(self, bundle: Bundle) -> Tensor:
        """What each client of a bundle arrives at, [n, d]."""
        work, facts = bundle.work, self.network.facts
        self._check_plan(work.plan)
        for what, vector in (
            ("the start", work.start),
            ("the anchor", work.anchor),
            ("the correction", work.correction),
        ):
            if vector is not None:
                _check_size(what, vector.shape[-1], self.network.d)
        if bundle.sizes.min() == 0:
            raise CoveyError(NO_SAMPLES)
        with precision(self._precision, self.device):
            wave = lay_out_bundle(bundle, self.device, facts.dropping or facts.drawing, self._recordings)
            trained = self.kernel.train(wave)[:, : self.network.d]
            if bundle.meanwhile is not None:
                bundle.meanwhile()
            if wave.moved:
                trained = trained[torch.from_numpy(np.argsort(np.array(wave.order))).to(self.device)]
            doubt = Doubt(trained, "local training", _too_fast(wave.plan))
            if bundle.doubts is None:
                doubt.check()
            else:
                bundle.doubts.append(doubt)
        return trained

    def losses_of_bundle(self, models: Tensor, rows: Tensor, sizes: NDArray[np.int64]) -> Tensor:
        """Mean loss of each model on each client's samples, [n, k], on the CPU. `rows` as a bundle has them."""
        _check_size("a model", models.shape[-1], self.network.d)
        if sizes.min() == 0:
            raise CoveyError(NO_SAMPLES)
        with precision(self._precision, self.device):
            means = evaluate.means(self._losses(models.to(self.device), rows), sizes.tolist())
            _Check.of([means], "the losses", HUGE, means).make(range(len(means)))
            return means

    def _parts(
        self, jobs: Sequence[Job], groups: dict[tuple[object, ...], list[int]]
    ) -> Iterator[tuple[object, list[int]]]:
        """The groups, those of trainings by the model that they begin at where the kernel wants it and few models are many's."""
        for (work, *_), members in groups.items():
            first, starts = jobs[members[0]].work, defaultdict[tuple[object, ...], list[int]](list)
            if isinstance(first, Train) and self.kernel.joins(first.plan):
                for i in members:
                    start = jobs[i].work.start  # type: ignore[union-attr]
                    starts[start.data_ptr(), start.stride(), start.device].append(i)
            alike = 0 < 2 * len(starts) <= len(members)
            for part in starts.values() if alike else (members,):
                yield work, part

    def _group(self, work: object, jobs: list[Job]) -> tuple[list[Tensor], _Check]:
        answers, check = self._computed(work, jobs)
        return answers, _Check() if all(job.lenient for job in jobs) else check

    def _computed(self, work: object, jobs: list[Job]) -> tuple[list[Tensor], _Check]:
        if work is Train:
            return self._train(jobs)
        if work in (Losses, SampleLosses, Logits):
            return self._evaluate(work, jobs)
        whole = [self.network.whole(_at(job).to(self.device)) for job in jobs]
        answers = [self._point(job.work, at, _rows(job).to(self.device)) for at, job in zip(whole, jobs)]
        reason = "the model they are taken at holds huge or undefined values"
        return answers, _Check.of(answers, "the gradients", reason)

    def _point(self, work: Work, at: Tensor, rows: Tensor) -> Tensor:
        points = self.kernel.points
        match work:
            case Gradient():
                return points.gradient(at, rows)[: len(work.at)]
            case GradientNorms():
                return points.sample_norms(at, rows)
            case SampleGradients():
                return points.sample_gradients(at, rows, work.last)
            case Fisher():
                return points.fisher(at, rows)[: len(work.at)]
        raise TypeError(f"{type(work).__name__} is not computed at a point")

    def _train(self, jobs: list[Job]) -> tuple[list[Tensor], _Check]:
        jobs, size = self._whole_jobs(jobs)
        facts = self.network.facts
        wave = lay_out(jobs, self.device, facts.dropping or facts.drawing, self._together)
        trained = self.kernel.train(wave)[:, :size]
        answers = _in_order(trained.unbind(0), wave.order)
        return answers, _Check.of([trained], "local training", _too_fast(wave.plan), answers)

    def _evaluate(self, work: object, jobs: list[Job]) -> tuple[list[Tensor], _Check]:
        models = self.network.whole(_models(jobs[0]).to(self.device))
        rows = [_rows(job) for job in jobs]
        every, sizes = self._together.of(rows), [r.shape[0] for r in rows]
        if work is Logits:
            logits = evaluate.logits_of(self.kernel.points, self.samples, models, every)
            return list(torch.split(logits, sizes, dim=1)), _Check()
        losses = self._losses(models, every)
        if work is SampleLosses:
            losses = losses.clone()  # which somebody may keep
            return list(torch.split(losses, sizes, dim=1)), _Check.of([losses], "the losses", HUGE)
        means = evaluate.means(losses, sizes)  # on the CPU already
        return list(means), _Check.of([means], "the losses", HUGE, list(means))

    def _losses(self, models: Tensor, rows: Tensor) -> Tensor:
        """Of each model on each row, [k, n]; good until the next."""

        def losses(models: Tensor, rows: Tensor) -> tuple[Tensor, ...]:
            return (evaluate.sample_losses(self.kernel.points, self.samples, models, rows),)

        if not self.records(len(rows), len(models)):
            return losses(models, rows)[0]
        return self._losses_recorded(("losses", models.shape, len(rows)), (models, rows), losses)[0]

    def records(self, samples: int, models: int) -> bool:
        """Whether a GPU may record outputs of so many models on so many samples."""
        small = 4.0 * activations(self.network) * samples * models <= RECORDED
        # A model of the user's own may wait for the device in its forward pass, which no recording can.
        return self.device.type == "cuda" and small and self.network.plain

    def _check(self, job: Job) -> None:
        work = job.work
        if isinstance(work, Compute):
            raise CoveyError("a machine computes on models and samples: run the function of a Compute request directly")
        if job.rows.shape[0] == 0 or (work.on is not None and work.on.shape[0] == 0):
            raise CoveyError(NO_SAMPLES)
        if isinstance(work, Train):
            self._check_training(work, job.rows.shape[0])
            return
        vector = _at(job) if hasattr(work, "at") else _models(job)
        self._check_vector("a model", vector.shape[-1])
        if isinstance(work, SampleGradients) and not 0 < work.last <= self.network.d:
            raise CoveyError(f"gradients of the last {work.last} parameters were asked for: there are {self.network.d}")

    def _check_plan(self, plan: Plan) -> None:
        network = self.network
        if plan.clip and (network.facts.mixes or network.facts.running):
            layer = network.facts.mixes or network.facts.running[0]
            raise CoveyError(
                f"gradients are clipped sample by sample, and model '{network.title}' has none of its own for each sample: "
                f"'{layer}' computes with the whole batch, so what one sample changes is not bounded; use GroupNorm or "
                "LayerNorm in place of BatchNorm"
            )
        if plan.dropout:
            network.check_last_layer("training.dropout")

    def _check_training(self, work: Train, samples: int) -> None:
        network = self.network
        head = network.head_size(work.head.classes) if work.head else 0
        self._check_vector("the start", work.start.shape[0], head)
        if work.correction is not None:
            self._check_vector("the correction", work.correction.shape[0], head)
        if work.anchor is not None:
            self._check_vector("the anchor", work.anchor.shape[0], head)
        if work.moves is not None:
            _check_size("the mask of trained parameters", len(work.moves), network.d)
        each = "entries, one for each of the client's samples"
        if work.weights is not None:
            _check_size("the weights", len(work.weights), samples, each)
        if work.head is not None:
            _check_size("the head's labels", len(work.head.labels), samples, each)

    def _check_vector(self, what: str, size: int, head: int = 0) -> None:
        if size != self.network.size + head:  # with a client's own buffers
            _check_size(what, size, self.network.d + head)

    def _whole_jobs(self, jobs: list[Job]) -> tuple[list[Job], int]:
        """The jobs with vectors as long as the kernels want them, and how much of a result was asked for."""
        works = [job.work for job in jobs if isinstance(job.work, Train)]
        size, tail = len(works[0].start), self.network.size - self.network.d
        head = self.network.head_size(works[0].head.classes) if works[0].head else 0
        if not tail:
            return jobs, size
        fresh, nothing = self.network.fresh_local, torch.zeros(tail)

        def longer(vector: Tensor, by: Tensor) -> Tensor:
            if len(vector) == self.network.size + head:
                return vector
            return torch.cat([vector, by.to(vector.device)])

        whole = [
            replace(
                work,
                start=longer(work.start, fresh),
                anchor=None if work.anchor is None else longer(work.anchor, nothing),
                correction=None if work.correction is None else longer(work.correction, nothing),
            )
            for work in works
        ]
        return [replace(job, work=work) for job, work in zip(jobs, whole)], size


def _check_size(what: str, size: int, expected: int, unit: str = "parameters") -> None:
    if size != expected:
        raise CoveyError(f"{what} of {size} was given: it must have {expected} {unit}")


def _kind(job: Job, plans: dict[int, int]) -> tuple[object, ...]:
    """Jobs of the same kind can be computed together. `plans`: the number of each plan by its identity."""
    work = job.work
    if isinstance(work, Train):
        head = None if work.head is None else (work.head.classes, work.head.share)
        return (
            Train,
            plans[id(work.plan)],
            work.anchor is None,
            work.correction is None,
            work.weights is None,
            work.moves is None,
            head,
            job.secret,
        )
    if isinstance(work, Losses | SampleLosses | Logits):
        return (type(work), work.models.data_ptr(), work.models.shape, work.models.stride())
    return (type(work),)


def _in_order(trained: Sequence[Tensor], order: Sequence[int]) -> list[Tensor]:
    """What client i of a wave arrived at is the answer to job order[i]."""
    answers: list[Tensor] = list(trained)
    for i, job in enumerate(order):
        answers[job] = trained[i]
    return answers


def _rows(job: Job) -> Tensor:
    on = getattr(job.work, "on", None)
    return job.rows if on is None else job.rows[on.to(job.rows.device)]


def _models(job: Job) -> Tensor:
    models: Tensor = job.work.models  # type: ignore[union-attr]
    return models


def _at(job: Job) -> Tensor:
    at: Tensor = job.work.at  # type: ignore[union-attr]
    return at


@dataclass(frozen=True)
class _Check:
    """Whether the answers to a group of jobs are numbers: one sum is cheap, and any NaN or infinity shows in it."""

    total: Tensor | int = 0  # where it was computed: only `make` waits for it
    words: str = ""
    each: Sequence[Tensor] | Tensor = ()  # the answers by job, to tell whose they are

    @classmethod
    def of(cls, answers: list[Tensor], what: str, reason: str, each: Sequence[Tensor] | Tensor = ()) -> _Check:
        total = sum(answer.sum() for answer in answers)
        return cls(total, f"{what} gave values that are not finite: {reason}", each)

    def make(self, members: Sequence[int] = ()) -> None:
        """`members`: the places of the jobs."""
        if not math.isfinite(float(self.total)):
            wrong = [members[i] for i, one in enumerate(self.each) if not one.isfinite().all()]
            raise NotFinite(self.words, wrong)


def _too_fast(plan: Plan) -> str:
    return f"training.lr = {plan.lr:g} is probably too high: lower it, or look for huge values in the samples"
