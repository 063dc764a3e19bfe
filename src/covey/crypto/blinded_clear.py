"""Blinded rows without encryption: whole numbers, for experiments on the rest of the protocol. Hides nothing from the relay;
the key holder sees exactly what it would see under encryption.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from covey.crypto.blinded import (
    Cover,
    Integers,
    ModularRows,
    Sketch,
    modular_rows,
    moved,
    moved_back,
    sketched,
    to_floats,
    to_integers,
)
from covey.errors import CoveyError

LEAST_BLOCK = 64
_WIDTHS = {b"4": "<i4", b"8": "<i8"}  # the first byte says how wide the numbers are; blinded ones take 8 bytes


def issue(bits: int, terms: int) -> tuple[bytes, bytes]:
    return b"", b""


class ClearRows:
    block = LEAST_BLOCK  # near the number of weights in one Paillier ciphertext

    def seal(self, vector: ArrayLike) -> bytes:
        return _write(to_integers(vector))

    def check(self, sealed: bytes, length: int) -> None:
        if sealed[:1] != b"4" or len(sealed) != 1 + 4 * length:
            raise CoveyError(f"a row of {len(sealed)} bytes, expected {1 + 4 * length} for {length} weights")

    def sums(self, members: ArrayLike, sealed: Sequence[bytes]) -> list[bytes]:
        rows = np.stack([_read(row) for row in sealed])
        return [_write(rows[np.flatnonzero(chosen)].sum(0)) for chosen in np.asarray(members)]

    def sketch(self, sealed: bytes, plan: Sketch, noise: NDArray[np.float64]) -> bytes:
        return _write(sketched(_read(sealed), self.block, plan) + to_integers(noise))

    def draw_blind(self, length: int) -> Integers:
        return np.frombuffer(os.urandom(8 * length), "<i8").astype(np.int64)

    def cover(self, sealed: Sequence[bytes], cover: Cover) -> list[bytes]:
        rows = moved(np.stack([_read(row) for row in sealed]), self.block, cover)
        return [b"8" + (row + cover.blind).tobytes() for row in rows]  # int64 wraps around: uniform modulo 2^64

    def seal_mean(self, mean: Any, length: int) -> bytes:
        return b"8" + np.asarray(mean, np.int64).tobytes()

    def uncover(self, sealed: bytes, cover: Cover, length: int) -> bytes:
        return _write(moved_back(_read(sealed) - cover.blind, self.block, cover, length))

    def open(self, sealed: bytes) -> NDArray[np.float64]:
        return to_floats(_read(sealed))

    def open_covered(self, sealed: Sequence[bytes]) -> ModularRows:
        return modular_rows(np.stack([_read(row) for row in sealed]), 2**64)


def sealer(key: bytes) -> ClearRows:
    return ClearRows()


def opener(key: bytes, workers: int) -> ClearRows:
    return ClearRows()


def _read(row: bytes) -> Integers:
    return np.frombuffer(row, _WIDTHS[row[:1]], offset=1).astype(np.int64)


def _write(row: Integers) -> bytes:
    """Models take 4 bytes a weight, sums of many the full 8."""
    small = int(row.min()) >= -(2**31) and int(row.max()) < 2**31
    return b"4" + row.astype("<i4").tobytes() if small else b"8" + row.tobytes()
