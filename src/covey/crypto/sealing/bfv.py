"""BFV sealing: exact sums of fixed-point numbers, add-only. Equal inputs give equal sums, bit for bit, in every run.

Parameters: N = 4096, one 60-bit prime: 16 bytes per float, like CKKS. The plaintext prime `t` is as large as the noise
of `terms` additions allows (38 bits for 1024). A float is rounded to a multiple of `2^-unit_bits`, the finest step at
which a sum of `terms` vectors within `±bound` stays within `±t/2`: 2^-22 at the default, 2^-28 for 128 terms, so that
counts and indicators are exact and weights about as good as float32. (A 54-bit prime with a 32-bit `t` costs the same
bytes and gives 2^-16.)

Noise: a fresh secret-key ciphertext has coefficients of at most 21 (SEAL's centred binomial), a public-key one a
standard deviation of about 240. `q / 2t` leaves room for 6.5 of the latter times `terms`: even if all noise were the
same. Keys, parties and trust: `lattice.py`.
"""

import math
from collections.abc import Callable
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray
from seal import BatchEncoder, PlainModulus

from covey.crypto.sealing.lattice import (
    Keys,
    LatticeBox,
    check_library,
    check_pair,
    checked_opening,
    label_of,
    read_public,
)
from covey.crypto.sealing.mixing import ResidueMixer
from covey.crypto.sealing.ring import Ring, prime
from covey.crypto.sealing.sealing import check_capacity, checked_vector
from covey.errors import CoveyError

name = "bfv"
label = "BFV"
title = "exact sums of fixed-point numbers, 16 bytes per float"
surveyed = True  # in `covey audit --matrix` unless told otherwise

_FRESH_NOISE = 1560  # 6.5 standard deviations of a public-key ciphertext's


def bfv_ring(
    bound: float = 16.0,
    terms: int = 1024,
    degree: int = 4096,
    modulus_bits: int = 60,
    plain_bits: int | None = None,
) -> Ring:
    check_capacity(bound, terms)
    q = prime(degree, modulus_bits)
    room = math.floor(math.log2(q / (2 * terms * _FRESH_NOISE)))
    if room < 20 or (plain_bits or room) > room:
        raise CoveyError(
            f"{terms} terms leave room for a {room}-bit plaintext beside the noise, expected at least "
            f"{plain_bits or 20} bits: lower terms or plain_bits."
        )
    t = int(PlainModulus.Batching(degree, plain_bits or room).value())
    return Ring("bfv", degree, q, math.floor(math.log2((t - 1) / 2 / (bound * terms))), bound, terms, t)


def generate_keys(bound: float, terms: int) -> bytes:
    return Keys.generate(bfv_ring(bound, terms)).to_bytes()


def sealer(keys: bytes) -> "BfvSealer":
    return BfvSealer(Keys.from_bytes(keys, "bfv"))


def mixer(public: bytes, clusters: int, length: int) -> ResidueMixer:
    ring, key = read_public(public, "bfv")
    return ResidueMixer(ring, label_of(ring, key), clusters, length)


class BfvSealer:
    name = "bfv"

    def __init__(self, keys: Keys) -> None:
        self._box, self._ring = LatticeBox(keys), keys.ring
        self._encoder = BatchEncoder(keys.ring.context)
        self._unit = 2.0**keys.ring.unit_bits

    def seal(self, vector: ArrayLike) -> bytes:
        values = checked_vector(vector, self._ring.bound)
        rows = -(-values.size // self._ring.degree)
        padded = np.zeros(rows * self._ring.degree, dtype=np.int64)
        padded[: values.size] = np.rint(values * self._unit)
        slots = padded.reshape(rows, -1)
        if not self._box.opens:
            return self._box.seal_plaintexts([self._encoder.encode(row) for row in slots], values.size)
        return self._box.seal_rows(slots, self._fresh, values.size)

    @cached_property
    def _fresh(self) -> Callable[[NDArray[np.int64]], NDArray[np.uint64]]:
        """Ciphertexts of slots, under the secret key."""
        from covey.crypto.sealing.encoding import batching  # brings numba
        from covey.crypto.sealing.fresh import spread

        q, t = self._ring.modulus, self._ring.plain_modulus
        layout, secret = batching(self._ring.degree, t), self._box.secret

        def fresh(slots: NDArray[np.int64]) -> NDArray[np.uint64]:
            return secret.polynomials(spread(layout.polynomials(slots), q, t))

        reach = int(self._ring.bound * self._unit)
        trial = np.linspace(-reach, reach, self._ring.degree).astype(np.int64)
        values = trial / self._unit
        check_library(self.open(self._box.seal_rows(trial[None], fresh, trial.size)), values)
        check_pair(lambda: self.open(self._box.seal_plaintexts([self._encoder.encode(trial)], trial.size)), values)
        return fresh

    def open(self, sealed: bytes) -> NDArray[np.float64]:
        label, plaintexts = self._box.open_plaintexts(sealed, self._encoder.encode(np.zeros(1, np.int64)))
        if not plaintexts:
            return np.zeros(label.length)
        whole = np.concatenate([self._encoder.decode(p) for p in plaintexts])[: label.length]
        return checked_opening(whole / self._unit, label, self._ring)

    def public(self) -> bytes:
        return self._box.keys.public()
