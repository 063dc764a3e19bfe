"""The report as a reader meets it: headless Chromium, driven over a pipe, on a phone, a laptop, in the dark and on paper."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from covey.report.page import write_comparison, write_report
from test_report import HOSTILE, synthetic_run

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine; `apt-get install chromium`")

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

    def _receive(self, limit: float = 60.0) -> dict[str, Any]:
        end = time.monotonic() + limit
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._in], [], [], max(0.0, end - time.monotonic()))
            assert ready, "chromium did not answer"
            chunk = os.read(self._in, 1 << 20)
            assert chunk, "chromium has gone"
            self._buffer += chunk
        message, self._buffer = self._buffer.split(b"\0", 1)
        return json.loads(message)

    def open(self, path: Path, width: int = 1440, height: int = 900, scheme: str = "light") -> None:
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.events.clear()
        self.call("Page.navigate", url=path.as_uri())
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
                found.append(parameters["request"]["url"])
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


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    found = Browser(tmp_path_factory.mktemp("browser") / "profile")
    yield found
    found.close()


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One page of every kind, a hostile one included: long names are where layouts break."""
    room = tmp_path_factory.mktemp("pages")
    mingled = synthetic_run(room / "mingled", rounds=40)
    noisy = synthetic_run(room / "noisy", "fedcaprivacy", clients=30, rounds=20, k=3, dataset="digits")
    many = synthetic_run(room / "many", "ifca", clients=400, rounds=20, k=12, labels=100, attacks={})
    hostile = synthetic_run(
        room / "hostile", clients=10, rounds=4, dataset=HOSTILE * 3, stand_in=HOSTILE, model="m" * 200
    )
    bare = room / "bare"
    bare.mkdir()
    (bare / "result.json").write_text('{"schema": 1, "accuracy": {"global": 0.5}}')
    runs = {run.name: write_report(run) for run in (mingled, noisy, many, hostile, bare)}
    return runs | {"comparison": write_comparison([mingled, noisy, hostile], room / "comparison.html")}


NAMES = ("mingled", "noisy", "many", "hostile", "bare", "comparison")
# Text that leaves its card to the right, or the page, is as bad as a scroll bar. Tables scroll inside their own frame.
SPILLED = """[...document.querySelectorAll("h1,h2,h3,p,li,dt,dd,figcaption,button,figure,.tile,svg text")].filter(e => {
  if (e.closest(".scroll")) return false;
  const box = e.getBoundingClientRect();
  return box.width > 0 && (box.right > innerWidth + 1 || box.left < -1);
}).map(e => e.outerHTML.slice(0, 120))"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1440])
@pytest.mark.parametrize("name", NAMES)
def test_no_complaint_no_request_and_nothing_outside_the_page(
    browser: Browser, pages: dict[str, Path], name: str, width: int, scheme: str
) -> None:
    browser.open(pages[name], width, scheme=scheme)
    assert browser.complaints() == []
    assert browser.js("document.documentElement.scrollWidth") == width
    assert browser.js(SPILLED) == []
    ground = browser.js("getComputedStyle(document.body).backgroundColor")
    assert ground == {"light": "rgb(250, 249, 246)", "dark": "rgb(20, 21, 23)"}[scheme]


def test_the_complaint_detector_can_find_one(browser: Browser, tmp_path: Path) -> None:
    """The tests above would pass on silence alone: a page that misbehaves must be heard, and our policy must block its script."""
    (tmp_path / "bad.html").write_text("<script>console.error('x'); nothing.there()</script><img src=missing.png>")
    browser.open(tmp_path / "bad.html")
    assert len(browser.complaints()) >= 3
    page = write_report(synthetic_run(tmp_path / "run", clients=6, rounds=2)).read_text()
    (tmp_path / "injected.html").write_text(page.replace("<main>", "<main><script>document.title = 'taken'</script>"))
    browser.open(tmp_path / "injected.html")
    assert browser.js("document.title") != "taken"
    assert any("Content Security Policy" in complaint for complaint in browser.complaints())


def centre(browser: Browser, selector: str) -> tuple[float, float]:
    browser.js(
        f"document.querySelector({json.dumps(selector)}).scrollIntoView({{block: 'center', behavior: 'instant'}})"
    )
    # The scroll event comes with the next frame and rightly hides a tip: let it pass before the pointer moves.
    browser.js("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(1))))")
    found = f"document.querySelector({json.dumps(selector)}).getBoundingClientRect()"
    box = browser.js(f"(b => [b.left + b.width / 2, b.top + b.height / 2])({found})")
    return box[0], box[1]


def test_hovering_a_curve_reads_every_series_at_that_round(browser: Browser, pages: dict[str, Path]) -> None:
    browser.open(pages["mingled"])
    browser.hover(*centre(browser, "#accuracy svg.lines .plot"))
    said = browser.js("document.getElementById('tip').hidden ? '' : document.getElementById('tip').innerText").replace(
        "\xa0", " "
    )
    assert said.startswith(("round 20", "round 21"))
    row = json.loads((pages["mingled"].parent / "metrics.jsonl").read_text().splitlines()[int(said[6:8]) - 1])
    assert f"{100 * row['accuracy']['average_cluster']:.1f} %" in said
    assert f"{100 * row['accuracy']['global']:.1f} %" in said


def test_hovering_a_cell_names_client_round_and_cluster(browser: Browser, pages: dict[str, Path]) -> None:
    browser.open(pages["mingled"])
    browser.hover(*centre(browser, "#clusters svg.cells .plot"))
    said = browser.js("document.getElementById('tip').innerText")
    where, chosen = said.split("\n")[:2]
    client, round_ = (int(part.split()[1]) for part in where.split(", "))
    rows = [json.loads(line) for line in (pages["mingled"].parent / "metrics.jsonl").read_text().splitlines()]
    assert chosen == f"cluster {rows[round_ - 1]['clusters'][client]}"


def test_a_legend_key_hides_its_series_and_brings_it_back(browser: Browser, pages: dict[str, Path]) -> None:
    browser.open(pages["mingled"])
    shown = "[...document.querySelectorAll('#accuracy .ended g[data-s=\"1\"]')].filter(e => e.getClientRects().length).length"
    key = "document.querySelector('#accuracy button.key[data-s=\"1\"]')"
    assert browser.js(shown) == 1
    browser.js(f"{key}.click()")
    assert browser.js(shown) == 0 and browser.js(f"{key}.getAttribute('aria-pressed')") == "false"
    browser.js(f"{key}.click()")
    assert browser.js(shown) == 1


def test_the_switch_turns_dark_to_light_and_back(browser: Browser, pages: dict[str, Path]) -> None:
    browser.open(pages["mingled"], scheme="dark")
    grounds = []
    for _ in range(2):
        browser.js("document.getElementById('theme').click()")
        grounds.append(browser.js("getComputedStyle(document.body).backgroundColor"))
    assert grounds == ["rgb(250, 249, 246)", "rgb(20, 21, 23)"]


def test_the_first_screen_holds_the_four_numbers(browser: Browser, pages: dict[str, Path]) -> None:
    browser.open(pages["mingled"], 1440, 900)
    assert browser.js("document.querySelector('.tiles').getBoundingClientRect().bottom") < 900
    assert browser.js("document.querySelectorAll('.tile .value').length") == 4


def test_paper_is_white_and_whole(browser: Browser, pages: dict[str, Path], tmp_path: Path) -> None:
    browser.open(pages["mingled"], scheme="dark")
    browser.call(
        "Emulation.setEmulatedMedia", media="print", features=[{"name": "prefers-color-scheme", "value": "dark"}]
    )
    assert browser.js("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert browser.js("getComputedStyle(document.querySelector('nav')).display") == "none"
    browser.call("Emulation.setEmulatedMedia", media="", features=[])
    browser.pdf(tmp_path / "report.pdf")
    printed = (tmp_path / "report.pdf").read_bytes()
    assert printed.startswith(b"%PDF") and 3 <= printed.count(b"/Type /Page\n") + printed.count(b"/Type /Page ") <= 20
