"""FedCAPrivacy: Tables I and II, Figs. 2 to 5, and what the paper does not measure: alignment and linkage.

    covey reproduce fedcaprivacy --table table1 --dataset mnist

Tables I and II and Fig. 4 share their runs, and `beta08`, `beta03`, `beta01` run a third of them each.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from covey.papers.fedcaprivacy import ablations, linkage
from covey.papers.fedcaprivacy.settings import (
    LR,
    OPEN_NOTE,
    PAPER_FINAL,
    PAPER_ROUNDS,
    READING_NOTE,
    READINGS,
    RIVALS,
    TARGETS,
    experiment,
    mean,
    noted,
    rounds_to,
    settings,
)
from covey.papers.harness import Cell, Claim, Options, Outcome, Reproduction, Table, cell, claim

TITLE = "FedCAPrivacy: anonymous adaptive clustering by two servers"
OURS = "fedcaprivacy"
Runs = dict[float, dict[str, list[Outcome]]]  # β -> algorithm -> one outcome per seed


def table1(options: Options) -> Reproduction:
    """Rounds to 95 % (MNIST) or 85 % (Fashion-MNIST) under Dir(.8) and Dir(.3)."""
    return _compared(options, (0.8, 0.3), "Table I: rounds to the target accuracy")


def table1_sgd(options: Options) -> Reproduction:
    """Table I with plain SGD: the learning rate is the paper's, the momentum is not known."""
    return _compared(options, (0.8, 0.3), "Table I with plain SGD", momentum=0.0)


def table1_fast(options: Options) -> Reproduction:
    """Table I at three times the learning rate, at which FedAvg needs about as many rounds as in the paper."""
    return _compared(options, (0.8, 0.3), "Table I at three times the learning rate", lr=3 * LR)


def table2(options: Options) -> Reproduction:
    """Final accuracy under Dir(.8), Dir(.3) and Dir(.1)."""
    return _compared(options, (0.8, 0.3, 0.1), "Table II: final accuracy")


def beta08(options: Options) -> Reproduction:
    """The runs of Tables I and II under Dir(.8) alone."""
    return _compared(options, (0.8,), "All algorithms under Dir(.8)")


def beta03(options: Options) -> Reproduction:
    """The runs of Tables I and II under Dir(.3) alone."""
    return _compared(options, (0.3,), "All algorithms under Dir(.3)")


def beta01(options: Options) -> Reproduction:
    """The runs of Table II under Dir(.1) alone."""
    return _compared(options, (0.1,), "All algorithms under Dir(.1)")


def fig4(options: Options) -> Reproduction:
    """Accuracy over rounds under Dir(.8), Dir(.3) and Dir(.1), ours and FedAvg."""
    runs = _runs(options, (0.8, 0.3, 0.1), (OURS, "fedavg"))
    last = max(runs[0.8][OURS][0].curve())
    at = sorted({r for r in (1, 2, 5, 10, 20, 35, 50) if r <= last} | {last})
    cells = [
        cell(f"Dir({beta}) {name}, {word}", f"round {r}", [o.accuracy(r, metric) for o in outcomes])
        for beta, by_name in runs.items()
        for name, outcomes in by_name.items()
        for word, metric in READINGS.items()
        for r in at
    ]
    return Reproduction(
        paper=OURS,
        table="fig4",
        title="Accuracy over rounds by heterogeneity",
        dataset=options.dataset,
        settings=settings(experiment(options, OURS, 0.3)),
        cells=cells,
        claims=[_robustness(runs, word) for word in READINGS],
        notes=[READING_NOTE, OPEN_NOTE],
    )


def _compared(options: Options, betas: tuple[float, ...], title: str, **training: Any) -> Reproduction:
    """All algorithms at these β, both readings, rounds to the target and final accuracy; `training` is not the usual."""
    runs = _runs(options, betas, (OURS, *RIVALS, "local"), **training)
    target = TARGETS[options.dataset]
    cells: list[Cell] = []
    for beta, by_name in runs.items():
        for name, outcomes in by_name.items():
            row = f"Dir({beta}) {name}"
            rounds = PAPER_ROUNDS.get((options.dataset, beta), {}).get(name)
            final = PAPER_FINAL.get((options.dataset, beta), {}).get(name)
            for word, metric in READINGS.items():
                reached = [r for o in outcomes if (r := rounds_to(o, target, metric))]
                column = f"rounds to {target:.0%}, {word}"
                cells.append(cell(row, column, [float(r) for r in reached], rounds, unit="rounds"))
                cells.append(cell(row, f"never reached, {word}", [float(len(outcomes) - len(reached))], unit="runs"))
                cells.append(cell(row, f"final, {word}", [o.accuracy(metric=metric) for o in outcomes], final))
            if name == OURS:
                cells.append(cell(row, "median affinity", noted(outcomes, "affinity_quantiles", 2), unit=""))
                cells.append(cell(row, "eigengap", noted(outcomes, "eigengap"), unit=""))
    claims = [c for word in READINGS for c in _claims(runs, word, target)]
    if {0.8, 0.1} <= set(betas):
        claims += [_robustness(runs, word) for word in READINGS]
    return Reproduction(
        paper=OURS,
        table="",
        title=title,
        dataset=options.dataset,
        settings=settings(experiment(options, OURS, betas[0], **training), seeds=len(runs[betas[0]][OURS])),
        cells=cells,
        claims=claims,
        notes=[READING_NOTE, OPEN_NOTE, "Rounds are means over the runs that reached the target."],
    )


def _runs(options: Options, betas: tuple[float, ...], names: tuple[str, ...], **training: Any) -> Runs:
    seeds = options.count(3)
    return {
        beta: {name: options.run(experiment(options, name, beta, **training), seeds) for name in names}
        for beta in betas
    }


def _claims(runs: Runs, word: str, target: float) -> list[Claim]:
    metric = READINGS[word]
    limit = 1 + max(max(o.curve()) for by_name in runs.values() for o in by_name[OURS])
    needed = {
        beta: {
            name: float(np.mean([rounds_to(o, target, metric) or limit for o in outcomes]))
            for name, outcomes in by_name.items()
        }
        for beta, by_name in runs.items()
    }
    reached = any(
        n[name] < limit for n in needed.values() for name in (OURS, *RIVALS)
    )  # else there is nothing to compare
    first = [beta for beta, n in needed.items() if n[OURS] < limit and all(n[OURS] < n[name] for name in RIVALS)]
    ratios = {b: n["fedavg"] / n[OURS] for b, n in needed.items() if min(n["fedavg"], n[OURS]) < limit}
    ahead = {beta: mean(by[OURS], metric) - mean(by["fedavg"], metric) for beta, by in runs.items()}
    alone = {beta: mean(by[OURS], metric) - mean(by["local"], metric) for beta, by in runs.items()}
    best = {beta: max(by, key=lambda name: mean(by[name], metric)) for beta, by in runs.items()}

    def by_beta(values: dict[float, float], form: str) -> str:
        return ", ".join(f"Dir({beta}) {format(value, form)}" for beta, value in values.items())

    listed = "; ".join(f"Dir({b}): " + ", ".join(f"{a} {r:.1f}" for a, r in n.items()) for b, n in needed.items())
    return [
        claim(
            f"FedCAPrivacy reaches the target in fewer rounds than every rival ({word} test).",
            len(first) == len(runs) if reached else None,
            f"Mean rounds to {target:.0%}, a run that never got there counted as {limit}: {listed}.",
            partly=bool(first),
        ),
        claim(
            f"FedAvg needs about twice as many rounds ({word} test).",
            min(ratios.values()) >= 1.5 if ratios else None,
            f"FedAvg's rounds over ours, where either got there: {by_beta(ratios, '.2f') or 'nowhere'}.",
            partly=any(ratio >= 1.25 for ratio in ratios.values()),
        ),
        claim(
            f"FedCAPrivacy ends above FedAvg ({word} test).",
            min(ahead.values()) > 0,
            f"Points ahead: {by_beta({b: 100 * v for b, v in ahead.items()}, '+.2f')}.",
            partly=max(ahead.values()) > 0,
        ),
        claim(
            f"Federation is worth it: ours ends above training alone ({word} test; not a claim of the paper).",
            min(alone.values()) > 0,
            f"Points ahead of local only: {by_beta({b: 100 * v for b, v in alone.items()}, '+.2f')}; best of all: "
            + ", ".join(f"Dir({b}) {name}" for b, name in best.items())
            + ".",
            partly=max(alone.values()) > 0,
        ),
    ]


def _robustness(runs: Runs, word: str) -> Claim:
    metric = READINGS[word]
    lost = {name: mean(runs[0.8][name], metric) - mean(runs[0.1][name], metric) for name in (OURS, "fedavg")}
    return claim(
        f"Stronger heterogeneity costs FedCAPrivacy less than FedAvg ({word} test).",
        lost[OURS] < lost["fedavg"],
        f"Points lost from Dir(.8) to Dir(.1): ours {100 * lost[OURS]:.2f}, FedAvg {100 * lost['fedavg']:.2f}.",
    )


_BOTH = ("mnist", "fashion_mnist")
TABLES = {
    "table1": Table(table1, _BOTH),
    "table1_fast": Table(table1_fast, _BOTH),
    "table1_sgd": Table(table1_sgd, _BOTH),
    "table2": Table(table2, _BOTH),
    "beta08": Table(beta08, _BOTH),
    "beta03": Table(beta03, _BOTH),
    "beta01": Table(beta01, _BOTH),
    "fig2": Table(ablations.fig2, ("fashion_mnist", "mnist")),
    "fig3": Table(ablations.fig3, ("fashion_mnist", "mnist")),
    "fig4": Table(fig4, _BOTH),
    "fig5": Table(ablations.fig5, ("fashion_mnist", "mnist")),
    "alignment": Table(ablations.alignment, _BOTH),
    "linkage": Table(linkage.linkage, _BOTH),
    "linkage_told": Table(linkage.linkage_told, _BOTH),
}
