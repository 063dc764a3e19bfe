"""CKKS sealing: approximate, add-only, two reals per complex slot.

Parameters: N = 4096, one 54-bit prime, no rescaling and no key switching: 16 bytes per float. The scale is the largest
power of two at which a sum of `terms` vectors within `±bound` cannot wrap: a coefficient of the encoded polynomial is
at most the largest slot, `sqrt(2) bound terms`, in magnitude. `bound = 2.8, terms = 128` gives 2^44; the default 2^38.
Error of an opened sum of n vectors: about `150 sqrt(n) / scale` per float (6e-9 for 120 at the default).

Opened CKKS results carry noise that depends on the key: never give them back to the server as they are (IND-CPA-D).
Keys, parties and trust: `lattice.py`.
"""

import math
from collections.abc import Callable
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray
from seal import CKKSEncoder, Plaintext

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

name = "ckks"
label = "CKKS"
title = "approximate sums of reals, 16 bytes per float"
surveyed = True  # in `covey audit --matrix` unless told otherwise


def ckks_ring(bound: float = 16.0, terms: int = 1024, degree: int = 4096, modulus_bits: int = 54) -> Ring:
    check_capacity(bound, terms)
    q = prime(degree, modulus_bits)
    reach = math.sqrt(2.0) * bound * terms * (1 + 2**-10)  # the noise stays far below 2^-10
    finest = modulus_bits - 2  # SEAL takes no larger scale, however small the numbers are
    return Ring("ckks", degree, q, min(math.floor(math.log2(q / 2 / reach)), finest), bound, terms)


def generate_keys(bound: float, terms: int) -> bytes:
    return Keys.generate(ckks_ring(bound, terms)).to_bytes()


def sealer(keys: bytes) -> "CkksSealer":
    return CkksSealer(Keys.from_bytes(keys, "ckks"))


def mixer(public: bytes, clusters: int, length: int) -> ResidueMixer:
    ring, key = read_public(public, "ckks")
    return ResidueMixer(ring, label_of(ring, key), clusters, length)


class CkksSealer:
    name = "ckks"

    def __init__(self, keys: Keys) -> None:
        self._box, self._ring = LatticeBox(keys), keys.ring
        self._encoder = CKKSEncoder(keys.ring.context)
        self._scale = 2.0**keys.ring.unit_bits

    def seal(self, vector: ArrayLike) -> bytes:
        values = checked_vector(vector, self._ring.bound)
        rows = -(-values.size // self._ring.degree)
        padded = np.zeros(rows * self._ring.degree)
        padded[: values.size] = values
        slots = padded.view(np.complex128).reshape(rows, -1)
        if not self._box.opens:
            return self._box.seal_plaintexts([self._encode(row) for row in slots], values.size)
        return self._box.seal_rows(slots, self._fresh, values.size)

    @cached_property
    def _fresh(self) -> Callable[[NDArray[np.complex128]], NDArray[np.uint64]]:
        """Ciphertexts of slots, under the secret key."""
        from covey.crypto.sealing.encoding import embedding  # brings numba

        layout, secret = embedding(self._ring.degree), self._box.secret

        def fresh(slots: NDArray[np.complex128]) -> NDArray[np.uint64]:
            return secret.images(layout.polynomials(slots, self._scale))

        trial = np.linspace(-self._ring.bound, self._ring.bound, self._ring.degree)
        slots = trial.view(np.complex128)
        check_library(self.open(self._box.seal_rows(slots[None], fresh, trial.size)), trial)
        check_pair(lambda: self.open(self._box.seal_plaintexts([self._encode(slots)], trial.size)), trial)
        return fresh

    def open(self, sealed: bytes) -> NDArray[np.float64]:
        label, plaintexts = self._box.open_plaintexts(sealed, self._encode(np.zeros(1, np.complex128)))
        if not plaintexts:
            return np.zeros(label.length)
        slots = np.concatenate([self._encoder.decode_complex(p) for p in plaintexts])
        return checked_opening(slots.view(np.float64)[: label.length], label, self._ring)

    def public(self) -> bytes:
        return self._box.keys.public()

    def _encode(self, slots: NDArray[np.complex128]) -> Plaintext:
        return self._encoder.encode_complex(slots, self._scale)
