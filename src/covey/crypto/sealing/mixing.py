"""Sealed vectors as labelled residues, and their sums: what a server without any key reads, adds and writes."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from covey.crypto.sealing.sealing import LABEL_BYTES, Label, checked_members
from covey.errors import CoveyError

Words = NDArray[np.uint64]

# Blobs wait to be added together: fewer sweeps over the accumulators. At most 24, and at most 64 MiB or k blobs, so that
# the mixer's memory stays within twice its accumulators (or a little more than nothing).
WINDOW = 24
WAITING_BYTES = 64 << 20


class Residues(Protocol):
    """What a server must know of a ring."""

    @property
    def modulus(self) -> int: ...

    @property
    def terms(self) -> int: ...

    def payload_bytes(self, length: int) -> int: ...


def read_words(sealed: bytes, own: Label, ring: Residues, length: int | None = None) -> tuple[Label, Words]:
    """Label and residues of a sealed vector, after every check that needs no key."""
    claimed = Label.read(sealed)
    claimed.expect(own, length)
    payload = memoryview(sealed)[LABEL_BYTES:]
    if len(payload) != ring.payload_bytes(claimed.length):
        raise CoveyError(
            f"A sealed vector of {claimed.length} floats has {ring.payload_bytes(claimed.length)} bytes, "
            f"found {len(payload)}: it was cut or extended on the way."
        )
    from covey.crypto.sealing.residues import (
        as_words,
        survey,
    )  # brings numba, 55 MB that a party without sums does not need

    words = as_words(payload)
    largest, total, weighted = survey(words)
    if largest >= ring.modulus or claimed != claimed.over(_digest(total, weighted)):
        raise CoveyError("A sealed vector was altered on the way: its residues do not fit its label.")
    if claimed.terms > ring.terms:
        raise CoveyError(f"A sum of {claimed.terms} vectors, these parameters carry {ring.terms}: raise terms.")
    return claimed, words


def write_words(words: Words, own: Label, length: int, terms: int) -> bytes:
    from covey.crypto.sealing.residues import survey

    _, total, weighted = survey(words)
    mark = replace(own, length=length, terms=terms).over(_digest(total, weighted))
    return b"".join((mark.write(), words.data))


def _digest(total: np.uint64, weighted: np.uint64) -> bytes:
    return int(total).to_bytes(8, "little") + int(weighted).to_bytes(8, "little")


class ResidueMixer:
    """The server's side: `k` accumulators, a few blobs waiting, no key and no decryption."""

    def __init__(self, ring: Residues, own: Label, clusters: int, length: int) -> None:
        self._ring, self._label, self._length = ring, own, length
        self._sums = np.zeros((clusters, self._ring.payload_bytes(length) // 8), dtype="<u8")  # [k, residues]
        self._terms = [0] * clusters
        self._room = min(WINDOW, max(clusters, WAITING_BYTES // self._sums[0].nbytes))
        self._waiting: list[tuple[Words, list[int]]] = []

    def add(self, sealed: bytes, members: Sequence[int]) -> None:
        """Checks everything before anything is added, so that a refused blob leaves the sums as they were."""
        chosen = checked_members(members, len(self._terms))
        claimed, words = read_words(sealed, self._label, self._ring, self._length)
        if any(self._terms[j] + claimed.terms > self._ring.terms for j in chosen):
            raise CoveyError(f"More than {self._ring.terms} vectors in one sum: make keys with more terms.")
        for j in chosen:
            self._terms[j] += claimed.terms
        self._waiting.append((words, chosen))
        if len(self._waiting) == self._room:
            self._flush()

    def sums(self) -> list[bytes]:
        self._flush()
        return [
            write_words(total, self._label, self._length, terms)
            for total, terms in zip(self._sums, self._terms, strict=True)
        ]

    def _flush(self) -> None:
        from covey.crypto.sealing.residues import accumulate

        inputs, members = [w for w, _ in self._waiting], [m for _, m in self._waiting]
        accumulate(self._sums, inputs, members, WINDOW, self._ring.modulus)
        self._waiting.clear()
