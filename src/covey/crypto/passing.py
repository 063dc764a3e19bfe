"""The one loop of `draws.py` that is compiled: every number against every threshold."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

_CHUNK = 4096  # numbers that stay in the cache while all thresholds pass


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def count_passed(out: Any, ties: Any, bits: Any, leading: Any) -> None:
    """How many thresholds each number has passed, and whether it is still level with one."""
    for begin in range(0, out.size, _CHUNK):
        passed, level, drawn = out[begin : begin + _CHUNK], ties[begin : begin + _CHUNK], bits[begin : begin + _CHUNK]
        for i in range(leading.size):
            threshold = leading[i]
            for n in range(drawn.size):  # one instruction takes eight of them
                passed[n] += np.int32(drawn[n] > threshold)
                level[n] |= np.int32(drawn[n] == threshold)
