"""Rounds of federated training on a CPU: covey against the usual research loop, Flower's simulation, Apple's pfl and FedJAX.

    python benchmarks/bench_training.py [--quick] [--repeats 5] [--rivals flower,pfl] [--json FILE]

FedAvg over 120 clients of 500 samples (28×28, uint8; MNIST where COVEY_DATA holds it, else noise: the work is the same),
batch 50, 1 and 5 local epochs, the FCNN 784–200–10 and a LeNet-like CNN. A time is that of a whole round: sending the
model, training every client, averaging; nobody evaluates. Every contender keeps a process of its own, and they take turns
round by round; the first round of each (imports, workers, actors) is left out. A ratio is the median over the turns of
rival / covey *in the same turn*, with the smallest and largest, since machines are shared; `cpu` is the same ratio in
core-seconds (children included), which other users of the machine disturb less.

The research loop (deepcopy, DataLoader, optim.SGD) and pfl use all cores by torch's threads, FedJAX by XLA's, Flower one actor
per core, covey one worker per core. The research loop is linear in the clients: it is measured on some and scaled. Flower's time
holds the waits of its own polling. On a busy machine `--cores 1` compares best: threads that wait for each other crawl there,
which would flatter covey; the goals are for two quiet cores, and judged on such only. Rivals that are not installed are named
and left out (`make bench` installs them).
"""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import json
import os
import statistics
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from covey.data.sources.load import load
from covey.errors import CoveyError
from covey.learn.flat import Network
from training_contenders import CONTENDERS, network
from turns import Contender, rotate

CLIENTS, SAMPLES = 120, 500
MEASURED = {("fcnn", 1): 24, ("fcnn", 5): 8, ("cnn", 1): 12, ("cnn", 5): 4}  # clients of the research loop
GOALS = {
    ("fcnn", 1): {"research loop": 3.0, "flower": 5.0, "flower as it comes": 8.0, "pfl": 1.7},
    ("fcnn", 5): {"research loop": 3.0, "flower": 2.5, "flower as it comes": 2.5, "pfl": 1.7},
    ("cnn", 1): {"research loop": 2.5},
    ("cnn", 5): {"research loop": 1.2},
}
NEEDS = {"flower": ("flwr", "ray"), "flower as it comes": ("flwr", "ray"), "pfl": ("pfl",), "fedjax": ("fedjax",)}


def make_data(folder: str) -> str:
    """Writes the samples; returns what they are."""
    rng = np.random.default_rng()
    x = rng.integers(0, 256, (CLIENTS * SAMPLES, 28, 28), dtype=np.uint8)
    y = rng.integers(0, 10, CLIENTS * SAMPLES)
    kind = "noise"
    if os.environ.get("COVEY_DATA"):
        try:
            mnist = load("mnist")
            rows = rng.permutation(len(mnist.x_train))[: CLIENTS * SAMPLES]
            x, y, kind = np.asarray(mnist.x_train)[rows].astype(np.uint8), mnist.y_train[rows], "mnist"
        except CoveyError as e:
            print(f"noise instead of MNIST: {e}")
    np.save(Path(folder, "x.npy"), x)
    np.save(Path(folder, "y.npy"), y.astype(np.int64))
    return kind


def present(rivals: list[str]) -> list[str]:
    """covey, and of these rivals those that are installed."""
    if unknown := set(rivals) - set(CONTENDERS):
        raise SystemExit(f"--rivals names {', '.join(sorted(unknown))}: choose of {', '.join(CONTENDERS)}")
    names = []
    for name in ("covey", *(rival for rival in rivals if rival != "covey")):
        missing = [package for package in NEEDS.get(name, ()) if importlib.util.find_spec(package) is None]
        if missing:
            print(f"{name} is left out: {', '.join(missing)} not installed here (`make bench` installs the rivals)")
        else:
            names.append(name)
    return names


def compare(model: str, epochs: int, names: list[str], repeats: int, folder: str) -> dict[str, Any]:
    contenders = []
    for name in names:
        clients = MEASURED[model, epochs] if name == "research loop" else CLIENTS
        contenders.append(Contender.start(name, model, epochs, repeats + 1, folder, clients, CLIENTS, SAMPLES))
    times = rotate(contenders, repeats)
    rows = {}
    for name, measured in times.items():
        pairs = list(zip(measured, times["covey"]))
        clock = [rival[0] / ours[0] for rival, ours in pairs]
        rows[name] = {
            "seconds": statistics.median(seconds for seconds, _ in measured),
            "core_seconds": statistics.median(cpu for _, cpu in measured),
            "ratio": statistics.median(clock),
            "low": min(clock),
            "high": max(clock),
            "core_ratio": statistics.median(rival[1] / ours[1] for rival, ours in pairs),
            "goal": GOALS[model, epochs].get(name),
        }
    return {"model": model, "epochs": epochs, "parameters": Network(model, (28, 28), 10).d, "contenders": rows}


def versions(names: list[str]) -> dict[str, str]:
    packages = ["torch", "numpy", *(package for name in names for package in NEEDS.get(name, ()))]
    return {package: importlib.metadata.version(package) for package in packages}


def show(case: dict[str, Any], judged: bool) -> None:
    print(f"\n{case['model']} ({case['parameters']:,} parameters), {case['epochs']} local epoch(s)")
    print(f"  {'':20}{'s/round':>9}{'core-s':>9}{'× covey':>9}{'range':>14}{'cpu':>7}{'goal':>7}")
    for name, row in case["contenders"].items():
        spread = f"{row['low']:.1f}–{row['high']:.1f}"
        goal = f"{row['goal']:.1f}" if row["goal"] else ""
        verdict = "" if not (judged and row["goal"]) else "  met" if row["ratio"] >= row["goal"] else "  missed"
        print(
            f"  {name:20}{row['seconds']:9.2f}{row['core_seconds']:9.2f}{row['ratio']:9.2f}{spread:>14}"
            f"{row['core_ratio']:7.2f}{goal:>7}{verdict}",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one local epoch, two turns")
    parser.add_argument("--repeats", type=int, default=5, help="turns that are timed")
    parser.add_argument("--models", default="fcnn,cnn")
    parser.add_argument("--epochs", default="1,5")
    parser.add_argument("--rivals", default=",".join(CONTENDERS), help="whom covey is measured against")
    parser.add_argument("--cores", type=int, default=0, help="keep everybody to so many cores; 0: all")
    parser.add_argument("--json", help="write the figures to this file")
    arguments = parser.parse_args()
    if arguments.cores:
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: arguments.cores])  # inherited by every contender
    models = arguments.models.split(",")
    for model in models:
        plain = sum(parameter.numel() for parameter in network(model).parameters())
        assert plain == Network(model, (28, 28), 10).d, f"the rivals' {model} has {plain} parameters"
    names = present(arguments.rivals.split(","))
    cases = []
    with tempfile.TemporaryDirectory() as folder:
        about = {
            "data": make_data(folder),
            "cores": len(os.sched_getaffinity(0)),
            "load": os.getloadavg()[0],
            "versions": versions(names),
        }
        known = ", ".join(f"{package} {version}" for package, version in about["versions"].items())
        print(
            f"{CLIENTS} clients × {SAMPLES} samples ({about['data']}), {about['cores']} cores, load {about['load']:.1f}; {known}"
        )
        judged = about["cores"] > 1 and about["load"] < about["cores"] / 2
        if not judged:
            print(
                "the goals are for two quiet cores: this machine is busy, or one core was asked for; nothing is judged"
            )
        for model in models:
            for epochs in (1,) if arguments.quick else (int(e) for e in arguments.epochs.split(",")):
                cases.append(compare(model, epochs, names, 2 if arguments.quick else arguments.repeats, folder))
                show(cases[-1], judged)
    if arguments.json:
        Path(arguments.json).write_text(json.dumps(about | {"cases": cases}, indent=1))


if __name__ == "__main__":
    main()
