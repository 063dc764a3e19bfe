"""`covey ui` without a browser: what is listed, what a growing run says, and that nobody gets at anything else."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from covey.errors import CoveyError
from covey.results.follow import Tail, glance
from covey.ui.index import Index
from covey.ui.pages import confined
from covey.ui.scan import places
from covey.ui.server import open_server
from support.patience import PATIENCE
from support.runs import HOSTILE, begun, record, synthetic_run

SECRET = "a key that must not leave"


class Clock:
    def __init__(self) -> None:
        self.now = time.time()

    def __call__(self) -> float:
        return self.now


@pytest.fixture(scope="module")
def room(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a bit of everything, and beside it something that nobody may see."""
    outside = tmp_path_factory.mktemp("outside")
    folder = outside / "runs"
    run = synthetic_run(folder / "first", clients=12, rounds=6)
    (run / "checkpoint").mkdir()
    (run / "checkpoint" / "keys.bin").write_text(SECRET)
    synthetic_run(folder / "more" / "hostile", clients=6, rounds=3, dataset=HOSTILE)
    begun(folder / "going", lines=record(1, 0.5))
    synthetic_run(outside / "elsewhere", clients=6, rounds=3, dataset="elsewhere")
    (folder / "way-out").symlink_to(outside / "elsewhere")
    trap = synthetic_run(folder / "trap", clients=6, rounds=3)
    (trap / "config.toml").unlink()
    (trap / "config.toml").symlink_to(outside / "elsewhere" / "config.toml")
    bent = begun(folder / "bent")
    (bent / "metrics.jsonl").symlink_to(outside / "elsewhere" / "metrics.jsonl")
    (outside / "elsewhere" / "config.toml").write_text(f"secret = '{SECRET}'\ndataset = 'elsewhere'\n")
    (folder / ".hidden").mkdir()
    return folder


@pytest.fixture(scope="module")
def port(room: Path) -> Iterator[int]:
    server = open_server(room)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server.server_address[1]
    server.shutdown()
    server.server_close()


def ask(port: int, path: str, method: str = "GET", host: str | None = None) -> tuple[int, http.client.HTTPMessage, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    connection.putrequest(method, path, skip_host=True)
    for name in [f"127.0.0.1:{port}"] if host is None else filter(None, host.split("|")):
        connection.putheader("Host", name)
    connection.endheaders()
    answer = connection.getresponse()
    body = answer.read().decode()
    connection.close()
    return answer.status, answer.headers, body


def test_what_a_folder_holds(room: Path) -> None:
    found = [(p.kind, p.folder.relative_to(room).as_posix()) for p in places(room)]
    assert found == [("run", name) for name in ("bent", "first", "going", "more/hostile", "trap")]


def test_audits_tables_and_seeds_are_seen_for_what_they_are(tmp_path: Path) -> None:
    (tmp_path / "audit").mkdir()
    audits = [{"algorithm": "ifca", "dataset": "digits"}, {"algorithm": "mingledpie", "dataset": "digits"}]
    (tmp_path / "audit" / "audit.json").write_text(json.dumps({"audits": audits}))
    table = {"paper": "mingledpie", "table": "table3", "title": "accuracy", "cells": [], "claims": [1, 2]}
    (tmp_path / "p-table3.json").write_text(json.dumps(table))
    (tmp_path / "p-table3.html").write_text("x")
    (tmp_path / "notes.json").write_text("{}")  # no page beside it: not ours
    seeds = begun(tmp_path / "seeds", 5, "seeds = 3")
    (seeds / "federation.json").unlink()
    begun(seeds / "seed-0", 5, lines="".join(record(t, 0.1 * t) for t in range(1, 6)))
    begun(seeds / "seed-1", 5, lines=record(1, 0.3))
    entries = {e.path: e for e in Index(tmp_path).entries()}
    assert set(entries) == {"audit/audit.json", "p-table3.json", "seeds"}
    assert entries["audit/audit.json"].title == "2 algorithms on digits"
    assert entries["p-table3.json"].facts == "mingledpie table3 · 2 claims"
    # One run over seeds: five rounds of the first and one of the second, of fifteen.
    assert (entries["seeds"].done, entries["seeds"].total, entries["seeds"].status) == (6, 15, "running")
    assert entries["seeds"].page == "at/seeds/seed-1/report.html"  # the one that is at work


def test_a_run_from_its_first_second_to_its_end(tmp_path: Path) -> None:
    clock = Clock()
    run, index = begun(tmp_path / "run"), Index(tmp_path, clock)

    def now(seconds: float = 0.0) -> Any:
        clock.now += seconds
        (entry,) = index.entries()
        return entry

    def write(line: str) -> None:
        with (run / "metrics.jsonl").open("a") as file:
            file.write(line)
        os.utime(run / "metrics.jsonl", (clock.now, clock.now))

    assert (now().status, now().page, now().total) == ("starting", "", 10)
    write(record(1, 0.4))
    one = now()
    assert (one.status, one.done, one.accuracy, one.left) == (
        "running",
        1,
        "40.0\xa0%",
        "18\xa0s",
    )  # nine rounds of 2 s
    assert one.page == "at/run/report.html"
    clock.now += 10
    write(record(2, 0.5))
    # Watched: ten seconds for a round, whatever the round says of itself.
    assert (now().done, now().left) == (2, "1\xa0min 20\xa0s")
    write('{"round": 3, "acc')  # caught in the middle of a line
    assert now(10).done == 2
    write('uracy": {"average_cluster": 0.6}}\n')
    assert (now().done, now().curve) == (3, (0.4, 0.5, 0.6))
    assert now(79).status == "running" and now(2).status == "stopped"  # eight times the pace of a round
    (run / "metrics.jsonl").unlink()  # resumed from the checkpoint of round 1: the file is written anew
    write(record(1, 0.4))
    assert (now().done, now().status) == (1, "running")
    write("".join(record(t, 0.5) for t in range(2, 11)))
    assert now(599).status == "running" and now().done == 10  # attacks may take their time after the last round
    assert now(2).status == "stopped"
    (run / "result.json").write_text(json.dumps({"schema": 1, "rounds": 10, "accuracy": {"average_cluster": 0.9}}))
    done = now()
    assert (done.status, done.done, done.accuracy, done.left) == ("finished", 10, "90.0\xa0%", "")


def test_only_new_lines_are_read(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text(record(1, 0.1) + record(2, 0.2))
    tail = Tail(path)
    tail.update()
    content = bytearray(path.read_bytes())
    content[: len(content)] = b"x" * len(content)  # what was read once may be anything now
    with path.open("r+b") as file:
        file.write(content)
        file.write(record(3, 0.3).encode())
    tail.update()
    assert (tail.rounds, tail.curve) == (3, [0.1, 0.2, 0.3])


def test_a_finished_run_is_glanced_at(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    rounds = ['{"round":1,"accuracy":null}\n', *(record(t, t / 1000) for t in range(1, 501)), '{"round": 5']
    path.write_text("".join(rounds))
    curve = glance(path, 40)
    assert 38 <= len(curve) <= 40 and curve == sorted(curve) and curve[0] < 0.02 and curve[-1] > 0.48
    assert glance(tmp_path / "nothing", 40) == []


def test_the_list_as_the_page_reads_it(port: int) -> None:
    status, headers, body = ask(port, "/runs.json")
    content = json.loads(body)
    assert status == 200 and headers["Content-Type"] == "application/json"
    assert {e["path"] for e in content["entries"]} == {"bent", "first", "going", "more/hostile", "trap"}
    assert {e["path"] for e in content["entries"][:2]} == {"bent", "going"}  # under way comes first
    assert SECRET not in body and "elsewhere" not in body
    (bent,) = (e for e in content["entries"] if e["path"] == "bent")
    assert bent["curve"] == []  # its curve would be another folder's


def test_what_the_page_knows_is_not_sent_again(tmp_path: Path) -> None:
    synthetic_run(tmp_path / "run", clients=6, rounds=2)
    server = open_server(tmp_path)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    here = server.server_address[1]
    version = json.loads(ask(here, "/runs.json")[2])["version"]
    assert ask(here, f"/runs.json?seen={version}")[0::2] == (204, "")
    begun(tmp_path / "new")
    assert ask(here, f"/runs.json?seen={version}")[0] == 200
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize("path", ["/", "/at/first/report.html", "/at/going/report.html"])
def test_pages_are_whole_and_their_policy_allows_their_own_script_only(port: int, path: str) -> None:
    status, headers, body = ask(port, path)
    policy = headers["Content-Security-Policy"]
    assert status == 200 and body.rstrip().endswith("</html>")
    assert policy.startswith("default-src 'none'") and "frame-ancestors 'none'" in policy
    assert "script-src 'sha256-" in policy and "unsafe-inline" not in policy.split("script-src")[1]
    assert headers["X-Content-Type-Options"] == "nosniff" and headers["Cache-Control"] == "no-store"
    assert "Access-Control-Allow-Origin" not in headers


def test_a_comparison_of_ticked_runs(port: int) -> None:
    status, _, body = ask(port, "/compare.html?run=first&run=more/hostile")
    assert status == 200 and "side by side" in body and "alert(1)</script>" not in body.split("<main>")[1]
    assert ask(port, "/compare.html?run=first")[0] == 404
    assert ask(port, "/compare.html?run=first&run=nowhere")[0] == 404
    assert ask(port, "/compare.html?" + "&".join(["run=first"] * 9))[0] == 404


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:{port}", "127.0.0.1", "127.0.0.1:1", "", "127.0.0.1:{port}|evil.example"]
)
def test_a_foreign_name_gets_nothing(port: int, host: str) -> None:
    status, _, body = ask(port, "/runs.json", host=host.format(port=port))
    assert status == 403 and "entries" not in body


def test_our_own_names_get_in(port: int) -> None:
    assert ask(port, "/", host=f"localhost:{port}")[0] == 200
    assert ask(port, "/", host=f"LOCALHOST:{port}")[0] == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT"])
def test_nothing_but_reading(port: int, method: str) -> None:
    status, headers, _ = ask(port, "/at/first/report.html", method)
    assert status == 501 and headers["Content-Security-Policy"].startswith("default-src 'none'")


def test_head_sends_no_body(port: int) -> None:
    status, headers, body = ask(port, "/", "HEAD")
    assert status == 200 and int(headers["Content-Length"]) > 1000 and body == ""


WAYS_OUT = [
    "/at/way-out/report.html",
    "/at/trap/report.html",
    "/at/bent/report.html",
    "/at/../elsewhere/report.html",
    "/at/%2e%2e/elsewhere/report.html",
    "/at/first/..%2f..%2felsewhere/report.html",
    "/at/first/../../elsewhere/report.html",
    "/at//etc/report.html",
    "/at/first/checkpoint/keys.bin",
    "/at/first/config.toml",
    "/at/first/result.json",
    "/at/.hidden/report.html",
    "/at/first%00/report.html",
    "/at/..\\elsewhere/report.html",
    "/at/way-out/audit.html",
    "/compare.html?run=first&run=way-out",
    "/compare.html?run=first&run=../elsewhere",
    "/compare.html?run=first&run=trap",
    "/../../../../etc/passwd",
    "/etc/passwd",
]


@pytest.mark.parametrize("path", WAYS_OUT)
def test_no_way_leads_out_of_the_folder(port: int, path: str) -> None:
    status, _, body = ask(port, path)
    assert status == 404 and SECRET not in body and "elsewhere" not in body and "root:" not in body


@given(st.lists(st.sampled_from(["..", ".", "", "first", "way-out", "/", "\\", "\0", "a b", "%2e%2e"]), max_size=6))
def test_a_confined_path_is_inside_or_refused(parts: list[str]) -> None:
    root = Path(__file__).parent
    try:
        found = confined(root, "/".join(parts))
    except CoveyError:
        return
    assert found.resolve().is_relative_to(root.resolve())


def test_it_listens_on_this_machine_only(room: Path) -> None:
    server = open_server(room)
    assert server.server_address[0] == "127.0.0.1"
    taken = server.server_address[1]
    with pytest.raises(CoveyError, match=f"port {taken} cannot be used"):
        open_server(room, taken)
    other = open_server(room)  # without a wish there is always one
    assert other.server_address[1] != taken
    server.server_close()
    other.server_close()


def test_damaged_files_take_nothing_else_away(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    synthetic_run(tmp_path / "good", clients=6, rounds=2)
    bad = synthetic_run(tmp_path / "bad", clients=6, rounds=2)
    (bad / "result.json").write_text('{"rounds": [], "attacks": {"a": 3}, "accuracy": "much"')
    (bad / "config.toml").write_text("not toml at all [")
    (tmp_path / "audit.json").write_text('{"audits": [{"algorithm": "ifca"}]}')
    server = open_server(tmp_path)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    here = server.server_address[1]
    assert {e["path"] for e in json.loads(ask(here, "/runs.json")[2])["entries"]} == {"good", "bad", "audit.json"}
    assert ask(here, "/at/good/report.html")[0] == 200
    assert ask(here, "/at/audit.html")[0] == 404
    server.shutdown()
    server.server_close()


def test_the_command_serves_and_ends_quietly(tmp_path: Path) -> None:
    synthetic_run(tmp_path / "run", clients=6, rounds=2)
    command = [sys.executable, "-m", "covey", "ui", str(tmp_path), "--no-browser"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout and process.stderr
        said = process.stdout.readline()
        here = int(said.split("127.0.0.1:")[1].split("/")[0])
        assert ask(here, "/")[0] == 200
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE) == 0 and process.stderr.read() == ""


def test_a_folder_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(CoveyError, match="is no folder"):
        open_server(tmp_path / "nothing")
