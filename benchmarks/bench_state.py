"""What state that clients keep between rounds costs: whole rounds of SCAFFOLD, FedDyn and FedProx against FedAvg.

    python benchmarks/bench_state.py [--quick] [--epochs 1,5] [--repeats 9] [--cores N] [--json FILE]

120 clients of 500 samples (28×28 noise), FCNN 784–200–10, batch 50, 1 and 5 local epochs. Every algorithm keeps a process
of its own with one worker per core; they take turns round by round, each one's first round (no client has state yet) is
left out. A ratio is the median over the turns of an algorithm's round / FedAvg's in the same turn, with the smallest and
largest; `cpu` is the same in core-seconds, which other users of the machine disturb less.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from turns import Contender, rotate

CLIENTS, SAMPLES = 120, 500
ALGORITHMS = ("fedavg", "scaffold", "feddyn", "fedprox")
GOAL = 1.15


def compare(epochs: int, repeats: int, folder: str) -> dict[str, Any]:
    contenders = [
        Contender.start(f"covey:{algorithm}", "fcnn", epochs, repeats + 1, folder, CLIENTS, CLIENTS, SAMPLES)
        for algorithm in ALGORITHMS
    ]
    times = rotate(contenders, repeats)
    plain, rows = times["covey:fedavg"], {}
    for name, measured in times.items():
        clock = [own[0] / base[0] for own, base in zip(measured, plain)]
        rows[name.removeprefix("covey:")] = {
            "seconds": statistics.median(seconds for seconds, _ in measured),
            "core_seconds": statistics.median(cpu for _, cpu in measured),
            "ratio": statistics.median(clock),
            "low": min(clock),
            "high": max(clock),
            "core_ratio": statistics.median(own[1] / base[1] for own, base in zip(measured, plain)),
        }
    return {"epochs": epochs, "algorithms": rows}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one local epoch, three turns")
    parser.add_argument("--epochs", default="1,5", help="local epochs, one case each")
    parser.add_argument("--repeats", type=int, default=9, help="turns that are timed")
    parser.add_argument("--cores", type=int, default=0, help="keep everybody to so many cores; 0: all")
    parser.add_argument("--json", help="write the figures to this file")
    arguments = parser.parse_args()
    if arguments.cores:
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: arguments.cores])
    about = {"cores": len(os.sched_getaffinity(0)), "load": os.getloadavg()[0]}
    print(
        f"{CLIENTS} clients × {SAMPLES} samples, {about['cores']} core(s), load {about['load']:.1f}; goal below {GOAL}"
    )
    cases = []
    with tempfile.TemporaryDirectory() as folder:
        rng = np.random.default_rng()
        np.save(Path(folder, "x.npy"), rng.integers(0, 256, (CLIENTS * SAMPLES, 28, 28), dtype=np.uint8))
        np.save(Path(folder, "y.npy"), rng.integers(0, 10, CLIENTS * SAMPLES))
        for epochs in (1,) if arguments.quick else map(int, arguments.epochs.split(",")):
            cases.append(compare(epochs, 3 if arguments.quick else arguments.repeats, folder))
            print(
                f"\n{epochs} local epoch(s)\n  {'':10}{'s/round':>9}{'core-s':>9}{'× fedavg':>10}{'range':>14}{'cpu':>7}"
            )
            for name, row in cases[-1]["algorithms"].items():
                spread = f"{row['low']:.2f}–{row['high']:.2f}"
                print(
                    f"  {name:10}{row['seconds']:9.2f}{row['core_seconds']:9.2f}{row['ratio']:10.2f}{spread:>14}"
                    f"{row['core_ratio']:7.2f}",
                    flush=True,
                )
    if arguments.json:
        Path(arguments.json).write_text(json.dumps(about | {"cases": cases}, indent=1))


if __name__ == "__main__":
    main()
