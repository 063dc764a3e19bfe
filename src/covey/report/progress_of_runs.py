"""Progress of many runs at once: one bar over all, one for each that is running, with the time left; plain lines in a log."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self, TextIO

from covey.report.format import NBSP, counted, duration, percent
from covey.report.progress import EVERY, live_bar


@dataclass(frozen=True)
class Row:
    """A run that is running."""

    title: str
    done: int
    rounds: int
    accuracy: float | None = None


class RunsProgress:
    """`with RunsProgress(30, "sweep") as progress: progress.update(finished, failed, rows, left)`, as often as one likes."""

    def __init__(
        self,
        runs: int,
        title: str,
        quiet: bool = False,
        *,
        stream: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.runs, self.title, self.quiet = runs, title, quiet
        self._stream, self._clock = stream, clock
        self._live: Any = None
        self._all: Any = None
        self._tasks: dict[str, Any] = {}
        self._began: dict[str, tuple[float, int]] = {}  # when a run was first seen, and the rounds it had
        self._written, self._shown = 0.0, (-1, -1)  # when a line was last written, and what had ended by then

    def __enter__(self) -> Self:
        if not self.quiet:
            self._live = live_bar(self._stream)
        if self._live is not None:
            self._live.start()
            self._all = self._live.add_task(self.title, total=self.runs, words="")
        return self

    def update(self, finished: int, failed: int, rows: Sequence[Row], left: float | None) -> None:
        if self.quiet:
            return
        words = f"{finished}/{counted(self.runs, 'run')}" + (f", {failed} failed" if failed else "")
        words = (words + (f", {duration(left)} left" if left else "")).replace(NBSP, " ")
        if self._live is None:
            self._print((finished, failed), words, rows)
            return
        self._live.update(self._all, completed=finished + failed, words=words)
        for row in rows:
            if row.title not in self._tasks:
                self._tasks[row.title] = self._live.add_task(f"  {row.title}", total=row.rounds, words="")
            self._live.update(self._tasks[row.title], completed=row.done, words=self._words(row))
        for title in self._tasks.keys() - {row.title for row in rows}:
            self._live.remove_task(self._tasks.pop(title))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _words(self, row: Row) -> str:
        parts = [f"round {row.done}/{row.rounds}"]
        if row.done:  # before its first round a run prepares, which tells nothing about rounds
            self._began.setdefault(row.title, (self._clock(), row.done))
        since, had = self._began.get(row.title, (0.0, 0))
        if row.accuracy is not None:
            parts.append(f"accuracy {percent(row.accuracy)}")
        if row.done > had:
            left = (self._clock() - since) / (row.done - had) * (row.rounds - row.done)
            parts.append(f"{duration(left)} left")
        return ", ".join(parts).replace(NBSP, " ")

    def _print(self, ended: tuple[int, int], words: str, rows: Sequence[Row]) -> None:
        """A line when a run has ended; else one now and then, with where the running ones are."""
        if ended == self._shown and self._clock() - self._written < 5 * EVERY:
            return
        at = "; ".join(f"{row.title}: round {row.done}/{row.rounds}" for row in rows[:4])
        more = f" and {len(rows) - 4} more" if len(rows) > 4 else ""
        said = f"{self.title}: {words}" + (f" ({at}{more})" if at else "")
        print(said, file=self._stream or sys.stderr, flush=True)
        self._written, self._shown = self._clock(), ended
