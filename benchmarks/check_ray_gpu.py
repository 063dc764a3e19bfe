"""Whether Ray workers on GPUs train as one process on a GPU does: IFCA, SCAFFOLD and FedEM, same waves, models compared.

    python benchmarks/check_ray_gpu.py [--device cuda] [--workers 2] [--gpus 0.5]

For a machine with at least one GPU (two workers share it by default); `--device cpu` tries the script without. On a CPU the models
are equal to the bit; on a GPU the products of two waves may be summed in another order, so the largest difference is printed, and
more than 1e-4 is a failure. Takes a minute or two, most of it starting workers.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import torch

from covey.experiment.experiment import Experiment
from covey.rounds.loop import run

MOST = 1e-4
METHODS: dict[str, int] = {"ifca": 5, "scaffold": 1, "fedem": 2}  # algorithm -> clusters


def state(name: str, clusters: int, engine: dict[str, Any]) -> dict[str, Any]:
    """The tensors that a server ends with."""
    experiment = Experiment.of(
        dataset="digits",
        algorithm=name,
        clients=20,
        clusters=clusters,
        partition={"name": "label_sets", "public": 20} if clusters == 5 else "iid",
        training={"rounds": 3, "epochs": 1, "batch_size": 10, "lr": 0.1},
        participation={"share": 0.8},
        start={"common": clusters != 2},
        evaluation={"every": 3},
        engine={"clients_at_once": 5, **engine},
    )
    end = run(experiment, quiet=True).state
    return {field: value.cpu() for field, value in vars(end).items() if isinstance(value, torch.Tensor)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--gpus", type=float, default=0.5)
    arguments = parser.parse_args()
    worst = 0.0
    for name, clusters in METHODS.items():
        here = state(name, clusters, {"device": arguments.device, "workers": arguments.workers})
        begin = time.perf_counter()
        workers = {"device": arguments.device, "workers": arguments.workers, "gpus": arguments.gpus}
        there = state(name, clusters, {"name": "ray", **workers})
        apart = max(float((here[field] - there[field]).abs().max()) for field in here)
        worst = max(worst, apart)
        print(f"{name:10} largest difference {apart:.2g}, {time.perf_counter() - begin:.1f} s on Ray", flush=True)
    print("fine" if worst <= MOST else f"FAILED: {worst:.2g} is more than {MOST:g}")
    raise SystemExit(worst > MOST)


if __name__ == "__main__":
    main()
