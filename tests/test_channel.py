"""The pipe between the simulation's processes: long messages, interruptions, an end that goes away."""

from __future__ import annotations

import multiprocessing as mp
import os
import threading

import pytest

from covey.engines.channel import Channel


def ends() -> tuple[Channel, Channel]:
    here, there = mp.Pipe()
    return Channel(here), Channel(there)


def test_messages_of_all_lengths_arrive_in_order() -> None:
    here, there = ends()
    sent = [b"", b"a", os.urandom(3_000_000), b"", os.urandom(70_000)]
    sender = threading.Thread(target=lambda: [there.send(data) for data in sent])
    sender.start()
    assert [bytes(here.receive()) for _ in sent] == sent
    sender.join()
    assert not here.poll()


@pytest.mark.parametrize("reads", [1, 2, 3])  # interrupted before the length, before the body, within the body
def test_interrupted_receive_goes_on_where_it_stopped(reads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    here, there = ends()
    data = os.urandom(1_000_000)
    sender = threading.Thread(target=lambda: [there.send(data), there.send(b"next")])
    sender.start()
    real, seen = os.readv, []

    def interrupted(fd: int, buffers: list[memoryview]) -> int:
        seen.append(fd)
        if len(seen) == reads:
            raise KeyboardInterrupt
        return real(fd, [buffers[0][:400_000]])

    monkeypatch.setattr(os, "readv", interrupted)
    with pytest.raises(KeyboardInterrupt):
        here.receive()
    assert bytes(here.receive()) == data
    assert bytes(here.receive()) == b"next"
    sender.join()


def test_an_end_that_is_gone_is_an_end_of_file() -> None:
    here, there = ends()
    there.send(b"last")
    there.close()
    assert bytes(here.receive()) == b"last"
    with pytest.raises(EOFError):
        here.receive()
