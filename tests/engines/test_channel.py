"""The pipe between the simulation's processes: long messages, interruptions, an end that goes away."""

from __future__ import annotations

import contextlib
import multiprocessing as mp
import os
import signal
import threading
from collections.abc import Callable, Iterator
from typing import TypeAlias

import pytest

from covey.engines.channel import HALF, SHORT, Channel, Shelf, channels
from support.patience import PATIENCE

Ends: TypeAlias = Callable[[], tuple[Channel, Channel]]


def ends() -> tuple[Channel, Channel]:
    here, there = mp.Pipe()
    return Channel(here), Channel(there)


def ends_with_a_shelf() -> tuple[Channel, Channel]:
    return channels(mp.Pipe())


BOTH = pytest.mark.parametrize("ends", [ends, ends_with_a_shelf])


@BOTH
def test_messages_of_all_lengths_arrive_in_order(ends: Ends) -> None:
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


class Alarm(BaseException):
    pass


class Interrupter:
    """Raises Alarm in the main thread at any moment of an action, as Ctrl-C would be; once per action at most."""

    armed = False

    def strike(self, number: int, frame: object) -> None:
        if self.armed:
            self.armed = False
            raise Alarm

    def rest(self) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)

    def during(self, action: Callable[[], object]) -> None:
        with contextlib.suppress(Alarm):
            self.armed = True
            action()
            self.armed = False


@pytest.fixture
def interrupt() -> Iterator[Interrupter]:
    interrupter = Interrupter()
    before = signal.signal(signal.SIGALRM, interrupter.strike)
    signal.setitimer(signal.ITIMER_REAL, 2e-4, 2e-4)
    yield interrupter
    interrupter.rest()
    signal.signal(signal.SIGALRM, before)


def numbered(n: int) -> bytes:
    """A message that is like no other, of any length."""
    return n.to_bytes(4, "big") * (1 + n * 7919 % 60_000)


def test_messages_stay_whole_however_often_their_sender_is_interrupted(interrupt: Interrupter) -> None:
    here, there = ends()
    arrived: list[bytes] = []

    def listen() -> None:
        while (message := bytes(there.receive())) != b"end":
            arrived.append(message)

    listener = threading.Thread(target=listen, daemon=True)
    listener.start()
    sent = []
    while len(arrived) < 500:  # some are interrupted before they set out: the busier the machine, the more
        sent.append(numbered(len(sent)))
        interrupt.during(lambda: here.send(sent[-1]))
    here.send(b"end")
    listener.join(PATIENCE)
    assert not listener.is_alive()
    left = iter(sent)
    assert all(message in left for message in arrived)  # whole, and in order


@BOTH
def test_messages_stay_whole_however_often_their_receiver_is_interrupted(ends: Ends, interrupt: Interrupter) -> None:
    here, there = ends()
    sent: list[bytes] = []
    arrived: list[bytes] = []

    def speak() -> None:
        while len(arrived) < 500:  # some are interrupted on their way from `receive` to the list
            sent.append(numbered(len(sent)))
            there.send(sent[-1])
        there.send(b"end")

    threading.Thread(target=speak, daemon=True).start()
    while not arrived or arrived[-1] != b"end":
        interrupt.during(lambda: arrived.append(bytes(here.receive())))
        if len(arrived) >= 500:
            interrupt.rest()
    left = iter([*sent, b"end"])
    assert all(message in left for message in arrived)


def test_an_end_that_is_gone_is_an_end_of_file() -> None:
    here, there = ends()
    there.send(b"last")
    there.close()
    assert bytes(here.receive()) == b"last"
    with pytest.raises(EOFError):
        here.receive()


def test_a_message_may_be_sent_in_pieces_and_its_memory_is_used_again() -> None:
    here, there = ends()
    parts = [b"head", memoryview(os.urandom(200_000)), memoryview(b"")]
    sender = threading.Thread(target=lambda: [there.send(*parts), there.send(b"short")])
    sender.start()
    first = here.receive()
    assert first == b"".join(parts)
    assert here.receive() == b"short"
    assert first[:5] == b"short"  # so a message must be read before the next one is received
    sender.join()


def laid(*numbers: int) -> list[bytes]:
    return [bytes([number]) * (SHORT + 1 + number) for number in numbers]


def test_a_long_message_is_read_where_its_sender_laid_it() -> None:
    here, there = ends_with_a_shelf()
    first, second, third = laid(1, 2, 3)
    there.send(first[:10], memoryview(first)[10:])
    there.send(second)  # nobody need read meanwhile: none of it is in the pipe, which holds less
    one = here.receive()
    assert one == first
    assert here.receive() == second
    there.send(third)
    assert one[: len(first)] == third[: len(first)]  # so a message must be read before the next one is received
    assert here.receive() == third


def test_nothing_is_laid_over_what_is_not_read_yet() -> None:
    shelf = Shelf()
    first, second, third = laid(1, 2, 3)
    assert [shelf.lay([first], len(first)), shelf.lay([second], len(second))] == [1, 2]
    assert shelf.lay([third], len(third)) == 0
    assert shelf.read(1, len(first)) == first  # who has it may be reading still
    assert shelf.lay([third], len(third)) == 0
    assert shelf.read(2, len(second)) == second
    assert shelf.lay([third], len(third)) == 3
    assert shelf.read(2, len(second)) == second
    assert shelf.read(3, len(third)) == third


def test_what_finds_no_room_on_the_shelf_takes_the_pipe() -> None:
    here, there = ends_with_a_shelf()
    sent = [*laid(1, 2, 3, 4), b"short", bytes(HALF + 1), *laid(5, 6)]
    sender = threading.Thread(target=lambda: [there.send(data) for data in sent])
    sender.start()
    assert [bytes(here.receive()) for _ in sent] == sent
    sender.join()


def test_a_forked_process_lays_its_messages_on_a_shelf() -> None:
    here, there = ends_with_a_shelf()
    sent = laid(*range(1, 8))
    if not (child := os.fork()):
        for data in sent:
            there.send(data)
        os._exit(0)
    there.close()
    assert [bytes(here.receive()) for _ in sent] == sent
    assert os.waitpid(child, 0)[1] == 0


def test_without_memory_for_a_shelf_all_goes_through_the_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*_: object) -> None:
        raise OSError("Cannot allocate memory")

    monkeypatch.setattr("covey.engines.channel.mmap.mmap", none)
    here, there = ends_with_a_shelf()
    sent = laid(1, 2, 3)
    sender = threading.Thread(target=lambda: [there.send(data) for data in sent])
    sender.start()
    assert [bytes(here.receive()) for _ in sent] == sent
    sender.join()
