"""Bytes in Flower's messages, and out of them.

Flower carries a message as a tree of objects, each posted and fetched by a call of its own, and calls are what a round costs at its
SuperLink. A record of plain bytes makes three objects of a letter, an array five, but only arrays are cut into chunks. Greetings go
as arrays, too: every covey reads those, so that one of another protocol can be told so.
"""

from __future__ import annotations

from typing import Any

import numpy as np

GREETING_BYTES, CHUNK_BYTES = 1 << 10, 4 << 20  # of letters between the two: plain bytes


def record(data: bytes) -> Any:
    """Bytes as Flower carries them best."""
    from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

    if GREETING_BYTES <= len(data) <= CHUNK_BYTES:
        return RecordDict({"covey": ConfigRecord({"bytes": data})})
    return RecordDict({"covey": ArrayRecord({"bytes": Array(np.frombuffer(data, np.uint8))})})


def content(message: Any) -> bytes | None:
    """What `record` was given; None for an error or anything else."""
    if message.has_error():
        return None
    try:
        carried = message.content["covey"]["bytes"]
        if isinstance(carried, bytes):
            return carried
        if carried.stype != "numpy.ndarray" or carried.dtype != "uint8" or len(carried.shape) != 1:
            return None
        return bytes(carried.numpy().tobytes())
    except Exception:  # these bytes come from the network, and numpy's reader raises whatever they make it raise
        return None
