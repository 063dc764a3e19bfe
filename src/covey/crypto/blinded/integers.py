"""Rows of whole numbers, as the schemes of `blinded.py` compute on them: in and out of fixed point, blocks moved and added."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from covey.errors import CoveyError

PRECISION = 24  # ρ: bits behind the point
BOUND = 64.0  # a weight must be smaller
Integers = NDArray[np.int64]
Points = NDArray[np.float64]  # [n, ·], as far from each other as the rows that they stand for


@dataclass(frozen=True)
class Cover:
    """What the relay keeps secret for one round and forgets after it."""

    blind: Any
    order: Integers | None = None  # of the blocks; None: they stay where they are
    signs: Integers | None = None  # of the moved blocks, ±1


@dataclass(frozen=True)
class Sketch:
    """How a row is sketched, anew for each round; `signs` is the relay's secret."""

    signs: Integers  # [blocks] ±1
    kept: Integers  # [buckets] positions within a block, ascending
    width: int  # numbers in the sum of the blocks: a block, or the whole of a shorter row


def rounded(weights: Any) -> Any:
    """round(w · 2^24) of weights [d] or [n, d], an array or a tensor, in their own precision and where they lie: a power of two
    moves the point only, so that 4-byte floats give the numbers that 8-byte ones would. Refuses what a row cannot carry.
    """
    count = math.prod(weights.shape[-1:])
    if not count or not (weights.max() < BOUND and weights.min() > -BOUND):  # also false for NaN
        flat = weights.reshape(-1)
        worst = float(flat[abs(flat).argmax()]) if count else 0.0
        raise CoveyError(
            f"a model to seal has {count} weights, the largest {worst:g}; expected some, all within ±{BOUND:g}: "
            "lower the learning rate or clip the model"
        )
    return (weights * 2.0**PRECISION).round()


def to_integers(vector: ArrayLike) -> Integers:
    """round(w · 2^24), [d]; refuses weights that a row cannot carry."""
    return np.asarray(rounded(np.asarray(vector, np.float64).ravel()).astype(np.int64))


def to_floats(integers: NDArray[np.signedinteger[Any]]) -> NDArray[np.float64]:
    return integers.astype(np.float64) * 2.0**-PRECISION


def moved(integers: Integers, block: int, cover: Cover) -> Integers:
    """Rows [n, d] with their blocks moved and turned as the cover says, filled up to whole blocks: [n, d']."""
    if cover.order is None or cover.signs is None:
        return integers
    n, d = integers.shape
    whole = np.zeros((n, len(cover.order) * block), np.int64)
    whole[:, :d] = integers
    turned = whole.reshape(n, -1, block)[:, cover.order] * cover.signs[:, None]
    return np.asarray(turned.reshape(n, -1))


def sketched(integers: Integers, block: int, plan: Sketch) -> Integers:
    """The kept numbers of one row [d]: [buckets]."""
    whole = np.zeros(len(plan.signs) * block, np.int64)
    whole[: len(integers)] = integers
    return np.asarray(plan.signs @ whole.reshape(-1, block)[:, plan.kept])


def moved_back(integers: Integers, block: int, cover: Cover, length: int) -> Integers:
    """Undoes `moved` on one row."""
    if cover.order is None or cover.signs is None:
        return integers
    blocks = np.empty((len(cover.order), block), np.int64)
    blocks[cover.order] = integers.reshape(-1, block) * cover.signs[:, None]
    return blocks.reshape(-1)[:length]


def parts(offsets: NDArray[np.signedinteger[Any]] | Tensor) -> Iterator[Any]:
    """Columns as floats, a cache's worth at a time: a hundred models at once are 140 MB that would be written and read. A GPU takes
    more of them at a time.
    """
    in_torch = isinstance(offsets, Tensor)
    width = 65536 if in_torch else 8192
    for at in range(0, offsets.shape[1], width):
        part: Any = offsets[:, at : at + width]
        yield part.double() if in_torch else part.astype(np.float64)


def gram(offsets: NDArray[np.signedinteger[Any]] | Tensor) -> NDArray[np.float64]:
    """Inner products [n, n] of rows [n, d]."""
    return _as_array(sum(part @ part.T for part in parts(offsets)))


def _as_array(values: Any) -> NDArray[np.float64]:
    return np.asarray(values.cpu() if isinstance(values, Tensor) else values)


@dataclass(frozen=True)
class ModularRows:
    """Covered rows whose blind is uniform modulo some number."""

    first: NDArray[np.signedinteger[Any]]  # [d] row 0 with its blind
    offsets: NDArray[np.signedinteger[Any]] | Tensor  # [n, d] row − row 0

    @property
    def length(self) -> int:
        return len(self.first)

    def on(self, device: torch.device) -> ModularRows:
        """The same where a GPU computes with the offsets: its sums are in another order, so that a mean that lies between two whole
        numbers may be rounded to the other one, 2^-24 away.
        """
        return self if device.type == "cpu" else replace(self, offsets=torch.as_tensor(self.offsets).to(device))

    def means(self, weights: ArrayLike) -> list[Any]:
        share: Any = np.asarray(weights, np.float64)
        share = share / share.sum(1, keepdims=True)
        if isinstance(self.offsets, Tensor):
            share = torch.from_numpy(share).to(self.offsets.device)
        means = np.concatenate([_as_array((share @ part).round()) for part in parts(self.offsets)], axis=1)
        return list((self.first + means.astype(np.int64)).astype(self.first.dtype))  # may wrap around


def centred(integers: Integers, modulus: int) -> Integers:
    half = modulus // 2
    return np.asarray((integers + half) % modulus - half)
