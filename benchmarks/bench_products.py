"""Rounds of the FCNN on a CPU, in one thread as workers compute: torch's products beside covey's choice of them, in turns.

    PYTHONPATH=src:benchmarks OMP_WAIT_POLICY=passive python benchmarks/bench_products.py [--turns 5]

Milliseconds of computing of a round, medians over the turns, and the ratio in the same turn with the smallest and largest. On a
processor where the choice is torch's (docs/decisions/README.md, 48) the ratio is 1.
"""

from __future__ import annotations

import argparse
import statistics
import time
from itertools import pairwise
from typing import Any
from unittest.mock import patch

from bench_rounds import federation
from covey import Experiment, run
from covey.learn.kernels import products

CLIENTS, SAMPLES, ROUNDS = 20, 500, 4
CASES: dict[str, dict[str, Any]] = {
    "FedAvg, batches of 10": {"algorithm": "fedavg", "training": {"epochs": 1, "batch_size": 10}},
    "FedAvg, batches of 50": {"algorithm": "fedavg", "training": {"epochs": 1, "batch_size": 50}},
    "IFCA, batches of 50": {"algorithm": "ifca", "training": {"epochs": 1, "batch_size": 50}},
    "IFCA, five steps on all samples": {"algorithm": "ifca", "training": {"steps": 5, "batch_size": 0}},
}


def milliseconds(case: dict[str, Any]) -> float:
    """Of the fastest round."""
    experiment = Experiment.of(
        **{**case, "training": {**case["training"], "rounds": ROUNDS, "lr": 0.01}},
        model="fcnn",
        clients=CLIENTS,
        clusters=5,
        evaluation={"every": 10_000},
        engine={"device": "cpu", "workers": 1},
    )
    times = [time.process_time()]
    run(
        experiment,
        federation=federation(CLIENTS, SAMPLES),
        callbacks=[lambda record, state: times.append(time.process_time())],
        quiet=True,
    )
    return min(after - before for before, after in pairwise(times[1:-1])) * 1e3  # the last round is evaluated


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=5)
    options = parser.parse_args()
    for name, case in CASES.items():
        turns = []
        for _ in range(options.turns):
            with patch.object(products, "halves_its_registers", lambda: False):
                torchs = milliseconds(case)
            turns.append((torchs, milliseconds(case)))
        before, after = (statistics.median(side) for side in zip(*turns))
        ratios = sorted(a / b for a, b in turns)
        print(
            f"{name:32}: torch {before:6.0f}, chosen {after:6.0f}, "
            f"{statistics.median(ratios):.2f} × ({ratios[0]:.2f}–{ratios[-1]:.2f})",
            flush=True,
        )


if __name__ == "__main__":
    main()
