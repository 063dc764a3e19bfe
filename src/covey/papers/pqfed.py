"""PQFed: Figs. 3 to 6 (`pqfed_figures.py`) and Tables II to VIII, each by `covey reproduce pqfed --table NAME`.

We do not know the paper's learning rate nor its network's layers: ours stand in `settings`. The target is tested on all test
samples of its feature clusters, a few thousand, not on 300 or 1,200.
Table III is the set-up of IV and V: experiment 6 + i trains the target with clients of dissimilarity 0, 0.1, …, i/10.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from covey.data.feature_clusters import FeatureClusters
from covey.data.sources import load
from covey.papers import pqfed_figures as figures
from covey.papers.harness import Cell, Claim, Options, Outcome, Reproduction, Table, cell, claim

TITLE = "PQFed: a privacy-preserving quality-controlled federated learning framework"
RATES = figures.RATES
UNDER: dict[str, dict[str, Any]] = {
    "FedAvg": {"name": "fedavg"},
    "FedProx": {"name": "fedprox", "mu": 0.1},
    "FedDyn": {"name": "feddyn", "alpha": 0.1},
}
TRAINING: dict[str, dict[str, Any]] = {
    "cifar10": {"rounds": 20, "epochs": 1, "batch_size": 32, "lr": 0.01, "momentum": 0.9},
    "mnist": {"rounds": 20, "epochs": 1, "batch_size": 16, "lr": 0.01, "momentum": 0.9},
}
QUICK: dict[str, Any] = {"rounds": 10, "lr": 0.02}
MODEL = "cnn5"
T975 = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 6: 2.447, 7: 2.365, 8: 2.306, 9: 2.262}
SETUPS: dict[str, tuple[float, ...]] = {  # dissimilarity of the clients beside the target
    "1: alone": (0.0,),
    "2: 4 similar": (0.0,) * 4,
    "3: 4 dissimilar": (1.0,) * 4,
    "4: 4 similar, 5 dissimilar": (0.0,) * 4 + (1.0,) * 5,
    "5: 4 similar, 15 dissimilar": (0.0,) * 4 + (1.0,) * 15,
}
TABLE2 = {
    "cifar10": (0.4667, 0.7233, 0.5167, 0.6300, 0.6023),
    "mnist": (0.9544, 0.9856, 0.9600, 0.9842, 0.9806),
}
TABLE45 = {
    "cifar10": {
        "FedAvg": (56.00, 59.67, 61.00, 60.67, 62.33, 61.00, 61.00, 61.00, 59.67, 59.00, 59.67),
        "FedProx": (57.00, 59.67, 60.00, 61.33, 62.33, 62.33, 64.00, 61.67, 60.33, 60.33, 59.67),
        "FedDyn": (52.67, 52.67, 54.33, 56.00, 56.00, 56.67, 56.33, 54.33, 55.67, 53.33, 54.33),
    },
    "mnist": {
        "FedAvg": (97.19, 97.73, 98.08, 98.35, 98.56, 98.40, 98.71, 98.60, 98.46, 98.40, 98.44),
        "FedProx": (96.73, 97.83, 97.94, 98.40, 98.23, 98.44, 98.69, 98.67, 98.52, 98.67, 98.42),
        "FedDyn": (96.10, 96.15, 96.46, 96.71, 96.33, 96.79, 97.00, 96.83, 96.94, 96.79, 96.42),
    },
}
TABLE78 = {
    "cifar10": {
        "FedAvg": (54.00, 62.00, 65.67, 68.00, 68.67, 70.33, 69.67, 70.00, 68.33, 66.33, 66.67),
        "FedProx": (55.00, 62.33, 67.33, 67.67, 71.00, 71.67, 72.00, 69.00, 71.67, 70.00, 68.67),
        "FedDyn": (48.00, 57.67, 60.33, 60.33, 58.67, 59.00, 59.00, 55.67, 57.33, 57.00, 57.00),
    },
    "mnist": {
        "FedAvg": (96.85, 97.50, 97.88, 98.02, 98.08, 98.08, 98.27, 98.31, 98.31, 98.33, 98.21),
        "FedProx": (96.96, 97.83, 97.88, 98.15, 98.40, 98.25, 98.46, 98.40, 98.46, 98.40, 98.31),
        "FedDyn": (96.56, 95.23, 94.56, 93.08, 92.85, 92.63, 91.19, 91.90, 92.08, 91.23, 91.42),
    },
}


def experiment(options: Options, rates: Sequence[float], algorithm: Any, **more: Any) -> dict[str, Any]:
    """The target and clients of these dissimilarities under an algorithm; a quick run trains half the rows on a small network."""
    training = TRAINING[options.dataset] | (QUICK if options.quick else {})
    partition: dict[str, Any] = {"name": "feature_clusters", "rates": list(rates)}
    if options.quick:
        partition["rows"] = 200
    return {
        "dataset": options.dataset,
        "model": "fcnn" if options.quick else MODEL,
        "algorithm": algorithm,
        "clients": 1 + len(rates),
        "clusters": 1,
        "partition": partition,
        "start": {"pretrain_epochs": 0},
        "training": training | more.pop("training", {}),
        "evaluation": {"every": 1000},
    } | more


def targets(outcomes: Sequence[Outcome]) -> list[float]:
    return [o.accuracy(metric="target") for o in outcomes]


def table2(options: Options) -> Reproduction:
    """Experiments 1 to 5: the target alone, with similar, with dissimilar and with mixed clients."""
    seeds = options.count(5)
    chosen = {k: v for k, v in SETUPS.items() if not options.quick or k[0] in "123"}
    found: dict[str, list[float]] = {}
    cells: list[Cell] = []
    for (name, rates), printed in zip(chosen.items(), TABLE2[options.dataset]):
        algorithm = "local" if name.startswith("1") else "fedavg"
        found[name[0]] = targets(options.run(experiment(options, rates, algorithm), seeds))
        cells.append(cell(name, "accuracy", found[name[0]], printed))
    claims = [
        _above("Similar clients help: 2 above 1 by at least 3 points.", found["2"], found["1"], 0.03),
        _above(
            "Similar clients help more than dissimilar ones: 2 above 3 by at least 3 points.",
            found["2"],
            found["3"],
            0.03,
        ),
        _above("Dissimilar clients still help: 3 above 1.", found["3"], found["1"]),
    ]
    if not options.quick:
        claims += [
            _above("Dissimilar clients beside similar ones harm: 2 above 4.", found["2"], found["4"]),
            _above("More of them harm more: 4 above 5.", found["4"], found["5"]),
        ]
    notes = [_subset(options.dataset)]
    if not options.quick:
        made = FeatureClusters(rates=SETUPS["5: 4 similar, 15 dissimilar"]).make(load(options.dataset), 20, 1, 0)
        notes.append(
            f"Experiment 5 asks for more rows of the outside cluster than there are: {made.notes['overlap']:,} rows are held by "
            "several clients (seed 0)."
        )
    return _table(
        options, "table2", "The target's accuracy with similar and dissimilar clients", seeds, cells, claims, notes
    )


def table4(options: Options) -> Reproduction:
    """Experiments 6 to 16: one more client, a tenth more dissimilar, at a time (Table IV: CIFAR-10, V: MNIST)."""
    seeds = options.count(3)
    counts = (1, 4, 11) if options.quick else range(1, 12)
    cells: list[Cell] = []
    claims: list[Claim] = []
    for name, under in list(UNDER.items())[: 1 if options.quick else 3]:
        found: dict[int, list[float]] = {}
        for n in counts:
            found[5 + n] = targets(options.run(experiment(options, RATES[:n], under), seeds))
            printed = TABLE45[options.dataset][name][n - 1] / 100
            cells.append(cell(f"{5 + n}: r = 0 … {RATES[n - 1]:.1f}", name, found[5 + n], printed))
        claims += _rises_and_falls(name, found)
    note = "Best is picked after the fact among eleven: its advantage over 16 is overestimated by that choice."
    title = "The target's accuracy as more dissimilar clients join"
    return _table(options, "table4", title, seeds, cells, claims, [note, _subset(options.dataset)])


def table6(options: Options) -> Reproduction:
    """PQFed (strict, lenient, incremental) against IFCA with the same twelve clients: accuracy, bytes, passes over samples."""
    seeds = options.count(3)
    selecting = {"name": "pqfed", "epsilon": 10.0, "sensitivity": "data"}
    rounds = (TRAINING[options.dataset] | (QUICK if options.quick else {}))["rounds"]
    one_more = {"training": {"rounds": rounds + 1}}
    runs: dict[str, list[Outcome]] = {}
    for strategy in ("strict", "lenient"):
        table = experiment(options, RATES, selecting | {"strategy": strategy}, **one_more)
        runs[f"PQFed, {strategy}"] = options.run(table, seeds)
    if not options.quick:
        runs["PQFed, incremental"] = _incremental(options, "FedAvg", seeds)
    four = experiment(options, RATES, "ifca", clusters=4)
    four["start"] = {"common": False, "pretrain_epochs": 0}
    runs["IFCA, 4 models"] = options.run(four, seeds)
    runs["FedAvg, all clients"] = options.run(experiment(options, RATES, "fedavg"), seeds)
    printed = {"cifar10": ((0.6067, 0.6233), 0.6167), "mnist": ((0.9835, 0.9871), 0.9754)}[options.dataset]
    paper = {"PQFed, strict": printed[0][0], "PQFed, lenient": printed[0][1], "IFCA, 4 models": printed[1]}
    cells: list[Cell] = []
    for name, outcomes in runs.items():
        models = 4 if name.startswith("IFCA") else 0
        clients = [np.mean([r["participants"] for r in o.records if r["participants"]]) for o in outcomes]
        cells += [
            cell(name, "accuracy", targets(outcomes), paper.get(name)),
            cell(name, "clients a round", [float(c) for c in clients], unit=""),
            cell(name, "MB in all", [megabytes(o) for o in outcomes], unit="MB"),
            cell(name, "passes over clients' data", [passes(o, models) for o in outcomes], unit=""),
        ]
    ifca, strict, lenient = (runs[k] for k in ("IFCA, 4 models", "PQFed, strict", "PQFed, lenient"))
    cost = [megabytes(a) / megabytes(b) for a, b in zip(ifca, lenient)]
    claims = [
        _above("PQFed, strict, is at least as good as IFCA (less 1 point).", targets(strict), targets(ifca), -0.01),
        _above("PQFed, lenient, is at least as good as IFCA (less 1 point).", targets(lenient), targets(ifca), -0.01),
        claim(
            "PQFed needs less communication and computation than IFCA.",
            min(cost) > 1,
            f"IFCA moves {np.mean(cost):.1f} times the bytes of PQFed, lenient, its selection included.",
        ),
    ]
    notes = [
        "IFCA serves all twelve clients, PQFed the target alone: per client served IFCA is the cheaper.",
        "A training pass counts three forward passes; IFCA's choice adds four.",
    ]
    return _table(options, "table6", "PQFed against IFCA", seeds, cells, claims, notes)


def table7(options: Options) -> Reproduction:
    """The incremental strategy step by step, and the model it keeps (Table VII: CIFAR-10, VIII: MNIST)."""
    seeds = options.count(3)
    cells: list[Cell] = []
    claims: list[Claim] = []
    for name in list(UNDER)[: 1 if options.quick else 3]:
        outcomes = _incremental(options, name, seeds)
        curves = [list(o.curve("target").values()) for o in outcomes]
        printed = dict(zip(RATES, TABLE78[options.dataset][name]))
        for step, r in enumerate(_steps(options)):
            cells.append(cell(f"{step + 1}: r = {r:.1f}", name, [c[step] for c in curves], printed[r] / 100))
        kept = targets(outcomes)
        cells.append(cell("kept at the first drop", name, kept))
        everyone = targets(options.run(experiment(options, _steps(options), UNDER[name]), seeds))
        cells.append(cell("16: everybody at once", name, everyone))
        text = f"{name}: the model kept by the incremental strategy beats training with everybody (experiment 16)."
        claims.append(_above(text, kept, everyone))
    notes = [
        "Steps are tested after each step, for the table only; the stop is decided on a fifth of the target's own training "
        "samples, so the target trains on 960. The paper decides on the test set.",
        "Steps go by measured distance; r is what a row has if noise swapped nobody.",
        "Each step is a whole run of rounds: the strategy trains up to eleven times as long as experiment 16.",
    ]
    return _table(options, "table7", "Incremental strategy", seeds, cells, claims, notes)


def _steps(options: Options) -> tuple[float, ...]:
    return RATES[::5] if options.quick else RATES


def _incremental(options: Options, name: str, seeds: int) -> list[Outcome]:
    """One evaluation after each step, of the model under trial, and one at the end, of the model that was kept."""
    steps = (TRAINING[options.dataset] | (QUICK if options.quick else {}))["rounds"]
    rates = _steps(options)
    algorithm = {
        "name": "pqfed",
        "under": UNDER[name],
        "strategy": "incremental",
        "step_rounds": steps,
        "stop": False,
        "epsilon": 10.0,
        "sensitivity": "data",
    }
    rounds = {"rounds": 1 + len(rates) * (steps + 1)}
    table = experiment(options, rates, algorithm, training=rounds)
    table["evaluation"] = table["evaluation"] | {"every": steps + 1}
    return options.run(table, seeds)


def megabytes(outcome: Outcome) -> float:
    """Sent and received by all clients over all rounds."""
    return float(sum((r["bytes"]["up"] + r["bytes"]["down"]) * r["participants"] for r in outcome.records)) / 1e6


def passes(outcome: Outcome, models: int) -> float:
    """Forward passes over a client's samples, in all: 3 for each training pass, 1 for each model tried."""
    selection = 1 if outcome.result["algorithm"] == "pqfed" else 0  # features cost less than any pass of a network
    return float(sum(r["participants"] for r in outcome.records[selection:]) * (3 + models))


def _rises_and_falls(name: str, found: Mapping[int, list[float]]) -> list[Claim]:
    best, last = max(found, key=lambda e: float(np.mean(found[e]))), max(found)
    made = []
    for text, other in (("similar clients help", 6), ("too many dissimilar clients harm", last)):
        text = f"{name}: {text} (best above {other})."
        if best == other:
            made.append(claim(text, False, f"Experiment {other} is itself the best."))
        else:
            compared = _above(text, found[best], found[other])
            made.append(Claim(text, compared.verdict, f"Best is experiment {best}: {compared.why}"))
    return made


def _above(text: str, high: Sequence[float], low: Sequence[float], by: float = 0.0) -> Claim:
    """Paired over seeds: holds where the whole 95 % interval of the difference is above `by`, fails where all is below."""
    gaps = np.array(high) - np.array(low)
    mean = float(gaps.mean())
    if len(gaps) < 2:
        return claim(text, None, f"{100 * mean:+.2f} points in one run: no interval.")
    half = T975.get(len(gaps) - 1, 1.96) * float(gaps.std(ddof=1)) / len(gaps) ** 0.5
    undecided = mean - half < by <= mean + half
    why = f"{100 * mean:+.2f} ± {100 * half:.2f} points (95 %, {len(gaps)} seeds, paired)"
    return claim(text, mean - half >= by, why + (": undecided." if undecided else "."), partly=undecided)


def _subset(dataset: str) -> str:
    data = load(dataset)
    return data.note or f"{len(data.y_train):,} training and {len(data.y_test):,} test samples."


def _table(
    options: Options,
    table: str,
    title: str,
    seeds: int,
    cells: list[Cell],
    claims: list[Claim],
    notes: list[str],
) -> Reproduction:
    settings = {"seeds": seeds, "model": "fcnn" if options.quick else MODEL} | TRAINING[options.dataset]
    if options.quick:
        settings |= QUICK | {"cut": "200 rows of each cluster instead of 400, fewer experiments"}
    return Reproduction("pqfed", table, title, options.dataset, settings, cells, claims, notes)


_BOTH = ("cifar10", "mnist")
TABLES = {
    "fig3": Table(figures.fig3, ("mnist", "cifar10")),
    "fig4": Table(figures.fig4, ("mnist", "cifar10")),
    "fig5": Table(figures.fig5, ("mnist", "cifar10")),
    "fig6": Table(figures.fig6, ("mnist", "cifar10")),
    "table2": Table(table2, _BOTH),
    "table4": Table(table4, _BOTH),
    "table6": Table(table6, _BOTH),
    "table7": Table(table7, _BOTH),
}
