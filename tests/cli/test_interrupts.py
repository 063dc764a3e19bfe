"""What SIGTERM does to a command: it is Ctrl-C to the process, and an end to the processes forked from it."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from multiprocessing.connection import Connection

import pytest

from covey.cli.interrupts import Interrupted, interruptible, kept
from support.patience import PATIENCE


def test_sigterm_is_an_interruption_with_the_exit_code_of_shells() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with (
        interruptible() as interrupts,
        pytest.raises(Interrupted, match="interrupted; go on like this"),
        kept("go on like this"),
    ):
        assert interrupts.exit_code == 130
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(PATIENCE)
    assert interrupts.exit_code == 143
    assert signal.getsignal(signal.SIGTERM) == before


def _work(pipe: Connection) -> None:
    pipe.send("begun")
    limit = time.monotonic() + PATIENCE
    while time.monotonic() < limit:  # a signal just before one long sleep would be seen only after it
        time.sleep(0.05)


def test_a_forked_worker_ends_at_once_and_without_a_word(capfd: pytest.CaptureFixture[str]) -> None:
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    with interruptible():
        worker = context.Process(target=_work, args=(theirs,))
        worker.start()
        assert ours.recv() == "begun"  # Python forgets a signal that arrives while it forks
        worker.terminate()
        worker.join(PATIENCE)
    assert worker.exitcode == -signal.SIGTERM and capfd.readouterr().err == ""


def test_a_thread_leaves_signals_alone() -> None:
    before, inside = signal.getsignal(signal.SIGTERM), []

    def work() -> None:
        with interruptible():
            inside.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert inside == [before]
