"""Answers one browser on this machine: bound to 127.0.0.1, reading only.

A page of some other site must not read a run through the visitor's browser. Its scripts are kept out by the same-origin rule; a
name that it points at 127.0.0.1 (DNS rebinding) by the check of Host; frames and embeddings by the headers below.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import sys
import threading
from dataclasses import dataclass, field
from functools import cached_property, partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from pathlib import Path
from socketserver import BaseServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from covey.errors import CoveyError, printable
from covey.report import assets
from covey.report.draw.markup import Html
from covey.ui.index import Index

LOOPBACK = "127.0.0.1"
PORT = 8420  # where it is free
FIRST_LOOK = "covey-first-look"
PATIENCE = 10.0  # seconds that the end waits for it
LOGGED = 200  # letters of an address that is written to the terminal
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


@dataclass
class Site:
    """The addresses of one folder."""

    root: Path
    index: Index = field(init=False)

    def __post_init__(self) -> None:
        if not self.root.is_dir():
            raise CoveyError(
                f"{self.root} is no folder: give the one that holds your runs, for example `covey ui runs`"
            )
        self.index = Index(self.root)

    def answer(self, address: str) -> Answer:
        try:
            parts = urlsplit(address)
            path, query = unquote(parts.path), parse_qs(parts.query)
        except ValueError:  # what looks like a host and is none
            return _problem(HTTPStatus.NOT_FOUND, "there is no such page")
        try:
            if path == "/":
                return Answer(self._list, policy=self._list_policy)
            if path == "/runs.json":
                return self._runs(query.get("seen", [""])[0])
            if path == "/compare.html":
                from covey.ui.pages import comparison_of

                return _page(comparison_of(self.root, query.get("run", [])))
            if path.startswith("/at/"):
                from covey.ui.pages import page_at

                return _page(page_at(self.root, path.removeprefix("/at/")))
        except CoveyError as problem:
            return _problem(HTTPStatus.NOT_FOUND, str(problem))
        except Exception as problem:  # a damaged file must not take the list away; the terminal says more
            print(printable(f"covey ui: {path[:LOGGED]}: {problem!r}", 4 * LOGGED), file=sys.stderr)
            return _problem(
                HTTPStatus.INTERNAL_SERVER_ERROR, "this page could not be made from the files of the folder"
            )
        return _problem(HTTPStatus.NOT_FOUND, "there is no such page")

    def _runs(self, seen: str) -> Answer:
        """All entries, or nothing where the page has them already."""
        body = json.dumps(self.index.json(), separators=(",", ":")).encode()
        digest = hashlib.sha256(body).hexdigest()[:16]
        if digest == seen:
            return Answer(b"", "application/json", HTTPStatus.NO_CONTENT)
        return Answer(b'{"version":"%s",' % digest.encode() + body[1:], "application/json")

    @cached_property
    def _list(self) -> bytes:
        shown = {"style": self._style, "script": self._script, "icon": assets.ICON, "mark": assets.MARK}
        page = assets.template(_text("list.html"))
        markup: str = page.render(folder=self.root.resolve().name, **{name: Html(part) for name, part in shown.items()})
        return markup.encode()

    @cached_property
    def _style(self) -> str:
        return assets.style() + _text("list.css")

    @cached_property
    def _script(self) -> str:
        return assets.theme() + _text("list.js")

    @cached_property
    def _list_policy(self) -> str:
        return (
            f"style-src '{assets.digest(self._style)}'; script-src '{assets.digest(self._script)}'; connect-src 'self'; "
            "img-src data:; form-action 'self'"
        )


class Handler(BaseHTTPRequestHandler):
    """GET and HEAD from this machine; anything else is refused before a file is looked at."""

    server_version, sys_version = "covey", ""
    timeout = 20  # a connection that says nothing does not keep its thread

    def __init__(self, site: Site, *rest: object) -> None:
        self.site = site
        super().__init__(*rest)  # type: ignore[arg-type]

    def do_GET(self) -> None:
        with contextlib.suppress(ConnectionError):  # the reader has gone on to another page
            self._send(self._refusal() or self.site.answer(self.path))

    do_HEAD = do_GET

    def _refusal(self) -> Answer | None:
        """For a request that names another host than this one: a foreign page has pointed its name here."""
        port = _port(self.server)
        named = self.headers.get_all("Host") or []
        if len(named) == 1 and named[0].lower() in (f"{LOOPBACK}:{port}", f"localhost:{port}"):
            return None
        return _problem(HTTPStatus.FORBIDDEN, f"this page is for http://{LOOPBACK}:{port}/ alone")

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
        self._send(_problem(HTTPStatus(code), message or "this request is not understood"))

    def log_message(self, format: str, *arguments: object) -> None:
        """One request a second is no news."""


def open_server(root: Path, port: int = 0) -> ThreadingHTTPServer:
    """A server that is bound but not yet serving; without a port the usual one, or any where that is taken."""
    site = Site(root)
    handler = partial(Handler, site)
    for wanted in (port,) if port else (PORT, 0):
        try:
            server = ThreadingHTTPServer((LOOPBACK, wanted), handler)
        except OSError as problem:
            if port:
                raise CoveyError(f"port {port} cannot be used: {problem.strerror}; choose another --port") from problem
            continue
        server.daemon_threads = True
        threading.Thread(
            target=site.index.entries, name=FIRST_LOOK, daemon=True
        ).start()  # it reads most: begin before asked
        return server
    raise CoveyError("no port of this machine is free")


def serve(root: Path, port: int = 0, browser: bool = True) -> None:
    """Serves until Ctrl-C."""
    import webbrowser

    server = open_server(root, port)
    address = f"http://{LOOPBACK}:{_port(server)}/"
    print(f"{root} on {address}   (Ctrl-C ends it)", flush=True)
    if browser:
        webbrowser.open(address)
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        pass
    finally:
        server.server_close()
        for thread in threading.enumerate():  # Python aborts where a thread still imports or reads while it ends
            if thread.name == FIRST_LOOK:
                thread.join(timeout=PATIENCE)


def _port(server: BaseServer) -> int:
    address: Any = server.server_address
    return int(address[1])


def _page(html: str) -> Answer:
    """A rendered report: its own script and nothing else runs."""
    return Answer(
        html.encode("utf-8", "replace"),
        policy=f"style-src 'unsafe-inline'; script-src '{assets.digest(assets.script())}'; img-src data:; form-action 'none'",
    )


def _problem(status: HTTPStatus, words: str) -> Answer:
    return Answer(f"covey: {words}\n".encode(), "text/plain; charset=utf-8", status)


def _text(name: str) -> str:
    return files("covey.ui").joinpath(name).read_text("utf-8")
