"""Real silos: does clustering pay, and what does privacy cost and hide? The table of docs/real_silos.md.

    python benchmarks/bench_real_silos.py run --out docs/results/real_silos.json [--data heart,flights] [--methods ifca] [--seeds 5]
    python benchmarks/bench_real_silos.py table docs/results/real_silos.json
    python benchmarks/bench_real_silos.py audit docs/results/real_silos.json

Resumable: what the file has is not run again. Every method trains a logistic model for 20 rounds of one epoch, batches of 32.
Its learning rate is the better of two by the own-silo loss of seed 100, which no figure uses; figures are of seeds 0 to 4, and
every seed draws another 30 % (heart: 25 %) of each silo's rows for testing. `mingledpie` and `client_dp` (ε = 8 for whole
silos, δ = n^-1.1, bound .5, noise of a trusted server) run without encryption here: sealed sums are the same sums. `audit`
cells are one seed under the real encryption, CKKS and threshold, with attacks watching; of MovieLens (375 silos) threshold
would take hours, so that cell is left out.
"""

from __future__ import annotations

import argparse
import json
import statistics
import warnings
from pathlib import Path
from typing import Any

from covey.statistics import paired_difference, student

DATA = ("heart", "movielens", "flights", "world_values", "covid_tests", "vote_2016")
CLUSTERS = 3  # MingledPie needs three: of two, a set of two would be everything
RATES = (0.1, 0.5)
TUNED_ON, EPSILON, BOUND = 100, 8.0, 0.5
METHODS = ("local", "fedavg", "fedavg_ft", "ifca", "mingledpie", "client_dp")
WATCHING = {
    "ifca": ["a1", "label_shares", "upload_membership", "client_membership"],
    "mingledpie": ["a1", "a1_prior", "loss_membership"],
    "client_dp": ["a1", "loss_membership"],
}
SEALED = {"ifca": "none", "mingledpie": "ckks", "client_dp": "threshold"}


def experiment(data: str, method: str, rate: float, seed: int, audit: bool = False) -> Any:
    from covey import Experiment

    table: dict[str, Any] = {
        "dataset": data,
        "algorithm": "ifca" if method == "client_dp" else method,
        "model": "softmax",
        "clusters": 1 if method in ("local", "fedavg", "fedavg_ft") else CLUSTERS,
        "partition": {"name": "natural", "drawn": True},
        "start": {"common": False, "pretrain_epochs": 0},
        "training": {"rounds": 20, "epochs": 1, "batch_size": 32, "lr": rate},
        "evaluation": {"every": 20},
        "engine": {"workers": 1},
        "seed": seed,
    }
    if method == "client_dp":
        table["defence"] = {"name": "client_dp", "epsilon": EPSILON, "delta": "1/clients^1.1", "clip": BOUND}
        table["clients"] = silos(data)  # the noise depends on it
    if audit:
        table |= {"attacks": WATCHING[method], "encryption": SEALED[method]}
    return Experiment.of(table)


def silos(data: str) -> int:
    from covey.data.sources.load import load

    return len(load(data).holders)


def cell_of(data: str, method: str, rate: float, seed: int, audit: bool = False) -> dict[str, Any]:
    from covey import run

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = run(experiment(data, method, rate, seed, audit), quiet=True)
    measured = result.records[-1]["metrics"]
    cell = {"data": data, "method": method, "lr": rate, "seed": seed, "silos": silos(data)}
    cell |= {name: measured[name]["mean"] for name in ("accuracy", "loss")}
    cell |= {"bytes": result.bytes, "clusters": used(result.records[-1].get("clusters"))}
    if audit:
        kept = ("value", "low", "high", "chance", "controls", "verdict")
        cell["found"] = {f.attack: {key: f.json()[key] for key in kept} for f in result.findings}
    return cell


def used(clusters: list[int] | None) -> list[int] | None:
    """Silos in each cluster that has any, the largest first."""
    if not clusters:
        return None
    return sorted((clusters.count(c) for c in set(clusters) if c >= 0), reverse=True)


# ---------------------------------------------------------------- a resumable run


def measure(args: argparse.Namespace) -> None:
    path = Path(args.out)
    cells: list[dict[str, Any]] = json.loads(path.read_text()) if path.exists() else []

    def known(kind: str, data: str, method: str, rate: float, seed: int) -> dict[str, Any]:
        key = {"kind": kind, "data": data, "method": method, "lr": rate, "seed": seed}
        before = [c for c in cells if all(c[k] == v for k, v in key.items())]
        if not before:
            cells.append({"kind": kind, **cell_of(data, method, rate, seed, kind == "audit")})
            path.write_text(json.dumps(cells, indent=1) + "\n")
            print({k: v for k, v in cells[-1].items() if k not in ("found", "bytes")}, flush=True)
            before = cells[-1:]
        return before[0]

    for data in args.data.split(","):
        rates = {}
        for method in args.methods.split(","):
            tuned = [known("tuning", data, method, rate, TUNED_ON) for rate in RATES]
            rates[method] = min(tuned, key=lambda cell: cell["loss"])["lr"]
        for seed in range(args.seeds):
            for method in rates:
                known("figure", data, method, rates[method], seed)
        for method in [m for m in WATCHING if m in rates]:
            if not (method == "client_dp" and silos(data) > 100):
                known("audit", data, method, rates[method], 0)


# ---------------------------------------------------------------- tables


def figures(cells: list[dict[str, Any]], data: str, method: str, metric: str) -> list[float]:
    return [
        c[metric]
        for c in sorted(cells, key=lambda c: c["seed"])
        if (c["kind"], c["data"], c["method"]) == ("figure", data, method)
    ]


def table(cells: list[dict[str, Any]]) -> str:
    """Own-silo accuracy / loss with Student's 95 % interval; last, the loss of clusters less the best without, paired by seed."""
    lines = [
        "| silos | " + " | ".join(METHODS) + " | loss of ifca − best without clusters |",
        "| --- " * (len(METHODS) + 2) + "|",
    ]
    for data in [d for d in DATA if figures(cells, d, "ifca", "loss")]:
        row = []
        for method in METHODS:
            accuracy, loss = (student(figures(cells, data, method, metric)) for metric in ("accuracy", "loss"))
            row.append(f"{accuracy.value:.3f} ± {accuracy.half:.3f} / {loss.value:.3f} ± {loss.half:.3f}")
        without = min(METHODS[:3], key=lambda m: statistics.mean(figures(cells, data, m, "loss")))
        gain = paired_difference(figures(cells, data, "ifca", "loss"), figures(cells, data, without, "loss"))
        count = next(c["silos"] for c in cells if c["data"] == data)
        lines.append(
            f"| {data}, {count} | " + " | ".join(row) + f" | {gain.value:+.3f} ± {gain.half:.3f} ({without}) |"
        )
    return "\n".join(lines)


def audit(cells: list[dict[str, Any]]) -> str:
    """What attacks scored, with their interval, beside the best control."""
    lines = ["| silos | run | attack | score | 95 % | best that ignores it | verdict |", "| --- " * 7 + "|"]
    for cell in [c for c in cells if c["kind"] == "audit"]:
        for attack, f in cell["found"].items():
            bar = max([f["chance"] or 0.0, *(v for v in f["controls"].values() if v is not None)])
            score = f"{f['value']:.2f} | {f['low']:.2f} to {f['high']:.2f} | {bar:.2f}"
            lines.append(f"| {cell['data']} | {cell['method']} | {attack} | {score} | {f['verdict']} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("run", "table", "audit"))
    parser.add_argument("file", nargs="?", default="")
    parser.add_argument("--out", default="real_silos.json")
    parser.add_argument("--data", default=",".join(DATA))
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--seeds", type=int, default=5)
    args = parser.parse_args()
    if args.what == "run":
        measure(args)
    else:
        cells = json.loads(Path(args.file or args.out).read_text())
        print({"table": table, "audit": audit}[args.what](cells))


if __name__ == "__main__":
    main()
