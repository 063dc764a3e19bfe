"""Vectors as polynomials, the way SEAL's encoders lay them out, many rows at a time.

Slot j of a row is the polynomial's value at the power 3^j of a root of X^N + 1: the complex one ζ = exp(iπ/N) in CKKS, one modulo t
in BFV, where a second half of slots lies at −3^j. What is encoded here the library decodes, and the other way round (tested).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from covey.crypto.transform import Transform, Words, bit_reversed, transform

Integers = NDArray[np.int64]
Complex = NDArray[np.complex128]


@dataclass(frozen=True)
class Embedding:
    """CKKS's. Of a root and its conjugate one has an exponent 4a + 1: the slots in the order of a are half a Fourier transform."""

    order: Integers  # [N/2] which slot lies at exponent 4a + 1, itself or its conjugate
    signs: NDArray[np.float64]  # [N/2] −1 where it is the conjugate
    twist: Complex  # [N/2] (2/N) ζ^-k

    def polynomials(self, slots: Complex, scale: float) -> Integers:
        """Coefficients `[r, N]`, rounded to whole numbers, of slots `[r, N/2]`."""
        placed = slots[:, self.order]
        placed.imag *= self.signs
        halves = np.fft.fft(placed)
        halves *= self.twist * scale
        coefficients: Integers = np.rint(np.concatenate([halves.real, halves.imag], axis=1)).astype(np.int64)
        return coefficients


@lru_cache(maxsize=4)
def embedding(degree: int) -> Embedding:
    exponents = np.array([pow(3, j, 2 * degree) for j in range(degree // 2)])
    turned = exponents % 4 == 3
    place = (np.where(turned, 2 * degree - exponents, exponents) - 1) // 4
    order = np.argsort(place)
    k = np.arange(degree // 2)
    return Embedding(order, np.where(turned[order], -1.0, 1.0), 2 / degree * np.exp(-1j * np.pi * k / degree))


@dataclass(frozen=True)
class Batching:
    """BFV's, modulo t."""

    ring: Transform
    place: Integers  # [N] where each slot's value stands in the polynomial's image

    def polynomials(self, slots: Integers) -> Words:
        """Coefficients `[r, N]` below t of slots `[r, N]` within ±t."""
        images = np.empty(slots.shape, np.uint64)
        images[:, self.place] = (slots + (slots >> 63 & self.ring.q)).view(np.uint64)
        return self.ring.inverse(images)


@lru_cache(maxsize=4)
def batching(degree: int, t: int) -> Batching:
    exponents = [pow(3, j, 2 * degree) for j in range(degree // 2)]
    reverse = bit_reversed(degree)
    place = [reverse[(e - 1) // 2] for e in (*exponents, *(2 * degree - e for e in exponents))]
    return Batching(transform(degree, t), np.array(place))
