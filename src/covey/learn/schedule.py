"""A wave: training jobs of one plan, laid out step by step, with all their randomness drawn.

Every kernel reads the same wave, so that batches, masks and noise do not depend on the kernel or on how it is chunked.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Protocol, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from covey import randomness
from covey.crypto.noise.source import SecretNoise
from covey.learn.kernels.vectors.pending import Pending, cut, in_rows, less
from covey.learn.work import Bundle, Job, Plan, Train

T = TypeVar("T")
SLOTS = 16  # Poisson batches are laid out in multiples of so many, so that few shapes occur
PINNED = 16 << 20  # bytes
WAVES = 32  # of whose clients the rows are kept together
PLACINGS = 8  # that are kept
KEYS = 3  # the row of a table that differs from round to round
COINS = 1 << 22  # words of Poisson coins held at a time


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
    sizes = _numbers([(job.rows if work.on is None else work.on).shape[0] for job, work in zip(jobs, works)])
    order, steps = _by_steps(plan, sizes)
    if order is not None:
        jobs, works, sizes = [jobs[i] for i in order], [works[i] for i in order], sizes[order]
    secret = jobs[0].secret

    def chosen(parts: list[Tensor]) -> list[Tensor]:
        return [part if work.on is None else part[work.on.to(part.device)] for part, work in zip(parts, works)]

    def step_keys(use: str) -> Tensor:
        return _step_keys(_numbers([_key(j, w, use) for j, w in zip(jobs, works)]), int(steps[0]), device)

    keys = _numbers([_key(j, w, "order") for j, w in zip(jobs, works)])
    batches = _batches(plan, Lots(keys, sizes, steps, np.cumsum(sizes) - sizes), device, secret)
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
    """Runs a function of a table of numbers on the device; one that comes again may be a recording of it."""

    def __call__(
        self, key: tuple[object, ...], table: Tensor, function: Callable[[Tensor], tuple[Tensor, ...]]
    ) -> tuple[Tensor, ...]: ...


def lay_out_bundle(
    bundle: Bundle, device: torch.device, drawing: bool = False, replayed: Replayed | None = None
) -> Wave:
    """The wave of equal trainings: the same as that of their jobs, without an object for each of them.

    `replayed`: as what it gives, the wave is good until the next one.
    """
    work, plan = bundle.work, bundle.work.plan
    placing = _placing(
        plan.but(lr=0.0), bundle.sizes.astype(np.int64, copy=False).tobytes()
    )  # whatever the rate, which may change every round
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

    def keys(use: str) -> NDArray[np.int64]:
        of_clients = bundle.streams.of(work.purpose, use)
        return of_clients if order is None else of_clients[order]

    lots = Lots(keys("order"), sizes, steps, placing.offsets)
    rows, factor, counts, divisors = _batches_of_bundle(bundle, lots, placing, device, replayed)
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
    bundle: Bundle, lots: Lots, placing: Placing, device: torch.device, replayed: Replayed | None
) -> tuple[Tensor, ...]:
    """Rows of the dataset, factor, counts and divisors of each step."""
    plan, joined_rows = bundle.work.plan, bundle.rows
    if plan.poisson or replayed is None:
        batches = _batches(plan, lots, device, None)
        return joined_rows[batches.position], batches.factor, batches.counts, batches.divisors
    shape = placing.shape

    def lay(table: Tensor) -> tuple[Tensor, ...]:
        batches = _shuffled(shape, table)
        return joined_rows[batches.position].contiguous(), batches.factor.contiguous(), batches.counts, batches.divisors

    key = ("laying out batches", shape, len(lots.sizes), joined_rows.data_ptr(), len(joined_rows))
    return replayed(key, placing.table(lots.keys), lay)


@dataclass(frozen=True)
class Placing:
    """What batches of clients with so many samples each hang on beside their keys: the same in every round that they share."""

    order: NDArray[np.int64] | None  # those with the most steps first; None: as they are
    steps: NDArray[np.int64]  # [n] in that order, as all that follows
    sizes: NDArray[np.int64]
    offsets: NDArray[np.int64]
    shape: Shape
    numbers: Tensor  # [5, n]: `_table` without the keys
    falling: tuple[int, ...]  # the steps
    places: tuple[int, ...]  # the order

    def table(self, keys: NDArray[np.int64]) -> Tensor:
        table = self.numbers.clone()
        table[KEYS] = torch.from_numpy(keys)
        return table


@lru_cache(maxsize=PLACINGS)
def _placing(plan: Plan, samples: bytes) -> Placing:
    sizes = np.frombuffer(samples, np.int64).copy()  # torch takes no memory that may not be written to
    order, steps = _by_steps(plan, sizes)
    offsets = np.cumsum(sizes) - sizes
    if order is not None:
        sizes, offsets = sizes[order], offsets[order]
    lots = Lots(np.zeros_like(sizes), sizes, steps, offsets)
    places = tuple(range(len(sizes)) if order is None else order.tolist())
    shape, numbers = _shape(plan, lots), _table(plan, lots)
    return Placing(order, steps, sizes, offsets, shape, numbers, tuple(steps.tolist()), places)


def _by_steps(plan: Plan, sizes: NDArray[np.int64]) -> tuple[NDArray[np.int64] | None, NDArray[np.int64]]:
    """The order in which those with the most steps come first (None: as they are), and the steps in that order."""
    kinds, of = np.unique(sizes, return_inverse=True)
    steps = _numbers([plan.steps_for(size) for size in kinds.tolist()])[of]
    if len(kinds) == 1:
        return None, steps
    order = np.lexsort((-sizes, -steps))
    return order, steps[order]


@dataclass(frozen=True)
class Lots:
    """What batches are drawn by, of each client: [n] each."""

    keys: NDArray[np.int64]
    sizes: NDArray[np.int64]  # samples
    steps: NDArray[np.int64]
    offsets: NDArray[np.int64]  # where its rows begin among the joined ones


@dataclass(frozen=True)
class Batches:
    """What each step of each client takes."""

    position: Tensor  # [T, n, B] in the clients' joined rows
    counts: Tensor  # [T, n]
    divisors: Tensor  # [T, n]
    factor: Tensor  # [T, n, B]


def _batches(plan: Plan, lots: Lots, device: torch.device, secret: SecretNoise | None) -> Batches:
    if plan.poisson:
        position, counts = _sampled_batches(plan, lots, device, secret)
        divisors = _expected(plan, lots, device)
        return Batches(position, counts, divisors, _factor(position, counts, divisors))
    shape = _shape(plan, lots)
    words = None
    if secret is not None and shape.longest:
        words = secret.bits(len(lots.sizes) * shape.epochs, shape.widest).to(device)
    return _shuffled(shape, there(_table(plan, lots), device), words)


def _factor(position: Tensor, counts: Tensor, divisors: Tensor) -> Tensor:
    within = torch.arange(position.shape[2], device=position.device) < counts[..., None]
    return within / divisors.clamp(min=1)[..., None]


@dataclass(frozen=True)
class Shape:
    """All that shuffled batches depend on beside the table of their clients."""

    batch: int
    slots: int
    widest: int  # samples of one client
    longest: int  # steps
    epochs: int
    even: bool  # all clients have as many samples
    merges: bool  # a rest joins the batch before it


def _shape(plan: Plan, lots: Lots) -> Shape:
    widest, longest = int(lots.sizes.max()), int(lots.steps.max())
    batch = plan.batch_size or widest
    kinds = np.unique(lots.sizes).tolist()
    spans = [plan.span(plan.batches(size) - 1, size) for size in kinds]  # of last batches, which may be the longest
    slots = max(min(batch, widest), *(end - first for first, end in spans))
    epochs = max(-(-plan.steps_for(size) // plan.batches(size)) for size in kinds) if longest else 0
    return Shape(batch, slots, widest, longest, epochs, len(kinds) == 1, plan.last_batch == "merge")


def _table(plan: Plan, lots: Lots) -> Tensor:
    """[5, n]: what shuffled batches read of each client."""
    kinds, of = np.unique(lots.sizes, return_inverse=True)
    per_epoch = _numbers([plan.batches(size) for size in kinds.tolist()])[of]
    return torch.from_numpy(np.stack([lots.sizes, lots.steps, per_epoch, lots.keys, lots.offsets]))


def _shuffled(shape: Shape, table: Tensor, words: Tensor | None = None) -> Batches:
    """Every epoch in an order of its own, by the clients' keys or by these words. Nothing here waits for the device."""
    device, n = table.device, table.shape[1]
    size, step_count, batches, streams, offset = table.unbind(0)
    t = torch.arange(shape.longest, device=device)[:, None]
    first = (t % batches) * shape.batch  # [T, n] where the batch begins in its epoch
    left = size - first
    counts = left.clamp(max=shape.batch) * (t < step_count)
    if shape.merges:
        counts = torch.where(t % batches == batches - 1, left, left.clamp(max=shape.batch)) * (t < step_count)
    if shape.longest == 0:
        position = torch.zeros(0, n, shape.slots, dtype=torch.int64, device=device)
        return Batches(position, counts, counts, _factor(position, counts, counts))
    if words is None:
        words = randomness.bits(randomness.bits(streams, shape.epochs, device).view(-1), shape.widest, device)
    own = None if shape.even else size[:, None].expand(-1, shape.epochs).reshape(-1)
    shuffled = randomness.orders(words, own).view(n, shape.epochs * shape.widest)
    slot = torch.arange(shape.slots, device=device)
    within = torch.minimum(first[..., None] + slot, size[:, None] - 1)  # [T, n, B]
    epoch = (t // batches).clamp(max=shape.epochs - 1)  # of done clients: any
    where = epoch[..., None] * shape.widest + within
    drawn = shuffled.gather(1, where.permute(1, 0, 2).reshape(n, -1))
    position = drawn.view(n, shape.longest, -1).permute(1, 0, 2) + offset[:, None]
    return Batches(position, counts, counts, _factor(position, counts, counts))


def first_batch(plan: Plan, stream: int, size: int) -> Tensor:
    """Positions among a client's samples of the batch that its training on this stream takes first: as `lay_out` has it, without
    a wave, since clients who choose a model by their next batch ask for it in every round, one by one.
    """
    order = randomness.key(stream, Train.purpose, "order")
    if plan.poisson:
        return _coins(plan, order, size, 1, torch.device("cpu"), None)[0].nonzero()[:, 0]
    of_first_epoch = int(randomness.bits([order], 1))
    return randomness.permutations([of_first_epoch], [size])[0, slice(*plan.span(0, size))]


def _sampled_batches(plan: Plan, lots: Lots, device: torch.device, secret: SecretNoise | None) -> tuple[Tensor, Tensor]:
    """Position and counts, with every sample in every step by a coin of its own."""
    of_clients = zip(lots.keys.tolist(), lots.sizes.tolist(), lots.steps.tolist())
    chosen = [_coins(plan, *client, device, secret) for client in of_clients]  # [T_i, n_i] each
    most = max((int(mask.sum(1).max()) for mask in chosen if len(mask)), default=0)
    slots = max(SLOTS, -(-most // SLOTS) * SLOTS)
    longest, n = int(lots.steps.max()), len(lots.sizes)
    position = torch.zeros(longest, n, slots, dtype=torch.int64, device=device)
    counts = torch.zeros(longest, n, dtype=torch.int64, device=device)
    for client, (mask, offset) in enumerate(zip(chosen, lots.offsets.tolist())):
        first = mask.to(torch.uint8).argsort(dim=1, descending=True, stable=True)[:, :slots]
        position[: len(mask), client, : first.shape[1]] = first
        position[:, client] += offset
        counts[: len(mask), client] = mask.sum(1)
    return position, counts


def _coins(plan: Plan, key: int, size: int, steps: int, device: torch.device, secret: SecretNoise | None) -> Tensor:
    """Whether each of a client's samples is in each of its steps, bool [steps, size]: with probability batch / size."""
    limit = min(plan.batch_size or size, size) * 2**63 // size
    if limit == 2**63:
        return torch.ones(steps, size, dtype=torch.bool, device=device)
    of_steps = randomness.bits([key], steps, device)[0]
    masks = [torch.zeros(0, size, dtype=torch.bool, device=device)]
    for part in torch.split(of_steps, max(1, COINS // size)):
        words = randomness.bits(part, size, device) if secret is None else secret.bits(len(part), size).to(device)
        masks.append(words < limit)
    return torch.cat(masks)


def _expected(plan: Plan, lots: Lots, device: torch.device) -> Tensor:
    """[T, n]: the batch that a client expects, while it takes steps."""
    expected = np.minimum(plan.batch_size or lots.sizes, lots.sizes)
    table = torch.from_numpy(np.stack([expected, lots.steps])).to(device)
    t = torch.arange(int(lots.steps.max()), device=device)[:, None]
    return table[0] * (t < table[1])


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


def _step_keys(keys: NDArray[np.int64], steps: int, device: torch.device) -> Tensor:
    return randomness.bits(torch.from_numpy(keys), steps, device).t().contiguous()


def _as_rows(vector: Tensor) -> Tensor:
    return vector[None] if vector.dim() == 1 else vector


def _numbers(values: list[int]) -> NDArray[np.int64]:
    return np.array(values, np.int64)


def joined(parts: list[Tensor], device: torch.device) -> Tensor:
    """All parts in one tensor on the device: joined where they are, so that one copy takes them there."""
    mixed = len({part.device for part in parts}) > 1
    return there(torch.cat([part.to(device) for part in parts] if mixed else parts), device)


def there(tensor: Tensor, device: torch.device) -> Tensor:
    """On the device. From memory that stays in place the host need not wait for the copy; such memory is dear, so little of it."""
    if device.type == "cuda" and not tensor.is_cuda and tensor.nbytes <= PINNED:
        return tensor.pin_memory().to(device, non_blocking=True)
    return tensor.to(device)


def on_its_way(tensor: Tensor) -> Callable[[], NDArray[Any]]:
    """The way back: a copy that is begun now, and waited for when it is looked at. What was copied may be overwritten."""
    copy = torch.empty_like(tensor, device="cpu", pin_memory=tensor.is_cuda).copy_(tensor, non_blocking=True)
    arrived = torch.cuda.current_stream(tensor.device).record_event() if tensor.is_cuda else None

    def look() -> NDArray[Any]:
        if arrived is not None:
            arrived.synchronize()
        return copy.numpy()

    return look


class Together:
    """The rows of the clients that compute together, joined on the device. The same ones often come again, and lie there."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._kept: dict[tuple[int, int], tuple[list[Tensor], Tensor]] = {}  # first of them, how many -> parts, joined

    def of(self, parts: list[Tensor]) -> Tensor:
        if self._device.type == "cpu":
            return joined(parts, self._device)
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
