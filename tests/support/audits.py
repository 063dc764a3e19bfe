"""Audits made up by hand: findings that no attack had."""

from __future__ import annotations

from typing import Any

from covey.attacks.applies import SERVER
from covey.audit.matrix import Audit, fill
from covey.experiment.experiment import Experiment

SMALL: dict[str, Any] = {
    "clients": 8,
    "clusters": 2,
    "partition": {"name": "label_sets", "public": 20},
    "training": {"rounds": 3, "epochs": 1, "batch_size": 10, "lr": 0.1},
    "start": {"common": False},
    "engine": {"workers": 1},
    "attacks": [
        {"name": "category", "subsets": 300, "rows": 100}
    ],  # its settings are kept, so that the tests are quick
}


def small(**changes: Any) -> Experiment:
    return Experiment.of(SMALL, **changes)


def finding(value: float, low: float, high: float, chance: float = 0.5, **more: Any) -> dict[str, Any]:
    bar = max([chance, *more.get("controls", {}).values()])
    verdict = "no leak seen" if low <= bar else "broken" if value >= 0.95 else "leaks"
    base = {"vantage": "v", "metric": "m", "controls": {}, "used": "all", "details": {}, "verdict": verdict}
    return base | {"value": value, "low": low, "high": high, "chance": chance} | more


def matrix(experiment: Experiment, done: dict[tuple[str, str], dict[str, Any]], **failed: str) -> Audit:
    heading: dict[str, Any] = dict.fromkeys(
        ("algorithm", "dataset", "stand_in", "partition", "defence", "encryption"), ""
    )
    counts: dict[str, Any] = dict.fromkeys(("clients", "clusters", "rounds", "seed"), 1)
    problems = {(name, SERVER): why for name, why in failed.items()}
    cells = fill(experiment, {w: (f, "runs/x/report.html") for w, f in done.items()}, problems)
    return Audit(**heading, **counts, accuracy=0.5, cells=cells, runs=())
