"""What FedCAPrivacy's cloud provider links and names, with and without mitigation, and what mitigations cost."""

from __future__ import annotations

from typing import Any

import numpy as np

from covey.papers.fedcaprivacy.ablations import accuracies, made, one
from covey.papers.fedcaprivacy.settings import ROUNDS, experiment, mean
from covey.papers.harness import Cell, Options, Reproduction, cell, claim

OURS = "fedcaprivacy"
LINKING = ("naming", "naming_histogram", "linkage", "linkage_profile", "linkage_graph", "linkage_blocks")
MITIGATIONS: dict[str, dict[str, Any]] = {
    "none": {},
    "rearrange": {"mitigation": "rearrange"},
    "rows once": {"mitigation": "sums", "every": 1000},
    "sketch of 32": {"mitigation": "sketch", "buckets": 32},
    "sketch of 16": {"mitigation": "sketch", "buckets": 16},
    "sketch of 8": {"mitigation": "sketch", "buckets": 8},
    "sketch of 4": {"mitigation": "sketch", "buckets": 4},
    "sketch of 32, noise 2": {"mitigation": "sketch", "buckets": 32, "noise": 2.0},
    "sketch of 16, noise 1": {"mitigation": "sketch", "buckets": 16, "noise": 1.0},
}
LINKED = 10  # rounds in which rows are linked
TOLD = 4  # rounds of those that one is told about
PHASES = ("blind", "open", "cluster", "average", "unblind")  # of the two servers


def linkage(options: Options) -> Reproduction:
    """What the cloud provider links and names, by mitigation, with what that costs; clustering in every round."""
    clients = 20 if options.quick else 50
    seeds = options.count(3)
    cells: list[Cell] = []
    scores: dict[tuple[str, float], dict[str, float]] = {}
    accuracy: dict[str, float] = {}
    for name, fields in MITIGATIONS.items():
        for share in (1.0, 0.5):
            table = experiment(options, OURS, 0.3, rounds=LINKED, **{"every": 1, **fields})
            table |= {"clients": clients, "attacks": list(LINKING), "participation": {"slowest": 0.2, "share": share}}
            table["evaluation"] = {"every": LINKED, "samples": 2000}
            outcomes = options.run(table, seeds)
            row = f"{name}, {share:.0%} present"
            values = {a: [o.attack(a)["value"] for o in outcomes] for a in LINKING}
            scores[name, share] = {a: float(np.mean(v)) for a, v in values.items()}
            cells += [cell(row, a, v) for a, v in values.items()]
            cells.append(cell(row, "chance", [o.attack("linkage")["chance"] for o in outcomes]))
            cells += accuracies(row, outcomes)
            cells.append(cell(row, "servers", [sum(o.seconds(p) for p in PHASES) for o in outcomes], unit="s a round"))
        if name == "rows once":  # sums or means of the same members: with all present, models are the same
            fields = {**fields, "mitigation": "none"}
        outcomes = one(options, **fields)
        cells += accuracies(f"{name}, paper's setting", outcomes)
        accuracy[name] = mean(outcomes, "client_mean")
    best = {key: max(values[a] for a in LINKING if a.startswith("linkage")) for key, values in scores.items()}
    cost = {name: 100 * (accuracy["none"] - accuracy[name]) for name in MITIGATIONS}
    sketches = [name for name in MITIGATIONS if "sketch" in name]
    fedavg = mean(options.run(experiment(options, "fedavg", 0.3), seeds), "client_mean")
    ahead = {name: 100 * (accuracy[name] - fedavg) for name in MITIGATIONS}
    bare = scores["none", 1.0]
    claims = [
        claim(
            "The shuffle hides who sent a row (Proposition V.2).",
            bare["naming"] < 3 / clients and bare["naming_histogram"] < 3 / clients,
            f"By order alone {bare['naming']:.1%}; with the participants' label counts known "
            f"{bare['naming_histogram']:.1%}; guessing {1 / clients:.1%}.",
            partly=bare["naming"] < 3 / clients,
        ),
        claim(
            "Rows of two rounds cannot be linked (not measured by the paper).",
            best["none", 1.0] < 3 / clients,
            f"Linked at full participation {best['none', 1.0]:.1%}, at half {best['none', 0.5]:.1%}.",
        ),
        claim(
            "Moving and turning blocks of coordinates stops linkage.",
            best["rearrange", 1.0] < 3 / clients,
            f"By coordinates {scores['rearrange', 1.0]['linkage']:.1%}, but by distances {best['rearrange', 1.0]:.1%}.",
            partly=scores["rearrange", 1.0]["linkage"] < 3 / clients,
        ),
        claim(
            "Sketches of a few numbers bring linkage below one row in ten for two points of accuracy at most (ours).",
            any(best[name, 1.0] < 0.1 and cost[name] <= 2 for name in sketches),
            "; ".join(f"{name}: {best[name, 1.0]:.1%} for {cost[name]:.2f} points" for name in sketches)
            + "; negative: a gain.",
            partly=any(best[name, 1.0] < 0.1 for name in sketches),
        ),
        claim(
            "Showing rows in one round only leaves nothing to link, for two points of accuracy at most (ours).",
            best["rows once", 1.0] < 3 / clients and cost["rows once"] <= 2,
            f"It costs {cost['rows once']:.2f} points where all take part; newcomers get no clusters of their own.",
        ),
        claim(
            "Mitigated, clustering is still worth it: ours stays ahead of FedAvg (own test; not a claim of the paper).",
            min(ahead.values()) > 0,
            "Points ahead: " + ", ".join(f"{name} {value:+.2f}" for name, value in ahead.items()) + ".",
            partly=max(ahead.values()) > 0,
        ),
    ]
    shown = {
        "clients": f"{clients}; 100 in the paper's setting",
        "rounds": f"{LINKED}, clustering in each; {ROUNDS} in the paper's setting, α = .1",
        "participation": "as shown",
        "partition": "Dirichlet, β = .3",
    }
    notes = [
        "Attacks are the cloud provider's; the best of four that link is what counts against a mitigation. Without mitigation it "
        "sees rows in every round, with sketches only in those that cluster: here all do.",
        "Whoever clusters learns who is like whom: knowing no more than 5 lasting clusters of 50 links a tenth of them.",
        "'rows once' still shows one round's rows, and names can be put to them: with sketches in their place they cannot.",
        "Seconds are of models in the clear and of two machines: benchmarks/bench_fedcaprivacy.py has the cost under encryption.",
        "Points are on the clients' own distribution at the end of the paper's setting, where all take part and 'rows once' is run "
        "without its sums: the models are the same.",
    ]
    return made("linkage", "What the cloud provider can link", options, cells, claims, notes, **shown)


def linkage_told(options: Options) -> Reproduction:
    """How much of who is who a round's distances hold: linkage by a provider that is told where all other rows belong."""
    clients, names = (
        (20 if options.quick else 50),
        [name for name in MITIGATIONS if name not in ("rearrange", "rows once")],
    )
    cells: list[Cell] = []
    accuracy: dict[str, float] = {}
    for name in names:
        table = experiment(options, OURS, 0.3, rounds=TOLD, every=1, **MITIGATIONS[name])
        table |= {"clients": clients, "attacks": ["linkage_graph"], "evaluation": {"every": TOLD, "samples": 2000}}
        findings = [o.attack("linkage_graph") for o in options.run(table, options.count(3))]
        values = [f["details"]["told of all others"] for f in findings]
        accuracy[name] = float(np.mean(values))
        cells.append(cell(name, "linkage_graph", [f["value"] for f in findings]))
        cells.append(cell(name, "told of all others", values))
        cells.append(cell(name, "chance", [f["chance"] for f in findings]))
    half = [name for name in names if "sketch" in name and accuracy[name] < accuracy["none"] / 2]
    claims = [
        claim(
            "Sketches take more than half of it away, whatever the matching (ours).",
            len(half) == len(names) - 1,
            "; ".join(f"{name}: {value:.1%}" for name, value in accuracy.items()) + ".",
            partly=bool(half),
        )
    ]
    notes = [
        "Nobody is told this much in the protocol: it shows what there is to gain for better matchings and colluding participants."
    ]
    shown = {"clients": clients, "rounds": f"{TOLD}, clustering in each", "partition": "Dirichlet, β = .3"}
    return made("linkage_told", "What a round's distances hold", options, cells, claims, notes, **shown)
