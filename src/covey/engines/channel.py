"""A pipe between processes for long messages.

`Connection.recv_bytes` takes a block of the whole remaining length for each of its reads, and a read gives a few hundred kB
at most: for the replies of a wave (20 MB) that costs four times what reading straight into one buffer does.

Ctrl-C may strike at any moment, and afterwards the memories of finished rounds are still asked for. So what was under way
goes on where it stopped, in both directions: the number of bytes that a system call moved is noted by `list.extend`, within
which no signal handler runs, and everything else changes by single assignments.
"""

from __future__ import annotations

import os
import struct
from collections import deque
from dataclasses import dataclass, field
from multiprocessing.connection import Connection

_LENGTH = struct.Struct("<Q")
KEPT = 64 << 20  # bytes of memory that is kept for the next message


@dataclass(frozen=True)
class _Part:
    """A message, or its length, on its way."""

    data: bytes | bytearray | memoryview
    is_body: bool
    moved: list[int] = field(default_factory=list)  # bytes, by every call so far

    @property
    def rest(self) -> memoryview:
        return memoryview(self.data)[sum(self.moved) :]


class Channel:
    """One end. An interrupted send is finished by the next one, an interrupted receive goes on in the next one."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe
        self._outgoing: deque[_Part] = deque()
        self._incoming = _next_length()
        self._room = bytearray()  # for what comes: fresh memory for every wave would cost as much as reading it

    def send(self, *data: bytes | memoryview) -> None:
        """One message, in one or several pieces."""
        self._outgoing.extend(
            (_Part(_LENGTH.pack(sum(map(len, data))), False), *(_Part(piece, True) for piece in data))
        )
        while self._outgoing:
            part = self._outgoing[0]
            while len(rest := part.rest):
                part.moved.extend(map(os.write, (self._pipe.fileno(),), (rest,)))
            self._outgoing.popleft()

    def receive(self) -> memoryview:
        """The next message, to be read before the one after it: its memory is used again. EOFError when the other end is gone."""
        if not self._incoming.is_body:
            (length,) = _LENGTH.unpack(self._whole())
            if length > len(self._room):
                self._room = bytearray(length)
            self._incoming = _Part(memoryview(self._room)[:length], True)
        body = memoryview(self._whole())
        self._incoming = _next_length()
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


def _next_length() -> _Part:
    return _Part(bytearray(_LENGTH.size), False)
