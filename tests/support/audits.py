"""Audits made up by hand: findings that no attack had."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from covey.attacks.finding import Finding
from covey.audit.matrix import Audit, fill
from covey.audit.questions import Questions, Watch
from covey.experiment.experiment import Experiment
from covey.leaks import SERVER

SMALL: dict[str, Any] = {
    "clients": 8,
    "clusters": 2,
    "partition": {"name": "label_sets", "public": 20},
    "training": {"rounds": 3, "epochs": 1, "batch_size": 10, "lr": 0.1},
    "start": {"common": False},
    "engine": {"workers": 1},
    "attacks": [  # their settings are kept, so that the tests are quick
        {"name": "category", "subsets": 300, "rows": 100},
        *({"name": name, "shadows": 4, "clients": 2, "rounds": 1} for name in ("lira", "rmia")),
    ],
}


def small(**changes: Any) -> Experiment:
    return Experiment.of(SMALL, **changes)


def finding(value: float, low: float, high: float, chance: float = 0.5, **more: Any) -> Finding:
    return Finding(more.pop("attack", "x"), "v", "m", value, chance, low, high, **{"used": "all", **more})


def matrix(experiment: Experiment, done: dict[tuple[str, str], Finding], **failed: str) -> Audit:
    heading: dict[str, Any] = dict.fromkeys(
        ("algorithm", "dataset", "stand_in", "partition", "defence", "encryption"), ""
    )
    counts: dict[str, Any] = dict.fromkeys(("clients", "clusters", "rounds", "seed"), 1)
    problems = {Watch(name, SERVER): why for name, why in failed.items()}
    scored = {Watch(*w): (replace(f, attack=w[0]), "runs/x/report.html") for w, f in done.items()}
    questions = Questions(experiment)
    rows = {row.name: row.question for row in questions.rows}
    return Audit(**heading, **counts, accuracy=0.5, cells=fill(questions, scored, problems), runs=(), rows=rows)
