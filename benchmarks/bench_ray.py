"""Rounds on Ray workers against rounds on forked processes, as many of each, on the same calls; replies must be equal to the bit.

    python benchmarks/bench_ray.py [--clients 120] [--repeats 7] [--json FILE]

FedAvg, FCNN, 500 samples per client, one local epoch. The engines take turns, round by round, in one process, so that what else
happens on the machine meets both alike; the first round of each (its workers get their data) is left out. Also the time that a
round takes whose worker is killed: a new one is started, given what it needs, and does the lost waves again.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from covey.data.dataset import Dataset
from covey.data.federation import Federation
from covey.engines.prepare import prepare
from covey.engines.ray.engine import RayWorkers
from covey.engines.simulate import Hosts
from covey.engines.start import start_engine
from covey.experiment.experiment import Experiment
from covey.messages import encode

SAMPLES = 500


def noise(clients: int) -> Federation:
    rng = np.random.default_rng(0)
    x = rng.integers(0, 256, (clients * SAMPLES, 28, 28), dtype=np.uint8)
    y = rng.integers(0, 10, clients * SAMPLES)
    dataset = Dataset("noise", x, y, x[:100], y[:100], tuple(str(c) for c in range(10)))
    rows = tuple(np.split(np.arange(clients * SAMPLES), clients))
    return Federation(dataset, rows, None, y[:100], np.full((clients, 10), 0.1))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=120)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--json", help="write the figures to this file")
    arguments = parser.parse_args()
    engines: dict[str, Hosts] = {}
    federation = noise(arguments.clients)
    begun = {}
    for name in ("simulate", "ray"):  # processes are forked before Ray has its threads
        experiment = Experiment.of(
            algorithm="fedavg",
            model="fcnn",
            clients=arguments.clients,
            clusters=1,
            training={"epochs": 1, "batch_size": 50},
            engine={"name": name, "device": "cpu", "workers": arguments.workers},
        )
        _, network, setting = prepare(experiment, federation)
        begin = time.perf_counter()
        engines[name] = start_engine(experiment, network, federation, setting, {}, {})
        begun[name] = time.perf_counter() - begin
    state = experiment.algorithm.start(setting)
    plan = experiment.training.plan(1)

    def round_of(name: str, number: int) -> tuple[float, bytes]:
        calls = [(i, experiment.algorithm.broadcast(state, i), plan) for i in range(arguments.clients)]
        begin = time.perf_counter()
        replies = list(engines[name].run(number, calls))
        return time.perf_counter() - begin, encode([reply.reply for reply in replies])

    times: dict[str, list[float]] = {name: [] for name in engines}
    try:
        for number in range(1, arguments.repeats + 2):
            order = list(engines) if number % 2 else list(engines)[::-1]
            made = {name: round_of(name, number) for name in order}
            assert made["ray"][1] == made["simulate"][1], "the engines differ"
            if number > 1:
                for name, (seconds, _) in made.items():
                    times[name].append(seconds)
        struck, _ = _with_a_death(engines["ray"], lambda: round_of("ray", number + 1))
    finally:
        for engine in engines.values():
            engine.close()
    ratios = [b / a for a, b in zip(times["simulate"], times["ray"])]
    found: dict[str, Any] = {
        "clients": arguments.clients,
        "workers": arguments.workers,
        "seconds": times,
        "ratio": {"median": median(ratios), "smallest": min(ratios), "largest": max(ratios)},
        "start_seconds": begun,
        "round_with_a_death_seconds": struck,
        "equal_to_the_bit": True,  # asserted above
    }
    print(
        f"ray takes {median(ratios):.2f} × ({min(ratios):.2f}–{max(ratios):.2f}) the time of simulate "
        f"({median(times['simulate']):.2f} s a round); a round with a killed worker {struck:.1f} s"
    )
    if arguments.json:
        Path(arguments.json).write_text(json.dumps(found, indent=1) + "\n")


def _with_a_death(workers: Any, work: Any) -> Any:
    assert isinstance(workers, RayWorkers)
    workers._ray.kill(workers._actors[-1])
    return work()


if __name__ == "__main__":
    main()
