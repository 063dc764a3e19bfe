"""Sealed vectors under Paillier: one model, one bytes object, which a server can add, blind and hand on
unread.

A blob is the label that everything sealed carries (`covey.crypto.sealing.sealing`), with the scheme `paillier` or, under a
blind, `pailblnd`, and then ciphertexts of fixed width. Who sent it must be shown by `covey.crypto.signatures`: anybody
can make blobs and combine them.

Blinding, as FedCAPrivacy uses it: the business server draws a blind, adds its encryption to every row
(`add`), and the holder of the key sees rows relative to each other only (`open_blinded`). A mean of blinded
rows carries the blind once, whatever the number of rows, so the blind itself is what comes off again, under
whichever key the mean was sealed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from gmpy2 import mpz
from numpy.typing import ArrayLike, NDArray

from covey.crypto.paillier.paillier import Integer, PrivateKey, PublicKey
from covey.crypto.sealing.packing import Packing
from covey.crypto.sealing.sealing import LABEL_BYTES, Label
from covey.errors import CoveyError

_SCHEMES = ("paillier", "pailblnd")  # by number of blinds


@dataclass(frozen=True)
class SealedVector:
    """A blob that was read and found possible."""

    ciphertexts: list[Integer]
    dimension: int
    terms: int
    blinds: int = 0


@dataclass(frozen=True)
class VectorSealer:
    """What a party without the private key can do: seal its own vectors and combine those of others."""

    key: PublicKey
    packing: Packing
    workers: int = 1

    def __post_init__(self) -> None:
        if self.key.bits < self.packing.modulus_bits:
            raise CoveyError(
                f"the packing is made for a modulus of {self.packing.modulus_bits} bits and the key has "
                f"{self.key.bits}; pack for the shortest key of the protocol"
            )

    def size(self, dimension: int) -> int:
        """Bytes of a sealed vector."""
        return LABEL_BYTES + self.packing.count(dimension) * self.key.ciphertext_bytes

    def seal(self, vector: ArrayLike) -> bytes:
        encoded = self.packing.encode(vector)
        return self.write(self._encrypt(self.packing.pack(encoded), encoded.size, terms=1))

    def add(self, a: bytes, b: bytes) -> bytes:
        return self.write(self.combine(self.read(a), self.read(b)))

    def subtract(self, a: bytes, b: bytes) -> bytes:
        left, right = self.read(a), self.read(b)
        if right.blinds:
            raise CoveyError("cannot subtract a blinded vector; remove its blind with `unblind` first")
        negated = SealedVector(self.key.negate(right.ciphertexts), right.dimension, right.terms)
        return self.write(self.combine(left, negated))

    def scale(self, blob: bytes, factor: int) -> bytes:
        """Times a whole number, which counts as that many terms."""
        return self.write(self._scaled(self.read(blob), factor))

    def mix(self, membership: ArrayLike, sealed: Sequence[bytes]) -> list[bytes]:
        """k sealed sums over n sealed vectors: row k of `membership` [k, n] holds whole, non-negative weights."""
        weights = np.asarray(membership)
        if weights.ndim != 2 or weights.shape[1] != len(sealed) or not len(sealed):
            raise CoveyError(
                f"membership has shape {weights.shape}; expected [clusters, {len(sealed)}], one column a vector"
            )
        if np.any(weights < 0) or np.any(weights != np.rint(weights)):
            raise CoveyError("Paillier sums take whole non-negative weights; scale the weights and round them")
        rows = [self.read(blob) for blob in sealed]
        sums = []
        for row_weights in weights.astype(int).tolist():
            total = None
            for weight, row in zip(row_weights, rows, strict=True):
                if weight == 0:
                    continue
                term = row if weight == 1 else self._scaled(row, weight)
                total = term if total is None else self.combine(total, term)
            sums.append(self.write(total or self.zeros(rows[0].dimension)))
        return sums

    def seal_blind(self, blind: Sequence[Integer], dimension: int) -> bytes:
        """A blind, to `add` to every row of a round. Its encryption is fresh, so it also hides the rows'
        randomness.
        """
        return self.write(self._encrypt(self._fits(blind, dimension), dimension, terms=0, blinds=1))

    def seal_blinded(self, integers: Sequence[Integer], dimension: int) -> bytes:
        """A blinded mean, as `BlindedRows.mean` gives it: for the key holder that hands it on without knowing
        it.
        """
        return self.write(self._encrypt(self._fits(integers, dimension), dimension, terms=1, blinds=1))

    def unblind(self, blob: bytes, blind: Sequence[Integer]) -> bytes:
        sealed = self.read(blob)
        if sealed.blinds != 1:
            raise CoveyError("there is no blind to remove from this vector; unblind each blinded vector once")
        blind = self._fits(blind, sealed.dimension)
        rest = self.key.add_known(sealed.ciphertexts, [-b for b in blind])
        return self.write(SealedVector(rest, sealed.dimension, sealed.terms))

    def rearrange(self, blob: bytes, order: ArrayLike, signs: ArrayLike) -> bytes:
        """Ciphertext i of the result is `signs[i]` (±1) times ciphertext `order[i]`: distances between rows
        that were rearranged alike stay, coordinates no longer line up with those of another round. Before
        blinding only.
        """
        sealed = self.read(blob)
        count = len(sealed.ciphertexts)
        order, signs = np.asarray(order), np.asarray(signs)
        if sealed.blinds or not np.array_equal(np.sort(order), np.arange(count)) or signs.shape != (count,):
            raise CoveyError(
                f"rearranging takes an unblinded vector, a permutation and signs of its {count} ciphertexts"
            )
        moved = [sealed.ciphertexts[i] for i in order.tolist()]
        turned = [c if sign > 0 else self.key.negate([c])[0] for c, sign in zip(moved, signs.tolist(), strict=True)]
        return self.write(
            SealedVector(turned, count * self.packing.slots, sealed.terms)
        )  # the zeros at the end moved too

    def restore(self, blob: bytes, order: ArrayLike, signs: ArrayLike, dimension: int) -> bytes:
        """Undoes `rearrange`."""
        back = np.argsort(np.asarray(order))
        sealed = self.read(self.rearrange(blob, back, np.asarray(signs)[back]))
        if self.packing.count(dimension) != len(sealed.ciphertexts):
            raise CoveyError(
                f"{len(sealed.ciphertexts)} ciphertexts cannot hold {dimension} values; check the dimension"
            )
        return self.write(SealedVector(sealed.ciphertexts, dimension, sealed.terms))

    def _encrypt(self, integers: Sequence[Integer], dimension: int, terms: int, blinds: int = 0) -> SealedVector:
        return SealedVector(self.key.encrypt(integers, self.workers), dimension, terms, blinds)

    def _fits(self, integers: Sequence[Integer], dimension: int) -> Sequence[Integer]:
        if len(integers) != self.packing.count(dimension):
            raise CoveyError(
                f"found {len(integers)} integers for {dimension} values, expected "
                f"{self.packing.count(dimension)}; use the blind that was drawn for this dimension and packing"
            )
        return integers

    def zeros(self, dimension: int) -> SealedVector:
        """The sum of no vectors, freshly encrypted."""
        return self._encrypt(self.packing.pack(np.zeros(dimension, np.int64)), dimension, terms=0)

    def combine(self, a: SealedVector, b: SealedVector) -> SealedVector:
        if a.dimension != b.dimension:
            raise CoveyError(f"cannot add vectors of {a.dimension} and {b.dimension} values; all must be one model")
        if a.blinds + b.blinds > 1:
            raise CoveyError("the sum would carry two blinds, and only one can be removed; add unblinded vectors")
        return SealedVector(
            self.key.add(a.ciphertexts, b.ciphertexts),
            a.dimension,
            self._allowed(a.terms + b.terms),
            a.blinds + b.blinds,
        )

    def _scaled(self, sealed: SealedVector, factor: int) -> SealedVector:
        if sealed.blinds:
            raise CoveyError("cannot scale a blinded vector: its blind would grow with it; scale it unblinded")
        if factor == 0:
            raise CoveyError("a vector times 0 would be a ciphertext that anybody can read; seal zeros instead")
        terms = self._allowed(sealed.terms * abs(factor))
        return SealedVector(self.key.multiply(sealed.ciphertexts, factor), sealed.dimension, terms)

    def _allowed(self, terms: int) -> int:
        if terms > self.packing.additions:
            raise CoveyError(
                f"More than {self.packing.additions} summed vectors could overflow a slot, found {terms}; "
                "raise `additions` for all parties"
            )
        return terms

    def write(self, sealed: SealedVector) -> bytes:
        width = self.key.ciphertext_bytes
        body = b"".join([int(c).to_bytes(width, "little") for c in sealed.ciphertexts])
        label = self._label(sealed.blinds, sealed.dimension, sealed.terms)
        return label.over(_digest(body)).write() + body

    def read(self, blob: bytes) -> SealedVector:
        """Everything about a blob that can be checked without the private key is checked here."""
        label, body = Label.read(blob), memoryview(blob)[LABEL_BYTES:]
        blinds = _SCHEMES.index(label.scheme) if label.scheme in _SCHEMES else 0
        label.expect(self._label(blinds, label.length, label.terms))
        if len(blob) != self.size(label.length) or label != label.over(_digest(body)):
            raise CoveyError(
                f"this sealed vector of {label.length} values was cut or altered ({len(blob)} bytes, expected "
                f"{self.size(label.length)} that match the digest); ask for it again"
            )
        self._allowed(label.terms)
        width = self.key.ciphertext_bytes
        ciphertexts = [mpz.from_bytes(bytes(body[i : i + width]), "little") for i in range(0, len(body), width)]
        self.key.check(ciphertexts)
        return SealedVector(ciphertexts, label.length, label.terms, blinds)

    def _label(self, blinds: int, dimension: int, terms: int) -> Label:
        return Label(_SCHEMES[blinds], self.packing.fingerprint, self.key.key_id, dimension, terms)


@dataclass(frozen=True)
class BlindedRows:
    """What the key holder learns from rows under one common blind: their differences, exactly, and nothing
    else.
    """

    packing: Packing
    first: tuple[Integer, ...]  # row 0 with its blind
    offsets: NDArray[np.int64]  # [n, d], row - row 0, encoded

    def differences(self) -> NDArray[np.float64]:
        """Each row minus row 0, [n, d]: same distances as the rows themselves."""
        return self.packing.decode(self.offsets)

    def mean(self, weights: ArrayLike) -> list[Integer]:
        """The weighted mean of the rows, still under the blind, rounded to the packing's precision."""
        share = np.asarray(weights, np.float64)
        if share.shape != (len(self.offsets),) or np.any(share < 0) or not 0 < share.sum() < np.inf:
            raise CoveyError(f"expected {len(self.offsets)} non-negative weights with a positive sum, one for each row")
        offset = np.rint(share / share.sum() @ self.offsets).astype(np.int64)
        return [a + b for a, b in zip(self.first, self.packing.pack(offset), strict=True)]


@dataclass(frozen=True)
class VectorOpener:
    """The holder of the private key."""

    key: PrivateKey
    packing: Packing
    workers: int = 1

    @property
    def sealer(self) -> VectorSealer:
        return VectorSealer(self.key.public, self.packing, self.workers)

    def open(self, blob: bytes, additions: int | None = None) -> NDArray[np.float64]:
        """The sum that was sealed. Give `additions` where the number of terms is known, and it is checked."""
        sealed = self.sealer.read(blob)
        if sealed.blinds:
            raise CoveyError("this vector is blinded; open it with `open_blinded`, or have its blind removed first")
        if additions is not None and sealed.terms != additions:
            raise CoveyError(f"expected a sum of {additions} vectors, found one of {sealed.terms}; check who was added")
        integers = self.key.decrypt(sealed.ciphertexts, self.workers)
        return self.packing.decode(self.packing.unpack(integers, sealed.dimension))

    def open_blinded(self, blobs: Sequence[bytes]) -> BlindedRows:
        """Rows under one common blind, relative to the first."""
        first: list[Integer] = []
        offsets = []
        for row, dimension in self._rows(blobs):
            first = first or row
            offsets.append(self.packing.unpack([a - b for a, b in zip(row, first, strict=True)], dimension))
        return BlindedRows(self.packing, tuple(first), np.stack(offsets))

    def open_masked(self, blobs: Sequence[bytes], positions: NDArray[np.int64]) -> tuple[NDArray[np.int64], int]:
        """(rows of one ciphertext under one common blind, relative to the first, at these positions; their dimension)."""
        rows = list(self._rows(blobs))
        first, dimension = rows[0]
        return np.stack([self.packing.unpack_at(row[0] - first[0], positions) for row, _ in rows]), dimension

    def _rows(self, blobs: Sequence[bytes]) -> Iterator[tuple[list[Integer], int]]:
        """Each row as decrypted, one after the other: together they would be large."""
        if self.packing.additions < 2:
            raise CoveyError("the difference of two rows needs room for two terms; take a packing with additions >= 2")
        if not blobs:
            raise CoveyError("there are no rows to open; a round needs at least one participant")
        dimension = None
        for blob in blobs:
            sealed = self.sealer.read(blob)
            dimension = sealed.dimension if dimension is None else dimension
            if sealed.blinds != 1 or sealed.terms != 1 or sealed.dimension != dimension:
                raise CoveyError("expected single vectors of one dimension under one blind; check what was forwarded")
            yield self.key.decrypt(sealed.ciphertexts, self.workers), dimension


def _digest(body: bytes | memoryview) -> bytes:
    return hashlib.blake2b(body, digest_size=16).digest()
