"""Who holds which rows, as two arrays: all rows, one client's after the other's, and where each client's begin.

A tuple of arrays costs some 200 bytes per client and a Python step per client wherever something is asked of all of them. A million
clients want neither, so this is what a federation keeps; to whoever reads it, it is a sequence of arrays.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.int64]


class Holdings(Sequence[Rows]):
    """Client i holds `rows[starts[i] : starts[i + 1]]`."""

    __slots__ = ("rows", "starts")

    def __init__(self, rows: Rows, starts: NDArray[np.int64]) -> None:
        """`starts` has one more entry than there are clients: 0 first, the number of rows last."""
        self.rows, self.starts = rows, starts

    @classmethod
    def cut(cls, rows: Rows, sizes: NDArray[np.int64]) -> Holdings:
        """The rows dealt in order, so many to each client."""
        return cls(rows, np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64))

    @classmethod
    def of(cls, parts: Sequence[Rows]) -> Holdings:
        """One array per client, joined."""
        sizes = np.fromiter((len(part) for part in parts), np.int64, len(parts))
        return cls.cut(np.concatenate([np.zeros(0, np.int64), *parts]).astype(np.int64), sizes)

    @property
    def sizes(self) -> NDArray[np.int64]:
        """[n] how many rows each client holds."""
        return np.diff(self.starts)

    @property
    def owners(self) -> NDArray[np.int64]:
        """[len(rows)] whose each of `rows` is."""
        return np.repeat(np.arange(len(self)), self.sizes)

    def joined(self, clients: NDArray[np.int64]) -> tuple[Rows, NDArray[np.int64]]:
        """The rows of these clients, one's after the other's, and how many each holds."""
        first = self.starts[clients]
        sizes = self.starts[clients + 1] - first
        before = np.cumsum(sizes) - sizes
        return self.rows[np.repeat(first - before, sizes) + np.arange(int(sizes.sum()))], sizes

    def __len__(self) -> int:
        return len(self.starts) - 1

    @overload
    def __getitem__(self, at: int) -> Rows: ...
    @overload
    def __getitem__(self, at: slice) -> Holdings: ...
    def __getitem__(self, at: int | slice) -> Rows | Holdings:
        if isinstance(at, slice):
            return Holdings.of([self[i] for i in range(*at.indices(len(self)))])
        place = at + len(self) if at < 0 else at
        if not 0 <= place < len(self):
            raise IndexError(f"client {at} of {len(self)}")
        return self.rows[self.starts[place] : self.starts[place + 1]]

    def __iter__(self) -> Iterator[Rows]:
        rows, bounds = self.rows, self.starts.tolist()
        return (rows[first:end] for first, end in pairwise(bounds))

    def __repr__(self) -> str:
        return f"Holdings of {len(self):,} clients, {len(self.rows):,} rows"


def held(clients: Any) -> Any:
    """Arrays of whole numbers as `Holdings`; anything else as it is, for `checks` to say what is wrong with it."""
    if isinstance(clients, Holdings | str) or not isinstance(clients, Sequence) or not clients:
        return clients
    arrays = all(isinstance(c, np.ndarray) and c.ndim == 1 and c.dtype.kind in "iu" for c in clients)
    return Holdings.of(clients) if arrays else clients


def label_shares(clients: Sequence[Rows], labels: NDArray[np.int64], groups: int) -> NDArray[np.float64]:
    """Each client's empirical distribution over `groups` labels, [n, groups]."""
    joined = clients if isinstance(clients, Holdings) else Holdings.of(clients)
    cells = joined.owners * groups + labels[joined.rows]
    counts = np.bincount(cells, minlength=len(clients) * groups).reshape(-1, groups)
    return np.asarray(counts / counts.sum(1, keepdims=True), np.float64)
