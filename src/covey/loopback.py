"""Answers readers on this machine: bound to 127.0.0.1, reading only.

A page of some other site must not read anything through the visitor's browser. Its scripts are kept out by the same-origin rule; a
name that it points at 127.0.0.1 (DNS rebinding) by the check of Host; frames and embeddings by the headers below.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import BaseServer
from typing import Any

from covey.errors import CoveyError

LOOPBACK = "127.0.0.1"
JSON = "application/json"
HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}


@dataclass(frozen=True)
class Answer:
    """What goes back: `policy` is the content security policy, beyond nothing at all."""

    body: bytes
    kind: str = "text/html; charset=utf-8"
    status: HTTPStatus = HTTPStatus.OK
    policy: str = ""


class Handler(BaseHTTPRequestHandler):
    """GET and HEAD from this machine; anything else is refused before `answer` is asked."""

    server_version, sys_version = "covey", ""
    timeout = 20  # a connection that says nothing does not keep its thread

    def __init__(self, answer: Callable[[str], Answer], *rest: object) -> None:
        self.answer = answer
        super().__init__(*rest)  # type: ignore[arg-type]

    def do_GET(self) -> None:
        with contextlib.suppress(ConnectionError):  # the reader has gone on to another page
            self._send(self._refusal() or self.answer(self.path))

    do_HEAD = do_GET

    def _refusal(self) -> Answer | None:
        """For a request that names another host than this one: a foreign page has pointed its name here."""
        port = port_of(self.server)
        named = self.headers.get_all("Host") or []
        if len(named) == 1 and named[0].lower() in (f"{LOOPBACK}:{port}", f"localhost:{port}"):
            return None
        return problem(HTTPStatus.FORBIDDEN, f"this page is for http://{LOOPBACK}:{port}/ alone")

    def _send(self, answer: Answer) -> None:
        self.send_response(answer.status)
        policy = f"default-src 'none'; base-uri 'none'; frame-ancestors 'none'; {answer.policy}"
        for name, value in {**HEADERS, "Content-Security-Policy": policy, "Content-Type": answer.kind}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(answer.body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer.body)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Other methods and requests that cannot be read, in our words and with our headers."""
        self._send(problem(HTTPStatus(code), message or "this request is not understood"))

    def log_message(self, format: str, *arguments: object) -> None:
        """One request a second is no news."""


def bound(answer: Callable[[str], Answer], port: int, option: str) -> ThreadingHTTPServer:
    """A server that is bound but not yet serving; a port of 0 is any free one."""
    try:
        server = ThreadingHTTPServer((LOOPBACK, port), partial(Handler, answer))
    except OSError as e:
        raise CoveyError(f"port {port} cannot be used: {e.strerror}; choose another {option}") from e
    server.daemon_threads = True
    return server


def port_of(server: BaseServer) -> int:
    address: Any = server.server_address
    return int(address[1])


def problem(status: HTTPStatus, words: str) -> Answer:
    return Answer(f"covey: {words}\n".encode(), "text/plain; charset=utf-8", status)
