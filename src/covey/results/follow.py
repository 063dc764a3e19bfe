"""A metrics.jsonl that grows: only the lines that came since the last look are read."""

from __future__ import annotations

import contextlib
import json
import os
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path

from covey.files import number
from covey.measures import LEADS
from covey.results.contents import dig, evenly

KINDS = (
    "average_cluster",
    "client_mean",
    "global",
)  # accuracies, the one that leads first, unless they say another one does


@dataclass
class Tail:
    """What the lines so far say. A resumed run replaces the file: then it is read from its beginning."""

    path: Path
    rounds: int = 0
    curve: list[float] = field(default_factory=list)
    seconds: deque[float] = field(default_factory=lambda: deque(maxlen=10))  # of the last rounds
    changed: float = 0.0
    _file: tuple[int, int] = (0, 0)
    _read: int = 0

    def update(self) -> None:
        try:
            with open(self.path, "rb", opener=_no_link) as file:
                state = os.fstat(file.fileno())
                if (state.st_dev, state.st_ino) != self._file or state.st_size < self._read:
                    self._forget((state.st_dev, state.st_ino))
                self.changed = state.st_mtime
                file.seek(self._read)
                fresh = file.read()
        except OSError:  # not there yet, no longer, or a link, which may lead out of the folder
            self._forget((0, 0))
            return
        whole = fresh[: fresh.rfind(b"\n") + 1]  # a line that is being written is left for the next look
        self._read += len(whole)
        for line in whole.splitlines():
            self._add(line)

    def _forget(self, file: tuple[int, int]) -> None:
        self.rounds, self.curve, self.changed, self._read, self._file = 0, [], 0.0, 0, file
        self.seconds.clear()

    def _add(self, line: bytes) -> None:
        try:
            record = json.loads(line)
        except ValueError:
            return
        round_number = number(dig(record, "round"))
        if round_number is None:
            return
        self.rounds = int(round_number)
        if (accuracy := leading(record)) is not None:
            self.curve.append(accuracy)
        phases = dig(record, "seconds")
        if isinstance(phases, dict):
            self.seconds.append(sum(s for v in phases.values() if (s := number(v)) is not None))


def leading(record: object) -> float | None:
    """The accuracy of a round (or of a result) that leads, where it was evaluated."""
    kinds = ordered(dig(record, "accuracy"))
    return next((a for key in kinds if (a := number(dig(record, "accuracy", key))) is not None), None)


def ordered(accuracy: object) -> tuple[str, ...]:
    """The kinds of accuracy, the one that leads first. Results from before this was said lead with the clusters' mean."""
    first = dig(accuracy, LEADS)
    return (str(first), *(kind for kind in KINDS if kind != first)) if first in KINDS else KINDS


def glance(path: Path, points: int) -> list[float]:
    """So many points of a finished run's curve. Most lines of a long file are not even parsed."""
    try:
        with open(path, "rb", opener=_no_link) as file:
            lines = [line for line in file if b'"accuracy":null' not in line]
    except OSError:
        return []
    curve = []
    for i in evenly(len(lines), points):
        with contextlib.suppress(ValueError):
            if (accuracy := leading(json.loads(lines[i]))) is not None:
                curve.append(accuracy)
    return curve


def _no_link(path: str, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_NOFOLLOW", 0))
