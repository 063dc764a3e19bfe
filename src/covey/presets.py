"""Experiments with a name: `covey run NAME`. Plain tables, as a TOML file would hold them."""

from __future__ import annotations

from typing import Any

_MNIST_SETS: dict[str, Any] = {
    "clients": 120,
    "clusters": 5,
    "partition": {"name": "label_sets", "samples": 450, "public": 200},
    "model": "fcnn",
    "training": {"rounds": 100, "epochs": 5, "batch_size": 50, "lr": 0.01},
}

PRESETS: dict[str, dict[str, Any]] = {
    "ifca-digits": {
        "dataset": "digits",
        "algorithm": "ifca",
        "clients": 20,
        "clusters": 5,
        "partition": {"name": "label_sets", "public": 20},
        "training": {"rounds": 20, "epochs": 5, "batch_size": 10, "lr": 0.1},
    },
    "ifca-mnist": {"dataset": "mnist", "algorithm": "ifca", **_MNIST_SETS},
    "fedavg-mnist": {"dataset": "mnist", "algorithm": "fedavg", **_MNIST_SETS},
}
ABOUT = {
    "ifca-digits": "clustered learning on the embedded digits, a few seconds",
    "ifca-mnist": "120 clients in 5 label sets of MNIST (needs COVEY_DATA)",
    "fedavg-mnist": "the same split with one model for all",
}
DEFAULT = "ifca-digits"
