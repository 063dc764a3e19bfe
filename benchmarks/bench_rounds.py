"""Whole rounds through `run`, as a user has them, and how much of each is training.

    PYTHONPATH=src python benchmarks/bench_rounds.py [--device cuda] [--rounds 12] [--json FILE]

FCNN, one local epoch, batches of 50, no evaluation but the last round's. 120 clients of 500 samples and 1,000 clients of 50, random
pixels. The first rounds warm up (a GPU captures its steps there) and are left out; the median of the others counts. `kernels` are
the seconds in which the machine computed (training and, for IFCA, losses); the rest is the engine. Needs torch and numpy.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from typing import Any

import numpy as np
import torch

from covey import Experiment, run
from covey.data.federation import Dataset, Federation

CASES = [(a, n, m) for n, m in ((120, 500), (1000, 50)) for a in ("fedavg", "ifca", "scaffold", "feddyn", "fedprox")]
WARM_UP = 3
KERNELS = ("train", "identity", "measure")


def federation(clients: int, samples: int) -> Federation:
    generator = np.random.default_rng(0)
    x = generator.integers(0, 256, (clients * samples, 28, 28)).astype(np.uint8)
    y = generator.integers(0, 10, clients * samples)
    dataset = Dataset("random pixels", x, y, x[:500], y[:500], tuple("0123456789"))
    rows = tuple(np.arange(i * samples, (i + 1) * samples) for i in range(clients))
    return Federation(dataset, rows, None, y[:500], np.full((clients, 10), 0.1))


def measure(algorithm: str, clients: int, samples: int, device: str, rounds: int) -> dict[str, Any]:
    experiment = Experiment.of(
        algorithm=algorithm,
        model="fcnn",
        clients=clients,
        clusters=5,
        training={"rounds": rounds + WARM_UP, "epochs": 1, "batch_size": 50, "lr": 0.01},
        evaluation={"every": 10_000},
        engine={"device": device},
    )
    times, kernels = [time.perf_counter()], []

    def note(record: dict[str, Any], state: Any) -> None:
        if device == "cuda":
            torch.cuda.synchronize()
        times.append(time.perf_counter())
        kernels.append(sum(record["seconds"].get(phase, 0.0) for phase in KERNELS))

    run(experiment, federation=federation(clients, samples), callbacks=[note], quiet=True)
    whole = np.diff(times)[WARM_UP:-1]  # the last round is evaluated
    return {
        "algorithm": algorithm,
        "clients": clients,
        "samples": samples,
        "round_ms": 1e3 * statistics.median(whole),
        "kernels_ms": 1e3 * statistics.median(kernels[WARM_UP:-1]),
        "first_round_ms": 1e3 * (times[1] - times[0]),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--json", default="")
    options = parser.parse_args()
    rows = []
    for algorithm, clients, samples in CASES:
        row = measure(algorithm, clients, samples, options.device, options.rounds)
        rows.append(row)
        print(
            f"{algorithm:9} {clients:5} × {samples:3}: round {row['round_ms']:7.1f} ms, kernels {row['kernels_ms']:7.1f} ms "
            f"({row['round_ms'] / row['kernels_ms']:.2f} ×), first round {row['first_round_ms']:.0f} ms",
            flush=True,
        )
    if options.json:
        with open(options.json, "w") as file:
            json.dump({"device": options.device, "torch": torch.__version__, "rows": rows}, file, indent=1)


if __name__ == "__main__":
    main()
