"""Rows of whole numbers, as the schemes of `blinded.py` compute on them: in and out of fixed point, blocks moved and added."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

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


def to_integers(vector: ArrayLike) -> Integers:
    """round(w · 2^24), [d]; refuses weights that a row cannot carry."""
    values = np.asarray(vector, np.float64).ravel()
    if not values.size or not (values.max() < BOUND and values.min() > -BOUND):  # also false for NaN
        worst = values[np.abs(values).argmax()] if values.size else 0.0
        raise CoveyError(
            f"a model to seal has {values.size} weights, the largest {worst:g}; expected some, all within ±{BOUND:g}: "
            "lower the learning rate or clip the model"
        )
    return np.rint(values * 2.0**PRECISION).astype(np.int64)


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


def parts(offsets: NDArray[np.signedinteger[Any]], width: int = 8192) -> Iterator[NDArray[np.float64]]:
    """Columns as floats, a cache's worth at a time: a hundred models at once are 140 MB that would be written and read."""
    for at in range(0, offsets.shape[1], width):
        yield offsets[:, at : at + width].astype(np.float64)


@dataclass(frozen=True)
class ModularRows:
    """Covered rows whose blind is uniform modulo some number."""

    first: NDArray[np.signedinteger[Any]]  # [d] row 0 with its blind
    offsets: NDArray[np.signedinteger[Any]]  # [n, d] row − row 0

    @property
    def length(self) -> int:
        return len(self.first)

    def means(self, weights: ArrayLike) -> list[Any]:
        share = np.asarray(weights, np.float64)
        share = share / share.sum(1, keepdims=True)
        means = np.concatenate([np.rint(share @ part) for part in parts(self.offsets)], axis=1)
        return list((self.first + means.astype(np.int64)).astype(self.first.dtype))  # may wrap around


def centred(integers: Integers, modulus: int) -> Integers:
    half = modulus // 2
    return np.asarray((integers + half) % modulus - half)
