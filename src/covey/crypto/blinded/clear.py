"""Blinded rows without encryption: whole numbers, for experiments on the rest of the protocol. Hides nothing from the relay;
the key holder sees exactly what it would see under encryption.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from covey.crypto.blinded.integers import (
    Cover,
    Integers,
    ModularRows,
    Sketch,
    moved,
    moved_back,
    sketched,
    to_floats,
    to_integers,
)
from covey.errors import CoveyError

name = "none"
title = "no encryption: whole numbers in the clear"

LEAST_BLOCK = 64
# The first byte says how wide the numbers are. Rows and their differences fit in 4 bytes, sums of rows and sketches take 8.
# Numbers wrap around, so that a blind is uniform modulo 2^32 or 2^64 and what is left without it is exact.
_WIDTHS = {b"4": "<i4", b"8": "<i8"}


def issue(bits: int, terms: int, fast: bool) -> tuple[bytes, bytes]:
    return b"", b""


class ClearRows:
    block = LEAST_BLOCK  # near the number of weights in one Paillier ciphertext

    def seal(self, vector: ArrayLike) -> bytes:
        return self.seal_whole(to_integers(vector))

    def seal_whole(self, row: NDArray[np.signedinteger[Any]]) -> bytes:
        return _write(row.astype("<i4", copy=False))

    def check(self, sealed: bytes, length: int) -> None:
        if sealed[:1] != b"4" or len(sealed) != 1 + 4 * length:
            raise CoveyError(f"a row of {len(sealed)} bytes, expected {1 + 4 * length} for {length} weights")

    def sums(self, members: ArrayLike, sealed: Sequence[bytes]) -> list[bytes]:
        totals = np.zeros((len(np.asarray(members)), len(_read(sealed[0]))), "<i8")
        for row, chosen in zip(sealed, np.asarray(members).T, strict=True):
            totals[np.flatnonzero(chosen)] += _read(row)
        return [_write(total) for total in totals]

    def sketch(self, sealed: bytes, plan: Sketch, noise: NDArray[np.float64]) -> bytes:
        drowned = self.draw_blind(plan.width)
        drowned[plan.kept] = sketched(_read(sealed).astype("<i8"), self.block, plan) + to_integers(noise)
        return _write(drowned)

    def draw_blind(self, length: int) -> Integers:
        return np.frombuffer(os.urandom(8 * length), "<i8").astype(np.int64)

    def cover(self, sealed: Sequence[bytes], cover: Cover) -> list[bytes]:
        blinds = {width: cover.blind.astype(kind) for width, kind in _WIDTHS.items()}
        covered = []
        for row in sealed:
            blind = blinds[row[:1]]
            own = moved(_read(row)[None], self.block, cover)[0].astype(blind.dtype)
            own += blind
            covered.append(_write(own))
        return covered

    def seal_mean(self, mean: Any, length: int) -> bytes:
        return _write(mean)

    def uncover(self, sealed: bytes, cover: Cover, length: int) -> bytes:
        row = _read(sealed)
        plain = row - cover.blind.astype(row.dtype)
        return _write(moved_back(plain, self.block, cover, length).astype(row.dtype))

    def open(self, sealed: bytes) -> NDArray[np.float64]:
        return to_floats(_read(sealed))

    def open_covered(self, sealed: Sequence[bytes]) -> ModularRows:
        rows = np.stack([_read(row) for row in sealed])
        first = rows[0].copy()
        for row in rows:  # while it is in the cache
            row -= first
        return ModularRows(first, rows)

    def open_sketches(self, sealed: Sequence[bytes], kept: Integers) -> tuple[Integers, int]:
        rows = self.open_covered(sealed)
        return np.asarray(rows.offsets[:, kept], np.int64), rows.length


def sealer(key: bytes) -> ClearRows:
    return ClearRows()


def opener(key: bytes, workers: int) -> ClearRows:
    return ClearRows()


def _read(row: bytes) -> Any:
    return np.frombuffer(row, _WIDTHS[row[:1]], offset=1)


def _write(row: Any) -> bytes:
    width: bytes = {4: b"4", 8: b"8"}[row.dtype.itemsize]
    return b"".join((width, row.data))  # one copy
