"""FedCAPrivacy's Figs. 2, 3 and 5, the worth of aligned memberships, and linkage with and without mitigation."""

from __future__ import annotations

from typing import Any

import numpy as np

from covey.papers.fedcaprivacy_settings import (
    OPEN_NOTE,
    READING_NOTE,
    READINGS,
    ROUNDS,
    clusterings,
    experiment,
    mean,
    noted,
    settings,
)
from covey.papers.harness import Cell, Claim, Options, Outcome, Reproduction, cell, claim

OURS = "fedcaprivacy"
LINKING = ("naming", "naming_histogram", "linkage", "linkage_profile", "linkage_graph", "linkage_blocks")
MITIGATIONS: dict[str, dict[str, Any]] = {
    "none": {},
    "rearrange": {"mitigation": "rearrange"},
    "sketch of 32": {"mitigation": "sketch", "buckets": 32},
    "sketch of 16": {"mitigation": "sketch", "buckets": 16},
    "sketch of 8": {"mitigation": "sketch", "buckets": 8},
    "sketch of 4": {"mitigation": "sketch", "buckets": 4},
    "sketch of 32, noise 2": {"mitigation": "sketch", "buckets": 32, "noise": 2.0},
    "sketch of 16, noise 1": {"mitigation": "sketch", "buckets": 16, "noise": 1.0},
}
LINKED = 10  # rounds in which rows are linked
PHASES = ("blind", "open", "cluster", "average", "unblind")  # of the two servers


def fig2(options: Options) -> Reproduction:
    """Clustering every 1, 10 and 50 rounds under Dir(.3)."""
    runs = {every: _one(options, every=every) for every in (1, 10, 50)}
    cells = [c for every, outcomes in runs.items() for c in _accuracies(f"every {every} rounds", outcomes)]
    claims = [
        claim(
            f"Clustering less often lowers the final accuracy ({word} test).",
            mean(runs[1], metric) > mean(runs[10], metric) > mean(runs[50], metric),
            ", ".join(f"every {e}: {mean(o, metric):.2%}" for e, o in runs.items()),
            partly=mean(runs[1], metric) > mean(runs[50], metric),
        )
        for word, metric in READINGS.items()
    ]
    return _made("fig2", "Accuracy by clustering frequency", options, cells, claims)


def fig3(options: Options) -> Reproduction:
    """The decay factor α: clusterings, their expectation, and accuracy, under Dir(.3), 200 rounds."""
    runs = {alpha: _one(options, rounds=200, alpha=alpha) for alpha in (0.0, 0.005, 0.01, 0.1)}
    rounds = max(runs[0.0][0].curve())
    cells: list[Cell] = []
    worst = 0.0
    for alpha, outcomes in runs.items():
        chances = np.array([1.0] + [1 / (1 + alpha * r) for r in range(2, rounds + 1)])
        counts = [float(clusterings(o)) for o in outcomes]
        error = float(np.sqrt((chances * (1 - chances)).sum() / len(counts)))
        worst = max(worst, abs(float(np.mean(counts)) - chances.sum()) / max(error, 1e-12) if error else 0.0)
        row = f"α = {alpha}"
        cells += [cell(row, "clusterings", counts, unit=""), cell(row, "expected", [float(chances.sum())], unit="")]
        cells.append(cell(row, "seconds of clustering", [o.seconds("cluster") * rounds for o in outcomes], unit="s"))
        cells += _accuracies(row, outcomes)
    saved = {alpha: rounds / float(np.mean([clusterings(o) for o in runs[alpha]])) for alpha in (0.005, 0.01, 0.1)}
    claims = [
        claim(
            "The number of clusterings follows Σ 1/(1 + αr).",
            worst < 3.0,
            f"At most {worst:.1f} standard errors from it, over {rounds} rounds.",
        ),
        claim(
            "Decay cuts clustering 1.28 to 7.14 times, most for α = .1.",
            saved[0.1] > 0.8 * 7.14 and saved[0.005] < 2,
            ", ".join(f"α = {a}: {s:.2f} times" for a, s in saved.items())
            + f", in {rounds} rounds; the paper's 'α = 1 is every round' is a slip for α = 0",
            partly=saved[0.1] > 1.5,
        ),
    ]
    for word, metric in READINGS.items():
        cost = 100 * (mean(runs[0.0], metric) - mean(runs[0.1], metric))
        claims.append(claim(f"α = .1 costs about one point ({word} test).", cost < 1.5, f"It costs {cost:.2f} points."))
    return _made("fig3", "Decaying clustering frequency", options, cells, claims, rounds=rounds)


def fig5(options: Options) -> Reproduction:
    """2, 5, 10, 20 and 30 clusters under Dir(.3)."""
    counts = (2, 5, 10) if options.quick else (2, 5, 10, 20, 30)
    runs = {k: _one(options, clusters=k) for k in counts}
    cells = [c for k, outcomes in runs.items() for c in _accuracies(f"{k} clusters", outcomes)]
    claims = []
    for word, metric in READINGS.items():
        found = {k: mean(o, metric) for k, o in runs.items()}
        best = max(found, key=lambda k: found[k])
        claims.append(
            claim(
                f"Accuracy rises, then falls with the number of clusters ({word} test).",
                best not in (counts[0], counts[-1]),
                ", ".join(f"{k}: {v:.2%}" for k, v in found.items()) + f"; best at {best}",
            )
        )
    return _made("fig5", "Accuracy by number of clusters", options, cells, claims)


def alignment(options: Options) -> Reproduction:
    """Old memberships that stay with their participants against those that a fresh shuffle scrambles, α = .1."""
    runs = {(b, how): _one(options, b, alignment=how) for b in (0.3, 0.1) for how in ("kept", "scrambled")}
    cells = [c for (b, how), outcomes in runs.items() for c in _accuracies(f"Dir({b}) {how}", outcomes)]
    claims = []
    for word, metric in READINGS.items():
        gains = {b: 100 * (mean(runs[b, "kept"], metric) - mean(runs[b, "scrambled"], metric)) for b in (0.3, 0.1)}
        claims.append(
            claim(
                f"Aligned memberships beat scrambled ones ({word} test; the paper says nothing of it).",
                min(gains.values()) > 0,
                ", ".join(f"Dir({b}): {g:+.2f} points" for b, g in gains.items()),
                partly=max(gains.values()) > 0,
            )
        )
    return _made("alignment", "Stale memberships under a fresh shuffle", options, cells, claims)


def linkage(options: Options) -> Reproduction:
    """What the cloud provider links and names, by mitigation, with what that costs; clustering in every round."""
    clients = 20 if options.quick else 50
    seeds = options.count(3)
    cells: list[Cell] = []
    found: dict[tuple[str, float], dict[str, float]] = {}
    accuracy: dict[str, float] = {}
    for name, fields in MITIGATIONS.items():
        for share in (1.0, 0.5):
            table = experiment(options, OURS, 0.3, rounds=LINKED, every=1, **fields)
            table |= {"clients": clients, "attacks": list(LINKING), "participation": {"slowest": 0.2, "share": share}}
            table["evaluation"] = {"every": LINKED, "samples": 2000}
            outcomes = options.run(table, seeds)
            row = f"{name}, {share:.0%} present"
            values = {a: [o.attack(a)["value"] for o in outcomes] for a in LINKING}
            found[name, share] = {a: float(np.mean(v)) for a, v in values.items()}
            cells += [cell(row, a, v) for a, v in values.items()]
            told = [o.attack("linkage_graph")["details"]["told of all others"] for o in outcomes]
            cells.append(cell(row, "linkage_graph, told of all others", told))
            cells.append(cell(row, "chance", [o.attack("linkage")["chance"] for o in outcomes]))
            cells += _accuracies(row, outcomes)
            cells.append(cell(row, "servers", [sum(o.seconds(p) for p in PHASES) for o in outcomes], unit="s a round"))
        row = f"{name}, paper's setting"
        outcomes = _one(options, **fields)
        cells += _accuracies(row, outcomes)
        cells.append(cell(row, "servers", [sum(o.seconds(p) for p in PHASES) for o in outcomes], unit="s a round"))
        accuracy[name] = mean(outcomes, "client_mean")
    best = {key: max(values[a] for a in LINKING if a.startswith("linkage")) for key, values in found.items()}
    cost = {name: 100 * (accuracy["none"] - accuracy[name]) for name in MITIGATIONS}
    sketches = [name for name in MITIGATIONS if "sketch" in name]
    bare = found["none", 1.0]
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
            f"By coordinates {found['rearrange', 1.0]['linkage']:.1%}, but by distances {best['rearrange', 1.0]:.1%}.",
            partly=found["rearrange", 1.0]["linkage"] < 3 / clients,
        ),
        claim(
            "Sketches of a few numbers bring linkage below one row in ten for two points of accuracy at most (ours).",
            any(best[name, 1.0] < 0.1 and cost[name] <= 2 for name in sketches),
            "; ".join(f"{name}: {best[name, 1.0]:.1%} for {cost[name]:.2f} points" for name in sketches)
            + "; negative: a gain.",
            partly=any(best[name, 1.0] < 0.1 for name in sketches),
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
        "Points are on the clients' own distribution at the end of the paper's setting.",
    ]
    return _made("linkage", "What the cloud provider can link", options, cells, claims, notes, **shown)


def _one(options: Options, beta: float = 0.3, rounds: int = ROUNDS, clusters: int = 5, **fields: Any) -> list[Outcome]:
    table = experiment(options, OURS, beta, rounds=rounds, **fields)
    return options.run({**table, "clusters": clusters}, options.count(3))


def _accuracies(row: str, outcomes: list[Outcome]) -> list[Cell]:
    cells = [
        cell(row, f"final, {word}", [o.accuracy(metric=metric) for o in outcomes]) for word, metric in READINGS.items()
    ]
    return [*cells, cell(row, "eigengap", noted(outcomes, "eigengap"), unit="")]


def _made(
    name: str,
    title: str,
    options: Options,
    cells: list[Cell],
    claims: list[Claim],
    notes: list[str] | None = None,
    **shown: Any,
) -> Reproduction:
    return Reproduction(
        paper=OURS,
        table=name,
        title=title,
        dataset=options.dataset,
        settings=settings(experiment(options, OURS, 0.3), **shown),
        cells=cells,
        claims=claims,
        notes=[*(notes or []), READING_NOTE, OPEN_NOTE],
    )
