"""Products in Z_q[X]/(X^N + 1): the number-theoretic transform, on exact integers.

Cooley-Tukey forward and Gentleman-Sande back, powers of the smallest primitive 2N-th root in bit-reversed order (Longa and
Naehrig 2016); the same root and order as Microsoft SEAL, so that residues in the transform's domain can be compared with its
own (tested). A factor that is used often comes with its quotient floor(w 2^64 / q), and a product costs two multiplications
and no division (Shoup). Every step takes the same time whatever the residues are: no branch and no index depends on them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numba import njit, types
from numba.extending import intrinsic
from numpy.typing import NDArray

from covey.errors import CoveyError

Words = NDArray[np.uint64]
LARGEST_BITS = 61  # of q: sums of a few residues stay below 2^64
SHORT = 8  # a loop over fewer pairs would cost more than what it does: then the other loop is the inner one


@intrinsic  # type: ignore[untyped-decorator]
def upper(typing_context: Any, x: Any, y: Any) -> Any:
    """The upper word of a product of two words."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        from llvmlite import ir

        wide = ir.IntType(128)
        product = builder.mul(builder.zext(arguments[0], wide), builder.zext(arguments[1], wide))
        return builder.trunc(builder.lshr(product, ir.Constant(wide, 64)), ir.IntType(64))

    return types.uint64(types.uint64, types.uint64), generate


@dataclass(frozen=True)
class Factors:
    """Residues that others are multiplied by, with their quotients floor(w 2^64 / q)."""

    values: Words
    quotients: Words

    @classmethod
    def of(cls, values: Sequence[int], q: int) -> Factors:
        return cls(np.array(values, np.uint64), np.array([(int(w) << 64) // q for w in values], np.uint64))


@dataclass(frozen=True)
class Transform:
    """The transform of one ring; make it with `transform(degree, q)`."""

    q: int
    forward_powers: Factors
    inverse_powers: Factors
    shrink: Factors  # 1/N

    def forward(self, polynomials: Words) -> Words:
        """Of each row [., N], below q."""
        rows = np.array(polynomials, np.uint64, ndmin=2)
        _forward(rows, *self.there(), np.uint64(self.q))
        return rows

    def inverse(self, images: Words) -> Words:
        rows = np.array(images, np.uint64, ndmin=2)
        _inverse(rows, *self.back())
        return rows

    def factors(self, image: Words) -> Factors:
        """A polynomial's image [N] as what others are multiplied by."""
        return Factors.of(image.tolist(), self.q)

    def products(self, images: Words, by: Factors) -> Words:
        """The polynomials [., N] whose images are these rows times `by`."""
        rows = np.empty_like(images)
        _products(rows, images, by.values, by.quotients, np.uint64(self.q))
        _inverse(rows, *self.back())
        return rows

    def there(self) -> tuple[Words, Words]:
        """What `forward_row` takes of the ring, beside q."""
        return self.forward_powers.values, self.forward_powers.quotients

    def back(self) -> tuple[Any, ...]:
        """What `inverse_row` takes of the ring."""
        powers, shrink = self.inverse_powers, self.shrink
        return powers.values, powers.quotients, shrink.values[0], shrink.quotients[0], np.uint64(self.q)


@lru_cache(maxsize=8)
def transform(degree: int, q: int) -> Transform:
    """For a prime q = 1 mod 2N."""
    if degree < 2 or degree & (degree - 1) or (q - 1) % (2 * degree) or q.bit_length() > LARGEST_BITS:
        raise CoveyError(
            f"a transform of degree {degree} modulo {q}: expected a power of 2 and a prime of at most {LARGEST_BITS} bits "
            "that is 1 modulo twice the degree"
        )
    root = _smallest_root(degree, q)
    order = bit_reversed(degree)
    inverse = pow(root, -1, q)
    return Transform(
        q,
        Factors.of([pow(root, k, q) for k in order], q),
        Factors.of([pow(inverse, k, q) for k in order], q),
        Factors.of([pow(degree, -1, q)], q),
    )


def _smallest_root(degree: int, q: int) -> int:
    """The smallest residue whose order is 2N."""
    root = next(r for g in range(2, q) if pow(r := pow(g, (q - 1) // (2 * degree), q), degree, q) == q - 1)
    square, power, smallest = root * root % q, root, root
    for _ in range(degree):
        smallest = min(smallest, power)
        power = power * square % q
    return smallest


def bit_reversed(degree: int) -> list[int]:
    bits = degree.bit_length() - 1
    return [int(f"{k:0{bits}b}"[::-1], 2) for k in range(degree)]


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def times(x: Any, w: Any, quotient: Any, q: Any) -> Any:
    """x w mod q, for any word x: the estimate of the quotient is at most 1 too small."""
    r = x * w - upper(quotient, x) * q  # type: ignore[call-arg]
    return min(r, r - q)  # unsigned wrap-around: the smaller one is below q


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _nearly(x: Any, w: Any, quotient: Any, q: Any) -> Any:
    """x w mod q or q more, for any word x."""
    return x * w - upper(quotient, x) * q  # type: ignore[call-arg]


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def forward_row(a: Words, powers: Words, quotients: Words, q: Any) -> None:
    """One polynomial [N], in place. Residues stay below 4q until the end (Harvey 2014)."""
    q2 = q + q
    gap, groups = a.size, 1
    while groups < a.size:
        gap >>= 1
        if gap >= SHORT:
            for g in range(groups):
                w, quotient = powers[groups + g], quotients[groups + g]
                low, high = a[2 * g * gap : (2 * g + 1) * gap], a[(2 * g + 1) * gap : 2 * (g + 1) * gap]
                for j in range(gap):
                    u, v = min(low[j], low[j] - q2), _nearly(high[j], w, quotient, q)
                    low[j], high[j] = u + v, u + q2 - v
        else:
            for j in range(gap):
                for g in range(groups):
                    i = 2 * g * gap + j
                    u, v = min(a[i], a[i] - q2), _nearly(a[i + gap], powers[groups + g], quotients[groups + g], q)
                    a[i], a[i + gap] = u + v, u + q2 - v
        groups <<= 1
    for j in range(a.size):
        x = min(a[j], a[j] - q2)
        a[j] = min(x, x - q)


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def inverse_row(a: Words, powers: Words, quotients: Words, shrink: Any, shrink_quotient: Any, q: Any) -> None:
    """One image [N], in place. Residues stay below 2q until the end."""
    q2 = q + q
    gap, groups = 1, a.size >> 1
    while groups >= 1:
        if gap >= SHORT:
            for g in range(groups):
                w, quotient = powers[groups + g], quotients[groups + g]
                low, high = a[2 * g * gap : (2 * g + 1) * gap], a[(2 * g + 1) * gap : 2 * (g + 1) * gap]
                for j in range(gap):
                    u, v = low[j], high[j]
                    low[j], high[j] = min(u + v, u + v - q2), _nearly(u + q2 - v, w, quotient, q)
        else:
            for j in range(gap):
                for g in range(groups):
                    i = 2 * g * gap + j
                    u, v = a[i], a[i + gap]
                    a[i] = min(u + v, u + v - q2)
                    a[i + gap] = _nearly(u + q2 - v, powers[groups + g], quotients[groups + g], q)
        gap <<= 1
        groups >>= 1
    for j in range(a.size):
        a[j] = times(a[j], shrink, shrink_quotient, q)


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _forward(rows: Words, powers: Words, quotients: Words, q: Any) -> None:
    for r in range(rows.shape[0]):
        forward_row(rows[r], powers, quotients, q)


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _inverse(rows: Words, powers: Words, quotients: Words, shrink: Any, shrink_quotient: Any, q: Any) -> None:
    for r in range(rows.shape[0]):
        inverse_row(rows[r], powers, quotients, shrink, shrink_quotient, q)


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _products(out: Words, rows: Words, factors: Words, quotients: Words, q: Any) -> None:
    for r in range(rows.shape[0]):
        for j in range(rows.shape[1]):
            out[r, j] = times(rows[r, j], factors[j], quotients[j], q)
