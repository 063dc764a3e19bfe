"""Run folders made up by hand: nothing has run behind them."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np

from covey.metrics.metric import resolve
from covey.metrics.spread import per_class, spread
from covey.metrics.totals import CLASSES

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\"'&{{7*7}}"


def qualities(
    mean: float, truth: np.ndarray, k: int, labels: int, last: bool, rng: np.random.Generator
) -> dict[str, object]:
    """A made-up round's metrics and classes, one of them by a hostile name."""
    clients = len(truth)
    clusters = dict(enumerate(truth.tolist()))
    names = {
        "accuracy": resolve("accuracy"),
        "balanced_accuracy": resolve("balanced_accuracy"),
        HOSTILE: resolve("loss"),
    }
    values = {i: float(min(1.0, mean + 0.03 * rng.standard_normal())) for i in range(clients)}
    shares = rng.dirichlet(np.ones(labels))
    hit = shares * mean
    totals = [np.array([0.1, mean, *shares, *shares, *hit])] * (k + 1)
    return {
        "metrics": {name: spread(metric, values, clusters, range(clients), last) for name, metric in names.items()},
        "classes": per_class(CLASSES, totals, last),
    }


def synthetic_run(
    folder: Path,
    algorithm: str = "mingledpie",
    clients: int = 120,
    rounds: int = 100,
    k: int = 5,
    labels: int = 10,
    seed: int = 0,
    dataset: str = "mnist",
    level: float = 0.975,
    **result: object,
) -> Path:
    """A made-up run folder that looks like a real one. Nothing in it was computed by an experiment."""
    rng = np.random.default_rng(seed)
    folder.mkdir(parents=True, exist_ok=True)
    truth = np.arange(clients) * k // clients
    histogram = rng.poisson(4, (clients, labels)) * (rng.random((clients, labels)) < 0.25)
    for i in range(clients):
        own = np.arange(labels) * k // labels == truth[i]
        histogram[i, own] += rng.integers(150, 300, own.sum())
    lines = []
    per_cluster: list[float] = []
    for t in range(1, rounds + 1):
        stray = rng.random(clients) < 0.45 * math.exp(-t / 6) + 0.002
        choice = np.where(stray, rng.integers(0, k, clients), truth)
        joined = np.arange(clients) % 12 < 10 + t // 10
        curve = level * (1 - 0.6 * math.exp(-t / 9))
        per_cluster = [min(1.0, curve - 0.012 * j + 0.004 * rng.standard_normal()) for j in range(k)]
        mean = float(np.mean(per_cluster))
        counts = np.diag(rng.integers(20, 26, k)) + rng.integers(8, 16, (k, k)) * (1 - np.eye(k, dtype=int))
        extra: dict[str, object] = {}
        if algorithm == "mingledpie":
            extra = {
                "condition": float(6 + 60 * math.exp(-t / 5) + rng.random()),
                "noise_gain": (1.4 + 0.3 * rng.random(k)).tolist(),
                "mingled": counts.tolist(),
            }
        if algorithm == "fedcaprivacy":
            extra = {
                "eigengap": float(0.1 + 0.02 * rng.random()),
                "affinity_quantiles": np.sort(rng.random(5)).tolist(),
                "clip": 1.0,
                "noise": float(0.8 + 0.001 * t),
            }
        line: dict[str, object] = {
            "round": t,
            "participants": clients,
            "seconds": {
                "train": 0.8 + 0.1 * rng.random(),
                "identity": 0.05,
                "encrypt": 0.3 + 0.03 * rng.random(),
                "aggregate": 0.09,
                "evaluate": 0.1,
            },
            "bytes": {"up": 2_544_160, "down": 12_720_800},
            "accuracy": {
                "average_cluster": mean,
                "per_cluster": per_cluster,
                "client_mean": mean - 0.008,
                "global": mean * 0.24,
            },
            "clustering": {"accuracy": float((choice == truth).mean()), "ari": float((choice == truth).mean() ** 2)},
            "clusters": np.where(joined, choice, -1).tolist(),
            "extra": extra,
            **qualities(mean, truth, k, labels, t == rounds, np.random.default_rng(t)),
        }
        if algorithm == "fedcaprivacy" and t == rounds:
            line["memberships"] = rng.dirichlet(np.ones(k) * 0.4, clients).tolist()
        lines.append(json.dumps(line))
    (folder / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    (folder / "config.toml").write_text(
        f'dataset = {json.dumps(dataset)}\nmodel = "fcnn"\nclients = {clients}\nclusters = {k}\n'
        f'encryption = "ckks"\nattacks = ["cluster_identity", "preference"]\nseed = {seed}\n'
        f'[algorithm]\nname = "{algorithm}"\n'
        + ('false_positive_rate = 0.5\nthreshold = 2\nthreshold_counts = "true"\n' if algorithm == "mingledpie" else "")
        + f'[training]\nrounds = {rounds}\nepochs = 5\nbatch_size = 50\nlr = 0.01\n[partition]\nname = "label_sets"\n'
        'homogeneous = true\niid_rate = 0.0\n[engine]\nname = "processes"\ndevice = "cpu"\nworkers = 2\n'
    )
    (folder / "federation.json").write_text(
        json.dumps(
            {
                "dataset": dataset,
                "classes": [str(i) for i in range(labels)],
                "histogram": histogram.tolist(),
                "clusters": truth.tolist(),
                "sizes": histogram.sum(1).tolist(),
                "notes": {"public": "200 samples per label set pre-train the cluster models"},
            }
        )
    )
    total: dict[str, object] = {
        "schema": 1,
        "metrics": {
            name: {k: v for k, v in entry.items() if k != "clients"}
            for name, entry in json.loads(lines[-1])["metrics"].items()
        },
        "classes": json.loads(lines[-1])["classes"],
        "algorithm": algorithm,
        "dataset": dataset,
        "model": "fcnn",
        "encryption": "ckks",
        "defence": "ldp" if algorithm == "fedcaprivacy" else None,
        "stand_in": "",
        "accuracy": json.loads(lines[-1])["accuracy"],
        "rounds": rounds,
        "rounds_to_target": min(31, rounds),
        "seconds": {"train": 83.2, "identity": 5.1, "encrypt": 31.5, "aggregate": 9.2, "evaluate": 10.4},
        "bytes": {"up": 2_544_160, "down": 12_720_800},
        "clustering": {"accuracy": 1.0, "ari": 1.0},
        "attacks": {
            "cluster_identity": {
                "vantage": "server",
                "metric": "accuracy",
                "value": 0.352,
                "chance": 0.2,
                "controls": {"prior": 0.21, "uniform_in_set": 0.347},
                "low": 0.31,
                "high": 0.398,
                "details": {"rounds watched": rounds, "sets seen": 120},
            },
            "intersection": {
                "vantage": "server",
                "metric": "accuracy",
                "value": 0.71,
                "chance": 0.2,
                "controls": {"prior": 0.21},
                "low": 0.64,
                "high": 0.77,
            },
            "preference": {
                "vantage": "server",
                "metric": "accuracy",
                "value": 0.19,
                "chance": 0.2,
                "controls": {"placebo": 0.2},
                "low": 0.13,
                "high": 0.26,
            },
        },
        "privacy": {
            "dp_sgd": {
                "epsilon": 7.92,
                "delta": 1e-5,
                "per_step": 0.031,
                "composition": "RDP, 100 rounds of 50 steps",
                "sensitivity": 1.0,
                "caveat": "Holds per record, not per client: a client's whole data set is protected far less.",
            }
        }
        if algorithm == "fedcaprivacy"
        else {},
        "seed": seed,
        "versions": {"covey": "0.1.0", "python": "3.11", "torch": "2.13.0", "numpy": "2.3"},
        "command": f"covey run {algorithm} --set dataset={dataset} --set clients={clients} --set seed={seed}",
    }
    (folder / "result.json").write_text(json.dumps({**total, **result}))
    return folder


def record(round_number: int, accuracy: float, seconds: float = 2.0) -> str:
    content = {"round": round_number, "seconds": {"train": seconds}, "accuracy": {"average_cluster": accuracy}}
    return json.dumps(content) + "\n"


def begun(folder: Path, rounds: int = 10, config: str = "", lines: str = "") -> Path:
    """A run that has not finished, as `covey run` leaves it between two rounds."""
    folder.mkdir(parents=True)
    text = f'dataset = "mnist"\nclients = 4\n{config}\n[algorithm]\nname = "ifca"\n[training]\nrounds = {rounds}\n'
    (folder / "config.toml").write_text(text)
    (folder / "federation.json").write_text("{}")
    if lines:
        (folder / "metrics.jsonl").write_text(lines)
    return folder
