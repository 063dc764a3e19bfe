"""Fresh ciphertexts under the secret key: (c0, c1) with c1 uniform and c0 = m + e − c1 s, word for word what SEAL adds and opens.

SEAL's own secret-key encryption spends four fifths of its time on drawing (Blake2xb) and on copies: here words come from ChaCha20
under a new key from the operating system for every few rows, and one transform per polynomial is left (measured in
`benchmarks/bench_sealing.py`). Errors have SEAL's distribution, a centred binomial of 21 bits (σ = 3.24, what the HE standard's
table assumes); secrets are SEAL's ternary ones. Keys are made, loaded and sums are opened by the library, and a sealer opens one
of its ciphertexts with it before it seals anything (`lattice.py`). No branch and no index of sealing depends on secret, message or
error; loading a key does divide by q, in Python, once.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from covey.crypto.draws import binomials, uniform
from covey.crypto.noise.stream import Stream
from covey.crypto.transform import Factors, Transform, Words, forward_row, inverse_row, times, upper

Integers = NDArray[np.int64]


@dataclass(frozen=True)
class SecretKey:
    """A secret polynomial's image [N], and the transform of its ring."""

    ring: Transform
    secret: Factors = field(repr=False)

    def images(self, messages: Integers) -> Words:
        """Ciphertexts `[r, 2, N]` of whole-number polynomials `[r, N]` within ±q, in the transform's domain (CKKS)."""
        sealed = self._drawn(messages)
        _add_images(sealed, self.secret.values, self.secret.quotients, *self.ring.there(), np.uint64(self.ring.q))
        return sealed

    def polynomials(self, messages: Integers) -> Words:
        """The same, as coefficients (BFV)."""
        sealed = self._drawn(messages)
        _add_products(sealed, self.secret.values, self.secret.quotients, *self.ring.there(), *self.ring.back())
        return sealed

    def _drawn(self, messages: Integers) -> Words:
        """c1, and m + e in the place of c0."""
        stream = Stream()
        rows, degree = messages.shape
        sealed = np.empty((rows, 2, degree), "<u8")
        sealed[:, 1] = uniform(stream, rows * degree, self.ring.q).reshape(rows, degree)
        noisy = messages + binomials(stream, rows * degree).reshape(rows, degree)
        noisy += noisy >> 63 & self.ring.q  # whole numbers as residues, without a branch
        sealed[:, 0] = noisy.view(np.uint64)
        return sealed


def spread(messages: Words, q: int, t: int) -> Integers:
    """round(m q / t) of words m below t: BFV's message in the place where noise does not reach."""
    scaled = np.empty(messages.shape, np.int64)
    rest = Factors.of([q % t], t)
    _spread(
        scaled.reshape(-1), messages.reshape(-1), np.uint64(q // t), rest.values[0], rest.quotients[0], np.uint64(t)
    )
    return scaled


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _spread(out: Any, messages: Any, whole: Any, rest: Any, quotient: Any, t: Any) -> None:
    """m floor(q/t) + floor((m (q mod t) + (t + 1) / 2) / t), whose second part is estimated at most 2 too small."""
    for i in range(messages.size):
        m = messages[i]
        estimate = upper(quotient, m)
        left = m * rest - estimate * t + ((t + np.uint64(1)) >> np.uint64(1))
        out[i] = np.int64(m * whole + estimate + np.uint64(left >= t) + np.uint64(left >= t + t))


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _add_images(sealed: Any, secret: Any, quotients: Any, powers: Any, power_quotients: Any, q: Any) -> None:
    """c0 ← image of c0 − c1 s."""
    for r in range(sealed.shape[0]):
        c0, c1 = sealed[r, 0], sealed[r, 1]
        forward_row(c0, powers, power_quotients, q)
        for j in range(c0.size):
            d = c0[j] + q - times(c1[j], secret[j], quotients[j], q)
            c0[j] = min(d, d - q)


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _add_products(
    sealed: Any,
    secret: Any,
    quotients: Any,
    powers: Any,
    power_quotients: Any,
    inverse_powers: Any,
    inverse_quotients: Any,
    shrink: Any,
    shrink_quotient: Any,
    q: Any,
) -> None:
    """c0 ← c0 − c1 s, by way of the images."""
    product = np.empty(sealed.shape[2], np.uint64)
    for r in range(sealed.shape[0]):
        c0 = sealed[r, 0]
        product[:] = sealed[r, 1]
        forward_row(product, powers, power_quotients, q)
        for j in range(product.size):
            product[j] = times(product[j], secret[j], quotients[j], q)
        inverse_row(product, inverse_powers, inverse_quotients, shrink, shrink_quotient, q)
        for j in range(product.size):
            d = c0[j] + q - product[j]
            c0[j] = min(d, d - q)
