"""No process outlives the one that started it: what nobody waits for must not go on computing, or keep a silo's place."""

from __future__ import annotations

import ctypes
import os
import signal
import sys


def die_with_parent(number: int = signal.SIGTERM) -> None:
    """Linux sends this process a signal when the one that started it is gone, however that ended. Elsewhere nothing happens."""
    if not sys.platform.startswith("linux"):
        return
    parent = os.getppid()
    ctypes.CDLL(None).prctl(1, number)  # PR_SET_PDEATHSIG
    if os.getppid() != parent:  # it ended before it could be watched
        os.kill(os.getpid(), number)
