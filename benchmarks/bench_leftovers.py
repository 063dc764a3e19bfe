"""What runs leave behind on a GPU: memory that is still allocated after the first, second, third … of them, in one process.

    PYTHONPATH=src python benchmarks/bench_leftovers.py [--runs 4] [--models lfw_cnn,cnn,fcnn] [--json FILE]

FedAvg on random pixels, four clients, steps captured. What the first run leaves are compiled kernels and workspaces of libraries; a
run after it must leave no more. Also says which blocks of 8 MB and more are left, and how many captured steps are still alive.
"""

from __future__ import annotations

import argparse
import collections
import gc
import json
from typing import Any

import numpy as np
import torch

from covey import Experiment, Federation, run
from covey.learn.kernels.graph import Recording, Replay

CLIENTS, SAMPLES = 4, 64
SHAPES = {"lfw_cnn": (62, 47, 3), "cnn": (28, 28), "fcnn": (28, 28), "resnet18": (32, 32, 3)}
LARGE = 2**23
GROWTH_GOAL = 1.0  # MB from the second run to the last


def leftovers(model: str, kernel: str, runs: int, device: str) -> dict[str, Any]:
    generator = np.random.default_rng(0)
    count = CLIENTS * SAMPLES
    x = generator.integers(0, 256, (count, *SHAPES[model])).astype(np.uint8)
    data = Federation.from_arrays(x, np.arange(count) // CLIENTS % 2, clients=np.arange(count) % CLIENTS)
    experiment = Experiment.of(
        algorithm="fedavg",
        model=model,
        clusters=1,
        training={"rounds": 4, "batch_size": 16, "lr": 0.01},
        engine={"device": device, "kernel": kernel},
    )
    held = []
    for _ in range(runs):
        run(experiment, federation=data, quiet=True)
        gc.collect()
        torch.cuda.empty_cache()
        held.append(torch.cuda.memory_allocated() / 2**20)
    return {"model": model, "kernel": kernel, "held_mb": held, "grown_mb": held[-1] - held[1]}


def blocks() -> str:
    """Sizes of what is still allocated, and how often each comes."""
    sizes: collections.Counter[int] = collections.Counter()
    for segment in torch.cuda.memory_snapshot():
        sizes.update(b["size"] for b in segment["blocks"] if b["state"] == "active_allocated" and b["size"] >= LARGE)
    alive = sum(isinstance(one, Replay | Recording) for one in gc.get_objects())
    words = ", ".join(f"{count} × {size / 2**20:.0f} MB" for size, count in sorted(sizes.items(), reverse=True))
    return f"{alive} captured steps alive; large blocks: {words or 'none'}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=4)
    parser.add_argument("--models", default="lfw_cnn,cnn,fcnn")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--json", default="")
    options = parser.parse_args()
    rows = []
    for model in options.models.split(","):
        for kernel in ("auto", "streams"):
            if kernel == "streams" and model == "fcnn":
                continue
            row = leftovers(model, kernel, options.runs, options.device)
            rows.append(row | {"left": blocks() if options.device == "cuda" else ""})
            held = ", ".join(f"{one:.1f}" for one in row["held_mb"])
            print(
                f"{model}, kernel {kernel}: MB after each run {held}; grown by {row['grown_mb']:.1f} from the second to the last "
                f"(goal {GROWTH_GOAL:g}); {rows[-1]['left']}",
                flush=True,
            )
            if options.json:
                with open(options.json, "w") as file:
                    json.dump({"torch": torch.__version__, "rows": rows}, file, indent=1)


if __name__ == "__main__":
    main()
