"""No encryption, in the sealing interface: float32 in the clear, added in float64. For baselines; hides nothing."""

import hashlib
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

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
from covey.errors import CoveyError, NotFinite
from covey.messages import Rows

name = "none"
title = "no encryption: float32 in the clear"

_PARAMETERS: dict[str, Any] = {"scheme": "none"}
_LABEL = Label("none", fingerprint(_PARAMETERS), bytes(8))
LARGEST = 1e30  # that is added: sums of many stay numbers
_LIMIT = float(np.finfo(np.float32).max)
_WAITING, _STRETCH = 16, 8_192  # vectors in memory at once; numbers of each that are added together
_THERE = ("cuda",)  # where rows are added as one product, and not brought here
_AT_ONCE = 1 << 26  # numbers that a GPU takes to float64 at a time: half a gigabyte


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

    def open_rows(self, sums: "PlainSums") -> Tensor:
        return sums.vectors

    def public(self) -> bytes:
        return describe(_PARAMETERS, _LABEL.key)


class PlainRows(Rows[bytes]):
    """What clients seal that run as one, [n, d], where it was computed. Nobody's bytes are written, and no numbers looked at,
    before somebody asks for them: a mixer in the same process adds rows.
    """

    def __init__(self, vectors: Tensor) -> None:
        self.vectors = vectors

    def __len__(self) -> int:
        return len(self.vectors)

    def __getitem__(self, at: Any) -> Any:
        rows = self.vectors[at].cpu().numpy()
        return PlainSealer().seal(rows) if rows.ndim == 1 else [PlainSealer().seal(row) for row in rows]

    def __iter__(self) -> Iterator[bytes]:
        return iter(self[:])  # they leave a GPU in one copy

    def like(self) -> bytes:
        return _blank(self.vectors.shape[1])


class PlainSums(Rows[bytes]):
    """Sums in the clear, [k, d] in float32, where they were added. Bytes and their digests are written when somebody asks for them,
    once: of what does not leave the process nobody does.
    """

    def __init__(self, vectors: Tensor, terms: Sequence[int]) -> None:
        self.vectors, self.terms = vectors, terms

    @cached_property
    def written(self) -> list[bytes]:
        return [_write(total, terms) for total, terms in zip(self.vectors.cpu().numpy(), self.terms, strict=True)]

    def __len__(self) -> int:
        return len(self.terms)

    def __getitem__(self, at: Any) -> Any:
        return self.written[at]

    def __iter__(self) -> Iterator[bytes]:
        return iter(self.written)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and self.written == list(other)

    __hash__ = None  # type: ignore[assignment]  # as of a list

    def __reduce__(self) -> tuple[type[list[bytes]], tuple[list[bytes]]]:
        return list, (self.written,)

    def like(self) -> bytes:
        return _blank(self.vectors.shape[1])


class PlainMixer:
    """Vectors wait for one another and are added in stretches that stay in a core's cache, in the order of their arrival: the sums
    are those of adding each at once, bit for bit. Rows on a GPU are added there, in an order of its own: the sums are the same but
    for float64's last bits, of which float32 mostly shows none.
    """

    def __init__(self, clusters: int, length: int) -> None:
        self._length = length
        self._here: NDArray[np.float64] | None = None  # [k, d]; None: nothing was added here
        self._there: Tensor | None = None  # [k, d]: of rows on a GPU
        self._terms = [0] * clusters
        self._waiting: list[tuple[NDArray[np.float32], list[int]]] = []  # values [d], its clusters

    def add(self, sealed: bytes, members: Sequence[int]) -> None:
        chosen = checked_members(members, len(self._terms))
        values = _read(sealed, self._length)
        _refuse_spoilt(extreme(values))
        self._add(values, chosen, Label.read(sealed).terms)

    def add_rows(self, sealed: PlainRows, members: Sequence[Sequence[int]]) -> None:
        """Each of many clients' vectors into the sums of its own members."""
        chosen = [checked_members(one, len(self._terms)) for one in members]
        rows = sealed.vectors
        if len(chosen) != len(rows) or rows.shape[1] != self._length:
            raise CoveyError(f"Found {list(rows.shape)} numbers for {len(chosen)} clients of {self._length} each.")
        lowest, highest = (float(one) for one in torch.stack(torch.aminmax(rows)).cpu())
        _refuse_spoilt(max(highest, -lowest) if highest == highest else highest)
        if rows.device.type in _THERE:
            self._add_there(rows, chosen)
            return
        for values, own in zip(rows.numpy(), chosen):
            self._add(values, own, 1)

    def sums(self) -> list[bytes]:
        return self.sums_in_rows().written

    def sums_in_rows(self) -> PlainSums:
        """The sums before they are written."""
        self._settle()
        return PlainSums(self._totals().to(torch.float32), tuple(self._terms))

    def _totals(self) -> Tensor:
        if self._here is None:
            return torch.zeros(len(self._terms), self._length) if self._there is None else self._there
        here = torch.from_numpy(self._here)
        return here if self._there is None else here + self._there.cpu()

    def _add(self, values: NDArray[np.float32], chosen: list[int], terms: int) -> None:
        for j in chosen:
            self._terms[j] += terms
        self._waiting.append((values, chosen))
        if len(self._waiting) == _WAITING:
            self._settle()

    def _add_there(self, rows: Tensor, chosen: Sequence[Sequence[int]]) -> None:
        shares = np.zeros((len(self._terms), len(rows)))
        for i, own in enumerate(chosen):
            shares[own, i] = 1.0
            for j in own:
                self._terms[j] += 1
        if self._there is None:
            self._there = torch.zeros(len(shares), self._length, dtype=torch.float64, device=rows.device)
        room = max(1, _AT_ONCE // rows.shape[1])
        there = torch.from_numpy(shares).to(rows.device)
        for part, share in zip(torch.split(rows, room), torch.split(there, room, dim=1)):
            self._there.addmm_(share, part.to(torch.float64))

    def _settle(self) -> None:
        if not self._waiting:
            return
        if self._here is None:
            self._here = np.zeros((len(self._terms), self._length))
        for begin in range(0, self._length, _STRETCH):
            stretch = slice(begin, begin + _STRETCH)
            for values, chosen in self._waiting:
                part = values[stretch].astype(np.float64)
                for j in chosen:
                    self._here[j, stretch] += part
        self._waiting = []


def _refuse_spoilt(largest: float) -> None:
    if not largest <= LARGEST:  # also where one is no number
        why = "one would spoil the sum; training.lr is probably too high, or a client sends what it should not"
        raise NotFinite(f"A plain vector holds a number beyond ±{LARGEST:g} or none: {why}.")


@lru_cache(maxsize=2)
def _blank(length: int) -> bytes:
    """As long as what is written of a vector."""
    return bytes(LABEL_BYTES + 4 * length)


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
