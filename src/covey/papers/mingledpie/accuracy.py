"""MingledPie's accuracy: Tables III, V, VI, VII, VIII and Figs. 4 to 9."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from covey.data.sources.load import load
from covey.experiment.experiment import Experiment
from covey.papers.cells import Cell, cell
from covey.papers.harness import Options, Reproduction
from covey.papers.mingledpie.claims import FROM, GAP, RANDOM
from covey.papers.mingledpie.settings import NAMES, READING, base, described, fewer_samples, remarks, with_
from covey.papers.outcome import Ended, Outcome, figures, finished, said

METHODS = {
    "MingledPie": "mingledpie",
    "IFCA": "ifca",
    "FedProx": "fedprox",
    "FedAvg": "fedavg",
    "FedEM (Marfoq)": "fedem",
}
FEDEM = (
    "The paper's FedEM is the federated EM of Dieuleveut et al. (NeurIPS 2021), as it says with one generalised global model. That "
    "is an algorithm for latent-variable models with a closed-form M-step; how a network was trained by it the paper does not say, "
    "so it cannot be rebuilt. Marfoq et al.'s FedEM (NeurIPS 2021), a mixture of models for each client, is another of that name."
)
TABLE3 = {  # dataset -> method -> (homogeneous, heterogeneous)
    "mnist": {"MingledPie": (97.51, 95.81), "IFCA": (97.49, 95.86), "FedProx": (81.11, 81.11), "FedEM": (87.14, 87.14)},
    "fashion_mnist": {
        "MingledPie": (98.14, 96.14),
        "IFCA": (98.49, 96.15),
        "FedProx": (67.53, 67.53),
        "FedEM": (79.33, 79.33),
    },
    "cifar10": {"MingledPie": (94.76, 87.30), "IFCA": (95.27, 90.62), "FedProx": (61.11, 61.11), "FedEM": (83.1, 83.1)},
    "cifar100": {
        "MingledPie": (59.20, 55.64),
        "IFCA": (62.20, 60.92),
        "FedProx": (48.22, 48.22),
        "FedEM": (50.55, 50.55),
    },
}
TABLE5 = {  # dataset -> test accuracy of ①, ① + ②, ① + ② + ③, ① + ② + ④
    "mnist": (97.47, 52.13, 37.94, 97.46),
    "fashion_mnist": (98.49, 65.82, 70.16, 98.18),
    "cifar10": (95.27, 66.11, 51.45, 94.13),
}
TABLE6 = {
    "ResNet": ("resnet18", (61.30, 64.60, 63.75, 61.35, 65.20, 63.24)),
    "CNN": ("cnn", (36.45, 45.05, 41.45, 44.80, 45.10, 42.57)),
}
PLACED = "clients in the right cluster"
TABLE7 = {0.0: (98.14, 98.49), 0.2: (83.98, 88.52), 0.4: (76.77, 82.46), 0.6: (72.29, 77.71)}  # MingledPie, IFCA
SHOWN = (1, 2, 5, 10, 20, 30, 50, 100, 150, 200, 240, 300)  # rounds of curves
TABLE8 = {  # IID rate -> accuracy in training, in testing
    0.0: (97.35, 97.47),
    0.2: (88.92, 97.40),
    0.4: (80.54, 97.37),
    0.6: (72.14, 97.22),
}
FIG_DIFFERENCES = {  # figure -> dataset -> |difference| (homogeneous, heterogeneous), where the text prints it
    "fig6": {"mnist": (0.07, 0.04), "cifar10": (0.13, 0.53)},
    "fig7": {"mnist": (0.03, 0.06), "fashion_mnist": (0.01, 0.01), "cifar10": (0.13, 0.12)},
    "fig8": {"mnist": (0.06, 0.06), "fashion_mnist": (0.01, 0.01), "cifar10": (0.13, 0.12)},
}
FIG_ACCURACIES = {("fig5", "mnist"): (97.51, 99.40)}  # homogeneous, before and after, where the text prints them
FIG_NOTES = {
    "fig5": "The paper changes the learning rate where there are ten clusters on MNIST and Fashion-MNIST, and lowers it over "
    "time; it does not say to what. Here it stays."
}


def table3(options: Options) -> Reproduction:
    """Average cluster accuracy of MingledPie, IFCA and single-model baselines, homogeneous and heterogeneous."""
    seeds, dataset = options.count(3), options.dataset
    cells: list[Cell] = []
    runs: dict[tuple[str, str], list[Ended]] = {}
    lost: list[str] = []
    for n, split in enumerate(("Homogeneous", "Heterogeneous")):
        if options.quick and n:
            continue
        for method, name in METHODS.items():
            table = with_(base(dataset, options, heterogeneous=bool(n)), algorithm=name)
            runs[method, split] = options.tried(table, seeds)
            lost += said(f"{method}, {split.lower()},", runs[method, split])
            printed = TABLE3.get(dataset, {}).get(method)
            cells.append(_accuracy(method, split, runs[method, split], printed[n] if printed else None))
        theirs = TABLE3.get(dataset, {}).get("FedEM")
        cells.append(cell("FedEM (Dieuleveut), not to be rebuilt", split, [], theirs[n] / 100 if theirs else None))
        cells.append(cell(GAP, split, _largest_gaps(runs["MingledPie", split], runs["IFCA", split])))
        for method in (
            "MingledPie",
            "IFCA",
        ):  # the paper's pre-training shows each model public rows of its true cluster
            blind = {"common": False, "pretrain_epochs": 0}
            table = with_(base(dataset, options, heterogeneous=bool(n)), algorithm=METHODS[method], start=blind)
            ended = options.tried(table, seeds)
            lost += said(f"{method}{RANDOM}, {split.lower()},", ended)
            cells.append(_accuracy(method + RANDOM, split, ended))
    return Reproduction(
        paper="mingledpie",
        table="table3",
        title=f"Average cluster accuracy on {NAMES[dataset]}",
        dataset=dataset,
        settings=described(base(dataset, options), seeds),
        cells=cells,
        notes=[*lost, *remarks(dataset), FEDEM],
    )


def fig4(options: Options) -> Reproduction:
    """Convergence of MingledPie, IFCA, FedProx and FedEM in the homogeneous setting; shares its runs with table3."""
    seeds, dataset = options.count(3), options.dataset
    methods = {m: n for m, n in METHODS.items() if m != "FedAvg"}
    runs = {m: options.tried(with_(base(dataset, options), algorithm=n), seeds) for m, n in methods.items()}
    rounds = _evaluated(runs)
    shown = [r for r in rounds if r in SHOWN or r == rounds[-1]]
    cells = [
        cell(f"round {r}", m, figures(ended, partial(Outcome.accuracy, round=r)))
        for r in shown
        for m, ended in runs.items()
    ]
    settings = described(base(dataset, options), seeds)
    title = f"Convergence on {NAMES[dataset]}"
    return Reproduction("mingledpie", "fig4", title, dataset, settings, cells, notes=[*_lost(runs), *remarks(dataset)])


def fig9(options: Options) -> Reproduction:
    """Accuracy of each cluster's model over rounds, MingledPie and IFCA, homogeneous; shares its runs with table3."""
    seeds, dataset = options.count(3), options.dataset
    runs = {
        m: options.tried(with_(base(dataset, options), algorithm=METHODS[m]), seeds) for m in ("MingledPie", "IFCA")
    }
    options.alone()
    rounds, tested = _evaluated(runs), _tested(base(dataset, options))
    shown = [r for r in rounds if r in SHOWN or r == rounds[-1]]
    cells = [
        cell(f"round {r}", f"{m}, cluster {j}", figures(ended, partial(_of_cluster, r, j)), trials=trials)
        for r in shown
        for m, ended in runs.items()
        for j, trials in enumerate(tested)
    ]
    title = f"Accuracy of each cluster on {NAMES[dataset]}"
    settings = described(base(dataset, options), seeds)
    return Reproduction("mingledpie", "fig9", title, dataset, settings, cells, notes=[*_lost(runs), *remarks(dataset)])


def _evaluated(runs: Mapping[str, Sequence[Ended]]) -> list[int]:
    """The rounds that figures are of, in whatever run finished."""
    return sorted({r for ended in runs.values() for outcome in finished(ended) for r in outcome.curve()})


def _lost(runs: Mapping[str, Sequence[Ended]]) -> list[str]:
    return [words for row, ended in runs.items() for words in said(row, ended)]


def _tested(table: Mapping[str, Any]) -> list[int]:
    """How many test samples each cluster has; sets of labels are the same for every seed."""
    one = Experiment.of(table)
    federation = one.partition.make(load(str(table["dataset"])), one.clients, one.clusters, 0)
    held = federation.distributions > 0  # [clients, labels]
    rows = np.bincount(federation.test_groups, minlength=held.shape[1])
    return [int(rows[held[np.asarray(federation.clusters) == j].any(0)].sum()) for j in range(one.clusters)]


def _of_cluster(round: int, cluster: int, outcome: Outcome) -> float:
    evaluated = {r["round"]: r["accuracy"]["per_cluster"] for r in outcome.records if r["accuracy"]}
    return float(evaluated[round][cluster])


def table5(options: Options) -> Reproduction:
    """Ablation: clustering alone, mingled without rebuilding, rebuilt with the ideal matrix, rebuilt with counts."""
    seeds, dataset = options.count(3), options.dataset
    start = base(dataset, options)
    rows: dict[str, Any] = {
        "① clustering": "ifca",
        "① + ② mingled": {"name": "mingledpie", "rebuild": "none"},
        "① + ② + ③ ideal matrix": {"name": "mingledpie", "rebuild": "ideal"},
        "① + ② + ④ counts": {"name": "mingledpie", "rebuild": "counts"},
    }
    runs = {row: options.tried(with_(start, algorithm=algorithm), seeds) for row, algorithm in rows.items()}
    printed = TABLE5.get(dataset, (None,) * 4)
    early = min(30, start["training"]["rounds"])
    cells = [_accuracy(row, "at the end", outcomes, p) for (row, outcomes), p in zip(runs.items(), printed)]
    at_early = partial(Outcome.accuracy, round=early)
    cells += [cell(row, f"at round {early}", figures(ended, at_early)) for row, ended in runs.items()]
    settings = described(start, seeds)
    notes = [
        *_lost(runs),
        *remarks(dataset),
        "The paper's training accuracies are not measured here: its test accuracies follow them.",
    ]
    title = f"Ablation on {NAMES[dataset]}"
    return Reproduction("mingledpie", "table5", title, dataset, settings, cells, notes=notes)


def table6(options: Options) -> Reproduction:
    """Accuracy of each cluster's model on CIFAR-100, ResNet-18 against a CNN."""
    seeds, start = options.count(3), base("cifar100", options, quick_rounds=10)
    chosen = [model for model, _ in TABLE6.values() if not (options.quick and model == "resnet18")]
    runs = {model: options.run(with_(start, model=model), seeds) for model in chosen}
    options.alone()
    cells: list[Cell] = []
    for column, (model, printed) in TABLE6.items():
        if model not in runs:
            cells += [cell("average", column, [], printed[-1] / 100)]
            continue
        outcomes = runs[model]
        per_cluster = np.array([o.result["accuracy"]["per_cluster"] for o in outcomes])  # [seeds, k]
        for j in range(per_cluster.shape[1]):
            cells.append(cell(f"cluster {j}", column, per_cluster[:, j].tolist(), printed[j] / 100))
        cells.append(_accuracy("average", column, outcomes, printed[-1]))
        cells.append(cell(PLACED, column, [o.result["clustering"]["accuracy"] for o in outcomes]))
    settings = described(start, seeds) | {"model": ", ".join(m for m, _ in TABLE6.values())}
    notes = [
        *remarks("cifar100"),
        f"*{PLACED}*: in the last round. A cluster whose clients chose another's model is tested on that one.",
    ]
    return Reproduction(
        "mingledpie", "table6", "Accuracy per cluster by model", "cifar100", settings, cells, notes=notes
    )


def table7(options: Options) -> Reproduction:
    """Accuracy on a client's own mixture as a share of its samples comes from all labels."""
    seeds, dataset = options.count(3), options.dataset
    cells: list[Cell] = []
    lost: list[str] = []
    for rate, printed in TABLE7.items():
        table = with_(base(dataset, options), partition={"iid_rate": rate, "samples": 400})
        both = {m: options.tried(with_(table, algorithm=METHODS[m]), seeds) for m in ("MingledPie", "IFCA")}
        lost += [words for m, ended in both.items() for words in said(f"{m} at an IID rate of {rate:.0%}", ended)]
        shown = printed if dataset == "fashion_mnist" else (None, None)
        cells += [_accuracy(f"IID rate {rate:.0%}", m, outcomes, p) for (m, outcomes), p in zip(both.items(), shown)]
    settings = described(base(dataset, options), seeds) | {"samples per client": 400}
    notes = [
        *lost,
        *remarks(dataset),
        "Test data is drawn like a client's mixture. The paper's row at 0 % is its Fashion MNIST figure.",
    ]
    title = f"IID rate, on {NAMES[dataset]}"
    return Reproduction("mingledpie", "table7", title, dataset, settings, cells, notes=notes)


def table8(options: Options) -> Reproduction:
    """Ten clients join every ten rounds."""
    seeds, dataset = options.count(3), options.dataset
    start = base(dataset, options)
    rounds = start["training"]["rounds"]
    most = 120 + 10 * ((rounds - 1) // 10)
    cells: list[Cell] = []
    lost: list[str] = []
    for rate, printed in TABLE8.items():
        table = with_(
            start,
            clients=most,
            partition={"iid_rate": rate, "iid_from": 120, "test_on_sets": True, "samples": 220, "in_turn": True},
            participation={"initial": 120, "join": 10, "join_every": 10},
            evaluation={"training": True},
        )
        outcomes = options.tried(table, seeds)
        lost += said(f"IID rate {rate:.0%}", outcomes)
        trained, tested = printed if dataset == "mnist" else (None, None)
        cells.append(_accuracy(f"IID rate {rate:.0%}", "training accuracy", outcomes, trained, "training"))
        cells.append(_accuracy(f"IID rate {rate:.0%}", "test accuracy", outcomes, tested))
    settings = described(start, seeds) | {
        "samples per client": 220,
        "clients": f"120, then +10 every 10 rounds to {most}",
    }
    notes = [
        *lost,
        READING,
        "220 samples per client, since those of 210 clients are disjoint. Newcomers have the IID rate, the first 120 clients have "
        "their label set alone; models are tested on their label set. "
        "Training accuracy is the mean over all clients of the last models' accuracy on the samples that they hold.",
    ]
    title = f"Joining clients, on {NAMES[dataset]}"
    return Reproduction("mingledpie", "table8", title, dataset, settings, cells, notes=notes)


def influence(
    options: Options, figure: str, words: str, changed: dict[str, Any], uneven: dict[str, Any]
) -> Reproduction:
    """Figs. 5 to 8: one parameter changed, in the homogeneous and the heterogeneous setting."""
    seeds, dataset = options.count(3), options.dataset
    cells: list[Cell] = []
    lost: list[str] = []
    printed = FIG_DIFFERENCES.get(figure, {}).get(dataset)
    for n, (split, change) in enumerate((("Homogeneous", changed), ("Heterogeneous", uneven))):
        if options.quick and n:
            continue
        start = base(dataset, options, heterogeneous=bool(n))
        before, after = options.tried(start, seeds), options.tried(with_(start, **change), seeds)
        lost += [*said(f"{split}, default,", before), *said(f"{split}, {words},", after)]
        shifts = [_both(a, b, lambda a, b: 100 * abs(b.accuracy() - a.accuracy())) for a, b in zip(before, after)]
        shown = FIG_ACCURACIES.get((figure, dataset), (None, None)) if not n else (None, None)
        cells += [_accuracy(split, "default", before, shown[0]), _accuracy(split, words, after, shown[1])]
        cells.append(
            cell(split, "|difference|, points, mean over seeds", shifts, printed[n] if printed else None, unit="")
        )
    settings = described(base(dataset, options), seeds) | {
        "samples per client": _dealt(dataset, options, words, changed)
    }
    title = f"Influence of {words} on {NAMES[dataset]}"
    notes = [*lost, *([FIG_NOTES[figure]] if figure in FIG_NOTES else []), *remarks(dataset)]
    return Reproduction("mingledpie", figure, title, dataset, settings, cells, notes=notes)


def _dealt(dataset: str, options: Options, words: str, changed: dict[str, Any]) -> str:
    """Samples per client, which more clusters and more clients leave fewer of."""
    even, uneven = (base(dataset, options, heterogeneous=h)["partition"]["samples"] for h in (False, True))
    fewer = changed.get("partition", {}).get("samples")
    return f"{even}, heterogeneous {uneven}" + (f"; with {words} {fewer}" if fewer else "")


def fig5(options: Options) -> Reproduction:
    """More clusters: 5 to 10, heterogeneous 5 to 8."""
    fewer = {"partition": fewer_samples(options.dataset)}
    return influence(options, "fig5", "more clusters", {"clusters": 10, **fewer}, {"clusters": 8, **fewer})


def fig6(options: Options) -> Reproduction:
    """More clients: 120 to 240."""
    more = {"clients": 240, "partition": fewer_samples(options.dataset, 2)}
    return influence(options, "fig6", "240 clients", more, more)


def fig7(options: Options) -> Reproduction:
    """A lower false positive rate: .5 to .25."""
    lower = {"algorithm": {"name": "mingledpie", "rate": 0.25}}
    return influence(options, "fig7", "p = 0.25", lower, lower)


def fig8(options: Options) -> Reproduction:
    """A higher threshold: 2 to 3."""
    higher = {"algorithm": {"name": "mingledpie", "threshold": 3}}
    return influence(options, "fig8", "T = 3", higher, higher)


def _accuracy(
    row: str, column: str, ended: Sequence[Ended], printed: float | None = None, metric: str = "average_cluster"
) -> Cell:
    found = figures(ended, lambda outcome: outcome.accuracy(metric=metric))
    return cell(row, column, found, None if printed is None else printed / 100)


def _both(a: Ended, b: Ended, of: Callable[[Outcome, Outcome], float]) -> float | None:
    """Of two runs of one seed; None where one of them diverged."""
    return of(a, b) if isinstance(a, Outcome) and isinstance(b, Outcome) else None


def _largest_gaps(ours: Sequence[Ended], theirs: Sequence[Ended]) -> list[float | None]:
    """Seed by seed, over evaluated rounds from `FROM` on; over all of them if there are fewer."""

    def largest(a: Outcome, b: Outcome) -> float:
        gaps = {r: abs(v - b.curve()[r]) for r, v in a.curve().items()}
        return max([g for r, g in gaps.items() if r >= FROM] or gaps.values())

    return [_both(a, b, largest) for a, b in zip(ours, theirs)]
