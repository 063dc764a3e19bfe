"""SIGTERM and SIGHUP stop a command as Ctrl-C does: what is finished is written before the process ends.

A job in the background of a script is started with SIGINT ignored; SIGTERM (`kill`, a batch system, a container's end) is then
the only polite way to stop it. SIGHUP comes when a terminal closes; `nohup` has it ignored, and so do we then.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from covey.errors import CoveyError


class Interrupts:
    """Which signal interrupted the command, if any did."""

    def __init__(self) -> None:
        self.number = signal.SIGINT

    @property
    def exit_code(self) -> int:
        """As shells count: 130 after Ctrl-C, 143 after SIGTERM, 129 after SIGHUP."""
        return 128 + self.number


class Interrupted(CoveyError):
    """A command was stopped; says how to go on."""


SAME_COMMAND = "what is finished is kept: the same command goes on"


@contextmanager
def kept(how: str) -> Iterator[None]:
    """Inside, an interruption ends the command with the sentence that says how to go on."""
    try:
        yield
    except KeyboardInterrupt:
        raise Interrupted(f"interrupted; {how}") from None


@contextmanager
def interruptible() -> Iterator[Interrupts]:
    """SIGTERM or SIGHUP raises KeyboardInterrupt in this process; in one forked from it, it ends that process at once."""
    interrupts, owner = Interrupts(), os.getpid()

    def stop(number: int, frame: FrameType | None) -> None:
        if os.getpid() != owner:  # a worker, which has nothing to write
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
            return
        interrupts.number = signal.Signals(number)
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():  # only there can Python set what a signal does
        yield interrupts
        return
    ends = [signal.SIGTERM, *([signal.SIGHUP] if hasattr(signal, "SIGHUP") else [])]
    before = {number: signal.getsignal(number) for number in ends}
    watched = [number for number in ends if number == signal.SIGTERM or before[number] is not signal.SIG_IGN]
    for number in watched:
        signal.signal(number, stop)
    try:
        yield interrupts
    finally:
        for number in watched:
            signal.signal(number, before[number] or signal.SIG_DFL)
