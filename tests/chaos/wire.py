"""The network between one silo and the coordinator, that somebody can break. TLS goes through it unread."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time

OPEN, REFUSED, SILENT = "open", "refused", "silent"
STEP_SECONDS = 0.05


class Wire:
    """A port of this machine that leads to the coordinator's.

    `cut` resets what is open and refuses what comes; `swallow` lets everything hang, as a cable that is pulled; `mend` ends
    either, and with `forget` what was open before stays dead and nobody is told, as behind a NAT that was started again.
    """

    def __init__(self, target: int) -> None:
        self.target, self.delay = target, 0.0
        self._state, self._life = OPEN, 0
        self._lines: set[tuple[socket.socket, socket.socket]] = set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    def cut(self) -> None:
        self._state = REFUSED
        self._close_listener()
        self.reset()

    def swallow(self) -> None:
        self._state = SILENT

    def mend(self, forget: bool = False) -> None:
        if forget:
            self._life += 1
        if self._state == REFUSED:
            self._listener = socket.create_server(("127.0.0.1", self.port))
            threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()
        self._state = OPEN

    def reset(self) -> None:
        """Ends every open connection with a reset, on both sides."""
        for line in list(self._lines):
            for end in line:
                with contextlib.suppress(OSError):
                    end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    end.shutdown(socket.SHUT_RDWR)
                    end.close()

    def close(self) -> None:
        self._close_listener()
        self.reset()

    def _close_listener(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # else the thread in accept keeps it open
            self._listener.close()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                outer, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=self._lead, args=(outer,), daemon=True).start()

    def _lead(self, outer: socket.socket) -> None:
        life = self._life
        try:
            self._hold(life)
            inner = socket.create_connection(("127.0.0.1", self.target))
        except OSError:  # nobody listens there, or nobody knows this connection any more
            outer.close()
            return
        line = (outer, inner)
        self._lines.add(line)
        pumps = [threading.Thread(target=self._pump, args=(*ends, life), daemon=True) for ends in (line, line[::-1])]
        for pump in pumps:
            pump.start()
        for pump in pumps:
            pump.join()
        self._lines.discard(line)
        for end in line:
            end.close()

    def _hold(self, life: int) -> None:
        """While nothing passes; for ever where the connection was forgotten."""
        while self._state == SILENT:
            time.sleep(STEP_SECONDS)
        if life != self._life:
            raise OSError("forgotten")

    def _pump(self, source: socket.socket, sink: socket.socket, life: int) -> None:
        try:
            while data := source.recv(1 << 16):
                time.sleep(self.delay)
                while self._state == SILENT:
                    time.sleep(STEP_SECONDS)
                if life == self._life:  # else it goes nowhere, and nobody is told
                    sink.sendall(data)
        except OSError:
            pass
        if life == self._life:
            for end in (source, sink):
                with contextlib.suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)
