"""Contenders of a benchmark that take turns, round by round, each in a process of its own, so that what else happens on the
machine meets all of them alike. `Turns` is the contender's side, `Contender` the benchmark's.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TextIO

QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}


class Turns:
    """A round begins with a line from the parent and ends with its seconds, so that contenders take turns."""

    def __init__(self, orders: TextIO, answers: TextIO) -> None:
        self.orders, self.answers = orders, answers
        self.begin = 0.0

    def wait(self) -> None:
        if not self.orders.readline():
            os._exit(
                1
            )  # the parent is gone; Flower waits for its turn in a thread, which cannot end the process otherwise
        self.begin = time.perf_counter()

    def done(self) -> None:
        print(time.perf_counter() - self.begin, file=self.answers, flush=True)


@dataclass
class Contender:
    """A process that does a round when it is given a line."""

    name: str
    process: subprocess.Popen[str]
    log: IO[bytes]
    scale: float  # all clients / those it trains

    @classmethod
    def start(
        cls, name: str, model: str, epochs: int, rounds: int, folder: str, clients: int, of: int, samples: int
    ) -> Contender:
        """One that trains `clients` clients, whose times are scaled to `of`."""
        here = str(Path(__file__).parent)
        path = os.pathsep.join([here, *filter(None, [os.environ.get("PYTHONPATH")])])
        log = tempfile.TemporaryFile()  # noqa: SIM115 (lives as long as the process)
        arguments = [name, model, *(str(n) for n in (epochs, clients, samples, rounds)), folder]
        process = subprocess.Popen(
            [sys.executable, "-c", "import training_contenders; training_contenders.main()", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env=os.environ | QUIET | {"PYTHONPATH": path},
        )
        return cls(name, process, log, of / clients)

    def round(self) -> tuple[float, float]:
        """(seconds on the clock, core-seconds) of one round of all clients."""
        assert self.process.stdin and self.process.stdout
        before = core_seconds(self.process.pid)
        print(file=self.process.stdin, flush=True)
        answer = self.process.stdout.readline()
        if not answer:
            self.log.seek(0)
            raise SystemExit(f"{self.name} failed:\n{self.log.read().decode(errors='replace')[-3000:]}")
        return float(answer) * self.scale, (core_seconds(self.process.pid) - before) * self.scale

    def close(self) -> None:
        assert self.process.stdin
        self.process.stdin.close()
        try:
            self.process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            self.process.kill()
        self.log.close()


def core_seconds(root: int) -> float:
    """Processor time of a process and all that descend from it, those that have ended included."""
    parents, ticks = {}, {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # ended in between
        parents[int(stat.parent.name)] = int(fields[1])
        ticks[int(stat.parent.name)] = sum(int(field) for field in fields[11:15])
    family, new = {root}, True
    while new:
        new = {pid for pid, parent in parents.items() if parent in family} - family
        family |= new
    return sum(ticks.get(pid, 0) for pid in family) / os.sysconf("SC_CLK_TCK")


def rotate(contenders: list[Contender], repeats: int) -> dict[str, list[tuple[float, float]]]:
    """(seconds, core-seconds) of every round but each one's first, taken in turns that begin with another one each time."""
    times: dict[str, list[tuple[float, float]]] = {contender.name: [] for contender in contenders}
    try:
        for contender in contenders:
            contender.round()
        for turn in range(repeats):
            first = turn % len(contenders)
            for contender in contenders[first:] + contenders[:first]:
                times[contender.name].append(contender.round())
    finally:
        for contender in contenders:
            contender.close()
    return times
