"""A wave: training jobs of one plan, laid out step by step, with all their randomness drawn.

Every kernel reads the same wave, so that batches, masks and noise do not depend on the kernel or on how it is chunked.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor

from covey import randomness
from covey.crypto.noise.source import SecretNoise
from covey.learn.kernels.vectors.pending import Pending, cut, in_rows, less
from covey.learn.schedule.batches import Lots, Placing, batches_of, by_steps, numbers, placing_of, shuffled
from covey.learn.schedule.transfer import joined, there
from covey.learn.work import Bundle, Job, Plan, Train

T = TypeVar("T")
WAVES = 32  # of whose clients the rows are kept together


@dataclass(frozen=True)
class Wave:
    """n clients, T steps, B slots per batch. Clients are sorted so that those with the most steps come first."""

    plan: Plan
    steps: tuple[int, ...]  # [n] falling
    start: Tensor  # [n, D]: D = d, or d + head; where all clients share a row, a view of it: not to be written to, unless `fresh`
    constant: Tensor | None  # [n, D] likewise; the part of the gradient that never changes: correction − μ · anchor
    moves: Tensor | None  # [n, D] bool likewise: the parameters that steps change; None: all
    rows: Tensor  # [T, n, B] rows of the dataset; slots beyond `counts` repeat some row
    factor: Tensor  # [T, n, B] weight / batch size of the sample; 0: no sample, or the client is done
    counts: Tensor  # [T, n] samples in the batch, 0 when the client is done
    divisors: Tensor  # [T, n] what the sum over a batch is divided by: its size, or the expected one; 0 when done
    noise_keys: Tensor | None  # [T, n]
    secret: SecretNoise | None  # in a silo: draws the noise in place of keys, and bounded gradients stand alone
    dropout_keys: Tensor | None  # [T, n]: of all that is drawn while a step computes
    head_labels: Tensor | None  # [T, n, B]
    head_classes: int
    head_share: float
    order: tuple[int, ...]  # client i of the wave is job order[i]
    moved: bool = True  # false: client i is surely job i
    fresh: bool = False  # whether `start` was laid out for this wave alone, and may be trained where it lies

    def _tensors(self) -> dict[str, Tensor]:
        """Those that are there, without start."""
        names = (
            "constant",
            "moves",
            "rows",
            "factor",
            "counts",
            "divisors",
            "noise_keys",
            "dropout_keys",
            "head_labels",
        )
        return {name: getattr(self, name) for name in names if getattr(self, name) is not None}

    def copy(self) -> Wave:
        """The wave in memory of its own."""
        own = {name: tensor.clone(memory_format=torch.contiguous_format) for name, tensor in self._tensors().items()}
        return replace(self, **own)  # type: ignore[arg-type]

    def overwrite(self, other: Wave) -> None:
        """Copies another wave of the same shape, with no more steps, over this one's memory."""
        for name, tensor in self._tensors().items():
            value = other._tensors()[name]
            tensor[: len(value)].copy_(value)

    def padded(self, clients: int) -> Wave:
        """The wave with clients added that take no step, so that waves of all sizes have one shape."""
        extra = clients - len(self.steps)
        if extra <= 0:
            return self

        def more(name: str, tensor: Tensor) -> Tensor:
            dim = 0 if name in ("start", "constant", "moves") else 1
            zeros = torch.zeros_like(tensor.narrow(dim, 0, 1))
            return torch.cat([tensor, zeros.expand(*(extra if i == dim else -1 for i in range(tensor.dim())))], dim)

        tensors = {name: more(name, tensor) for name, tensor in (self._tensors() | {"start": self.start}).items()}
        return replace(self, steps=self.steps + self.steps[-1:] * extra, **tensors)  # type: ignore[arg-type]

    def clients(self, start: int, stop: int) -> Wave:
        """The wave of some of its clients, cut to the steps and slots that they need."""
        steps = self.steps[start:stop]
        longest = max(steps)

        def shorter(tensor: Tensor | None) -> Tensor | None:
            return None if tensor is None else tensor[:longest, start:stop]

        return replace(
            self,
            steps=steps,
            start=self.start[start:stop],
            constant=None if self.constant is None else cut(self.constant, start, stop),
            moves=None if self.moves is None else self.moves[start:stop],
            rows=self.rows[:longest, start:stop],
            factor=self.factor[:longest, start:stop],
            counts=self.counts[:longest, start:stop],
            divisors=self.divisors[:longest, start:stop],
            noise_keys=shorter(self.noise_keys),
            dropout_keys=shorter(self.dropout_keys),
            head_labels=shorter(self.head_labels),
            order=self.order[start:stop],
        )


def lay_out(jobs: Sequence[Job], device: torch.device, drawing: bool = False, together: Together | None = None) -> Wave:
    """The wave of jobs that share their plan and the presence of anchor, correction, weights and head.

    `drawing`: the network itself draws while it trains, beyond the plan's dropout. `together`: joins the clients' rows.
    """
    works = [job.work for job in jobs if isinstance(job.work, Train)]
    plan = works[0].plan
    sizes = numbers([(job.rows if work.on is None else work.on).shape[0] for job, work in zip(jobs, works)])
    order, steps = by_steps(plan, sizes)
    if order is not None:
        jobs, works, sizes = [jobs[i] for i in order], [works[i] for i in order], sizes[order]
    secret = jobs[0].secret

    def chosen(parts: list[Tensor]) -> list[Tensor]:
        return [part if work.on is None else part[work.on.to(part.device)] for part, work in zip(parts, works)]

    def step_keys(use: str) -> Tensor:
        return _step_keys(torch.tensor([_key(j, w, use) for j, w in zip(jobs, works)]), int(steps[0]), device)

    keys = numbers([_key(j, w, "order") for j, w in zip(jobs, works)])
    batches = batches_of(plan, Lots(keys, sizes, steps, np.cumsum(sizes) - sizes), device, secret)
    factor = batches.factor
    if works[0].weights is not None:
        factor = factor * joined(chosen([_given(work.weights) for work in works]), device)[batches.position]
    head = works[0].head
    labels = None
    if head is not None:
        labels = joined(chosen([_given(work.head).labels for work in works]), device)[batches.position]
    start = stacked([work.start for work in works], device)
    anchor = None if works[0].anchor is None else stacked([_given(work.anchor) for work in works], device)
    correction = as_it_lies = None
    if works[0].correction is not None:
        corrections = [_given(work.correction) for work in works]
        as_it_lies = _rows_of_one(corrections, device)
        correction = stacked(corrections, device) if as_it_lies is None else as_it_lies
    constant = _constant(plan, start, anchor, correction, own=as_it_lies is None)
    moves = _moves(works, start)
    return Wave(
        plan=plan,
        steps=tuple(steps.tolist()),
        start=start.expand(len(jobs), -1),
        constant=None if constant is None else constant.expand(len(jobs), -1),
        moves=None if moves is None else moves.expand(len(jobs), -1),
        rows=(together or Together(device)).of(chosen([job.rows for job in jobs]))[batches.position],
        factor=factor,
        counts=batches.counts,
        divisors=batches.divisors,
        noise_keys=step_keys("noise") if plan.noise and secret is None else None,
        secret=secret if plan.clip or works[0].weights is not None else None,
        dropout_keys=step_keys("dropout") if plan.dropout or drawing else None,
        head_labels=labels,
        head_classes=0 if head is None else head.classes,
        head_share=1.0 if head is None else head.share,
        order=tuple(range(len(jobs)) if order is None else order.tolist()),
        fresh=len(start) == len(jobs) > 1,  # a single row is the asker's own
    )


class Replayed(Protocol):
    """Runs a function of tensors on the device; one that comes again may be a recording of it."""

    def __call__(
        self, key: tuple[object, ...], given: tuple[Tensor, ...], function: Callable[..., tuple[Tensor, ...]]
    ) -> tuple[Tensor, ...]: ...


def lay_out_bundle(
    bundle: Bundle, device: torch.device, drawing: bool = False, replayed: Replayed | None = None
) -> Wave:
    """The wave of equal trainings: the same as that of their jobs, without an object for each of them.

    `replayed`: as what it gives, the wave is good until the next one.
    """
    work, plan = bundle.work, bundle.work.plan
    placing = placing_of(plan, bundle.sizes)
    order, steps, sizes = placing.order, placing.steps, placing.sizes
    start, anchor, correction = _as_rows(work.start), None, None
    if work.anchor is not None:
        anchor = _as_rows(work.anchor)
    if work.correction is not None:
        correction = _as_rows(work.correction)
    if order is not None:
        places = there(torch.from_numpy(order), device)
        start = start if len(start) == 1 else start[places]
        anchor = anchor if anchor is None or len(anchor) == 1 else anchor[places]
        correction = correction if correction is None or len(correction) == 1 else correction[places]
    n = len(sizes)

    def keys(use: str) -> Tensor:
        of_clients = bundle.streams.of(work.purpose, use)
        return of_clients if order is None else of_clients[there(torch.from_numpy(order), of_clients.device)]

    rows, factor, counts, divisors = _batches_of_bundle(bundle, keys("order"), placing, device, replayed)
    constant = _constant(plan, start, anchor, correction, own=False)
    return Wave(
        plan=plan,
        steps=placing.falling,
        start=start.expand(n, -1),
        constant=None if constant is None else in_rows(constant, n),
        moves=None,
        rows=rows,
        factor=factor,
        counts=counts,
        divisors=divisors,
        noise_keys=_step_keys(keys("noise"), int(steps[0]), device) if plan.noise else None,
        secret=None,
        dropout_keys=_step_keys(keys("dropout"), int(steps[0]), device) if plan.dropout or drawing else None,
        head_labels=None,
        head_classes=0,
        head_share=1.0,
        order=placing.places,
        moved=order is not None,
    )


def _batches_of_bundle(
    bundle: Bundle, keys: Tensor, placing: Placing, device: torch.device, replayed: Replayed | None
) -> tuple[Tensor, ...]:
    """Rows of the dataset, factor, counts and divisors of each step."""
    plan, joined_rows = bundle.work.plan, bundle.rows
    if plan.poisson or replayed is None:
        lots = Lots(keys.cpu().numpy(), placing.sizes, placing.steps, placing.offsets)
        batches = batches_of(plan, lots, device, None)
        return joined_rows[batches.position], batches.factor, batches.counts, batches.divisors
    shape = placing.shape

    def lay(table: Tensor) -> tuple[Tensor, ...]:
        batches = shuffled(shape, table)
        return joined_rows[batches.position].contiguous(), batches.factor.contiguous(), batches.counts, batches.divisors

    key = ("laying out batches", shape, len(placing.sizes), joined_rows.data_ptr(), len(joined_rows))
    return replayed(key, (placing.table(keys),), lay)


def _constant(plan: Plan, start: Tensor, anchor: Tensor | None, correction: Tensor | None, own: bool) -> Tensor | None:
    """correction − μ · anchor, [n, D] or, where it is one for all, [1, D]; or nothing. `own`: the correction may be written to."""
    if not plan.proximal:
        return correction
    anchor = start if anchor is None else anchor
    if correction is None:
        return anchor * -plan.proximal
    if isinstance(correction, Pending) and (later := less(correction, anchor * -plan.proximal)) is not None:
        return later  # rounded twice where torch's is once
    into = correction if own and len(correction) > 1 else None  # one row may have to become n
    return torch.sub(correction, anchor, alpha=plan.proximal, out=into)


def _moves(works: Sequence[Train], start: Tensor) -> Tensor | None:
    """[n, D] or [1, D] bool, or nothing. What stands behind a model, a head or its buffers, always moves."""
    if works[0].moves is None:
        return None
    given = stacked([_given(work.moves) for work in works], start.device)
    behind = torch.ones(len(given), start.shape[1] - given.shape[1], dtype=torch.bool, device=start.device)
    return torch.cat([given, behind], dim=1)


def stacked(vectors: list[Tensor], device: torch.device) -> Tensor:
    """[n, D]. Clients often hold one and the same broadcast model: it goes to the device once, and alone is [1, D]."""
    if all(v is vectors[0] for v in vectors):
        return vectors[0].to(device)[None]
    # By their memory: each client has a view of its own of its cluster's model.
    places: dict[tuple[object, ...], int] = {}
    rows = [places.setdefault((v.data_ptr(), v.stride(), v.device), len(places)) for v in vectors]
    if len(places) == len(vectors) > 1:
        return joined(vectors, device).view(len(vectors), -1)
    first = dict(zip(reversed(rows), reversed(vectors)))
    alone = torch.stack([first[row].to(device) for row in range(len(places))])
    return alone if len(alone) == 1 else alone[torch.tensor(rows, device=device)]


def _rows_of_one(vectors: list[Tensor], device: torch.device) -> Tensor | None:
    """[n, D] without a copy, where these lie one after another in one stack: the askers' own memory, not to be written to."""
    first, length = vectors[0], len(vectors[0])
    storage, offset = first.untyped_storage().data_ptr(), first.storage_offset()
    if len(vectors) < 2 or first.device.type != "cpu" or device.type != "cpu":
        return None
    for i, vector in enumerate(vectors):
        same = vector.untyped_storage().data_ptr() == storage and vector.dtype == first.dtype
        behind = vector.storage_offset() == offset + i * length and len(vector) == length and vector.is_contiguous()
        if not (same and behind):
            return None
    return first.as_strided((len(vectors), length), (length, 1))


def _key(job: Job, work: Train, use: str) -> int:
    return randomness.key(job.key, work.purpose, use)


def _step_keys(keys: Tensor, steps: int, device: torch.device) -> Tensor:
    return randomness.bits(keys, steps, device).t().contiguous()


def _as_rows(vector: Tensor) -> Tensor:
    return vector[None] if vector.dim() == 1 else vector


class Together:
    """The rows of the clients that compute together, joined on the device. The same ones often come again, and lie there."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._kept: dict[tuple[int, int], tuple[list[Tensor], Tensor]] = {}  # first of them, how many -> parts, joined

    def of(self, parts: list[Tensor]) -> Tensor:
        if self._device.type == "cpu":
            return joined(parts, self._device)
        if len(parts) == 1 and parts[0].is_cuda:
            return parts[0]  # the asker's, who may have recorded what is done with it
        at = (id(parts[0]), len(parts))
        known, together = self._kept.get(at, ([], None))
        if together is None or not all(a is b for a, b in zip(parts, known)):
            together = joined(parts, self._device)
            if len(self._kept) >= WAVES:
                self._kept.clear()
            self._kept[at] = (parts, together)
        return together


def _given(value: T | None) -> T:
    assert value is not None
    return value
