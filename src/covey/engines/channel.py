"""A pipe between processes for long messages, which lie in memory that both have where they have any (`Shelf`).

`Connection.recv_bytes` takes a block of the whole remaining length for each of its reads, and a read gives a few hundred kB
at most: for the replies of a wave (20 MB) that costs four times what reading straight into one buffer does. Laying them on a shelf
costs less than half of that again: one copy where a pipe makes two, and nobody is woken for a part of it.

Ctrl-C may strike at any moment, and afterwards the memories of finished rounds are still asked for. So what was under way
goes on where it stopped, in both directions: the number of bytes that a system call moved is noted by `list.extend`, within
which no signal handler runs, and everything else changes by single assignments.
"""

from __future__ import annotations

import mmap
import os
import struct
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection

_HEAD = struct.Struct("<QQ")  # a message's length, and its number on the shelf; 0: it follows in the pipe
KEPT = 64 << 20  # bytes of memory that is kept for the next message
HALF = 32 << 20  # bytes of a shelf's half: the longest message that lies there; none is taken before it is used
SHORT = 64 << 10  # bytes up to which a message goes through the pipe at once


@dataclass(frozen=True)
class _Part:
    """A message, or its head, on its way."""

    data: bytes | bytearray | memoryview
    is_body: bool
    moved: list[int] = field(default_factory=list)  # bytes, by every call so far

    @property
    def rest(self) -> memoryview:
        return memoryview(self.data)[sum(self.moved) :]


class Shelf:
    """Memory that two processes share after a fork: one lays messages there, the other reads them where they lie.

    Two halves in turn, so that one is written while the other is read. Neither waits: what is too long, or finds its half unread
    yet, goes through the pipe.
    """

    def __init__(self) -> None:
        memory = memoryview(mmap.mmap(-1, mmap.PAGESIZE + 2 * HALF))
        self._done = memory[:8].cast("Q")  # number of the last message that was read: written by the reader only
        self._halves = [memory[at : at + HALF] for at in (mmap.PAGESIZE, mmap.PAGESIZE + HALF)]
        self._laid = 0  # messages so far: the writer's

    def lay(self, data: Sequence[bytes | memoryview], length: int) -> int:
        """The number under which it lies there, from 1 on; 0: it has to take the pipe."""
        number = self._laid + 1
        if not SHORT < length <= HALF or self._done[0] < number - 2:
            return 0
        half, at = self._halves[number % 2], 0
        for piece in data:
            half[at : at + len(piece)] = piece
            at += len(piece)
        self._laid = number
        return number

    def read(self, number: int, length: int) -> memoryview:
        """Who asks for a message has done with those before it."""
        self._done[0] = number - 1
        return self._halves[number % 2][:length]


class Channel:
    """One end. An interrupted send is finished by the next one, an interrupted receive goes on in the next one.

    `sends`, `receives`: shelves that it shares with the other end; without one all goes through the pipe.
    """

    def __init__(self, pipe: Connection, *, sends: Shelf | None = None, receives: Shelf | None = None) -> None:
        self._pipe, self._sends, self._receives = pipe, sends, receives
        self._outgoing: deque[_Part] = deque()
        self._incoming = _next_head()
        self._room = bytearray()  # for what comes: fresh memory for every wave would cost as much as reading it

    def send(self, *data: bytes | memoryview) -> None:
        """One message, in one or several pieces."""
        length = sum(map(len, data))
        number = self._sends.lay(data, length) if self._sends else 0
        body = () if number else data
        self._outgoing.extend((_Part(_HEAD.pack(length, number), False), *(_Part(piece, True) for piece in body)))
        while self._outgoing:
            part = self._outgoing[0]
            while len(rest := part.rest):
                part.moved.extend(map(os.write, (self._pipe.fileno(),), (rest,)))
            self._outgoing.popleft()

    def receive(self) -> memoryview:
        """The next message, to be read before the one after it: its memory is used again. EOFError when the other end is gone."""
        if not self._incoming.is_body:
            length, number = _HEAD.unpack(self._whole())
            if number:
                self._incoming = _next_head()
                assert self._receives
                return self._receives.read(number, length)
            if length > len(self._room):
                self._room = bytearray(length)
            self._incoming = _Part(memoryview(self._room)[:length], True)
        body = memoryview(self._whole())
        self._incoming = _next_head()
        if len(self._room) > KEPT:
            self._room = bytearray()
        return body

    def poll(self) -> bool:
        return self._pipe.poll()

    def close(self) -> None:
        self._pipe.close()

    def _whole(self) -> bytes | bytearray | memoryview:
        part = self._incoming
        while len(rest := part.rest):
            part.moved.extend(map(os.readv, (self._pipe.fileno(),), ([rest],)))
            if part.moved[-1] == 0:
                raise EOFError
        return part.data


def _next_head() -> _Part:
    return _Part(bytearray(_HEAD.size), False)


def channels(pipe: tuple[Connection, Connection]) -> tuple[Channel, Channel]:
    """Both ends of a pipe, for two processes of which one is forked from the other: the second lays what it sends on a shelf."""
    here, there = pipe
    try:
        shelf = Shelf()
    except OSError:  # where memory is promised to nobody who may not need it
        return Channel(here), Channel(there)
    return Channel(here, receives=shelf), Channel(there, sends=shelf)
