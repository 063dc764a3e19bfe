"""Blinded rows under Paillier, as FedCAPrivacy's paper has it, with many weights in a ciphertext (`packing.py`).

The blind is `hiding` bits longer than a plaintext: statistical, 2^-128. The blocks that a cover moves are ciphertexts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from gmpy2 import mpz
from numpy.typing import ArrayLike, NDArray

from covey.crypto.blinded.integers import BOUND, PRECISION, Cover, Integers, Sketch, to_floats, to_integers
from covey.crypto.paillier.paillier import Integer, PrivateKey, PublicKey, generate
from covey.crypto.paillier.vectors import BlindedRows, SealedVector, VectorOpener, VectorSealer
from covey.crypto.sealing.packing import Packing
from covey.errors import CoveyError

name = "paillier"
label = "Paillier"
title = "rows under Paillier, many weights in a ciphertext"

SECURE_BITS = 3072  # of a modulus: 128-bit security; what experiments run with by default is less
LEAST_BLOCK = 32  # weights in a ciphertext, at the shortest key and the widest slots that a sketch asks for


def issue(bits: int, terms: int, fast: bool) -> tuple[bytes, bytes]:
    key = generate(bits, fast_decryption=fast)
    head = terms.to_bytes(4, "big")
    return head + key.to_bytes(), head + key.public.to_bytes()


def sealer(key: bytes) -> PaillierRows:
    public = PublicKey.from_bytes(key[4:])
    return PaillierRows(VectorSealer(public, _packing(public, key)))


def opener(key: bytes, workers: int) -> PaillierOpener:
    private = PrivateKey.from_bytes(key[4:])
    return PaillierOpener(VectorOpener(private, _packing(private.public, key), workers))


def _packing(public: PublicKey, key: bytes) -> Packing:
    """A difference of two sums is as large as twice as many terms. Both keys of a protocol have one length."""
    return Packing(public.bits, PRECISION, BOUND, additions=2 * int.from_bytes(key[:4], "big"))


@dataclass(frozen=True)
class PaillierRows:
    vectors: VectorSealer

    @property
    def block(self) -> int:
        return self.vectors.packing.slots

    def seal(self, vector: ArrayLike) -> bytes:
        return self.seal_whole(to_integers(vector))  # refuses what every scheme refuses

    def seal_whole(self, row: NDArray[np.signedinteger[Any]]) -> bytes:
        return self.vectors.seal(to_floats(row))

    def check(self, sealed: bytes, length: int) -> None:
        vector = self.vectors.read(sealed)
        if (vector.dimension, vector.terms, vector.blinds) != (length, 1, 0):
            raise CoveyError(f"a sealed row of {vector.dimension} weights, {vector.terms} terms: expected {length}, 1")

    def sums(self, members: ArrayLike, sealed: Sequence[bytes]) -> list[bytes]:
        totals = [self.vectors.read(total) for total in self.vectors.mix(members, sealed)]
        return [self._one(total.ciphertexts, total.dimension) for total in totals]

    def sketch(self, sealed: bytes, plan: Sketch, noise: NDArray[np.float64]) -> bytes:
        key, blocks = self.vectors.key, self.vectors.read(sealed).ciphertexts
        plus, minus = (self._product(blocks, plan.signs == sign) for sign in (1, -1))
        total = key.add([plus], key.negate([minus]))  # one inverse for all turned blocks
        mask = self.vectors.packing.draw_mask(plan.width, plan.kept, to_integers(noise))
        return self._one(key.add_known(total, [mask]), plan.width)

    def _product(self, blocks: Sequence[Integer], chosen: NDArray[np.bool_]) -> Integer:
        """The ciphertext of a sum; 1 is a ciphertext of 0."""
        product = mpz(1)
        for i in np.flatnonzero(chosen).tolist():
            product = product * blocks[i] % self.vectors.key.n_squared
        return product

    def _one(self, ciphertexts: list[Integer], length: int) -> bytes:
        """Counted as one row from here on: the slots are wide enough for all terms of a key."""
        return self.vectors.write(SealedVector(ciphertexts, length, terms=1))

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

    def open_sketches(self, sealed: Sequence[bytes], kept: Integers) -> tuple[Integers, int]:
        return self.vectors.open_masked(sealed, kept)


@dataclass(frozen=True)
class PaillierCovered:
    rows: BlindedRows

    @property
    def length(self) -> int:
        return int(self.rows.offsets.shape[1])

    @property
    def offsets(self) -> NDArray[np.int64]:
        return self.rows.offsets

    def means(self, weights: ArrayLike) -> list[Any]:
        return [self.rows.mean(row) for row in np.asarray(weights, np.float64)]
