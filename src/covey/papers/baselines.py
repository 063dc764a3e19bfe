"""All algorithms in the setting that the five papers share: `covey reproduce baselines --table dirichlet03|dirichlet01|label_sets`.

No paper prints this table; the claims are what their authors and our issue expect of the methods.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from covey.papers.harness import Cell, Claim, Options, Outcome, Reproduction, Table, cell, claim

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
    worst = {a: min(o.accuracy(metric="client_mean") for o in outcomes[a]) for a in ("ifca", "fedsoft")}
    best = max(_mean(outcomes[a], "client_mean") for a in SINGLE)
    gap = min(worst.values()) - best
    claims = [
        claim(
            "IFCA and FedSoft are far ahead of every single-model method on label sets (10 points or more)",
            gap >= 0.10,
            f"worst seed: IFCA {worst['ifca']:.1%}, FedSoft {worst['fedsoft']:.1%}; best single model {best:.1%} (mean)",
            partly=gap > 0,
        ),
        _against_local(outcomes, "ifca"),
        _against_tuned(outcomes),
    ]
    return _reproduction("All algorithms on five label sets", options, table, outcomes, claims, "client_mean")


def _dirichlet(options: Options, beta: float) -> Reproduction:
    table = {
        "clients": 100,
        "partition": {"name": "dirichlet", "beta": beta},
        "participation": {"share": 0.2},
        "training": {"rounds": 10 if options.quick else 50, "epochs": 5, "batch_size": 50, "lr": 0.05},
    }
    outcomes = _all(options, table, options.count(3))
    target = TARGETS[options.dataset]
    reached = {a: [_rounds_to(o, target) for o in outcomes[a]] for a in ("fedavg", "scaffold", "feddyn")}
    limit = table["training"]["rounds"] + 1  # type: ignore[index]
    means = {a: float(np.mean([r or limit for r in rounds])) for a, rounds in reached.items()}
    wins = [a for a in ("scaffold", "feddyn") if means[a] <= means["fedavg"]]
    words = ", ".join(f"{a} {m:.1f}" for a, m in means.items())
    claims = [
        claim(
            f"SCAFFOLD and FedDyn need no more rounds than FedAvg to {target:.0%} (global test) under Dir({beta})",
            len(wins) == 2,
            f"mean rounds over seeds, a run that never got there counted as {limit}: {words}",
            partly=len(wins) == 1,
        ),
        _against_local(outcomes, "ifca"),
        _against_tuned(outcomes),
    ]
    return _reproduction(f"All algorithms under Dir({beta})", options, table, outcomes, claims, "global")


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
    claims: list[Claim],
    metric: str,
) -> Reproduction:
    target = TARGETS[options.dataset]
    cells: list[Cell] = []
    for name, runs in outcomes.items():
        reached = [r for r in (_rounds_to(o, target, metric) for o in runs) if r]
        never = len(runs) - len(reached)
        sizes = {way: [round(o.result["bytes"][way] / 1e6, 3) for o in runs] for way in ("up", "down")}
        cells += [
            cell(name, "own distribution", [o.accuracy(metric="client_mean") for o in runs]),
            cell(name, "global test", [o.accuracy(metric="global") for o in runs]),
            cell(name, "seeds that never got there", [float(never)], unit="seeds"),
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
        claims=claims,
        notes=[
            "Hyper-parameters of a method beyond the common ones were set once (settings) and not tuned.",
            "Seconds depend on what else the machine does: the runs stored in docs/ shared one H200 with up to 15 others; "
            "benchmarks/bench_state.py measures methods against each other.",
        ],
    )


def _mean(runs: list[Outcome], metric: str) -> float:
    return float(np.mean([o.accuracy(metric=metric) for o in runs]))


def _seconds(outcome: Outcome) -> float:
    return float(np.mean([sum(r["seconds"].values()) for r in outcome.records]))


def _rounds_to(outcome: Outcome, target: float, metric: str = "global") -> int | None:
    return next((r for r, a in outcome.curve(metric).items() if a >= target), None)


def _against_local(outcomes: dict[str, list[Outcome]], name: str) -> Claim:
    ours, alone = _mean(outcomes[name], "client_mean"), _mean(outcomes["local"], "client_mean")
    return claim(
        f"{name.upper()} serves clients better on their own distribution than training alone",
        ours > alone,
        f"{name} {ours:.2%}, local only {alone:.2%} (means over seeds)",
    )


def _against_tuned(outcomes: dict[str, list[Outcome]]) -> Claim:
    """The question that every clustering must answer."""
    tuned = _mean(outcomes["fedavg_ft"], "client_mean")
    clustered = {name: _mean(outcomes[name], "client_mean") for name in ("ifca", "fedsoft", "fedem", "sattler", *FOUND)}
    best = max(clustered, key=lambda name: clustered[name])
    return claim(
        "The best clustered method serves clients better on their own distribution than FedAvg with fine-tuning",
        clustered[best] > tuned,
        f"{best} {clustered[best]:.2%}, FedAvg + fine-tuning {tuned:.2%} (means over seeds)",
    )


TABLES = {
    "label_sets": Table(label_sets, ("mnist", "fashion_mnist")),
    "dirichlet03": Table(dirichlet03, ("mnist", "fashion_mnist")),
    "dirichlet01": Table(dirichlet01, ("mnist", "fashion_mnist")),
}
