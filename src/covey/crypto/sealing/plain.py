"""No encryption, in the sealing interface: float32 in the clear, added in float64. For baselines; hides nothing."""

import hashlib
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from covey.crypto.sealing.sealing import (
    LABEL_BYTES,
    Label,
    check_vector,
    checked_members,
    describe,
    extreme,
    fingerprint,
    read_description,
)
from covey.errors import CoveyError

name = "none"
title = "no encryption: float32 in the clear"

_PARAMETERS: dict[str, Any] = {"scheme": "none"}
_LABEL = Label("none", fingerprint(_PARAMETERS), bytes(8))
LARGEST = 1e30  # that is added: sums of many stay numbers
_LIMIT = float(np.finfo(np.float32).max)
_WAITING, _STRETCH = 16, 8_192  # vectors in memory at once; numbers of each that are added together


def generate_keys(bound: float, terms: int) -> bytes:
    """There is no key, and neither `bound` nor `terms` limits anything."""
    return describe(_PARAMETERS, _LABEL.key)


def sealer(keys: bytes) -> "PlainSealer":
    read_description(keys)
    return PlainSealer()


def mixer(public: bytes, clusters: int, length: int) -> "PlainMixer":
    read_description(public)
    return PlainMixer(clusters, length)


class Fresh(bytes):
    """Written by this process and never outside of it, so that its digest need not be computed again to be believed.

    Half of what a simulated round without encryption took were digests of bytes that had gone nowhere. What is pickled, sent or
    read from a file comes back as plain bytes, and these are checked.
    """

    def __reduce__(self) -> tuple[type[bytes], tuple[bytes]]:
        return bytes, (bytes(self),)


@dataclass(frozen=True)
class PlainSealer:
    name: str = "none"

    def seal(self, vector: ArrayLike) -> bytes:
        values = np.asarray(vector)
        values = values if values.dtype == np.float32 else values.astype(np.float64)
        check_vector(values, _LIMIT)
        return _write(values, terms=1)

    def open(self, sealed: bytes) -> NDArray[np.float64]:
        return _read(sealed, None).astype(np.float64)

    def public(self) -> bytes:
        return describe(_PARAMETERS, _LABEL.key)


class PlainMixer:
    """Vectors wait for one another and are added in stretches that stay in a core's cache, in the order of their arrival: the sums
    are those of adding each at once, bit for bit.
    """

    def __init__(self, clusters: int, length: int) -> None:
        self._sums = np.zeros((clusters, length))  # [k, d]
        self._terms = [0] * clusters
        self._waiting: list[tuple[NDArray[np.float32], list[int]]] = []  # values [d], its clusters

    def add(self, sealed: bytes, members: Sequence[int]) -> None:
        chosen = checked_members(members, len(self._terms))
        values = _read(sealed, self._sums.shape[1])
        if not extreme(values) <= LARGEST:  # also where one is no number
            raise CoveyError(f"A plain vector holds a number beyond ±{LARGEST:g} or none: one would spoil the sum.")
        terms = Label.read(sealed).terms
        for j in chosen:
            self._terms[j] += terms
        self._waiting.append((values, chosen))
        if len(self._waiting) == _WAITING:
            self._settle()

    def sums(self) -> list[bytes]:
        self._settle()
        return [_write(total, terms) for total, terms in zip(self._sums, self._terms, strict=True)]

    def _settle(self) -> None:
        for begin in range(0, self._sums.shape[1], _STRETCH):
            stretch = slice(begin, begin + _STRETCH)
            for values, chosen in self._waiting:
                part = values[stretch].astype(np.float64)
                for j in chosen:
                    self._sums[j, stretch] += part
        self._waiting = []


def _write(values: NDArray[Any], terms: int) -> bytes:
    payload = np.ascontiguousarray(values, dtype="<f4").data.cast("B")
    label = replace(_LABEL, length=values.size, terms=terms).over(_digest(payload)).write()
    return Fresh(b"".join((label, payload)))


def _read(sealed: bytes, length: int | None) -> NDArray[np.float32]:
    label, payload = Label.read(sealed), memoryview(sealed)[LABEL_BYTES:]
    label.expect(_LABEL, length)
    whole = type(sealed) is Fresh or label in (label.over(_digest(payload)), label.over(_former_digest(payload)))
    if len(payload) != 4 * label.length or not whole:
        raise CoveyError("A plain vector was truncated or altered on the way: have it sent again.")
    return np.frombuffer(payload, dtype="<f4")


def _digest(payload: bytes | memoryview) -> bytes:
    """Against accidents only, as any digest without a key: a CRC and the sum of the words, five times faster than a hash."""
    words = np.frombuffer(payload, dtype="<u4", count=len(payload) // 4)
    return zlib.crc32(payload).to_bytes(8, "little") + int(words.sum(dtype=np.uint64)).to_bytes(8, "little")


def _former_digest(payload: bytes | memoryview) -> bytes:
    """Of checkpoints that were written before."""
    return hashlib.blake2b(payload, digest_size=16).digest()
