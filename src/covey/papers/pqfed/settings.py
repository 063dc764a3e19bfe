"""PQFed's experiments: what is set, and the figures that the paper prints for them.

We do not know the paper's learning rate nor its network's layers: ours stand here. The target is tested on all test samples of
its feature clusters, a few thousand, not on 300 or 1,200.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from covey.papers.harness import Options
from covey.papers.pqfed.figures import RATES

UNDER: dict[str, dict[str, Any]] = {
    "FedAvg": {"name": "fedavg"},
    "FedProx": {"name": "fedprox", "mu": 0.1},
    "FedDyn": {"name": "feddyn", "alpha": 0.1},
}
GRID = {"cifar10": tuple(UNDER), "mnist": tuple(UNDER)}  # what experiments 6 to 16 are run under
TRAINING: dict[str, dict[str, Any]] = {
    "cifar10": {"rounds": 20, "epochs": 1, "batch_size": 32, "lr": 0.01, "momentum": 0.9},
    "mnist": {"rounds": 20, "epochs": 1, "batch_size": 16, "lr": 0.01, "momentum": 0.9},
}
QUICK: dict[str, Any] = {"rounds": 10, "lr": 0.02}
MODEL = "cnn5"
SETUPS: dict[str, tuple[float, ...]] = {  # dissimilarity of the clients beside the target
    "1: alone": (0.0,),
    "2: 4 similar": (0.0,) * 4,
    "3: 4 dissimilar": (1.0,) * 4,
    "4: 4 similar, 5 dissimilar": (0.0,) * 4 + (1.0,) * 5,
    "5: 4 similar, 15 dissimilar": (0.0,) * 4 + (1.0,) * 15,
}
TABLE2 = {
    "cifar10": (0.4667, 0.7233, 0.5167, 0.6300, 0.6023),
    "mnist": (0.9544, 0.9856, 0.9600, 0.9842, 0.9806),
}
TABLE45 = {
    "cifar10": {
        "FedAvg": (56.00, 59.67, 61.00, 60.67, 62.33, 61.00, 61.00, 61.00, 59.67, 59.00, 59.67),
        "FedProx": (57.00, 59.67, 60.00, 61.33, 62.33, 62.33, 64.00, 61.67, 60.33, 60.33, 59.67),
        "FedDyn": (52.67, 52.67, 54.33, 56.00, 56.00, 56.67, 56.33, 54.33, 55.67, 53.33, 54.33),
    },
    "mnist": {
        "FedAvg": (97.19, 97.73, 98.08, 98.35, 98.56, 98.40, 98.71, 98.60, 98.46, 98.40, 98.44),
        "FedProx": (96.73, 97.83, 97.94, 98.40, 98.23, 98.44, 98.69, 98.67, 98.52, 98.67, 98.42),
        "FedDyn": (96.10, 96.15, 96.46, 96.71, 96.33, 96.79, 97.00, 96.83, 96.94, 96.79, 96.42),
    },
}
TABLE78 = {
    "cifar10": {
        "FedAvg": (54.00, 62.00, 65.67, 68.00, 68.67, 70.33, 69.67, 70.00, 68.33, 66.33, 66.67),
        "FedProx": (55.00, 62.33, 67.33, 67.67, 71.00, 71.67, 72.00, 69.00, 71.67, 70.00, 68.67),
        "FedDyn": (48.00, 57.67, 60.33, 60.33, 58.67, 59.00, 59.00, 55.67, 57.33, 57.00, 57.00),
    },
    "mnist": {
        "FedAvg": (96.85, 97.50, 97.88, 98.02, 98.08, 98.08, 98.27, 98.31, 98.31, 98.33, 98.21),
        "FedProx": (96.96, 97.83, 97.88, 98.15, 98.40, 98.25, 98.46, 98.40, 98.46, 98.40, 98.31),
        "FedDyn": (96.56, 95.23, 94.56, 93.08, 92.85, 92.63, 91.19, 91.90, 92.08, 91.23, 91.42),
    },
}


def experiment(options: Options, rates: Sequence[float], algorithm: Any, **more: Any) -> dict[str, Any]:
    """The target and clients of these dissimilarities under an algorithm; a quick run trains half the rows on a small network."""
    training = TRAINING[options.dataset] | (QUICK if options.quick else {})
    partition: dict[str, Any] = {"name": "feature_clusters", "rates": list(rates)}
    if options.quick:
        partition["rows"] = 200
    return {
        "dataset": options.dataset,
        "model": "fcnn" if options.quick else MODEL,
        "algorithm": algorithm,
        "clients": 1 + len(rates),
        "clusters": 1,
        "partition": partition,
        "start": {"pretrain_epochs": 0},
        "training": training | more.pop("training", {}),
        "evaluation": {"every": 1000},
    } | more


def steps(options: Options) -> tuple[float, ...]:
    """Dissimilarity of the clients that the incremental strategy goes through."""
    return RATES[::5] if options.quick else RATES


def rounds_of(options: Options) -> int:
    return int((TRAINING[options.dataset] | (QUICK if options.quick else {}))["rounds"])


def peak(dataset: str, name: str, among: Sequence[int]) -> int:
    """Which of experiments 6 to 16 the paper prints the highest accuracy for."""
    return max(among, key=lambda e: TABLE45[dataset][name][e - 6])
