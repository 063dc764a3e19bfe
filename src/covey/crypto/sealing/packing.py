"""Many fixed-point numbers in one large integer, so that one Paillier ciphertext carries some fifty weights.

A value x becomes the integer round(x·2^precision), and slot i of an integer holds one of them, with its sign,
at bit i·width. Adding integers adds slots. A slot is as wide as the largest sum that is allowed, `additions`
values of magnitude `bound`, so no slot can reach into the next one; whoever combines ciphertexts counts the
terms.

The *blind* is one random integer for the whole plaintext, `hiding` bits longer than anything the slots can
hold: the sum of plaintext and blind is within statistical distance 2^-hiding of a blind alone, per
ciphertext. Its carries run through the slots, which does not matter, because it is only ever removed as a
whole: by subtracting it, or by subtracting another row with the same blind. It never wraps around n, so it
can be taken off under another key than it was put on.
"""

from __future__ import annotations

import hashlib
import math
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import gmpy2
import numpy as np
from gmpy2 import mpz
from numpy.typing import ArrayLike, NDArray

from covey.crypto.paillier.paillier import Integer
from covey.errors import CoveyError

_BEYOND = 40


@dataclass(frozen=True)
class Packing:
    """How vectors lie in plaintexts. All parties of a protocol use the same one."""

    modulus_bits: int  # the shorter one, where plaintexts travel under two keys
    precision: int = 24  # ρ: an encoded value is off by 2^-(precision + 1) at most
    bound: float = 64.0  # a larger magnitude is refused
    additions: int = 128  # how many vectors may be summed (a difference counts as two)
    hiding: int = 128

    def __post_init__(self) -> None:
        if self.precision < 0 or not 0 < self.bound < math.inf or self.additions < 1 or self.hiding < 40:
            raise CoveyError(
                f"{self} is out of range; expected precision >= 0, bound > 0, additions >= 1, hiding >= 40"
            )
        if self.width > 62 or self.slots < 1:
            raise CoveyError(
                f"a slot of {self.width} bits is too wide: 62 at most, and one must fit in a modulus of "
                f"{self.modulus_bits} bits beside {self.hiding} hiding bits; lower precision, bound or additions"
            )

    @cached_property
    def largest(self) -> int:
        """The magnitude of the largest encoded value."""
        return round(math.ldexp(self.bound, self.precision))

    @cached_property
    def width(self) -> int:
        return (self.additions * self.largest).bit_length() + 1

    @cached_property
    def slots(self) -> int:
        # |packed| < 2^(slots·width), blind < 2^(slots·width + hiding): with three bits to spare, neither
        # their sum nor its negative reaches n/2, so that the sign of a plaintext is never in doubt.
        return (self.modulus_bits - 3 - self.hiding) // self.width

    @cached_property
    def fingerprint(self) -> bytes:
        """8 bytes that two parties compare."""
        fields = (self.modulus_bits, self.precision, float(self.bound).hex(), self.additions, self.hiding)
        return hashlib.sha256(repr(fields).encode()).digest()[:8]

    def count(self, dimension: int) -> int:
        """Integers that a vector takes."""
        return -(-dimension // self.slots)

    @cached_property
    def _middle(self) -> Integer:
        """Half a slot in every slot: added, it makes all slots non-negative."""
        return gmpy2.pack([1 << (self.width - 1)] * self.slots, self.width)

    def encode(self, vector: ArrayLike) -> NDArray[np.int64]:
        values = np.asarray(vector, np.float64).ravel()
        if not np.all(np.abs(values) <= self.bound):  # also false for NaN
            worst = values[np.argmax(np.where(np.isnan(values), np.inf, np.abs(values)))]
            raise CoveyError(
                f"a vector to seal holds {worst:g}, outside the packing's bound of ±{self.bound:g}; "
                "raise the bound or clip the model"
            )
        return np.rint(values * 2.0**self.precision).astype(np.int64)

    def decode(self, integers: NDArray[np.int64]) -> NDArray[np.float64]:
        return np.ldexp(integers.astype(np.float64), -self.precision)

    def pack(self, encoded: NDArray[np.int64]) -> list[Integer]:
        """Signed slots to signed integers; the last one is filled up with zeros."""
        half = 1 << (self.width - 1)
        if encoded.size and max(int(encoded.max()), -int(encoded.min())) >= half:
            raise CoveyError(f"a slot of {self.width} bits overflows; raise the packing's additions")
        shifted = np.full(self.count(encoded.size) * self.slots, half, np.int64)
        shifted[: encoded.size] += encoded
        return [gmpy2.pack(row, self.width) - self._middle for row in shifted.reshape(-1, self.slots).tolist()]

    def unpack(self, packed: Sequence[Integer], dimension: int) -> NDArray[np.int64]:
        """The inverse; refuses an integer that no allowed sum can give."""
        half, limit = 1 << (self.width - 1), mpz(1) << (self.slots * self.width)
        rows = []
        for integer in packed:
            shifted = integer + self._middle
            if not 0 <= shifted < limit:
                raise CoveyError(
                    "a plaintext is outside the packing's range: still blinded, blinded differently, or altered"
                )
            digits = gmpy2.unpack(shifted, self.width)
            rows.append([int(digit) for digit in digits] + [0] * (self.slots - len(digits)))
        unpacked = np.array(rows, np.int64).reshape(-1) - half
        if unpacked.size < dimension or np.any(unpacked[dimension:]):
            raise CoveyError(f"expected {dimension} packed values and zeros behind them; the message was altered")
        return unpacked[:dimension]

    def unpack_at(self, packed: Integer, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """The slots at these positions of a difference of masked integers. Carries from masked slots below make them
        wrong by 2 units at most.
        """
        half = 1 << (self.width - 1)
        digits = gmpy2.unpack((packed + self._middle) % (mpz(1) << (self.slots * self.width)), self.width)
        return np.array([int(digits[i]) if i < len(digits) else 0 for i in positions], np.int64) - half

    def draw_mask(self, width: int, kept: NDArray[np.int64], values: NDArray[np.int64]) -> Integer:
        """One integer to add to a packed one: `values` in the kept slots and, from the operating system, anything in the
        others below `width`. Where the topmost is masked, so are _BEYOND bits above it: what a sum has there is hidden
        up to 2^-_BEYOND, and the blind that comes on top is longer still.
        """
        slots = np.zeros(self.slots, np.int64)
        half = 1 << (self.width - 1)
        drawn = np.frombuffer(secrets.token_bytes(8 * width), "<u8") >> np.uint64(64 - self.width)
        slots[:width] = np.maximum(drawn.astype(np.int64) - half, 1 - half)
        slots[kept] = values
        beyond = 0 if width - 1 in kept else secrets.randbits(_BEYOND)
        return self.pack(slots)[0] + (mpz(beyond) << (width * self.width))

    def draw_blind(self, dimension: int) -> list[Integer]:
        """One blind per integer of a vector, from the operating system. For one round only: two rounds under
        the same blind show the difference of their models.
        """
        bits = self.slots * self.width + self.hiding
        return [mpz(secrets.randbits(bits)) for _ in range(self.count(dimension))]
