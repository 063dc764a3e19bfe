"""The clients whose masks cancel in a sum, and the whole numbers that they are added in: public, the same for all of them.

Sizes. A vector within ±bound is carried in steps of 2^-unit_bits, times its weight, modulo 2^bits. `terms` of them take half of
the ring at most, so a sum is exact, always; and one whose masks do not cancel falls outside of that half in some number, but for
a chance of 2^-d. Seeds of masks are SEED residues modulo FIELD, 255.99 bits, which is what Shamir's shares are made of.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from covey.crypto.openings import roster as rosters
from covey.crypto.openings.roster import Roster
from covey.crypto.openings.shamir import check_field
from covey.crypto.sealing.sealing import (
    LABEL_BYTES,
    Label,
    check_capacity,
    checked_vector,
    describe,
    read_description,
)
from covey.errors import CoveyError

SCHEME = "secagg"
FIELD, SEED = 65521, 16  # the largest prime of 16 bits; residues of a seed
SHARE_BYTES, TAG_BYTES = 2 * SEED, 16
LEAST_UNIT_BITS = 10
Words = NDArray[Any]  # uint32 or uint64, as the ring has it
_WORD: dict[int, np.dtype[Any]] = {32: np.dtype("<u4"), 64: np.dtype("<u8")}


@dataclass(frozen=True)
class Cohort:
    """See the module's docstring."""

    bits: int
    unit_bits: int
    bound: float
    weight: int  # the largest that a vector is multiplied by
    terms: int
    quorum: int  # t: so many clients must help to take the masks off
    roster: Roster

    def __post_init__(self) -> None:
        check_capacity(self.bound, self.terms)
        check_field(FIELD, len(self.roster), self.quorum)
        rosters.check_quorum(self.roster, self.quorum)
        if self.bits not in _WORD or self.weight < 1:
            raise CoveyError(f"masks of {self.bits} bits for weights up to {self.weight}: expected 32 or 64 bits")
        if self.unit_bits < LEAST_UNIT_BITS:
            raise CoveyError(
                f"adding {self.terms} vectors within ±{self.bound:g} with weights up to {self.weight} in {self.bits} bits leaves "
                f"{self.unit_bits} bits after the point, expected at least {LEAST_UNIT_BITS}: lower algorithm.bound"
            )
        if self.largest(self.terms * self.weight) > 2 ** (self.bits - 2):
            raise CoveyError("these masks' parameters could overflow: make keys with covey's own")

    def largest(self, weight: int) -> int:
        """The largest magnitude of a number in a sum of this weight."""
        return weight * (math.ceil(self.bound * 2.0**self.unit_bits) + 1)

    @property
    def word(self) -> np.dtype[Any]:
        return _WORD[self.bits]

    @property
    def holders(self) -> int:
        return rosters.holders(self.roster)

    @cached_property
    def digest(self) -> bytes:
        """32 bytes that name the cohort: its parameters and everybody's public key."""
        return hashlib.sha256(repr(sorted(asdict(self).items())).encode()).digest()

    @cached_property
    def label(self) -> Label:
        return Label(SCHEME, self.digest[:8], self.digest[8:16])

    @cached_property
    def members(self) -> tuple[int, ...]:
        """The clients that hold keys."""
        return tuple(i for i, key in enumerate(self.roster) if key)

    def peers(self, client: int) -> tuple[int, ...]:
        """With whom a client has masks in common: everybody else."""
        return tuple(i for i in self.members if i != client)

    def public_key(self, client: int) -> bytes:
        return rosters.public_key(self.roster, client)

    def about(self, what: str, occasion: str) -> bytes:
        """What a box, a seed or a share's tag belongs to."""
        return b"covey secagg 1\n" + self.digest + f"{what}\n{occasion}".encode()

    # ---------------------------------------------------------------- vectors

    def encode(self, vector: ArrayLike, weight: int) -> Words:
        """[d + 1]: the vector times its weight, and the weight."""
        if not (type(weight) is int and 1 <= weight <= self.weight):
            raise CoveyError(
                f"a model's weight is {weight}, expected a whole number from 1 to {self.weight}: "
                "set algorithm.weighting = 'clients'"
            )
        numbers = np.rint(checked_vector(vector, self.bound) * 2.0**self.unit_bits).astype(np.int64) * weight
        return np.append(numbers, weight).astype(self.word)

    def decode(self, words: Words, clients: int) -> tuple[NDArray[np.float64], int]:
        """(sum of the vectors times their weights, sum of the weights) of so many clients; refuses what no such sum can be."""
        numbers = words.astype(np.int64) if self.bits == 64 else words.view(np.int32).astype(np.int64)
        weight, values = int(numbers[-1]), numbers[:-1]
        most = self.largest(max(weight, 0))
        if not clients <= weight <= clients * self.weight or not bool(((values >= -most) & (values <= most)).all()):
            raise CoveyError(
                f"the sum of {clients} clients is out of range: a vector in it, a mask or a share was altered, or a vector was "
                "too large"
            )
        return values / 2.0**self.unit_bits, weight

    def write(self, words: Words, terms: int) -> bytes:
        """With a label; see `sealing.Label`."""
        payload = words.astype(self.word).tobytes()
        return replace(self.label, length=words.size, terms=terms).over(_digest(payload)).write() + payload

    def read(self, sealed: bytes, length: int | None = None) -> tuple[Label, Words]:
        """Label and words, after every check that needs no key."""
        claimed = Label.read(sealed)
        claimed.expect(self.label, length)
        payload = memoryview(sealed)[LABEL_BYTES:]
        if len(payload) != claimed.length * self.word.itemsize or claimed != claimed.over(_digest(payload)):
            raise CoveyError("A masked vector was cut or altered on the way: its words do not fit its label.")
        if claimed.terms > self.terms:
            raise CoveyError(f"A sum of {claimed.terms} masked vectors, these keys carry {self.terms}.")
        return claimed, np.frombuffer(payload, self.word)

    def to_bytes(self) -> bytes:
        return describe({"scheme": SCHEME, **asdict(self)}, self.label.key)


def draw_cohort(bound: float, terms: int, roster: Sequence[bytes], quorum: int, weight: int) -> Cohort:
    """The parameters for these clients: 32 bits where every client counts the same, 64 where weights are multiplied in."""
    check_capacity(bound, terms)
    bits = 32 if weight == 1 else 64
    unit_bits = math.floor(math.log2(2.0 ** (bits - 2) / (terms * weight * bound * (1 + 2.0**-LEAST_UNIT_BITS))))
    return Cohort(bits, min(unit_bits, 40), bound, weight, terms, quorum, rosters.roster_of(roster))


@lru_cache(maxsize=8)
def read_cohort(public: bytes) -> Cohort:
    """From what `to_bytes` gave; checked like freshly chosen parameters."""
    description = read_description(public)
    if description["scheme"] != SCHEME:
        raise CoveyError(f"Found parameters of '{description['scheme']}', expected '{SCHEME}'.")
    try:
        values = {name: description[name] for name in Cohort.__dataclass_fields__}
        cohort = Cohort(**values | {"roster": tuple(values["roster"])})
        complete = rosters.is_roster(cohort.roster)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise CoveyError(f"Public parameters of '{SCHEME}' are incomplete: expected what covey wrote.") from error
    if not complete or cohort.label.key.hex() != description.get("key"):
        raise CoveyError(f"Public parameters of '{SCHEME}' were altered: their name is not that of their content.")
    rosters.check_roster(cohort.roster)
    return cohort


def _digest(payload: bytes | memoryview) -> bytes:
    return hashlib.blake2b(payload, digest_size=16).digest()
