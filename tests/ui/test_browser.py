"""`covey ui` as a person meets it, in a real browser: live, on a phone and a laptop, in the light and in the dark."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from covey.results.status import ANSWERED, AWAY, COORDINATOR, FINISHED, STATUS, Peer, Status
from covey.ui.server import open_server
from support.chromium import SPILLED, Browser, needs_browser
from support.patience import until
from support.runs import HOSTILE, begun, record, synthetic_run

pytestmark = needs_browser


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two finished runs, a hostile one, one that stopped, and one under way with three of ten rounds done."""
    room = tmp_path / "runs"
    synthetic_run(room / "mingled", clients=20, rounds=12)
    synthetic_run(room / "deep" / "down" / "ifca", "ifca", clients=20, rounds=12, attacks={})
    synthetic_run(room / "hostile", clients=6, rounds=3, dataset=HOSTILE * 2, stand_in=HOSTILE)
    begun(room / "stopped", lines=record(1, 0.2, seconds=0.0))
    begun(room / "going", lines="".join(record(t, 0.2 * t, seconds=600.0) for t in (1, 2, 3)))
    long_ago = time.time() - 7200
    for path in (room / "stopped").iterdir():
        os.utime(path, (long_ago, long_ago))
    return room


@pytest.fixture
def address(folder: Path) -> Iterator[str]:
    server = open_server(folder)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}/"
    server.shutdown()
    server.server_close()


def wait_for(browser: Browser, expression: str, wanted: Any = True) -> None:
    until(
        lambda: browser.js(expression) == wanted, lambda: f"{expression} is {browser.js(expression)!r}, not {wanted!r}"
    )


def complaints(browser: Browser) -> list[str]:
    """All but the page's own question for the list."""
    return [c for c in browser.complaints() if "/runs.json?seen=" not in c]


ROWS = "document.querySelectorAll('.row').length"


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1440])
def test_nothing_is_wrong_and_nothing_leaves_the_page(browser: Browser, address: str, width: int, scheme: str) -> None:
    browser.open(address, width, scheme=scheme)
    wait_for(browser, ROWS, 5)
    browser.js("document.querySelector('input[name=run]').click()")  # the bar at the bottom belongs to the page, too
    assert complaints(browser) == []
    assert browser.js("document.documentElement.scrollWidth") == width
    assert browser.js(SPILLED) == []
    ground = browser.js("getComputedStyle(document.body).backgroundColor")
    assert ground == {"light": "rgb(250, 249, 246)", "dark": "rgb(20, 21, 23)"}[scheme]


def test_a_run_is_followed_without_a_reload(browser: Browser, address: str, folder: Path) -> None:
    browser.open(address)
    wait_for(browser, "document.querySelectorAll('.live li').length", 1)
    card = "document.querySelector('.live li').innerText.replaceAll('\\u00a0', ' ')"
    assert "Round 3 of 10" in browser.js(card) and "accuracy 60.0 %" in browser.js(card)
    assert browser.js("document.querySelector('.live progress').value") == 3
    with (folder / "going" / "metrics.jsonl").open("a") as file:
        file.write(record(4, 0.91, seconds=600.0))
    wait_for(browser, f"{card}.includes('Round 4 of 10') && {card}.includes('accuracy 91.0 %')")
    synthetic_run(folder / "another", "fedavg", clients=6, rounds=2)
    wait_for(browser, ROWS, 6)
    result = {"schema": 1, "rounds": 4, "accuracy": {"average_cluster": 0.91}, "algorithm": "ifca", "dataset": "mnist"}
    (folder / "going" / "result.json").write_text(json.dumps(result))
    wait_for(browser, "document.getElementById('live').hidden")
    assert browser.js("document.getElementById('headline').textContent") == "6 runs"
    assert complaints(browser) == []


def test_ticked_runs_are_compared_and_the_way_back_works(browser: Browser, address: str) -> None:
    browser.open(address)
    wait_for(browser, ROWS, 5)
    tick = "document.querySelector('input[value=\"{}\"]').click()"
    assert browser.js("document.getElementById('compare').hidden")
    browser.js(tick.format("mingled"))
    assert browser.js("document.getElementById('go').disabled")
    browser.js(tick.format("deep/down/ifca"))
    assert not browser.js("document.getElementById('go').disabled")
    browser.events.clear()
    browser.js("document.getElementById('go').click()")
    wait_for(browser, "document.readyState === 'complete' && location.pathname", "/compare.html")
    assert "MingledPie and IFCA" in browser.js("document.querySelector('h1').textContent")
    assert browser.complaints() == []
    browser.js("history.back()")
    wait_for(browser, f"location.pathname === '/' && {ROWS}", 5)


def test_a_report_opens_and_its_script_runs(browser: Browser, address: str) -> None:
    browser.open(address)
    wait_for(browser, ROWS, 5)
    link = browser.js("document.querySelector('.row input[value=mingled]').closest('.row').querySelector('a').href")
    browser.open(link)
    assert browser.js("document.querySelectorAll('.tile .value').length") == 4
    assert not browser.js("document.getElementById('theme').hidden")  # the switch is the script's
    assert browser.complaints() == []


def test_names_are_text_and_never_markup(browser: Browser, address: str) -> None:
    browser.open(address)
    wait_for(browser, ROWS, 5)
    assert browser.js("document.querySelectorAll('#form img, #form script').length") == 0
    shown = browser.js("document.querySelector('.row input[value=hostile]').closest('.row').innerText")
    assert "onerror=alert(2)" in shown


def test_the_filter_leaves_what_has_all_its_words(browser: Browser, address: str) -> None:
    browser.open(address)
    wait_for(browser, ROWS, 5)
    for words, rows in (("ifca mnist", 3), ("DEEP", 1), ("stopped", 1), ("nowhere", 0), ("", 5)):
        browser.js(
            f"(f => {{ f.value = {json.dumps(words)}; f.dispatchEvent(new Event('input')); }})(document.getElementById('filter'))"
        )
        assert browser.js(ROWS) == rows, words
        assert browser.js("document.getElementById('none').hidden") == (rows > 0)


def test_it_says_when_covey_has_gone(browser: Browser, folder: Path) -> None:
    server = open_server(folder)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    browser.open(f"http://127.0.0.1:{server.server_address[1]}/")
    wait_for(browser, ROWS, 5)
    assert browser.js("document.getElementById('lost').hidden")
    server.shutdown()
    server.server_close()
    wait_for(browser, "document.getElementById('lost').hidden", False)
    assert browser.js(ROWS) == 5


def test_a_deployment_as_its_operator_sees_it(browser: Browser, address: str, folder: Path) -> None:
    """Light on a laptop, dark on a phone; what others wrote stays text; a status that changes is followed."""
    peers = (Peer("north", ANSWERED, 1.0, 3), Peer(HOSTILE, AWAY, 1.0, refused=1, why=HOSTILE))
    status = Status("server", COORDINATOR, "FedAvg", FINISHED, "", 3, 3, 3, peers=peers, alert=f"ALERT: {HOSTILE}")
    (folder / "going" / STATUS).write_text(json.dumps(status.json()))
    for width, scheme in ((1440, "light"), (390, "dark")):
        browser.open(f"{address}at/going/status.html", width, scheme=scheme)
        assert browser.complaints() == [] and browser.js(SPILLED) == []
        assert browser.js("document.documentElement.scrollWidth") == width
        assert browser.js("document.querySelectorAll('.peer:not(.heads)').length") == 2
        assert HOSTILE in browser.js("document.querySelectorAll('.name')[1].textContent")
    (folder / "going" / STATUS).write_text(json.dumps(replace(status, alert="", peers=peers[:1]).json()))
    wait_for(browser, "document.querySelectorAll('.peer:not(.heads)').length", 1)
    browser.open(address)
    wait_for(browser, "document.querySelector('.live .sub a')?.textContent", "operation")
