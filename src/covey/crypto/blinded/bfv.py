"""Blinded rows under BFV: our fast variant of FedCAPrivacy, not the paper's scheme.

Slots are numbers modulo a 40-bit prime t, the same for both keys of the protocol. The blind is uniform modulo t in every
slot, so that it hides rows perfectly, and it comes off under the second key because t is the same there. Everybody but a
key's holder encrypts with its public part (`lattice.py`). Two ciphertexts are added at most. The blocks that a cover moves
are ciphertexts of 4096 slots: a model of 178,110 weights has only 44 of them, so that moving them hides far less than under
Paillier (3,071 blocks at 2048 bits); the linkage attack on blocks measures it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from seal import BatchEncoder

from covey.crypto.blinded.integers import (
    BOUND,
    Cover,
    Integers,
    ModularRows,
    Sketch,
    centred,
    to_floats,
    to_integers,
)
from covey.crypto.draws import uniform
from covey.crypto.noise.stream import Stream
from covey.crypto.sealing.bfv import bfv_ring
from covey.crypto.sealing.lattice import Keys, LatticeBox
from covey.crypto.sealing.mixing import read_words, write_words
from covey.errors import CoveyError

name = "bfv"
label = "BFV"
title = "rows under BFV: ours, not the paper's, and far faster"

LEAST_BLOCK = 4096
_PLAIN_BITS = 40


def issue(bits: int, terms: int, fast: bool) -> tuple[bytes, bytes]:
    """`bits` is Paillier's; the ring has 128-bit security by itself. A blind and noise are two more ciphertexts."""
    keys = Keys.generate(bfv_ring(BOUND, terms=terms + 2, plain_bits=_PLAIN_BITS))
    return keys.to_bytes(), keys.sealing_only().to_bytes()


def sealer(key: bytes) -> BfvRows:
    return BfvRows(Keys.from_bytes(key, "bfv"))


def opener(key: bytes, workers: int) -> BfvRows:
    return BfvRows(Keys.from_bytes(key, "bfv"))


class BfvRows:
    def __init__(self, keys: Keys) -> None:
        self._box, self._ring, self._label = LatticeBox(keys), keys.ring, keys.label()
        self._encoder = BatchEncoder(keys.ring.context)
        self.block = keys.ring.degree

    def seal(self, vector: ArrayLike) -> bytes:
        return self.seal_whole(to_integers(vector))

    def seal_whole(self, row: NDArray[np.signedinteger[Any]]) -> bytes:
        blocks = -(-row.size // self.block)
        padded = np.zeros(blocks * self.block, np.int64)
        padded[: row.size] = centred(row.astype(np.int64), self._ring.plain_modulus)
        plaintexts = [self._encoder.encode(block) for block in padded.reshape(blocks, -1)]
        return self._box.seal_plaintexts(plaintexts, row.size)

    def check(self, sealed: bytes, length: int) -> None:
        claimed, _ = read_words(sealed, self._label, self._ring, length)
        if claimed.terms != 1:
            raise CoveyError(f"a sealed row is a sum of {claimed.terms} vectors, expected one")

    def sums(self, members: ArrayLike, sealed: Sequence[bytes]) -> list[bytes]:
        rows = [read_words(row, self._label, self._ring) for row in sealed]
        totals = []
        for chosen in np.asarray(members):
            group = [rows[i] for i in np.flatnonzero(chosen)]
            words = self._total([words for _, words in group])
            totals.append(write_words(words, self._label, group[0][0].length, sum(label.terms for label, _ in group)))
        return totals

    def sketch(self, sealed: bytes, plan: Sketch, noise: NDArray[np.float64]) -> bytes:
        _, words = read_words(sealed, self._label, self._ring)
        blocks = len(plan.signs)
        turned = self._turned(words, np.arange(blocks), plan.signs).reshape(blocks, -1)
        whole = write_words(self._total(list(turned)), self._label, plan.width, blocks)
        drowned = self.draw_blind(plan.width)
        drowned[plan.kept] = to_integers(noise)
        return self._add(whole, drowned)

    def draw_blind(self, length: int) -> Integers:
        t = self._ring.plain_modulus
        return centred(uniform(Stream(), length, t).astype(np.int64), t)

    def cover(self, sealed: Sequence[bytes], cover: Cover) -> list[bytes]:
        return [self._add(self._move(row, cover), cover.blind) for row in sealed]

    def seal_mean(self, mean: Any, length: int) -> bytes:
        return self.seal_whole(mean)

    def uncover(self, sealed: bytes, cover: Cover, length: int) -> bytes:
        claimed, words = read_words(self._add(sealed, -cover.blind), self._label, self._ring)
        if cover.order is not None and cover.signs is not None:
            back = np.argsort(cover.order)
            words = self._turned(words, back, cover.signs[back])
            return write_words(words, self._label, length, claimed.terms)
        return write_words(words, self._label, claimed.length, claimed.terms)

    def open(self, sealed: bytes) -> NDArray[np.float64]:
        return to_floats(self._open(sealed))

    def open_covered(self, sealed: Sequence[bytes]) -> ModularRows:
        rows = np.stack([self._open(row) for row in sealed])
        return ModularRows(rows[0], centred(rows - rows[0], self._ring.plain_modulus))

    def open_sketches(self, sealed: Sequence[bytes], kept: Integers) -> tuple[Integers, int]:
        rows = self.open_covered(sealed)
        return np.asarray(rows.offsets[:, kept], np.int64), rows.length

    def _open(self, sealed: bytes) -> Integers:
        claimed, plaintexts = self._box.open_plaintexts(sealed, self._encoder.encode(np.zeros(1, np.int64)))
        return np.concatenate([self._encoder.decode(p) for p in plaintexts]).astype(np.int64)[: claimed.length]

    def _add(self, sealed: bytes, integers: Integers) -> bytes:
        """A fresh encryption for every row: unlike Paillier's it costs little."""
        claimed, words = read_words(sealed, self._label, self._ring)
        _, more = read_words(self.seal_whole(integers), self._label, self._ring, claimed.length)
        return write_words(
            (words + more) % np.uint64(self._ring.modulus), self._label, claimed.length, claimed.terms + 1
        )

    def _total(self, rows: list[Any]) -> Any:
        total = rows[0]
        for words in rows[1:]:
            total = (total + words) % np.uint64(self._ring.modulus)
        return total

    def _move(self, sealed: bytes, cover: Cover) -> bytes:
        if cover.order is None or cover.signs is None:
            return sealed
        claimed, words = read_words(sealed, self._label, self._ring)
        length = len(cover.order) * self.block
        return write_words(self._turned(words, cover.order, cover.signs), self._label, length, claimed.terms)

    def _turned(self, words: Any, order: Integers, signs: Integers) -> Any:
        q = np.uint64(self._ring.modulus)
        blocks = words.reshape(len(order), -1)[order]
        return np.where(signs[:, None] > 0, blocks, (q - blocks) % q).reshape(-1)
