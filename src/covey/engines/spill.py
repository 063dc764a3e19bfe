"""What clients remember, where it does not fit in memory: vectors in a mapped temporary file.

SCAFFOLD keeps a model's worth of numbers for every client that ever took part. A host keeps those of so many clients in memory; the
others' lie in a file without a name, mapped, so that the operating system writes them out and reads back what a round needs. To
whoever reads it, a vector from the file is a tensor like any other. Its place is used again once nobody holds it.

The file lies where temporary files do (TMPDIR): where that is a file system in memory, nothing is gained.
"""

from __future__ import annotations

import mmap
import tempfile
import weakref
from collections import defaultdict
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from covey.errors import CoveyError

SMALL = 4096  # bytes: a shorter vector stays in memory
SEGMENT = 64 << 20  # bytes that the file grows by, and is mapped in, unless one vector is longer


class Spill:
    """Room for what the clients of one host remember. `limit`: bytes that stay in memory."""

    def __init__(self, limit: float) -> None:
        self.limit = limit
        self._near: dict[int, int] = {}  # client -> bytes, of those who stay in memory …
        self._held = 0  # … and of all of them
        self._file: Any = None
        self._segments: list[mmap.mmap] = []
        self._used = 0  # bytes of the last segment
        self._written = 0  # bytes since pages were last given back
        self._free: dict[int, list[tuple[int, int]]] = defaultdict(list)  # length -> (segment, place in it)

    @property
    def mapped(self) -> int:
        """Bytes of the file."""
        return sum(map(len, self._segments))

    def put(self, client: int, memory: dict[str, Any]) -> dict[str, Any]:
        """The same memory; where the limit is reached, with its vectors in the file."""
        vectors = {n: v for n, v in memory.items() if isinstance(v, Tensor) and v.numel() * v.element_size() >= SMALL}
        size = sum(v.numel() * v.element_size() for v in vectors.values())
        more = size - self._near.get(client, 0)
        if client in self._near or self._held + more <= self.limit:
            self._near[client], self._held = size, self._held + more
            return memory
        return memory | {name: self._copy(vector) for name, vector in vectors.items()}

    def keep(self, array: NDArray[Any]) -> NDArray[Any]:
        """A copy of an array that no client holds yet: in memory, or in the file where the limit is reached."""
        if array.nbytes < SMALL or self._held + array.nbytes <= self.limit:
            self._held += array.nbytes
            return array.copy()
        # numpy alone would hold the file's map, and not the view that says whose place it is
        place = torch.frombuffer(self._room(array.nbytes), dtype=torch.uint8).numpy().view(array.dtype)
        place = place.reshape(array.shape)
        place[...] = array
        self._wrote(array.nbytes)
        return place

    def rest(self) -> None:
        """Its pages need not stay in memory. What was written to them is in the file, and comes back when it is asked for."""
        self._written = 0
        if hasattr(mmap, "MADV_DONTNEED"):  # not on Windows
            for segment in self._segments:
                segment.madvise(mmap.MADV_DONTNEED)

    def _copy(self, vector: Tensor) -> Tensor:
        length = vector.numel() * vector.element_size()
        place = torch.frombuffer(self._room(length), dtype=vector.dtype).view(vector.shape)
        place.copy_(vector)
        self._wrote(length)
        return place

    def _room(self, length: int) -> memoryview:
        segment, start = self._free[length].pop() if self._free[length] else self._more(length)
        view = memoryview(self._segments[segment])[start : start + length]
        # The tensor holds this view, and the view goes with the last tensor that shows it.
        weakref.finalize(view, self._free[length].append, (segment, start)).atexit = False
        return view

    def _wrote(self, length: int) -> None:
        self._written += length
        if self._written > SEGMENT:
            self.rest()

    def _more(self, length: int) -> tuple[int, int]:
        aligned = -(-length // 64) * 64
        if not self._segments or self._used + aligned > len(self._segments[-1]):
            size = max(SEGMENT, -(-aligned // mmap.ALLOCATIONGRANULARITY) * mmap.ALLOCATIONGRANULARITY)
            try:
                self._file = self._file or tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as its vectors
                end = self.mapped
                self._file.truncate(end + size)
                self._segments.append(mmap.mmap(self._file.fileno(), size, offset=end))
            except OSError as e:
                raise CoveyError(
                    f"what clients remember takes more than engine.state_mb, and {tempfile.gettempdir()} has no room for the rest "
                    f"({e.strerror}): set TMPDIR to a larger disk, or raise engine.state_mb"
                ) from e
            self._used = 0
        start, self._used = self._used, self._used + aligned
        return len(self._segments) - 1, start
