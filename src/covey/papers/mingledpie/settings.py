"""MingledPie's experiments as tables for `Experiment.of`: the paper's defaults, and what our copies of the data allow."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from covey.config import merge
from covey.papers.extent import in_part, of_part
from covey.papers.harness import Options

NAMES = {
    "mnist": "MNIST",
    "fashion_mnist": "Fashion MNIST",
    "cifar10": "CIFAR-10",
    "cifar100": "CIFAR-100",
    "location30": "Location-30",
}
# model, learning rate, rounds, samples per client (homogeneous, heterogeneous), public samples per set
_BY_DATASET: dict[str, tuple[str, float, int, int, int, int]] = {
    "mnist": ("fcnn", 0.01, 100, 450, 400, 200),
    "fashion_mnist": ("fcnn", 0.01, 100, 450, 400, 200),
    "cifar10": ("cnn", 0.1, 240, 400, 300, 200),
    "cifar100": ("resnet18", 0.1, 100, 400, 300, 200),
    "location30": ("mlp_wide", 0.1, 300, 20, 16, 60),
}
_OF_PART = {"cifar10": (150, 120), "cifar100": (90, 80)}  # samples per client where a part of the dataset is here
REMARKS = {
    "mnist": "450 samples per client (heterogeneous: 400): 120 disjoint sets of 500 do not exist in the smaller label sets.",
    "cifar10": "400 samples per client (heterogeneous: 300): 24 disjoint sets of 500 do not exist in two labels.",
    "cifar100": "400 samples per client (heterogeneous: 300): 24 disjoint sets of 500 do not exist in twenty labels.",
    "location30": "Stands in the place of Texas100 and Purchase100, which are not to be had here: binary features, 30 classes, "
    "20 samples per client. The paper has no figure for it.",
}
READING = (
    "A local iteration is a step on all of a client's samples, five per round; pixels are divided by 255; every cluster model "
    "starts from one common model after an epoch on the public samples of its label set."
)


def base(dataset: str, options: Options, quick_rounds: int = 50, heterogeneous: bool = False) -> dict[str, Any]:
    """The default experiment on a dataset: k = 5, N = 120, p = .5, T = 2, five full-batch steps per round."""
    model, lr, rounds, _, _, public = _BY_DATASET[dataset]
    samples = _samples(dataset)[heterogeneous]
    return {
        "dataset": dataset,
        "model": model,
        "clients": 120,
        "clusters": 5,
        "partition": {"name": "label_sets", "homogeneous": not heterogeneous, "samples": samples, "public": public},
        "training": {"rounds": quick_rounds if options.quick else rounds, "steps": 5, "batch_size": 0, "lr": lr},
        "start": {"common": True, "pretrain_epochs": 1, "pretrain_batch": 50},
        "evaluation": {"every": 5 if options.quick else 1},
        "algorithm": "mingledpie",
    }


def fewer_samples(dataset: str, shares: int = 1) -> dict[str, Any]:
    """Samples per client that also fit smaller sets, or more clients: the heterogeneous number, shared out."""
    return {"samples": _samples(dataset)[1] // shares}


def _samples(dataset: str) -> tuple[int, int]:
    """Per client, homogeneous and heterogeneous: what can be dealt out of what there is."""
    _, _, _, even, uneven, _ = _BY_DATASET[dataset]
    return _OF_PART[dataset] if in_part(dataset) else (even, uneven)


def with_(table: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    """The table with some keys changed, nested tables merged."""
    return merge(table, more)


def described(table: Mapping[str, Any], seeds: int) -> dict[str, Any]:
    """What a reader must know of the experiment, flat."""
    training, partition = table["training"], table["partition"]
    return {
        "model": table["model"],
        "clients": table["clients"],
        "clusters": table["clusters"],
        "samples per client": partition["samples"],
        "rounds": training["rounds"],
        "full-batch steps per round": training["steps"],
        "learning rate": training["lr"],
        "seeds": seeds,
    }


def remarks(dataset: str) -> list[str]:
    if in_part(dataset):
        return [READING, *of_part(dataset, f": {_samples(dataset)[0]} per client")]
    return [READING, *([REMARKS[dataset]] if dataset in REMARKS else [])]
