"""All algorithms in the setting that the five papers share: `covey reproduce baselines --table dirichlet03|dirichlet01|label_sets`.

No paper prints this table; the claims are what their authors and our issue expect of the methods.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from covey.papers.cells import Cell, Contrast, Sheet, at, cell
from covey.papers.harness import Options, Reproduction, Table
from covey.papers.outcome import Outcome
from covey.papers.verdict import Part, Statement, above

TITLE = "The common setting: every algorithm on the same splits"

SINGLE = ("fedavg", "fedprox", "scaffold", "feddyn")
SEVERAL = ("ifca", "fedsoft", "fedem", "sattler")
PERSONAL = ("fedavg_ft", "ditto", "fedper", "fedrep", "apfl", "perfedavg")
FOUND = (
    "fesem",
    "flhc",
    "fedgroup",
    "pacfl",
    "stocfl",
    "flux",
    "fedgwc",
    "fedrc",
)  # the server finds clusters, or other shifts
PRIVATE = ("rr_cluster", "rdpcfl")  # made for noise; there is none in these tables
OWN, NEVER, COUNTED = "own distribution", "seeds that never got there", "rounds counted"  # columns
SLACK = 2.0  # rounds
TARGETS = {"mnist": 0.9, "fashion_mnist": 0.8}
_OWN: dict[str, dict[str, Any]] = {
    "fedprox": {"mu": 0.01},
    "feddyn": {"alpha": 0.1},
    "fedsoft": {"pull": 0.1},
    "sattler": {"eps1": 0.0},
    "ditto": {"pull": 0.1},
    "perfedavg": {"inner_lr": 0.01},
    "flhc": {"warm_up": 2},
    "flux": {"warm_up": 5},
    "stocfl": {"tau": 0.3, "pull": 0.05},
}


def dirichlet03(options: Options) -> Reproduction:
    """100 clients, Dir(.3), a fifth of them in each round."""
    return _dirichlet(options, 0.3)


def dirichlet01(options: Options) -> Reproduction:
    """100 clients, Dir(.1), a fifth of them in each round."""
    return _dirichlet(options, 0.1)


def label_sets(options: Options) -> Reproduction:
    """120 clients in 5 label sets, all of them in each round."""
    table = {
        "clients": 120,
        "partition": {"name": "label_sets", "samples": 450, "public": 200},
        "training": {"rounds": 10 if options.quick else 50, "epochs": 5, "batch_size": 50, "lr": 0.01},
    }
    outcomes = _all(options, table, options.count(3))
    return _reproduction("All algorithms on five label sets", options, table, outcomes, "client_mean")


def _dirichlet(options: Options, beta: float) -> Reproduction:
    table = {
        "clients": 100,
        "partition": {"name": "dirichlet", "beta": beta},
        "participation": {"share": 0.2},
        "training": {"rounds": 10 if options.quick else 50, "epochs": 5, "batch_size": 50, "lr": 0.05},
    }
    outcomes = _all(options, table, options.count(3))
    return _reproduction(f"All algorithms under Dir({beta})", options, table, outcomes, "global")


def _all(options: Options, table: dict[str, Any], seeds: int) -> dict[str, list[Outcome]]:
    outcomes = {}
    for name in ("local", *SINGLE, *SEVERAL, *PERSONAL, *FOUND, *PRIVATE):
        own = {"name": name, **_OWN.get(name, {})}
        # Methods that choose between models need models that differ: pre-trained ones do, else they begin apart.
        apart = (
            name in ("ifca", "fedsoft", "fedem", "fedrc", "rr_cluster") and table["partition"]["name"] != "label_sets"
        )
        outcomes[name] = options.run(
            {
                **table,
                "dataset": options.dataset,
                "model": "fcnn",
                "clusters": 5,
                "algorithm": own,
                "start": {"common": not apart},
            },
            seeds,
        )
    return outcomes


def _reproduction(
    title: str,
    options: Options,
    table: dict[str, Any],
    outcomes: dict[str, list[Outcome]],
    metric: str,
) -> Reproduction:
    target = TARGETS[options.dataset]
    cells: list[Cell] = []
    for name, runs in outcomes.items():
        reached = [r for r in (_rounds_to(o, target, metric) for o in runs) if r]
        never = len(runs) - len(reached)
        counted = [float(_rounds_to(o, target, metric) or 1 + max(o.curve(metric))) for o in runs]
        sizes = {way: [round(o.result["bytes"][way] / 1e6, 3) for o in runs] for way in ("up", "down")}
        cells += [
            cell(name, OWN, [o.accuracy(metric="client_mean") for o in runs]),
            cell(name, "global test", [o.accuracy(metric="global") for o in runs]),
            cell(name, NEVER, [float(never)], unit="seeds"),
            cell(name, COUNTED, counted, unit="rounds"),
            cell(name, "MB up per client and round", sizes["up"], unit="MB"),
            cell(name, "MB down per client and round", sizes["down"], unit="MB"),
            cell(name, "seconds a round", [_seconds(o) for o in runs], unit="s"),
        ]
        if reached:
            cells.append(cell(name, f"rounds to {target:.0%} ({metric})", [float(r) for r in reached], unit="rounds"))
    return Reproduction(
        paper="baselines",
        table="",
        title=title,
        dataset=options.dataset,
        settings={**table, "seeds": len(outcomes["local"]), "own fields": _OWN},
        cells=cells,
        notes=[
            "Hyper-parameters of a method beyond the common ones were set once (settings) and not tuned.",
            "Seconds depend on what else the machine does: the runs stored in docs/ shared one H200 with up to 15 others; "
            "benchmarks/bench_state.py measures methods against each other.",
        ],
    )


def _seconds(outcome: Outcome) -> float:
    return float(np.mean([sum(r["seconds"].values()) for r in outcome.records]))


def _rounds_to(outcome: Outcome, target: float, metric: str = "global") -> int | None:
    return next((r for r, a in outcome.curve(metric).items() if a >= target), None)


def claims_on_label_sets(sheet: Sheet) -> list[Statement]:
    parts = [
        Part(f"{name} − {single}", at(name, OWN) - at(single, OWN), above(0.10))
        for name in ("ifca", "fedsoft")
        for single in SINGLE
    ]
    text = "IFCA and FedSoft are far ahead of every single-model method on label sets (10 points or more)."
    return [Statement(text, parts, whose="ours"), *_worth_it()]


def claims_on_dirichlet(sheet: Sheet) -> list[Statement]:
    target = TARGETS[sheet.dataset]
    text = f"{{}} needs no more rounds than FedAvg to {target:.0%} (global test; {SLACK:g} more count as none)."
    return [
        *(Statement(text.format(name), [_rounds(sheet, name)], whose="ours") for name in ("scaffold", "feddyn")),
        *_worth_it(),
    ]


def _rounds(sheet: Sheet, name: str) -> Part:
    """FedAvg's rounds less this one's; known from one side where either never got there in some run."""
    never = {row: sheet.mean(row, NEVER) > 0 for row in ("fedavg", name)}
    effect: Contrast | None = at("fedavg", COUNTED) - at(name, COUNTED)
    side, words = "at least" if never["fedavg"] else "at most" if never[name] else "", f"fedavg − {name}"
    if all(never.values()):
        effect, side, words = None, "", f"{words}, neither got there in every run"
    return Part(words, effect, above(-SLACK), unit="rounds", one_sided=side)


def _worth_it() -> list[Statement]:
    """The questions that every clustering must answer; of IFCA, since a best of many would be picked by its luck."""
    rivals = {"local": "training alone", "fedavg_ft": "FedAvg with fine-tuning"}
    return [
        Statement(
            f"IFCA serves clients better on their own distribution than {words}.",
            [Part(f"ifca − {rival}", at("ifca", OWN) - at(rival, OWN), above())],
            whose="ours",
        )
        for rival, words in rivals.items()
    ]


_BOTH = ("mnist", "fashion_mnist")
TABLES = {
    "label_sets": Table(label_sets, _BOTH, claims_on_label_sets),
    "dirichlet03": Table(dirichlet03, _BOTH, claims_on_dirichlet),
    "dirichlet01": Table(dirichlet01, _BOTH, claims_on_dirichlet),
}
