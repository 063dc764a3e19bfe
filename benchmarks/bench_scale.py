"""Memory and time of one FedAvg round as the clients grow: 1,000 and 10,000 clients of 50 samples, FCNN.

    python benchmarks/bench_scale.py [--quick] [--engine ray] [--json FILE]

Every size runs in a fresh process, with one worker per core. Workers are forked and share pages with their parent, so
resident sizes would count these several times: memory here is the proportional share (PSS: a page that three processes
share counts a third in each) summed over the process and its workers, sampled every few ms, and the peak of that. The data
are aside: all sizes hold the same samples, those of the largest, and a smaller one uses the first of them. What remains in
`before` (Python, torch, data) is what the process held when its round began. Goal: peak of the largest within 1.3 × that
of the smallest, data subtracted from both.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

SAMPLES, GOAL = 50, 1.3


def proportional(root: int) -> float:
    """MB of a process and its descendants, each shared page counted once."""
    total, family = 0, [str(root)]
    for pid in family:
        with contextlib.suppress(OSError):
            family += Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        try:
            rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
        except OSError:
            continue  # ended in between
        total += next(int(line.split()[1]) for line in rollup.splitlines() if line.startswith("Pss:"))
    return total / 1024


class Peak:
    """Samples memory in the background."""

    def __init__(self) -> None:
        self.highest, self._stop = 0.0, threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Peak:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._stop.wait(0.02):
            self.highest = max(self.highest, proportional(os.getpid()))


def one(clients: int, most: int, engine: str) -> dict[str, float]:
    """One round of so many clients, with the data of the most there will be."""
    from covey.data.dataset import Dataset
    from covey.data.federation import Federation
    from covey.experiment.experiment import Experiment
    from covey.rounds.loop import run

    rng = np.random.default_rng()
    x = rng.integers(0, 256, (most * SAMPLES, 28, 28), dtype=np.uint8)
    y = rng.integers(0, 10, most * SAMPLES)
    dataset = Dataset("noise", x, y, x[:100], y[:100], tuple(str(c) for c in range(10)))
    rows = tuple(np.split(np.arange(clients * SAMPLES), clients))
    federation = Federation(dataset, rows, None, y[:100], np.full((clients, 10), 0.1))
    experiment = Experiment.of(
        algorithm="fedavg",
        model="fcnn",
        clients=clients,
        clusters=1,
        training={"rounds": 2, "epochs": 1},
        evaluation={"every": 2},  # the second round, which does not come
        engine={"name": engine, "device": "cpu"},
    )

    def enough(record: dict[str, Any], state: Any) -> None:
        raise StopIteration

    before = proportional(os.getpid())
    with Peak() as peak:
        begin = time.perf_counter()
        run(experiment, federation=federation, callbacks=[enough], quiet=True)
        seconds = time.perf_counter() - begin
    return {
        "clients": clients,
        "seconds": seconds,
        "before_mb": before,
        "peak_mb": peak.highest,
        "data_mb": (x.nbytes + y.nbytes) / 2**20,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="500 and 5,000 clients")
    parser.add_argument(
        "--engine", default="simulate", help="simulate, or ray: its own processes and object store count"
    )
    parser.add_argument("--json", help="write the figures to this file")
    parser.add_argument("--one", nargs=2, type=int, help=argparse.SUPPRESS)  # clients, most: what a fresh process does
    arguments = parser.parse_args()
    if arguments.one:
        print(json.dumps(one(*arguments.one, arguments.engine)))
        return
    if not Path(f"/proc/{os.getpid()}/smaps_rollup").exists():
        raise SystemExit("this benchmark reads /proc/PID/smaps_rollup: it needs Linux")
    sizes = (500, 5_000) if arguments.quick else (1_000, 10_000)
    found = []
    print(f"{'clients':>8}{'s':>8}{'ms/client':>11}{'before MB':>11}{'peak MB':>9}{'data MB':>9}{'peak − data':>13}")
    for clients in sizes:
        command = [sys.executable, __file__, "--one", str(clients), str(sizes[-1]), "--engine", arguments.engine]
        row = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
        found.append(row)
        print(
            f"{clients:8,}{row['seconds']:8.1f}{1e3 * row['seconds'] / clients:11.2f}{row['before_mb']:11.0f}"
            f"{row['peak_mb']:9.0f}{row['data_mb']:9.0f}{row['peak_mb'] - row['data_mb']:13.0f}",
            flush=True,
        )
    least, most = (row["peak_mb"] - row["data_mb"] for row in found)
    ratio = most / least
    verdict = "met" if ratio <= GOAL else "missed"
    print(
        f"{sizes[-1] // sizes[0]} × the clients: {ratio:.2f} × the memory, data aside (goal at most {GOAL}: {verdict})"
    )
    if arguments.json:
        Path(arguments.json).write_text(json.dumps({"rows": found, "ratio": ratio}, indent=1))


if __name__ == "__main__":
    main()
