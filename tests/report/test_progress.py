"""Progress: a bar where someone watches, short logs where nobody does, silence when asked."""

from __future__ import annotations

import builtins
import io
import sys
from typing import Any

import pytest

from covey.report.notebook import Bar, in_notebook
from covey.report.progress import Progress
from covey.report.progress_of_runs import Row, RunsProgress


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_plain_lines_by_hand() -> None:
    clock, out = Clock(), io.StringIO()
    with Progress(4, "IFCA on digits", stream=out, clock=clock) as p:
        for done in range(1, 5):
            clock.now += 5
            p.update(done=done, accuracy=0.9 + done / 100, rate="24 clients/s", note="joined 2" if done == 2 else "")
    assert out.getvalue().splitlines() == [
        "IFCA on digits: round 1/4, accuracy 91.0 %, 24 clients/s, 15.0 s left",
        "IFCA on digits: round 2/4, accuracy 92.0 %, 24 clients/s, 10.0 s left, joined 2",
        "IFCA on digits: round 3/4, accuracy 93.0 %, 24 clients/s, 5.0 s left",
        "IFCA on digits: round 4/4, accuracy 94.0 %, 24 clients/s, took 20.0 s",
    ]


def test_fast_rounds_leave_a_short_log_that_still_ends() -> None:
    clock, out = Clock(), io.StringIO()
    with Progress(1000, "t", stream=out, clock=clock) as p:
        for done in range(1, 1001):
            clock.now += 0.01
            p.update(done=done)
    lines = out.getvalue().splitlines()
    assert len(lines) == 6  # ten seconds: the first round, one every two seconds, the last round
    assert lines[-1].startswith("t: round 1000/1000, took 10.0 s")


def test_a_resumed_run_does_not_count_old_rounds_as_speed() -> None:
    clock, out = Clock(), io.StringIO()
    with Progress(100, "t", start=90, stream=out, clock=clock) as p:
        clock.now += 10
        p.update(done=91)
    assert out.getvalue() == "t: round 91/100, 1 min 30 s left\n"


def test_quiet_is_silent() -> None:
    out = Terminal()
    with Progress(2, "t", quiet=True, stream=out) as p:
        p.update(done=2)
    assert out.getvalue() == ""


def test_a_terminal_gets_a_bar_and_names_are_not_markup(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "120")
    for name in ("NO_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    out = Terminal()
    with Progress(4, "[bold]mnist", stream=out) as p:
        p.update(done=4, accuracy=0.5)
    shown = out.getvalue()
    assert "[bold]mnist" in shown and "round 4/4, accuracy 50.0 %" in shown and "━" in shown


def test_the_cursor_comes_back_after_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    out = Terminal()
    with pytest.raises(RuntimeError), Progress(4, "t", stream=out) as p:
        p.update(done=1)
        raise RuntimeError
    assert out.getvalue().rfind("\x1b[?25h") > out.getvalue().rfind("\x1b[?25l") >= 0


def test_without_rich_a_terminal_gets_plain_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without_rich(name: str, *rest: Any, **named: Any) -> Any:
        if name.split(".")[0] == "rich":
            raise ImportError(name)
        return real(name, *rest, **named)

    for module in [name for name in sys.modules if name.split(".")[0] == "rich"]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setattr(builtins, "__import__", without_rich)
    out = Terminal()
    with Progress(1, "t", unit="client", stream=out, clock=Clock()) as p:
        p.update(done=1)
    assert out.getvalue() == "t: client 1/1, took 0 ms\n"


def test_it_writes_to_stderr_so_that_output_can_be_piped(capsys: pytest.CaptureFixture[str]) -> None:
    with Progress(1, "t") as p:
        p.update(done=1)
    written = capsys.readouterr()
    assert written.out == "" and written.err.startswith("t: round 1/1")


def test_a_notebook_gets_a_bar_whose_names_are_text(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[str] = []

    class Cell:
        def update(self, markup: str) -> None:
            drawn.append(markup)

    class Display:
        HTML = str

        @staticmethod
        def display(markup: str, display_id: bool) -> Cell:
            assert markup == "" and display_id  # a place in the cell that is written over
            return Cell()

    monkeypatch.setattr("covey.report.notebook._ipython", lambda: Display)
    monkeypatch.setattr("covey.report.progress.live_bar", lambda stream: Bar())
    with Progress(3, "<b>mnist", clock=Clock()) as p:
        for done in (1, 2, 3):
            p.update(done=done, accuracy=0.5)
    assert '<progress value="1" max="3"' in drawn[0] and "round 1/3, accuracy 50.0 %" in drawn[0]
    assert '<progress value="3" max="3"' in drawn[-1] and "&lt;b&gt;mnist" in drawn[-1]
    assert len(drawn) <= 4  # two updates within a tenth of a second are one drawing
    monkeypatch.setattr("covey.report.progress_of_runs.live_bar", lambda stream: Bar())
    with RunsProgress(2, "audit", clock=Clock()) as runs:
        runs.update(0, 0, [Row("seed 0", 1, 4, None)], None)
        runs.update(2, 0, [], None)
    assert "2/2 runs" in drawn[-1] and "seed 0" not in drawn[-1]  # what has ended leaves its line
    assert not in_notebook()
