"""The coordinator's door: all that listens to the network. Nobody passes without a silo's key.

Flower's SuperLink serves silos (Fleet), the federation's owner (Control) and the run (Runtime) on one port, and asks only silos
for a signature. So it listens on loopback, and this program stands before it. It ends TLS and lets a request through if

* it is one of the calls that a running SuperNode makes, written in the strictest HTTP/1.1, and not longer than Flower's chunks;
* it is signed by a node key that the coordinator has admitted (Flower checks afterwards that the time that was signed is now, and
  that the node's number is this key's).

Everything else is answered with a status and a closed connection before any byte of it reaches Flower. Bodies are streamed.

Two of Flower's habits cost rounds their time, and end here. Nobody polls for letters: a node's question is held until the
coordinator has posted one for it (or for `HOLD_SECONDS`), and Flower asked then; before that only where it is not known that
there is none. And Flower refuses a node that was killed and
started again until it has not heard of the first for a while: where a key has said goodbye, or was silent for longer than a
living node can be, its former life is ended, in its own name and by its own signature, before the new one is begun. A second
node under the key of one that lives is refused by Flower as ever.

Memory is bounded: so many connections that have shown no key yet (the oldest of the busiest address makes room for the next),
so many per key, so many bytes of each, and a time for every step. What a stranger can still do is to keep this process busy:
a flood of handshakes from many addresses delays silos; it does not end the run.

A program of its own, of the standard library and `cryptography`, so that no flood takes time from the coordinator's process or
from Flower's. It is told over stdin, in lines of JSON, where the SuperLink is, who is admitted and for whom there is a letter,
and ends with its stdin. It says on stdout, in such lines, whose node has begun (so that letters to its former life are lost) and
who asks for letters (and so has sent all of its answer); what nobody reads there is dropped. Its log is stderr.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import contextlib
import json
import os
import re
import socket
import ssl
import sys
import time
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field, replace
from email.utils import formatdate

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_pem_public_key

PULL, ACTIVATE, DEACTIVATE = (f"/v1/fleet/{call}" for call in ("pull-messages", "activate-node", "deactivate-node"))
CALLS = frozenset(
    f"/v1/fleet/{call}"
    for call in (
        "activate-node",
        "deactivate-node",
        "send-node-heartbeat",
        "pull-messages",
        "push-messages",
        "get-run",
        "get-fab",
        "push-object",
        "pull-object",
        "confirm-message-received",
    )
)
UNAUTHENTICATED_CALLS = frozenset({"/v1/fleet/register-node", "/v1/fleet/unregister-node"})  # of `--insecure` only

BODY_BYTES = 16 << 20  # Flower cuts messages into objects of 5 MB
HEAD_BYTES = 16 << 10
CHUNK_BYTES = 128 << 10
QUESTION_BYTES = 4 << 10  # of a question for letters, which is kept while it is held: a node's number
NAMELESS = 128  # connections that have shown no key; each costs up to 3/4 of a megabyte
PER_KEY = 8  # connections; a node needs three
PER_SECOND, BURST = 100.0, 400.0  # requests of one key
HEAD_SECONDS = 10.0  # for TLS and the first request's head
IDLE_SECONDS = 75.0  # between requests of one silo
STALL_SECONDS = 60.0  # without a byte
AWAY_SECONDS = 10.0  # for Flower to be started again; a node waits 15 s for an answer
ANSWER_SECONDS = 120.0  # for Flower to begin its answer
SILENT_SECONDS = 15.0  # a living node's heart beats every 4 s
HOLD_SECONDS = 10.0  # for a letter; a node waits 15 s, and Flower takes a signature for 300 s
WHY, UNKNOWN_KEY = "covey-refused", "unknown-key"  # a header that tells a party from a passing trouble

REASONS = {
    400: "Bad Request",
    401: "Unauthorized",
    403: "Forbidden",
    408: "Request Timeout",
    411: "Length Required",
    413: "Content Too Large",
    431: "Request Header Fields Too Large",
    503: "Service Unavailable",
}
PASSED_ON = frozenset({b"content-type", b"content-length", b"accept", b"user-agent"})  # and all of Flower's own
HEADER = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([\x20-\x7e\t]*)")
LENGTH = re.compile(rb"[0-9]{1,10}")


class Refusal(Exception):
    """A request that does not pass; its status says why."""

    def __init__(self, status: int, why: str = "") -> None:
        super().__init__(status)
        self.status, self.why = status, why


@dataclass(frozen=True)
class Request:
    path: str
    headers: dict[bytes, bytes]
    length: int

    @classmethod
    def read(cls, head: bytes) -> Request:
        """One way to write a request and no other, so that Flower cannot understand another one than we did."""
        first, *lines = head.removesuffix(b"\r\n\r\n").split(b"\r\n")
        words = first.split(b" ")
        if len(words) != 3 or words[2] != b"HTTP/1.1" or not words[1].isascii():
            raise Refusal(400)
        if words[0] != b"POST":
            raise Refusal(403)
        headers: dict[bytes, bytes] = {}
        for line in lines:
            match = HEADER.fullmatch(line)
            if match is None or match[1].lower() in headers:
                raise Refusal(400)
            headers[match[1].lower()] = match[2].strip()
        if b"transfer-encoding" in headers or b"expect" in headers or b"upgrade" in headers:
            raise Refusal(411)
        if not LENGTH.fullmatch(headers.get(b"content-length", b"")):
            raise Refusal(411)
        return cls(words[1].decode(), headers, int(headers[b"content-length"]))

    def rewritten(self) -> bytes:
        """As Flower gets it: HTTP/1.0, so that one connection is one answer."""
        kept = [b"%b: %b" % (n, v) for n, v in self.headers.items() if n in PASSED_ON or n.startswith(b"flwr-")]
        return b"\r\n".join([b"POST %b HTTP/1.0" % self.path.encode(), *kept, b"", b""])


@dataclass
class Guests:
    """Who is admitted, and what they have used up. `keys` is None where nobody is asked for one (`--insecure`)."""

    keys: dict[bytes, ec.EllipticCurvePublicKey] | None = field(default_factory=dict)
    struck: dict[bytes, str] = field(default_factory=dict)  # keys that were admitted once -> "revoked 2026-…"
    superlink: int = 0  # its port on loopback
    nodes: dict[bytes, int] = field(default_factory=dict)  # key -> Flower's number for it
    bells: dict[bytes, asyncio.Event] = field(default_factory=dict)  # of keys whose questions are held
    letters: dict[bytes, int] = field(default_factory=dict)  # key -> those that wait for it in Flower; none: not known
    connections: dict[bytes, list[asyncio.Task[None]]] = field(
        default_factory=dict
    )  # connections of each key, the oldest first
    heard: dict[bytes, float] = field(
        default_factory=dict
    )  # key -> when its node spoke last; none: it has said goodbye
    spent: dict[bytes, tuple[float, float]] = field(default_factory=dict)  # key -> (requests, when)

    def learn(self, line: bytes) -> None:
        word = json.loads(line)
        if "posted" in word:
            key = word["posted"].encode()
            if key in self.letters:
                self.letters[key] += 1
            self._ring(key)
            return
        self.letters = {}
        self.superlink = int(word["superlink"])
        self.keys = None if word["nodes"] is None else {}
        self.nodes = {text.encode(): int(number) for text, number in (word["nodes"] or {}).items()}
        self.struck = {text.encode(): str(why) for text, why in word.get("struck", {}).items()}
        for text in self.nodes:
            key = load_pem_public_key(text)
            if self.keys is not None and isinstance(key, ec.EllipticCurvePublicKey):
                self.keys[text] = key
        for name in list(self.bells):  # another SuperLink may have another answer
            self._ring(name)

    def bell(self, key: bytes) -> asyncio.Event:
        """Rings at the next letter for this key; where nobody has a key, at anybody's."""
        return self.bells.setdefault(b"" if self.keys is None else key, asyncio.Event())

    def count(self, key: bytes, empty: bool, rang: bool) -> None:
        """What Flower has answered to a key's question for letters, of which it gives one at a time; `rang`: one was posted since
        it was asked.
        """
        if empty and not rang and self.keys is not None:
            self.letters[key] = 0
        elif empty:
            self.letters.pop(key, None)
        elif key in self.letters:
            self.letters[key] = max(0, self.letters[key] - 1)

    def _ring(self, key: bytes) -> None:
        bell = self.bells.pop(key, None)
        if bell is not None:
            bell.set()

    def authenticated(self, request: Request) -> bytes:
        """The key that signed the request's time; without keys, what the request says."""
        if request.path not in CALLS and not (self.keys is None and request.path in UNAUTHENTICATED_CALLS):
            raise Refusal(403)
        if request.length > BODY_BYTES:
            raise Refusal(413)
        try:
            public = base64.b64decode(request.headers[b"flwr-public-key"], validate=True)
            if self.keys is not None:
                signature = base64.b64decode(request.headers[b"flwr-signature"], validate=True)
                if public not in self.keys:
                    raise Refusal(401, self.struck.get(public, UNKNOWN_KEY))
                self.keys[public].verify(signature, request.headers[b"flwr-timestamp"], ec.ECDSA(hashes.SHA256()))
        except (KeyError, ValueError, InvalidSignature):
            raise Refusal(401) from None
        return public

    def enter(self, key: bytes, task: asyncio.Task[None]) -> None:
        """The newest connections of a key are kept: older ones may be of a network that is gone."""
        tasks = self.connections.setdefault(key, [])
        tasks.append(task)
        if len(tasks) > PER_KEY:
            tasks[0].cancel()

    def leave(self, key: bytes, task: asyncio.Task[None]) -> None:
        self.connections[key].remove(task)
        if not self.connections[key]:
            del self.connections[key]

    def hear(self, key: bytes, path: str) -> None:
        """A call of a node; asking to begin is no sign that it lives already."""
        if path == DEACTIVATE:
            self.heard.pop(key, None)
        elif path != ACTIVATE and self.keys is not None:
            self.heard[key] = time.monotonic()

    def former_life(self, key: bytes) -> int | None:
        """The number of a node that begins, where no node can live under it any more."""
        silent = time.monotonic() - self.heard.get(key, float("-inf")) >= SILENT_SECONDS
        return self.nodes.get(key) if silent and len(self.connections.get(key, ())) == 1 else None

    def delay(self, key: bytes) -> float:
        """Seconds that a key's next request has to wait."""
        now = time.monotonic()
        requests, last = self.spent.get(key, (0.0, now))
        requests = max(0.0, requests - PER_SECOND * (now - last)) + 1
        if self.keys is not None:  # else keys are whatever anybody writes: nothing may be kept of them
            self.spent[key] = (requests, now)
        return max(0.0, (requests - BURST) / PER_SECOND)


class Line(asyncio.StreamReaderProtocol):
    """A connection that tells when the other side has hung up, also while nobody reads."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        super().__init__(reader)
        self.reader, self.gone = reader, asyncio.Event()

    def opened(self, transport: asyncio.BaseTransport) -> None:
        self.writer = asyncio.StreamWriter(transport, self, self.reader, asyncio.get_running_loop())  # type: ignore[arg-type]

    def eof_received(self) -> bool | None:
        self.gone.set()
        return super().eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        self.gone.set()
        super().connection_lost(exc)


@dataclass(frozen=True)
class Answer:
    """Flower's, of which only the head is read yet."""

    lines: list[bytes]
    length: int | None
    body: asyncio.StreamReader

    @classmethod
    async def read(cls, reader: asyncio.StreamReader) -> Answer:
        async with asyncio.timeout(ANSWER_SECONDS):
            head = await reader.readuntil(b"\r\n\r\n")
        lines = [n for n in head[:-4].split(b"\r\n") if not n.lower().startswith((b"connection:", b"keep-alive:"))]
        lengths = [int(n.split(b":")[1]) for n in lines if n.lower().startswith(b"content-length:")]
        return cls(lines, lengths[0] if lengths else None, reader)

    @property
    def is_well(self) -> bool:
        return self.lines[0].split(b" ")[1:2] == [b"200"]

    @property
    def is_empty(self) -> bool:
        """A protobuf of no bytes: nothing but defaults, so no letters."""
        return self.length == 0 and self.is_well

    async def give(self, writer: asyncio.StreamWriter) -> bool:
        """To the silo; whether its connection can take another request."""
        kept = self.length is not None
        writer.write(b"\r\n".join([*self.lines, b"connection: keep-alive" if kept else b"connection: close", b"", b""]))
        await _stream(self.body, writer, self.length)
        return kept


class Door:
    """See the module's docstring."""

    def __init__(self, listener: socket.socket, tls: ssl.SSLContext | None) -> None:
        self.listener, self.tls, self.guests = listener, tls, Guests()
        self.nameless: OrderedDict[asyncio.Task[None], str] = OrderedDict()  # by age; and their addresses
        self._tasks: set[asyncio.Task[None]] = set()
        self.ready = asyncio.Event()  # whom to admit; until then whoever comes waits outside
        self._said = 0.0
        self._unsaid = 0

    async def stand(self) -> None:
        loop = asyncio.get_running_loop()
        await self.ready.wait()
        while True:
            try:
                connection, address = await loop.sock_accept(self.listener)
            except OSError as e:  # out of handles, or a connection that was gone before we came
                self.say(f"cannot accept: {e}")
                await asyncio.sleep(0.05)
                continue
            connection.setblocking(False)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            task = loop.create_task(self._meet(connection, str(address[0])))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            self.nameless[task] = str(address[0])
            if len(self.nameless) > NAMELESS:
                self._make_room()

    def _make_room(self) -> None:
        busiest = Counter(self.nameless.values()).most_common(1)[0][0]
        oldest = next(task for task, address in self.nameless.items() if address == busiest)
        del self.nameless[oldest]
        oldest.cancel()
        self.say(f"full: dropped a connection of {busiest} that had shown no key")

    async def _meet(self, connection: socket.socket, address: str) -> None:
        """One connection, from its handshake to its end. Whatever goes wrong ends it, and nothing else."""
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None
        line = Line(asyncio.StreamReader(limit=CHUNK_BYTES))
        transport: asyncio.BaseTransport | None = None
        key: bytes | None = None
        try:
            async with asyncio.timeout(HEAD_SECONDS):
                seconds = HEAD_SECONDS if self.tls else None
                transport, _ = await loop.connect_accepted_socket(
                    lambda: line, connection, ssl=self.tls, ssl_handshake_timeout=seconds
                )
            line.opened(transport)
            try:
                request = await _request(line.reader, HEAD_SECONDS)
                while request is not None:
                    name = self.guests.authenticated(request)
                    if key is None:
                        key = name
                        self.guests.enter(key, task)
                        self.nameless.pop(task, None)
                    elif name != key:
                        raise Refusal(401)
                    await asyncio.sleep(self.guests.delay(key))
                    if not await self._pass(key, request, line):
                        break
                    request = await _request(line.reader, IDLE_SECONDS)
            except Refusal as e:
                self.say(f"refused {address}: {e.status} {REASONS[e.status]}")
                await _answer(line.writer, e)
        except (Exception, asyncio.CancelledError) as e:
            if key is not None:
                self.say(f"lost a silo's connection from {address}: {type(e).__name__}")
        finally:
            self.nameless.pop(task, None)
            if key is not None:
                self.guests.leave(key, task)
            if transport is None:
                connection.close()
            else:
                _end(transport)

    async def _pass(self, key: bytes, request: Request, line: Line) -> bool:
        """The request to Flower and its answer back; whether the connection can take another."""
        self.guests.hear(key, request.path)
        if request.path == PULL and request.length <= QUESTION_BYTES:
            return await self._hold(key, request, line)
        since = time.monotonic()  # one clock for all processes of a machine
        if request.path == ACTIVATE:
            await self._end_former_life(key, request)
        async with self._asked(request, line.reader) as answer:
            if request.path == ACTIVATE and answer.is_well:
                self.tell({"begins": key.decode(), "since": str(since)})
            return await answer.give(line.writer)

    async def _hold(self, key: bytes, request: Request, line: Line) -> bool:
        """A question for letters, answered when there is one, at the latest after `HOLD_SECONDS`."""
        self.tell({"asks": "" if self.guests.keys is None else key.decode()})
        async with asyncio.timeout(STALL_SECONDS):
            question = await line.reader.readexactly(request.length)
        until = time.monotonic() + HOLD_SECONDS
        while True:
            bell = self.guests.bell(key)  # before we ask, so that no letter comes between question and waiting
            if self.guests.letters.get(key) != 0 or time.monotonic() >= until:
                async with self._asked(request, _reader_of(question)) as answer:
                    if answer.is_well:
                        self.guests.count(key, answer.is_empty, bell.is_set())
                    if not answer.is_empty or time.monotonic() >= until:
                        return await answer.give(line.writer)
            await _first([bell, line.gone], until - time.monotonic())
            if line.gone.is_set():
                return False
            self.guests.authenticated(request)  # its key may have been taken back

    async def _end_former_life(self, key: bytes, request: Request) -> None:
        """Of a node that begins, if there can be one."""
        number = self.guests.former_life(key)
        if number is None:
            return
        body = b"\x08" + _varint(number)  # a DeactivateNodeRequest
        headers = {**request.headers, b"content-length": b"%d" % len(body)}
        async with self._asked(replace(request, path=DEACTIVATE, headers=headers, length=len(body)), _reader_of(body)):
            pass  # refused where it had none

    @contextlib.asynccontextmanager
    async def _asked(self, request: Request, body: asyncio.StreamReader) -> AsyncIterator[Answer]:
        inner, outer = await self._superlink()
        try:
            outer.write(request.rewritten())
            await _stream(body, outer, request.length)
            yield await Answer.read(inner)
        finally:
            outer.transport.abort()

    async def _superlink(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A connection to Flower. While it is being started again, silos wait here: told that it is away, a SuperNode would
        come back only after a third of a minute.
        """
        until = time.monotonic() + AWAY_SECONDS
        while True:
            try:
                return await asyncio.open_connection("127.0.0.1", self.guests.superlink, limit=4 * CHUNK_BYTES)
            except OSError:
                if time.monotonic() > until:
                    raise Refusal(503) from None
            await asyncio.sleep(0.2)

    def say(self, text: str) -> None:
        """One line a second at most: a flood must not fill the disk."""
        now = time.monotonic()
        if now - self._said < 1.0:
            self._unsaid += 1
            return
        more = f" (and {self._unsaid} more)" if self._unsaid else ""
        print(f"{time.strftime('%F %T')} {ascii(text)[1:-1]}{more}", file=sys.stderr, flush=True)
        self._said, self._unsaid = now, 0

    def tell(self, words: dict[str, str]) -> None:
        """To the coordinator, who finds out by itself, only later, where it does not read."""
        with contextlib.suppress(OSError):  # lines are shorter than what a pipe takes whole or not at all
            os.write(1, json.dumps(words).encode() + b"\n")


async def _request(reader: asyncio.StreamReader, seconds: float) -> Request | None:
    """The next request's head, or None where the other side has hung up."""
    try:
        async with asyncio.timeout(seconds):
            head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.LimitOverrunError:
        raise Refusal(431) from None
    except asyncio.IncompleteReadError as e:
        if e.partial:
            raise Refusal(400) from None
        return None
    except TimeoutError:
        raise Refusal(408) from None
    if len(head) > HEAD_BYTES:
        raise Refusal(431)
    return Request.read(head)


async def _stream(source: asyncio.StreamReader, sink: asyncio.StreamWriter, length: int | None) -> None:
    """So many bytes, or all until the end, never more than a few chunks of them in memory."""
    while length is None or length > 0:
        async with asyncio.timeout(STALL_SECONDS):
            data = await source.read(CHUNK_BYTES if length is None else min(length, CHUNK_BYTES))
        if not data:
            if length is None:
                break
            raise EOFError
        length = None if length is None else length - len(data)
        sink.write(data)
        async with asyncio.timeout(STALL_SECONDS):
            await sink.drain()
    async with asyncio.timeout(STALL_SECONDS):
        await sink.drain()


def _reader_of(data: bytes) -> asyncio.StreamReader:
    reader = asyncio.StreamReader()
    reader.feed_data(data)
    reader.feed_eof()
    return reader


def _varint(number: int) -> bytes:
    """As protobuf writes whole numbers: seven bits a byte, the lowest first."""
    parts = bytearray()
    while number > 0x7F:
        parts.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*parts, number])


async def _first(events: list[asyncio.Event], seconds: float) -> None:
    """Until one of them has happened, or so long."""
    waits = [asyncio.ensure_future(event.wait()) for event in events]
    try:
        await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()


async def _answer(writer: asyncio.StreamWriter, refusal: Refusal) -> None:
    lines = [f"HTTP/1.1 {refusal.status} {REASONS[refusal.status]}", "content-length: 0", "connection: close"]
    lines += [f"date: {formatdate(usegmt=True)}", *([f"{WHY}: {refusal.why}"] if refusal.why else [])]
    writer.write("\r\n".join([*lines, "", ""]).encode())
    async with asyncio.timeout(HEAD_SECONDS):
        await writer.drain()
    with contextlib.suppress(OSError, NotImplementedError):  # what is still being sent to us must not eat the answer
        if writer.can_write_eof():
            writer.write_eof()


def _end(transport: asyncio.BaseTransport) -> None:
    """Closes politely, and for good after a moment: a peer that does not read must not hold us."""
    transport.close()
    if isinstance(transport, asyncio.WriteTransport):
        asyncio.get_running_loop().call_later(5.0, transport.abort)


async def _listen_to_the_coordinator(door: Door, renewed: Callable[[], ssl.SSLContext | None]) -> None:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=64 << 20)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        if b'"renewed"' not in line:
            door.guests.learn(line)
            door.ready.set()
            continue
        try:
            door.tls = renewed()
        except (OSError, ssl.SSLError) as e:  # the coordinator has checked it; it may be another one since
            door.say(f"the certificate stays: {e}")


async def _main(listener: socket.socket, tls: Callable[[], ssl.SSLContext | None]) -> None:
    door = Door(listener, tls())
    standing = asyncio.create_task(door.stand())
    await _listen_to_the_coordinator(door, tls)
    standing.cancel()


def main() -> None:
    parser = argparse.ArgumentParser(description="covey's door before Flower's SuperLink")
    parser.add_argument("--listener", type=int, required=True, help="a listening socket's file descriptor")
    parser.add_argument("--certificate", default="", help="without one there is no TLS")
    parser.add_argument("--key", default="")
    words = parser.parse_args()
    listener = socket.socket(fileno=words.listener)
    listener.setblocking(False)
    os.set_blocking(1, False)
    asyncio.run(_main(listener, lambda: _shown(words.certificate, words.key)))


def _shown(certificate: str, key: str) -> ssl.SSLContext | None:
    """What the network sees of us; None: no TLS."""
    if not certificate:
        return None
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.minimum_version = ssl.TLSVersion.TLSv1_2
    tls.load_cert_chain(certificate, key)
    return tls


if __name__ == "__main__":
    main()
