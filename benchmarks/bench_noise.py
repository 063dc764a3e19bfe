"""Secret noise against keyed noise: what a number that nobody can take off costs more than one that anybody can.

    python benchmarks/bench_noise.py [--d 159010] [--repeats 41] [--threads 1] [--json FILE]

Whole calls, one after the other within each pass; a ratio is the median over the passes, of the clock and of processor time, since
machines are shared. `keyed normals` is `randomness.normals`, the numbers alone; the secret calls draw the numbers, round the
values to the grid and add. The last lines are one step of DP-SGD on the FCNN 784-200-10 with a batch of 50, as a silo takes it.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from covey.crypto.noise.source import KeyedNoise, SecretNoise
from covey.learn.flat import Network
from covey.learn.initial import initial
from covey.learn.machine import Machine
from covey.learn.work import Job, Plan, Train
from covey.randomness import normals

GOAL = 3.0  # secret noise takes at most so many times as long as keyed normals


def ways(d: int) -> dict[str, Callable[[], Any]]:
    secret, keyed, values = SecretNoise(), KeyedNoise((1, 2, 3)), normals([1], d)[0]
    features, scale = values.numpy()[: d // 50 * 50].reshape(-1, 50).copy(), np.full(50, 0.1)
    return {
        "keyed normals": lambda: normals([5], d),
        "keyed, added": lambda: keyed.gaussian(values, 0.1, "x"),
        "secret Gaussian, added": lambda: secret.gaussian(values, 0.1),
        "secret Laplace, added": lambda: secret.laplace(features, scale, "x"),
    }


def steps() -> dict[str, Callable[[], Any]]:
    random = torch.Generator().manual_seed(0)
    x, y = torch.rand(50, 28, 28, generator=random), torch.randint(0, 10, (50,), generator=random)
    network = Network("fcnn", (28, 28), 10)
    machine = Machine(network, x, y)
    job = Job(
        torch.arange(50), 0, Train(initial(network, 0), Plan(lr=0.1, steps=20, batch_size=0, clip=1.0, noise=0.5))
    )
    secret = replace(job, secret=SecretNoise())
    return {"20 keyed steps": lambda: machine.compute([job]), "20 secret steps": lambda: machine.compute([secret])}


def measure(contenders: dict[str, Callable[[], Any]], repeats: int) -> dict[str, dict[str, float]]:
    """Milliseconds by the clock and of the processor, and ratios to the first contender."""
    clock: dict[str, list[float]] = {name: [] for name in contenders}
    processor: dict[str, list[float]] = {name: [] for name in contenders}
    for turn in range(repeats + 2):
        for name, call in contenders.items():
            begin, used = time.perf_counter(), time.process_time()
            call()
            if turn >= 2:  # the first two warm up
                clock[name].append(1e3 * (time.perf_counter() - begin))
                processor[name].append(1e3 * (time.process_time() - used))
    first = next(iter(contenders))
    return {
        name: {
            "milliseconds": statistics.median(clock[name]),
            "fastest": min(clock[name]),
            "ratio": statistics.median(own / other for own, other in zip(clock[name], clock[first])),
            "ratio_of_fastest": min(clock[name]) / min(clock[first]),
            "processor_milliseconds": statistics.median(processor[name]),
            "processor_ratio": statistics.median(own / other for own, other in zip(processor[name], processor[first])),
        }
        for name in contenders
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--d", type=int, default=159_010)
    parser.add_argument("--repeats", type=int, default=41)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    result = measure(ways(options.d), options.repeats) | measure(steps(), options.repeats)
    print(f"{options.d} numbers, {options.threads} thread(s); goal: secret at most {GOAL:g}x keyed normals")
    for name, row in result.items():
        print(
            f"  {name}: {row['milliseconds']:.2f} ms (fastest {row['fastest']:.2f}), {row['ratio']:.2f}x (of the fastest "
            f"{row['ratio_of_fastest']:.2f}x); processor {row['processor_milliseconds']:.2f} ms, {row['processor_ratio']:.2f}x"
        )
    if options.json:
        with open(options.json, "w") as file:
            json.dump({"d": options.d, "threads": options.threads, "ways": result}, file, indent=1)


if __name__ == "__main__":
    main()
