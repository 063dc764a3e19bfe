"""/metrics, /health and /status.json of a running party, for this machine only."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from http import HTTPStatus
from http.server import ThreadingHTTPServer

from covey.deploy.watch.exposition import KIND, exposition
from covey.loopback import JSON, Answer, bound, problem
from covey.results.status import Status, now


def open_endpoint(status: Callable[[], Status], port: int) -> ThreadingHTTPServer:
    """Bound and serving, in a thread of its own; `shutdown` and `server_close` end it."""
    server = bound(lambda address: answer(status(), address), port, "--metrics")
    threading.Thread(target=server.serve_forever, name="covey-metrics", daemon=True).start()
    return server


def answer(status: Status, address: str) -> Answer:
    path = address.split("?", 1)[0]
    if path == "/metrics":
        return Answer(exposition(status, now()).encode(), KIND)
    if path == "/status.json":
        return Answer(json.dumps(status.json()).encode(), JSON)
    if path == "/health":
        troubles = status.troubles(now())
        words = "; ".join(troubles) or "well"
        state = HTTPStatus.SERVICE_UNAVAILABLE if troubles else HTTPStatus.OK
        return Answer(f"{words}\n".encode(), "text/plain; charset=utf-8", state)
    return problem(HTTPStatus.NOT_FOUND, "there are /metrics, /health and /status.json")
