"""Headless Chromium, driven over a pipe, for the tests of what people look at; they skip where there is none."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from support.patience import PATIENCE

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
needs_browser = pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine; `apt-get install chromium`")

FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
]


class Browser:
    """Chromium's DevTools protocol over file descriptors 3 and 4: no driver, no port, no dependency."""

    def __init__(self, profile: Path) -> None:
        assert CHROMIUM is not None
        to_child, self._out = os.pipe()
        self._in, from_child = os.pipe()
        self._log = os.open(profile.parent / "chromium.log", os.O_WRONLY | os.O_CREAT)
        moves = [(os.POSIX_SPAWN_DUP2, self._log, 1), (os.POSIX_SPAWN_DUP2, self._log, 2)]
        # Parked high first: the pipes' own numbers may be 3 and 4 in the wrong order.
        moves += [(os.POSIX_SPAWN_DUP2, to_child, 103), (os.POSIX_SPAWN_DUP2, from_child, 104)]
        moves += [(os.POSIX_SPAWN_DUP2, 103, 3), (os.POSIX_SPAWN_DUP2, 104, 4)]
        moves += [(os.POSIX_SPAWN_CLOSE, 103), (os.POSIX_SPAWN_CLOSE, 104)]
        command = [CHROMIUM, *FLAGS, f"--user-data-dir={profile}", "about:blank"]
        self.pid = os.posix_spawn(CHROMIUM, command, dict(os.environ), file_actions=moves, setpgroup=0)
        os.close(to_child)
        os.close(from_child)
        self._buffer = b""
        self._count = 0
        self.events: list[dict[str, Any]] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    _session: str | None = None

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._count += 1
        message: dict[str, Any] = {"id": self._count, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            found = self._receive()
            if found.get("id") == self._count:
                assert "error" not in found, found
                return found["result"]
            self.events.append(found)

    def _receive(self, limit: float = PATIENCE) -> dict[str, Any]:
        end = time.monotonic() + limit
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._in], [], [], max(0.0, end - time.monotonic()))
            assert ready, "chromium did not answer"
            chunk = os.read(self._in, 1 << 20)
            assert chunk, "chromium has gone"
            self._buffer += chunk
        message, self._buffer = self._buffer.split(b"\0", 1)
        return json.loads(message)

    def open(self, path: Path | str, width: int = 1440, height: int = 900, scheme: str = "light") -> None:
        """A file or an address, at a size and in a colour scheme; returns when it is loaded."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.events.clear()
        self.call("Page.navigate", url=path.as_uri() if isinstance(path, Path) else path)
        while not any(event["method"] == "Page.loadEventFired" for event in self.events):
            self.events.append(self._receive())

    def js(self, expression: str) -> Any:
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def hover(self, x: float, y: float) -> None:
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def complaints(self) -> list[str]:
        """Console errors, exceptions, blocked content, and any request beyond the file itself."""
        found = []
        for event in self.events:
            method, parameters = event["method"], event["params"]
            if method in ("Runtime.exceptionThrown", "Log.entryAdded"):
                found.append(json.dumps(parameters))
            if method == "Runtime.consoleAPICalled" and parameters["type"] in ("error", "warning", "assert"):
                found.append(json.dumps(parameters))
            if method == "Network.requestWillBeSent" and parameters.get("type") != "Document":
                url = parameters["request"]["url"]
                if not url.startswith("data:"):  # that stands in the file itself
                    found.append(url)
        return found

    def screenshot(self, path: Path, full: bool = False) -> None:
        data = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=full)["data"]
        path.write_bytes(base64.b64decode(data))

    def pdf(self, path: Path) -> None:
        path.write_bytes(
            base64.b64decode(self.call("Page.printToPDF", printBackground=True, preferCSSPageSize=True)["data"])
        )

    def close(self) -> None:
        os.killpg(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        for descriptor in (self._in, self._out, self._log):
            os.close(descriptor)


# Text that leaves its card to the right, or the page, is as bad as a scroll bar. Tables scroll inside their own frame.
SPILLED = """[...document.querySelectorAll("h1,h2,h3,p,li,dt,dd,figcaption,button,figure,.tile,svg text")].filter(e => {
  if (e.closest(".scroll")) return false;
  const box = e.getBoundingClientRect();
  return box.width > 0 && (box.right > innerWidth + 1 || box.left < -1);
}).map(e => e.outerHTML.slice(0, 120))"""


def centre(browser: Browser, selector: str) -> tuple[float, float]:
    browser.js(
        f"document.querySelector({json.dumps(selector)}).scrollIntoView({{block: 'center', behavior: 'instant'}})"
    )
    # The scroll event comes with the next frame and rightly hides a tip: let it pass before the pointer moves.
    browser.js("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(1))))")
    found = f"document.querySelector({json.dumps(selector)}).getBoundingClientRect()"
    box = browser.js(f"(b => [b.left + b.width / 2, b.top + b.height / 2])({found})")
    return box[0], box[1]
