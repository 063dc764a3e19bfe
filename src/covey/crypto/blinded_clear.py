"""Blinded rows without encryption: 32-bit whole numbers, for experiments on the rest of the protocol. Hides nothing from the
relay; the key holder sees exactly what it would see under encryption.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from covey.crypto.blinded import Cover, Integers, ModularRows, modular_rows, moved, moved_back, to_floats, to_integers
from covey.errors import CoveyError

_MODULUS = 2**32


def issue(bits: int) -> tuple[bytes, bytes]:
    return b"", b""


class ClearRows:
    block = 64  # near the number of weights in one Paillier ciphertext

    def seal(self, vector: ArrayLike) -> bytes:
        return to_integers(vector).astype("<i4").tobytes()

    def check(self, sealed: bytes, length: int) -> None:
        if len(sealed) != 4 * length:
            raise CoveyError(f"a row of {len(sealed)} bytes, expected {4 * length} for {length} weights")

    def draw_blind(self, length: int) -> Integers:
        return np.frombuffer(os.urandom(4 * length), "<i4").astype(np.int64)

    def cover(self, sealed: Sequence[bytes], cover: Cover) -> list[bytes]:
        rows = moved(np.stack([_read(row) for row in sealed]), self.block, cover)
        return [_write(row + cover.blind) for row in rows]

    def seal_mean(self, mean: Any, length: int) -> bytes:
        return _write(mean)

    def uncover(self, sealed: bytes, cover: Cover, length: int) -> bytes:
        return _write(moved_back(_read(sealed) - cover.blind, self.block, cover, length))

    def open(self, sealed: bytes) -> NDArray[np.float64]:
        return to_floats(_read(sealed))

    def open_covered(self, sealed: Sequence[bytes]) -> ModularRows:
        return modular_rows(np.stack([_read(row) for row in sealed]), _MODULUS)


def sealer(key: bytes) -> ClearRows:
    return ClearRows()


def opener(key: bytes, workers: int) -> ClearRows:
    return ClearRows()


def _read(row: bytes) -> Integers:
    return np.frombuffer(row, "<i4").astype(np.int64)


def _write(row: Integers) -> bytes:
    return (row & (_MODULUS - 1)).astype("<u4").tobytes()
