"""Progress of a long job: a live bar in a terminal or notebook, a few plain lines in a log, nothing when asked to be quiet."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self, TextIO

from covey.report.format import NBSP, duration, percent
from covey.report.notebook import Bar, in_notebook

EVERY = 2.0  # seconds between plain lines: a log of a long run stays readable


class Progress:
    """`with Progress(100, "IFCA on MNIST") as p: p.update(done=t, accuracy=.97, rate="340 clients/s")`.

    Writes to stderr, so that a command's output can still be piped. `start` is the number of units that a resumed run finds done:
    they count as progress but not as speed.
    """

    def __init__(
        self,
        total: int,
        title: str,
        unit: str = "round",
        quiet: bool = False,
        *,
        start: int = 0,
        stream: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.total, self.title, self.unit, self.quiet = total, title, unit, quiet
        self._start, self._stream, self._clock = start, stream, clock
        self._began = self._written = 0.0
        self._shown = ""
        self._live: Any = None  # rich's Progress while a live bar is on
        self._task: Any = None

    def __enter__(self) -> Self:
        self._began = self._clock()
        self._written = self._began - EVERY
        self._shown = ""
        if not self.quiet:
            self._live = live_bar(self._stream)
        if self._live is not None:
            self._live.start()
            self._task = self._live.add_task(self.title, total=self.total, completed=self._start, words="")
        return self

    def update(self, done: int, accuracy: float | None = None, rate: str = "", note: str = "") -> None:
        """Tells that `done` units are finished. Cheap enough for every round."""
        if self.quiet:
            return
        words = self._words(done, accuracy, rate, note)
        if self._live is not None:
            self._live.update(self._task, completed=done, words=words)
            return
        now = self._clock()
        line = f"{self.title}: {words}"
        if now - self._written >= EVERY or done >= self.total:
            self._print(line)
            self._written = now

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _words(self, done: int, accuracy: float | None, rate: str, note: str) -> str:
        parts = [f"{self.unit} {done}/{self.total}"]
        if accuracy is not None:
            parts.append(f"accuracy {percent(accuracy)}")
        if rate:
            parts.append(rate)
        elapsed, steps = self._clock() - self._began, done - self._start
        if done >= self.total:
            parts.append(f"took {duration(elapsed)}")
        elif steps > 0:
            parts.append(f"{duration(elapsed / steps * (self.total - done))} left")
        return ", ".join(parts + ([note] if note else [])).replace(NBSP, " ")

    def _print(self, line: str) -> None:
        if line != self._shown:  # a last update repeated, say after a final evaluation, is not news
            print(line, file=self._stream or sys.stderr, flush=True)
        self._shown = line


def live_bar(stream: TextIO | None) -> Any:
    """A notebook's bar, or rich's where a terminal can show it, else None: no rich, or no terminal."""
    if stream is None and in_notebook():
        return Bar()  # rich would ask for ipywidgets
    try:
        from rich.console import Console
        from rich.progress import BarColumn, TextColumn
        from rich.progress import Progress as RichBar
    except ImportError:
        return None
    console = Console(file=stream, stderr=stream is None)
    if not console.is_terminal or console.is_dumb_terminal:
        return None
    # Titles and notes may hold anything a user named; `markup=False` keeps "[bold]" in a dataset's name from being obeyed.
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=None),
        TextColumn("{task.fields[words]}", markup=False),
    )
    return RichBar(*columns, console=console, expand=True)
