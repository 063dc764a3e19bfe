"""Blinded rows under Paillier, as FedCAPrivacy's paper has it, with many weights in a ciphertext (`packing.py`).

The blind is `hiding` bits longer than a plaintext: statistical, 2^-128. The blocks that a cover moves are ciphertexts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from covey.crypto.blinded import BOUND, PRECISION, Cover
from covey.crypto.packing import Packing
from covey.crypto.paillier import PrivateKey, PublicKey, generate
from covey.crypto.paillier_vectors import BlindedRows, VectorOpener, VectorSealer
from covey.errors import CoveyError


def issue(bits: int) -> tuple[bytes, bytes]:
    key = generate(bits)
    return key.to_bytes(), key.public.to_bytes()


def sealer(key: bytes) -> PaillierRows:
    public = PublicKey.from_bytes(key)
    return PaillierRows(VectorSealer(public, _packing(public)))


def opener(key: bytes, workers: int) -> PaillierOpener:
    private = PrivateKey.from_bytes(key)
    return PaillierOpener(VectorOpener(private, _packing(private.public), workers))


def _packing(key: PublicKey) -> Packing:
    """Rows are subtracted, never summed: two terms. Both keys of a protocol have one length."""
    return Packing(key.bits, precision=PRECISION, bound=BOUND, additions=2)


@dataclass(frozen=True)
class PaillierRows:
    vectors: VectorSealer

    @property
    def block(self) -> int:
        return self.vectors.packing.slots

    def seal(self, vector: ArrayLike) -> bytes:
        return self.vectors.seal(vector)

    def check(self, sealed: bytes, length: int) -> None:
        found = self.vectors.read(sealed)
        if (found.dimension, found.terms, found.blinds) != (length, 1, 0):
            raise CoveyError(f"a sealed row of {found.dimension} weights, {found.terms} terms: expected {length}, 1")

    def draw_blind(self, length: int) -> Any:
        return self.vectors.packing.draw_blind(length)

    def cover(self, sealed: Sequence[bytes], cover: Cover) -> list[bytes]:
        rows = list(sealed)
        if cover.order is not None and cover.signs is not None:
            rows = [self.vectors.rearrange(row, cover.order, cover.signs) for row in rows]
        blind = self.vectors.seal_blind(cover.blind, self.vectors.read(rows[0]).dimension)
        return [self.vectors.add(row, blind) for row in rows]

    def seal_mean(self, mean: Any, length: int) -> bytes:
        return self.vectors.seal_blinded(mean, length)

    def uncover(self, sealed: bytes, cover: Cover, length: int) -> bytes:
        plain = self.vectors.unblind(sealed, cover.blind)
        if cover.order is None or cover.signs is None:
            return plain
        return self.vectors.restore(plain, cover.order, cover.signs, length)


@dataclass(frozen=True)
class PaillierOpener:
    vectors: VectorOpener

    def open(self, sealed: bytes) -> NDArray[np.float64]:
        return self.vectors.open(sealed, additions=1)

    def open_covered(self, sealed: Sequence[bytes]) -> PaillierCovered:
        return PaillierCovered(self.vectors.open_blinded(sealed))


@dataclass(frozen=True)
class PaillierCovered:
    rows: BlindedRows

    @property
    def length(self) -> int:
        return int(self.rows.offsets.shape[1])

    def differences(self) -> NDArray[np.float64]:
        return self.rows.differences()

    def means(self, weights: ArrayLike) -> list[Any]:
        return [self.rows.mean(row) for row in np.asarray(weights, np.float64)]
