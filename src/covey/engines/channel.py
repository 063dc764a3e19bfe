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


@dataclass(frozen=True)
class _Part:
    """A message, or its length, on its way."""

    data: bytes | bytearray
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

    def send(self, data: bytes) -> None:
        self._outgoing.extend((_Part(_LENGTH.pack(len(data)), False), _Part(data, True)))
        while self._outgoing:
            part = self._outgoing[0]
            while len(rest := part.rest):
                part.moved.extend(map(os.write, (self._pipe.fileno(),), (rest,)))
            self._outgoing.popleft()

    def receive(self) -> bytes | bytearray:
        """The next message; EOFError when the other end is gone."""
        if not self._incoming.is_body:
            (length,) = _LENGTH.unpack(self._whole())
            self._incoming = _Part(bytearray(length), True)
        body = self._whole()
        self._incoming = _next_length()
        return body

    def poll(self) -> bool:
        return self._pipe.poll()

    def close(self) -> None:
        self._pipe.close()

    def _whole(self) -> bytes | bytearray:
        part = self._incoming
        while len(rest := part.rest):
            part.moved.extend(map(os.readv, (self._pipe.fileno(),), ([rest],)))
            if part.moved[-1] == 0:
                raise EOFError
        return part.data


def _next_length() -> _Part:
    return _Part(bytearray(_LENGTH.size), False)
