"""The clients that open sums together, and the ring that their vectors are sealed in: public, the same for all of them.

Sizes. A vector within ±bound is carried in steps of 2^-unit_bits, times 2^gap_bits, so that the errors of `terms` vectors, each
at most TAIL, stay below half a gap: opening is exact, always, not with high probability. Shares are modulo the smallest prime
that holds the sum of `terms` secrets. The ring is N = 4096 with a 58-bit prime, which the HE standard rates at 256 bits
(table of 2018, classical attacks, ternary secrets; ours are wider). The reserve pays for what opened sums tell of the keys
in them: docs/deployment/threshold_review.md.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from covey.crypto.draws import TAIL
from covey.crypto.openings import roster as rosters
from covey.crypto.openings.roster import Roster
from covey.crypto.openings.shamir import check_field
from covey.crypto.sealing.ring import check_security, prime
from covey.crypto.sealing.sealing import Label, check_capacity, describe, read_description
from covey.errors import CoveyError

SCHEME = "threshold"
DEGREE, MODULUS_BITS = 4096, 58
LEAST_UNIT_BITS = 10
_LABEL = "threshld"  # a label has room for eight letters


@dataclass(frozen=True)
class Circle:
    """See the module's docstring."""

    degree: int
    modulus: int
    gap_bits: int
    unit_bits: int
    bound: float
    terms: int
    field: int  # the prime of shares
    quorum: int  # t: so many clients of the circle open a sum
    roster: Roster

    def __post_init__(self) -> None:
        check_security(self.degree, self.modulus.bit_length())
        check_capacity(self.bound, self.terms)
        check_field(self.field, len(self.roster), self.quorum)
        rosters.check_quorum(self.roster, self.quorum)
        if self.unit_bits < LEAST_UNIT_BITS:
            raise CoveyError(
                f"sealing {self.terms} terms within ±{self.bound:g} leaves {self.unit_bits} bits after the point, expected at "
                f"least {LEAST_UNIT_BITS}: lower algorithm.bound"
            )
        largest = (self.bound * 2.0**self.unit_bits + 1) * self.terms * 2.0**self.gap_bits
        if largest > self.modulus / 2 or 2 * self.terms * TAIL >= min(2**self.gap_bits, self.field):
            raise CoveyError("these sealing parameters could overflow: make keys with covey's own")

    @property
    def holders(self) -> int:
        return rosters.holders(self.roster)

    @cached_property
    def digest(self) -> bytes:
        """32 bytes that name the circle: its parameters and everybody's public key."""
        return hashlib.sha256(repr(sorted(asdict(self).items())).encode()).digest()

    @cached_property
    def label(self) -> Label:
        return Label(_LABEL, self.digest[:8], self.digest[8:16])

    @cached_property
    def share_type(self) -> np.dtype[Any]:
        return np.dtype("<u2" if self.field < 2**16 else "<u4")

    @property
    def capacity(self) -> int:
        """The largest whole number that a client can seal, in steps of 2^-unit_bits: `terms` of them add up exactly."""
        return math.floor(self.bound * 2.0**self.unit_bits)

    def values(self, numbers: NDArray[np.int64]) -> NDArray[np.float64]:
        """Whole numbers as the vector that seals them: exact, since capacity and sums are below 2^53."""
        return np.ldexp(numbers.astype(np.float64), -self.unit_bits)

    def numbers(self, values: NDArray[np.float64]) -> NDArray[np.int64]:
        """And back, of an opened sum."""
        return np.rint(np.ldexp(values, self.unit_bits)).astype(np.int64)

    def blocks(self, length: int) -> int:
        return -(-length // self.degree)

    def payload_bytes(self, length: int) -> int:
        return 8 * self.degree * self.blocks(length)

    def public_key(self, client: int) -> bytes:
        return rosters.public_key(self.roster, client)

    def about(self, what: str, occasion: str) -> bytes:
        """What a box, or a public polynomial, belongs to."""
        return b"covey threshold 1\n" + self.digest + f"{what}\n{occasion}".encode()

    def read_shares(self, data: bytes) -> NDArray[np.int64]:
        """Residues modulo the field, [N]."""
        if not isinstance(data, bytes) or len(data) != self.degree * self.share_type.itemsize:
            raise CoveyError(
                f"a share has {self.degree} residues of {self.share_type.itemsize} bytes, found another length"
            )
        residues = np.frombuffer(data, self.share_type).astype(np.int64)
        if int(residues.max()) >= self.field:
            raise CoveyError("a share holds a residue that is too large: it was altered")
        return residues

    def write_shares(self, residues: NDArray[np.int64]) -> bytes:
        return residues.astype(self.share_type).tobytes()

    def to_bytes(self) -> bytes:
        return describe({"scheme": SCHEME, **asdict(self)}, self.label.key)


def draw_circle(bound: float, terms: int, roster: Sequence[bytes], quorum: int) -> Circle:
    """The parameters for these clients; `terms` vectors at most are added."""
    check_capacity(bound, terms)
    q = prime(DEGREE, MODULUS_BITS)
    gap_bits = (2 * terms * TAIL).bit_length()
    unit_bits = math.floor(math.log2(q / 2 / terms / 2.0**gap_bits / (bound * (1 + 2.0**-10))))
    field = _next_prime(max(2 * terms * TAIL, len(roster)))
    return Circle(DEGREE, q, gap_bits, unit_bits, bound, terms, field, quorum, rosters.roster_of(roster))


@lru_cache(maxsize=8)
def read_circle(public: bytes) -> Circle:
    """From what `to_bytes` gave; checked like freshly chosen parameters."""
    description = read_description(public)
    if description["scheme"] != SCHEME:
        raise CoveyError(f"Found parameters of '{description['scheme']}', expected '{SCHEME}'.")
    try:
        values = {name: description[name] for name in Circle.__dataclass_fields__}
        circle = Circle(**values | {"roster": tuple(values["roster"])})
        complete = rosters.is_roster(circle.roster)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise CoveyError("Public parameters of 'threshold' are incomplete: expected what covey wrote.") from error
    if not complete or circle.label.key.hex() != description.get("key"):
        raise CoveyError("Public parameters of 'threshold' were altered: their name is not that of their content.")
    rosters.check_roster(circle.roster)
    return circle


def _next_prime(least: int) -> int:
    """The smallest prime above `least`; small enough for trial division."""
    candidate = least + 1
    while any(candidate % d == 0 for d in range(2, math.isqrt(candidate) + 1)):
        candidate += 1
    return candidate
