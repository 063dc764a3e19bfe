"""Bytes in Flower's messages, and out of them."""

from __future__ import annotations

from typing import Any

import numpy as np


def record(data: bytes) -> Any:
    """Bytes as Flower carries them best: an array, which it cuts into chunks."""
    from flwr.app import Array, ArrayRecord, RecordDict

    return RecordDict({"covey": ArrayRecord({"bytes": Array(np.frombuffer(data, np.uint8))})})


def content(message: Any) -> bytes | None:
    """What `record` was given; None for an error or anything else."""
    if message.has_error():
        return None
    try:
        array = message.content["covey"]["bytes"]
        if array.stype != "numpy.ndarray" or array.dtype != "uint8" or len(array.shape) != 1:
            return None
        return bytes(array.numpy().tobytes())
    except Exception:  # these bytes come from the network, and numpy's reader raises whatever they make it raise
        return None
