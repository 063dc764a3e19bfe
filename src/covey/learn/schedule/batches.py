"""Which of their samples clients take in each step, and in what order: drawn by their keys."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from covey import randomness
from covey.crypto.noise.source import SecretNoise
from covey.learn.schedule.transfer import there
from covey.learn.work import Plan, Train

SLOTS = 16  # Poisson batches are laid out in multiples of so many, so that few shapes occur
PLACINGS = 8  # that are kept
KEYS = 3  # the row of a table that differs from round to round
COINS = 1 << 22  # words of Poisson coins held at a time


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

    def table(self, keys: Tensor) -> Tensor:
        """Where the keys are."""
        table = self._numbers_at(keys.device).clone()
        table[KEYS] = keys
        return table

    def _numbers_at(self, device: torch.device) -> Tensor:
        if device not in self._there:
            self._there[device] = there(self.numbers, device)
        return self._there[device]

    @cached_property
    def _there(self) -> dict[torch.device, Tensor]:
        return {}


def placing_of(plan: Plan, sizes: NDArray[np.int64]) -> Placing:
    """Kept for the next round, whatever its rate."""
    return _placing(plan.but(lr=0.0), sizes.astype(np.int64, copy=False).tobytes())


@lru_cache(maxsize=PLACINGS)
def _placing(plan: Plan, samples: bytes) -> Placing:
    sizes = np.frombuffer(samples, np.int64).copy()  # torch takes no memory that may not be written to
    order, steps = by_steps(plan, sizes)
    offsets = np.cumsum(sizes) - sizes
    if order is not None:
        sizes, offsets = sizes[order], offsets[order]
    lots = Lots(np.zeros_like(sizes), sizes, steps, offsets)
    places = tuple(range(len(sizes)) if order is None else order.tolist())
    shape, numbers = _shape(plan, lots), _table(plan, lots)
    return Placing(order, steps, sizes, offsets, shape, numbers, tuple(steps.tolist()), places)


def by_steps(plan: Plan, sizes: NDArray[np.int64]) -> tuple[NDArray[np.int64] | None, NDArray[np.int64]]:
    """The order in which those with the most steps come first (None: as they are), and the steps in that order."""
    kinds, of = np.unique(sizes, return_inverse=True)
    steps = numbers([plan.steps_for(size) for size in kinds.tolist()])[of]
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


def batches_of(plan: Plan, lots: Lots, device: torch.device, secret: SecretNoise | None) -> Batches:
    if plan.poisson:
        position, counts = _sampled_batches(plan, lots, device, secret)
        divisors = _expected(plan, lots, device)
        return Batches(position, counts, divisors, _factor(position, counts, divisors))
    shape = _shape(plan, lots)
    words = None
    if secret is not None and shape.longest:
        words = secret.bits(len(lots.sizes) * shape.epochs, shape.widest).to(device)
    return shuffled(shape, there(_table(plan, lots), device), words)


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
    per_epoch = numbers([plan.batches(size) for size in kinds.tolist()])[of]
    return torch.from_numpy(np.stack([lots.sizes, lots.steps, per_epoch, lots.keys, lots.offsets]))


def shuffled(shape: Shape, table: Tensor, words: Tensor | None = None) -> Batches:
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


def numbers(values: list[int]) -> NDArray[np.int64]:
    return np.array(values, np.int64)
