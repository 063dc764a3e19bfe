"""Adding ciphertexts on their raw residues: what a server without any key does.

A ring-LWE ciphertext is a list of residues mod `q`; adding ciphertexts is adding residues, whatever they encrypt.
No key, no library object and no copy is needed. Results are equal to the library's own additions bit for bit
(tested). Measured against one reduction at the very end, reducing after at most four additions costs nothing (the
work is bound by memory) and it holds for every prime up to 61 bits, with no count of additions to keep.
"""

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numba import njit
from numpy.typing import NDArray

Words = NDArray[np.uint64]

BLOCK = 2048  # residues: 16 KiB, so that a block of each accumulator and input stays in the L2 cache
THREADS = min(2, os.cpu_count() or 1)  # two fill the memory bus
WORTH_A_THREAD = 1 << 17  # columns


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def survey(words: Words) -> tuple[np.uint64, np.uint64, np.uint64]:
    """Largest word, sum, and position-weighted sum mod 2^64: range check and checksum in one pass."""
    largest, total, weighted = np.uint64(0), np.uint64(0), np.uint64(0)
    for i in range(words.size):
        word = words[i]
        largest = max(largest, word)
        total += word
        weighted += word * np.uint64(i + 1)
    return largest, total, weighted


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _accumulate(
    sums: Words,
    inputs: tuple[Words, ...],
    chosen: NDArray[np.int64],
    counts: NDArray[np.int64],
    q: np.uint64,
    start: int,
    stop: int,
) -> None:
    """`sums[j] += inputs[c] mod q` for the `counts[j]` inputs `c` in `chosen[j]`, in the columns `start..stop`.

    Unsigned wrap-around makes `min(s, s - m)` the reduction of `s < 2m` below `m`, without a branch.
    """
    q2 = q + q
    q4 = q2 + q2
    for low in range(start, stop, BLOCK):
        high = min(stop, low + BLOCK)
        for j in range(sums.shape[0]):
            a = sums[j, low:high]
            c = 0
            while c + 4 <= counts[j]:
                w = inputs[chosen[j, c]][low:high]
                x = inputs[chosen[j, c + 1]][low:high]
                y = inputs[chosen[j, c + 2]][low:high]
                z = inputs[chosen[j, c + 3]][low:high]
                for i in range(high - low):
                    s = a[i] + w[i] + x[i] + y[i] + z[i]  # < 5 q < 2^64
                    s = min(s, s - q4)
                    s = min(s, s - q2)
                    a[i] = min(s, s - q)
                c += 4
            while c < counts[j]:
                x = inputs[chosen[j, c]][low:high]
                for i in range(high - low):
                    s = a[i] + x[i]
                    a[i] = min(s, s - q)
                c += 1


def accumulate(sums: Words, inputs: Sequence[Words], members: Sequence[Sequence[int]], window: int, q: int) -> None:
    """Adds `inputs[c]` to `sums[j]` for each `j` in `members[c]`, in place; at most `window` inputs.

    All words must be below `q`. `window` is fixed by the caller so that the kernel is compiled once.
    """
    if not inputs:
        return
    chosen = np.zeros((sums.shape[0], window), dtype=np.int64)
    counts = np.zeros(sums.shape[0], dtype=np.int64)
    for c, clusters in enumerate(members):
        for j in clusters:
            chosen[j, counts[j]] = c
            counts[j] += 1
    padded = tuple(inputs) + (inputs[0],) * (window - len(inputs))
    columns = sums.shape[1]
    parts = THREADS if columns >= WORTH_A_THREAD else 1
    width = -(-columns // parts // BLOCK) * BLOCK

    def add_columns(start: int) -> None:
        _accumulate(sums, padded, chosen, counts, np.uint64(q), start, min(start + width, columns))

    if parts == 1:
        add_columns(0)
        return
    # Threads that end here, not a pool that stays: a process with living threads must not fork.
    with ThreadPoolExecutor(parts) as pool:
        list(pool.map(add_columns, range(0, columns, width)))


def as_words(payload: memoryview) -> Words:
    """The payload as read-only words, without a copy where its address allows."""
    words = np.frombuffer(payload, dtype="<u8")
    if not words.flags.aligned:  # a slice of a larger message
        words = words.copy()
    words.flags.writeable = False
    return words
