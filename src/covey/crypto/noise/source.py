"""Where a client's noise comes from: keyed in a simulation, so that it can be repeated; secret in a silo.

A source takes the values and gives them back with noise on, since what is safe is the sum, not the noise: secret noise is a
whole number of steps of a grid, on values that were rounded to whole steps before. The grid of a scale is 2^-32 times it, so it
depends on nothing but the scale, and the sum of whole numbers, made a float again, tells what the whole number does and no more.

Rounding moves each value by half a step at most, so neighbours that were Δ apart are Δ + √d steps apart (in the L1 norm of one
coordinate: Δ + 1 step). `rounding` is what that adds to Δ / scale; the ledger prices it. For Gaussian noise it is doubled: the
rest covers how far a discrete Gaussian with s = 2^32 is from a rounded continuous one, for which the exact statements hold (a
whole number plus a rounded Gaussian is a rounded sum). The ratio of the two probabilities of n is within 1 ± (n²/s² + 1) / 12 s²;
Σ n²/s² over d numbers exceeds 2d + 134 with probability 2^-64 at most (Laurent and Massart 2000), so together they add less than
(d + 64) 2^-63 to ε and 2^-64 to δ.

Values beyond 2^30 scales are cut there; a float32 that large has no bits left for the noise.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from covey.randomness import generator, key, laplace_noised_by, normals

if TYPE_CHECKING:
    from covey.crypto.noise.stream import Stream

Floats = NDArray[np.float64]
GRID = 2.0**-32  # steps of the grid, in units of the scale: 2^-`discrete.BITS`


class Noise(Protocol):
    """`purpose` names the stream of keyed noise: two draws of one client and round must differ in it."""

    @property
    def secret(self) -> bool: ...

    def gaussian(self, values: Tensor, scale: float | Tensor, *purpose: int | str) -> Tensor:
        """Values [d] with noise of this standard deviation, one for all or [d]; 0: as they are."""
        ...

    def laplace(self, values: NDArray[np.float32], scale: Floats, purpose: str) -> NDArray[np.float32]:
        """Values [n, c] with Laplace noise of scale [c]."""
        ...

    def gaussian_rounding(self, size: int) -> float:
        """What the grid adds to (how far neighbours are apart) / (standard deviation), for vectors of this size."""
        ...

    def laplace_rounding(self, epsilon: float) -> float:
        """What the grid, and a width that is a float32 difference, add to the ε of a coordinate."""
        ...

    def stream(self, purpose: str) -> Stream:
        """Words for noise in whole numbers: `crypto/noise/shares.py`."""
        ...


@dataclass(frozen=True)
class KeyedNoise:
    """Reproducible, not secret: whoever knows the seed, or two of the numbers, can take it off. For simulations."""

    secret: ClassVar[bool] = False
    parts: tuple[int | str, ...]  # (seed, round, client)

    def gaussian(self, values: Tensor, scale: float | Tensor, *purpose: int | str) -> Tensor:
        stream = key(*self.parts, *purpose)
        return values + (normals([stream], len(values), values.device)[0] * scale).to(values.dtype)

    def laplace(self, values: NDArray[np.float32], scale: Floats, purpose: str) -> NDArray[np.float32]:
        return laplace_noised_by(values, scale, generator(*self.parts, purpose))

    def gaussian_rounding(self, size: int) -> float:
        return 0.0

    def laplace_rounding(self, epsilon: float) -> float:
        return 0.0

    def stream(self, purpose: str) -> Stream:
        from covey.crypto.noise.stream import Stream

        return Stream(hashlib.sha256(repr((*self.parts, purpose)).encode()).digest())


@dataclass(frozen=True)
class SecretNoise:
    """From the operating system by an exact discrete sampler. It has no state: every draw has a key of its own."""

    secret: ClassVar[bool] = True

    def gaussian(self, values: Tensor, scale: float | Tensor, *purpose: int | str) -> Tensor:
        from covey.crypto.noise.discrete import add, gaussians
        from covey.crypto.noise.stream import Stream

        per_value = np.atleast_1d(torch.as_tensor(scale, dtype=torch.float64).cpu().numpy())
        if not per_value.any():
            return values
        noise = gaussians(values.numel(), Stream())
        noised = add(values.detach().cpu().numpy(), per_value * GRID, noise)
        return torch.from_numpy(noised).to(values.device)

    def laplace(self, values: NDArray[np.float32], scale: Floats, purpose: str) -> NDArray[np.float32]:
        from covey.crypto.noise.discrete import add, laplaces
        from covey.crypto.noise.stream import Stream

        return add(values, np.atleast_1d(scale) * GRID, laplaces(values.size, Stream()))

    def gaussian_rounding(self, size: int) -> float:
        return 2 * math.sqrt(size) * GRID

    def laplace_rounding(self, epsilon: float) -> float:
        return GRID + epsilon * 2.0**-23

    def stream(self, purpose: str) -> Stream:
        from covey.crypto.noise.stream import Stream

        return Stream()

    def bits(self, rows: int, count: int) -> Tensor:
        """63 secret bits at every place, int64 [rows, count]: for what must not be foreseen beside noise."""
        from covey.crypto.noise.stream import Stream

        words = Stream().words(rows * count) >> np.uint64(1)
        return torch.from_numpy(words.astype(np.int64)).view(rows, count)
