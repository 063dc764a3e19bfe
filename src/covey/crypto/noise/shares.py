"""Noise that many clients add in shares, in whole numbers, before their vectors are sealed and summed.

Agreed are C, the longest that a client's vector may be (L2 norm, all blocks together), the noise z C that protects a sum, and
that a sum has `least` clients or is not opened, of whom `corrupt` may side with whoever reads it. So h = least − corrupt honest
shares are in every sum, and each client adds a discrete Gaussian of z C / √h:

    x_i  ->  n_i = [x_i min(1, C / ‖x_i‖) / step] + N_Z(0, 4^bits)          step = z C / (√h 2^bits)

**Sensitivity.** [·] rounds towards zero, so no coordinate grows and ‖[…]‖ ≤ C / step holds for every vector and always: what
rounding to the nearest adds (√d / 2 steps), and the conditional rounding by which Kairouz, Liu and Steinke (ICML 2021) keep it
small, is not needed. The price is a bias of less than a step, 2^-bits of a single share's noise. It can
be so small because a sealed number has some 20 to 40 bits; they had 8 to 16, and so needed unbiased rounding and a rotation,
too.

**Sum.** Discrete Gaussians do not add up to one exactly: h of them with variance σ² are within τ = 10 Σ_{j<h} exp(−2 π² σ² j /
(j + 1)) of N_Z(0, h σ²), in the logarithm of every probability (the same paper). Shares have σ = 2^bits ≥ 2^LEAST_BITS, so d τ
< 2^-10^5 for any d and h that fit in a memory: it is nothing. Skellam numbers (Agarwal, Kairouz, Liu, NeurIPS 2021) add up
exactly and pay a term in 1/σ for it, and would want a second exact sampler; at this σ neither difference shows in ε.

**Grid.** A whole number plus a rounded Gaussian is a rounded sum, for which exact statements hold; N_Z(0, σ²) differs from it
by (n²/σ² + 1) / 12 σ² at most in the logarithm of a probability. E exp(n²/4σ²) = √2, so Σ n²/σ² > 1.4 d + 356 has a probability
below 2^-128 (Chernoff), and else the logarithms of d numbers differ by less than (3 d + 400) / 12 σ². Twice that, σ² = h 4^bits,
is `grid`: what a release adds to ε. To δ it adds 2^-127 (1 + e^ε), and a factor e^grid.

**No wrap-around.** A share is never beyond `discrete.furthest` (the tail that is cut has less than 2^-128), so a client's
numbers are within `largest` for certain, and as many vectors as were agreed add up within what the scheme carries: `fitting`
chooses bits so.

Limits: `discrete`'s (its time depends on what it draws).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from covey.crypto.noise import discrete
from covey.crypto.noise.stream import Stream
from covey.errors import CoveyError

Integers = NDArray[np.int64]
LEAST_BITS = 8
_SLACK = 2.0**-20  # of C, for the rounding of floats in a norm and a product: they are off by less than d 2^-52 of it


@dataclass(frozen=True)
class SharedNoise:
    """What clients agree on before the first round."""

    clip: float  # C
    noise: float  # z: standard deviation of the noise that honest shares add up to at least, in units of C
    least: int  # clients in a sum that is opened
    corrupt: int  # of them, whose shares whoever reads the sum may know

    def __post_init__(self) -> None:
        if not (0 < self.clip < math.inf and 0 < self.noise < math.inf):
            raise CoveyError(
                f"noise of {self.noise:g} times a bound of {self.clip:g} was agreed: both must be finite and above 0"
            )
        if not 0 <= self.corrupt < self.least:
            raise CoveyError(
                f"{self.corrupt} of the {self.least} clients in a sum may be corrupt: at least one must be honest"
            )

    @property
    def honest(self) -> int:
        """h: shares that are in every sum and that nobody who reads it knows."""
        return self.least - self.corrupt

    def deviation(self, terms: int) -> float:
        """Of the noise in a sum of so many vectors, all shares counted."""
        return self.noise * self.clip * math.sqrt(terms / self.honest)

    def fitting(self, capacity: float) -> Shares:
        """The finest shares with which a client's numbers are within ±capacity."""
        for bits in range(discrete.BITS, LEAST_BITS - 1, -1):
            shares = Shares(self, bits)
            if shares.largest <= capacity:
                return shares
        raise CoveyError(
            f"sealed numbers within ±{capacity:g} are too short for {self.honest} shares of a noise of {self.noise:g} times the "
            "bound: raise the noise, or take fewer clients"
        )


@dataclass(frozen=True)
class Shares:
    """The same in whole numbers of a step."""

    agreed: SharedNoise
    bits: int  # a share's standard deviation is 2^bits steps

    @property
    def step(self) -> float:
        """What a whole number stands for."""
        return self.agreed.noise * self.agreed.clip / math.sqrt(self.agreed.honest) / 2.0**self.bits

    @property
    def largest(self) -> int:
        """No client's number is beyond."""
        return math.ceil(self.agreed.clip / self.step) + discrete.furthest(self.bits)

    def seal(self, vector: ArrayLike, stream: Stream) -> Integers:
        """A client's vector, all blocks in one, as it may be sealed: cut to C, in whole steps, with its share of the noise."""
        return self.steps(vector) + discrete.gaussians(np.size(vector), stream, self.bits)

    def steps(self, vector: ArrayLike) -> Integers:
        """The vector in steps, never longer than C."""
        values = np.asarray(vector, np.float64)
        with np.errstate(over="ignore"):  # an infinite norm is refused
            norm = float(np.linalg.norm(values))
        if not math.isfinite(norm):
            raise CoveyError(
                "a vector that is to be sealed with noise holds numbers that are none, or too large: check the training"
            )
        factor = min(1.0, self.agreed.clip * (1 - _SLACK) / norm) if norm > 0 else 0.0
        return np.trunc(values * (factor / self.step)).astype(np.int64)

    def excess(self, dimension: int) -> float:
        """d τ: how far the sum of the honest shares is from one discrete Gaussian, in the logarithm of a probability."""
        exponent = -2 * math.pi**2 * 4.0**self.bits
        terms = sum(math.exp(exponent * j / (j + 1)) for j in range(1, self.agreed.honest))
        return 10 * terms * dimension

    def grid(self, dimension: int) -> float:
        """What a release of d numbers adds to the ε of a continuous Gaussian of the same width; see the docstring."""
        return (dimension / 2 + 67) / (self.agreed.honest * 4.0**self.bits)
