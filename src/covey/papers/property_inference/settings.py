"""The experiments of the property-inference paper.

Ours: 500 rounds at lr 0.1 where the paper has 5,000 at 0.01 (the same lr × rounds; `paper = True` gives the paper's); a quick
run takes 200. The attacker subtracts its own upload, of which it knows everything but the share; the paper does not say that
it does, and the score without is beside. Unstated there and chosen here: Dirichlet β, clip C, δ, two clusters.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from covey.papers.outcome import Outcome

BETA, CLUSTERS, CLIP, DELTA = 1.0, 2, 1.0, 1e-5
MILD = 10.0  # β of mild skew


@dataclass(frozen=True)
class Task:
    """A main task and the property that has nothing to do with it."""

    dataset: str  # with its label
    attribute: str
    value: int = 1
    model: str = "lfw_cnn"
    said: str = ""  # what a reader must know of the labels

    @property
    def words(self) -> str:
        return f"{self.dataset} → {self.attribute} = {self.value}"


NOISY = "no label for sunglasses exists here, so the property is glasses of any kind, by a classifier"
TASKS: dict[str, dict[str, Task]] = {
    "utkface": {"C": Task("utkface:gender", "black", said="in the paper on LFW; UTKFace's race labels come with it")},
    "lfw": {
        "A": Task("lfw:smile", "glasses", said=NOISY),
        "B": Task("lfw:race", "glasses", said=NOISY + ", and so is the race"),
        "C": Task("lfw:gender", "black", said="the property is what a classifier thought"),
    },
    "yelp-like": {
        "D": Task("yelp-like", "author", 1, "gru", "generated reviews with planted authors, a stand-in for Yelp"),
        "E": Task("yelp-like", "author", 2, "gru", "generated reviews with planted authors, a stand-in for Yelp"),
    },
}


@dataclass(frozen=True)
class Wanted:
    """One experiment of a table: what is put together, and where its AUC goes."""

    row: str
    column: str
    task: str
    table: dict[str, Any]
    paper: float | None = None


def experiment(
    task: Task,
    method: str,  # FL or CFL
    clients: int,
    *,
    quick: bool = False,
    gamma: float = 0.0,  # 0: passive
    defence: dict[str, Any] | None = None,
    beta: float = BETA,
    placebo: bool = False,
    paper: bool = False,  # the paper's rounds and learning rate
) -> dict[str, Any]:
    """The table of one experiment."""
    text = task.model == "gru"
    rounds = 5000 if paper and not text else 200 if quick else 500
    lr = 0.05 if text else 0.01 if paper else 0.1
    attack = {"name": "property", "rows": 1500, "remove_own": True}
    if gamma:
        attack |= {"name": "property_active", "gamma": gamma}
    return {
        "dataset": task.dataset,
        "model": task.model,
        "partition": {
            "name": "property",
            "attribute": task.attribute,
            "value": task.value,
            "beta": beta,
            "placebo": placebo,
        },
        "algorithm": {"name": "fedavg" if method == "FL" else "ifca", "weighting": "clients"},
        "clients": clients,
        "clusters": 1 if method == "FL" else min(CLUSTERS, clients),
        "start": {"common": False},
        "training": {"rounds": rounds, "steps": 1, "batch_size": 32, "lr": lr},
        "exposure": {"every": 5, "choose_on": "batch"},
        "evaluation": {"every": rounds},  # tables have the end alone, and for each IFCA compares its models on all data
        "attacks": [attack],
        **({"defence": defence} if defence else {}),
    }


def private(sigma: float) -> dict[str, Any]:
    return {"name": "dp_sgd", "clip": CLIP, "noise": sigma, "delta": DELTA}


def auc(outcome: Outcome) -> float:
    return float(finding(outcome)["value"])


def kept(outcome: Outcome) -> float:
    """The AUC of the attack that leaves its own upload in, which is the paper's by its text."""
    value = finding(outcome)["details"]["own contribution kept"]
    return math.nan if value is None else float(value)


def finding(outcome: Outcome) -> dict[str, Any]:
    """The one attack's; an area that is undefined, since all rounds were of one kind, shows as such in every mean of it."""
    (entry,) = outcome.result["attacks"].values()
    undefined = {"value": math.nan} if entry["value"] is None else {}
    controls = {name: math.nan if value is None else value for name, value in entry["controls"].items()}
    return {**entry, **undefined, "controls": controls}
