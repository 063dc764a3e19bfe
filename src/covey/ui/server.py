"""The local page's addresses, for one browser on this machine (`covey.loopback`)."""

from __future__ import annotations

import hashlib
import json
import sys
import threading
from dataclasses import dataclass, field
from functools import cached_property
from http import HTTPStatus
from http.server import ThreadingHTTPServer
from importlib.resources import files
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

from covey.errors import CoveyError, printable
from covey.loopback import JSON, LOOPBACK, Answer, bound, port_of, problem
from covey.report import assets
from covey.report.draw.markup import Html
from covey.results.status import STATUS
from covey.ui import operation
from covey.ui.index import Index

PORT = 8420  # where it is free
FIRST_LOOK = "covey-first-look"
PATIENCE = 10.0  # seconds that the end waits for it
LOGGED = 200  # letters of an address that is written to the terminal


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
            return problem(HTTPStatus.NOT_FOUND, "there is no such page")
        try:
            if path == "/":
                return Answer(self._list, policy=self._list_policy)
            if path == "/runs.json":
                return self._runs(query.get("seen", [""])[0])
            if path == "/compare.html":
                from covey.ui.pages import comparison_of

                return _page(comparison_of(self.root, query.get("run", [])))
            if path.startswith("/at/") and path.endswith(f"/{operation.PAGE}"):
                from covey.ui.pages import confined

                folder = path.removeprefix("/at/").removesuffix(operation.PAGE)
                at = confined(self.root, folder, STATUS).parent
                return Answer(operation.status_page(at, at.name).encode("utf-8", "replace"), policy=operation.policy())
            if path.startswith("/at/"):
                from covey.ui.pages import page_at

                return _page(page_at(self.root, path.removeprefix("/at/")))
        except CoveyError as e:
            return problem(HTTPStatus.NOT_FOUND, str(e))
        except Exception as e:  # a damaged file must not take the list away; the terminal says more
            print(printable(f"covey ui: {path[:LOGGED]}: {e!r}", 4 * LOGGED), file=sys.stderr)
            return problem(HTTPStatus.INTERNAL_SERVER_ERROR, "this page could not be made from the files of the folder")
        return problem(HTTPStatus.NOT_FOUND, "there is no such page")

    def _runs(self, seen: str) -> Answer:
        """All entries, or nothing where the page has them already."""
        body = json.dumps(self.index.json(), separators=(",", ":")).encode()
        digest = hashlib.sha256(body).hexdigest()[:16]
        if digest == seen:
            return Answer(b"", JSON, HTTPStatus.NO_CONTENT)
        return Answer(b'{"version":"%s",' % digest.encode() + body[1:], JSON)

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


def open_server(root: Path, port: int = 0) -> ThreadingHTTPServer:
    """A server that is bound but not yet serving; without a port the usual one, or any where that is taken."""
    site = Site(root)
    try:
        server = bound(site.answer, port or PORT, "--port")
    except CoveyError:
        if port:
            raise
        server = bound(site.answer, 0, "--port")
    threading.Thread(
        target=site.index.entries, name=FIRST_LOOK, daemon=True
    ).start()  # it reads most: begin before asked
    return server


def serve(root: Path, port: int = 0, browser: bool = True) -> None:
    """Serves until Ctrl-C."""
    import webbrowser

    server = open_server(root, port)
    address = f"http://{LOOPBACK}:{port_of(server)}/"
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


def _page(html: str) -> Answer:
    """A rendered report: its own script and nothing else runs."""
    return Answer(
        html.encode("utf-8", "replace"),
        policy=f"style-src 'unsafe-inline'; script-src '{assets.digest(assets.script())}'; img-src data:; form-action 'none'",
    )


def _text(name: str) -> str:
    return files("covey.ui").joinpath(name).read_text("utf-8")
