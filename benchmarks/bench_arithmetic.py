"""What rounding costs in accuracy and saves in time: FedAvg on MNIST on a GPU in exact float32, TF32 and bf16.

    PYTHONPATH=src COVEY_DATA=FOLDER python benchmarks/bench_arithmetic.py [--rounds 20] [--seeds 3] [--minutes 0.5] [--json FILE]

120 clients of label sets, one local epoch, batches of 50; the same seeds, so the same clients, batches and start in each case.
Accuracy is every client's on its own distribution, and models are tested in float32 always. Training is the median round's, without
the first five, in which a GPU compiles. Stops in time: the file has what was done until then.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from typing import Any

import torch

from covey import Experiment, run

MODES = ("ieee", "bf16", "tf32")


def once(model: str, mode: str, seed: int, rounds: int, dataset: str, device: str) -> dict[str, Any]:
    result = run(
        Experiment.of(
            dataset=dataset,
            algorithm="fedavg",
            model=model,
            clients=120,
            clusters=5,
            seed=seed,
            training={"rounds": rounds, "epochs": 1, "batch_size": 50, "lr": 0.05},
            evaluation={"every": rounds},
            engine={"device": device, "arithmetic": mode},
        ),
        quiet=True,
    )
    train = [record["seconds"]["train"] for record in result.records][5:] or [float("nan")]
    accuracy = result.records[-1]["accuracy"]["client_mean"]
    return {"model": model, "arithmetic": mode, "seed": seed, "accuracy": accuracy, "train_s": statistics.median(train)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--models", default="fcnn,cnn")
    parser.add_argument("--modes", default=",".join(MODES))
    parser.add_argument("--dataset", default="mnist")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--json", default="")
    options = parser.parse_args()
    until = time.monotonic() + 60 * options.minutes
    runs: list[dict[str, Any]] = []
    # Seed by seed, so that what is cut off is a seed of every arithmetic.
    plan = [
        (m, a, s) for s in range(options.seeds) for m in options.models.split(",") for a in options.modes.split(",")
    ]
    for model, mode, seed in plan:
        if time.monotonic() > until:
            print(f"no time left for: {model}, {mode}, seed {seed}", flush=True)
            continue
        runs.append(once(model, mode, seed, options.rounds, options.dataset, options.device))
        if options.json:
            device = torch.cuda.get_device_name() if options.device == "cuda" else "cpu"
            content = {"device": device, "torch": torch.__version__, "arguments": vars(options), "runs": runs}
            with open(options.json, "w") as file:
                json.dump(content, file, indent=1)
    for model in options.models.split(","):
        for mode in options.modes.split(","):
            of = [row for row in runs if (row["model"], row["arithmetic"]) == (model, mode)]
            if of:
                values = [100 * row["accuracy"] for row in of]
                train = 1e3 * statistics.median(row["train_s"] for row in of)
                print(
                    f"{model:5} {mode:5} accuracy {statistics.mean(values):.2f} % over {len(of)} seeds "
                    f"({min(values):.2f}–{max(values):.2f}), training {train:.1f} ms a round"
                )
    exact = {(row["model"], row["seed"]): row["accuracy"] for row in runs if row["arithmetic"] == "ieee"}
    for row in runs:
        if row["arithmetic"] != "ieee" and (row["model"], row["seed"]) in exact:
            apart = 100 * (row["accuracy"] - exact[row["model"], row["seed"]])
            print(
                f"{row['model']:5} {row['arithmetic']:5} seed {row['seed']}: {apart:+.2f} points against exact float32"
            )


if __name__ == "__main__":
    main()
