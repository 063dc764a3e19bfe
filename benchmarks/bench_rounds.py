"""Whole rounds through `run`, as a user has them, and how much of each is training.

    PYTHONPATH=src python benchmarks/bench_rounds.py [--device cuda] [--rounds 12] [--json FILE] [--tile 64,64,4,2]

FCNN, one local epoch, batches of 50, no evaluation but the last round's, and FedAvg once more with one after every second round, on
10,000 test samples: its rounds with and without one take turns, so that the machine's mood meets both alike. 120 clients of 500
samples and 1,000 clients of 50, random pixels. The first rounds warm up (a GPU compiles or captures its steps there) and are left
out; the median of the others counts. `kernels` are the seconds in which the machine computed (training and, for IFCA, losses);
the rest is the engine. `--tile`: another one than `learn/kernels/two_layers.py` has.
"""

from __future__ import annotations

import argparse
import functools
import json
import statistics
import time
from typing import Any

import numpy as np
import torch

from covey import Experiment, run
from covey.data.dataset import Dataset
from covey.data.federation import Federation

SIZES = ((120, 500), (1000, 50))
CASES = [(a, n, m, False) for n, m in SIZES for a in ("fedavg", "ifca", "scaffold", "feddyn", "fedprox")]
CASES += [("fedavg", n, m, True) for n, m in SIZES]  # evaluated in every second round
GOALS = {("fedavg", 120, False): 10.0, ("fedavg", 1000, False): 35.0}  # ms of a round
KERNELS_GOAL, EVALUATION_GOAL = 1.5, 1.3  # times the kernels' seconds; times the round without evaluation
TESTED = 10_000
WARM_UP = 4
KERNELS = ("train", "identity", "measure")


@functools.cache
def federation(clients: int, samples: int) -> Federation:
    generator = np.random.default_rng(0)
    x = generator.integers(0, 256, (clients * samples, 28, 28)).astype(np.uint8)
    y = generator.integers(0, 10, clients * samples)
    dataset = Dataset("random pixels", x, y, x[:TESTED], y[:TESTED], tuple("0123456789"))
    rows = tuple(np.arange(i * samples, (i + 1) * samples) for i in range(clients))
    return Federation(dataset, rows, None, y[:TESTED], np.full((clients, 10), 0.1))


def measure(algorithm: str, clients: int, samples: int, evaluated: bool, device: str, rounds: int) -> dict[str, Any]:
    experiment = Experiment.of(
        algorithm=algorithm,
        model="fcnn",
        clients=clients,
        clusters=5,
        training={"rounds": rounds + WARM_UP, "epochs": 1, "batch_size": 50, "lr": 0.01},
        evaluation={"every": 2 if evaluated else 10_000},
        engine={"device": device},
    )
    times, kernels, phases, tested = [time.perf_counter()], [], [], []

    def note(record: dict[str, Any], state: Any) -> None:
        if device == "cuda":
            torch.cuda.synchronize()
        times.append(time.perf_counter())
        phases.append(record["seconds"])
        tested.append(record["accuracy"] is not None)
        kernels.append(sum(record["seconds"].get(phase, 0.0) for phase in KERNELS))

    run(experiment, federation=federation(clients, samples), callbacks=[note], quiet=True)
    whole = np.diff(times)[WARM_UP:-1]  # the last round is evaluated
    with_test = np.array(tested[WARM_UP:-1])
    plain = {"plain_ms": 1e3 * statistics.median(whole[~with_test])} if evaluated else {}
    return {
        "algorithm": algorithm,
        "clients": clients,
        "samples": samples,
        "evaluated": evaluated,
        "phases_ms": {name: round(1e3 * of_phase(phases[WARM_UP:-1], name), 2) for name in phases[-3] | phases[-2]},
        "round_ms": 1e3 * statistics.median(whole[with_test] if evaluated else whole),
        **plain,
        "kernels_ms": 1e3 * statistics.median(kernels[WARM_UP:-1]),
        "first_round_ms": 1e3 * (times[1] - times[0]),
    }


def of_phase(rounds: list[dict[str, float]], name: str) -> float:
    """Its median over the rounds that have it."""
    return statistics.median(seconds[name] for seconds in rounds if name in seconds)


def set_tile(words: str) -> None:
    """Another tile of the kernels for whole steps, where there is Triton."""
    from covey.learn.kernels import two_layers

    two_layers.UNITS, two_layers.INPUTS, two_layers.WARPS, two_layers.STAGES = (int(word) for word in words.split(","))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--json", default="")
    parser.add_argument("--tile", default="", help="units, inputs, warps, stages of the kernels for whole steps")
    options = parser.parse_args()
    if options.tile:
        set_tile(options.tile)
    rows = []
    for algorithm, clients, samples, evaluated in CASES:
        row = measure(algorithm, clients, samples, evaluated, options.device, options.rounds)
        rows.append(row)
        case = f"{algorithm:9} {clients:5} × {samples:3}{' evaluated' if evaluated else ''}"
        print(
            f"{case}: round {row['round_ms']:7.1f} ms, kernels {row['kernels_ms']:7.1f} ms "
            f"({row['round_ms'] / row['kernels_ms']:.2f} ×), first round {row['first_round_ms']:.0f} ms; {row['phases_ms']}",
            flush=True,
        )
        if options.json:  # after each, in case there is no time for all
            with open(options.json, "w") as file:
                json.dump({"device": options.device, "torch": torch.__version__, "rows": rows}, file, indent=1)
    figures = {(row["algorithm"], row["clients"], row["evaluated"]): row["round_ms"] for row in rows}
    between = {row["clients"]: row["plain_ms"] for row in rows if row["evaluated"]}
    for (algorithm, clients, evaluated), goal in GOALS.items():
        print(
            f"{algorithm}, {clients} clients: {figures[algorithm, clients, evaluated]:.1f} ms a round (goal {goal:.0f})"
        )
    worst = max(row["round_ms"] / row["kernels_ms"] for row in rows if not row["evaluated"])
    print(f"rounds at most {worst:.2f} × their kernels (goal {KERNELS_GOAL})")
    for clients, _ in SIZES:
        more = figures["fedavg", clients, True] / between[clients]
        print(f"a round with evaluation over one without, {clients} clients: {more:.2f} × (goal {EVALUATION_GOAL})")


if __name__ == "__main__":
    main()
