"""A pipe between processes for long messages.

`Connection.recv_bytes` takes a block of the whole remaining length for each of its reads, and a read gives a few hundred kB
at most: for the replies of a wave (20 MB) that costs four times what reading straight into one buffer does.
"""

from __future__ import annotations

import os
import struct
from multiprocessing.connection import Connection

_LENGTH = struct.Struct("<Q")


class Channel:
    """One end. A receive that is interrupted (Ctrl-C) goes on where it stopped, so the next message is read whole."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe
        self._begin(_LENGTH.size)
        self._in_body = False

    def send(self, data: bytes) -> None:
        for part in (_LENGTH.pack(len(data)), data):
            view = memoryview(part)
            while len(view):
                view = view[os.write(self._pipe.fileno(), view) :]

    def receive(self) -> bytearray:
        """The next message; EOFError when the other end is gone."""
        if not self._in_body:
            (length,) = _LENGTH.unpack(self._fill())
            self._begin(length)
            self._in_body = True
        body = self._fill()
        self._begin(_LENGTH.size)
        self._in_body = False
        return body

    def poll(self) -> bool:
        return self._pipe.poll()

    def close(self) -> None:
        self._pipe.close()

    def _begin(self, length: int) -> None:
        self._buffer, self._got = bytearray(length), 0

    def _fill(self) -> bytearray:
        while self._got < len(self._buffer):
            count = os.readv(self._pipe.fileno(), [memoryview(self._buffer)[self._got :]])
            if count == 0:
                raise EOFError
            self._got += count
        return self._buffer
