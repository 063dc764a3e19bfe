"""FedCAPrivacy: Tables I and II, Figs. 2 to 5, and what the paper does not measure: alignment and linkage.

    covey reproduce fedcaprivacy --table table1 --dataset mnist

Tables I and II and Fig. 4 share their runs, and `beta08`, `beta03`, `beta01` run a third of them each.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from covey.papers.cells import Cell, cell
from covey.papers.extent import of_part
from covey.papers.fedcaprivacy import ablations, claims, linkage
from covey.papers.fedcaprivacy.claims import COUNTED, NEVER
from covey.papers.fedcaprivacy.settings import (
    DIRICHLET_NOTE,
    FAST_NOTE,
    LR,
    OF_PART,
    PAPER_FINAL,
    PAPER_ROUNDS,
    PLAIN_NOTE,
    RATES,
    READING_NOTE,
    READINGS,
    RIVALS,
    TARGETS,
    TUNED_NOTE,
    TUNING_ROUNDS,
    TUNING_SEEDS,
    UNSAID_NOTE,
    experiment,
    noted,
    open_notes,
    rounds_to,
    settings,
    tuned_rates,
    tuning_runs,
)
from covey.papers.harness import Options, Reproduction, Table
from covey.papers.outcome import Diverged, Ended, Outcome, figures, finished, said

COUNTED_NOTE = (
    "Rounds to the target are means over the runs that reached it; where rounds are counted, a run that never did has one more "
    "than it ran for."
)
TITLE = "FedCAPrivacy: anonymous adaptive clustering by two servers"
OURS = "fedcaprivacy"
Runs = dict[float, dict[str, list[Ended]]]  # β -> algorithm -> one for each seed


def table1(options: Options) -> Reproduction:
    """Rounds to 95 % (MNIST), 85 % (Fashion-MNIST), 65 % (CIFAR-10) or 33 % (CIFAR-100) under Dir(.8) and Dir(.3)."""
    return _compared(options, (0.8, 0.3), "Table I: rounds to the target accuracy")


def table1_sgd(options: Options) -> Reproduction:
    """Table I with plain SGD: the learning rate is the paper's, the momentum is not known."""
    return _compared(options, (0.8, 0.3), "Table I with plain SGD", momentum=0.0)


def table1_fast(options: Options) -> Reproduction:
    """Table I at three times the learning rate, at which FedAvg needs about as many rounds as in the paper."""
    return _compared(options, (0.8, 0.3), "Table I at three times the learning rate", lr=3 * LR[options.dataset])


def table1_tuned(options: Options) -> Reproduction:
    """Table I with plain SGD for all, at each method's own rate, tuned by one rule on separate seeds."""
    return _compared(options, (0.8, 0.3), "Table I, rates tuned by one rule", tuned=True)


def tuning(options: Options) -> Reproduction:
    """What the rates of `table1_tuned` and `table2_tuned` are chosen by: accuracy after 20 rounds, rate by rate."""
    names = (OURS, *RIVALS, "local")
    tried = tuning_runs(options, names, (0.8, 0.3, 0.1))
    options.settled([run for runs in tried.values() for run in runs if isinstance(run, Outcome)])
    target = TARGETS[options.dataset]
    cells: list[Cell] = []
    for (beta, name, lr), runs in tried.items():
        row = f"Dir({beta}) {name}"
        ended = [o for o in runs if isinstance(o, Outcome)]
        for word, metric in READINGS.items():
            values = [o.accuracy(metric=metric) for o in ended]
            cells.append(cell(row, f"rate {lr:g}, {word}", values if len(ended) == len(runs) else []))
        reached = [r for o in ended if (r := rounds_to(o, target, "global"))]
        cells.append(cell(row, f"rounds to {target:.0%}, rate {lr:g}", [float(r) for r in reached], unit="rounds"))
    diverged = [
        f"Dir({b}) {n} at {lr:g}" for (b, n, lr), runs in tried.items() if any(isinstance(r, Diverged) for r in runs)
    ]
    notes = [f"Diverged, and so without a figure: {', '.join(diverged)}."] if diverged else []
    notes.append("Where the largest rate is the best, a larger one that was not tried may be better still.")
    rule = TUNED_NOTE.format(rates=", ".join(f"{r:g}" for r in RATES), rounds=TUNING_ROUNDS, seeds=TUNING_SEEDS)
    shown = settings(experiment(options, OURS, 0.8, rounds=TUNING_ROUNDS, plain=True), seeds=TUNING_SEEDS)
    return Reproduction(
        paper=OURS,
        table="tuning",
        title="Rates of plain steps, tried",
        dataset=options.dataset,
        settings=shown | {"optimiser": "SGD without momentum, rate as shown"},
        cells=cells,
        notes=[*notes, *of_part(options.dataset, OF_PART), READING_NOTE, rule, DIRICHLET_NOTE],
    )


def table2_tuned(options: Options) -> Reproduction:
    """Table II with plain SGD for all, at each method's own rate, tuned by one rule on separate seeds."""
    return _compared(options, (0.8, 0.3, 0.1), "Table II, rates tuned by one rule", tuned=True)


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
    """Accuracy over rounds under Dir(.8), Dir(.3) and Dir(.1), ours and FedAvg: Table II's runs."""
    runs = _runs(options, (0.8, 0.3, 0.1), (OURS, "fedavg"))
    last = max(r for ended in runs[0.8].values() for o in finished(ended) for r in o.curve())
    at = sorted({r for r in (1, 2, 5, 10, 20, 35, 50, 100, 150, 200) if r <= last} | {last})
    cells = [
        cell(f"Dir({beta}) {name}, {word}", f"round {r}", figures(ended, partial(_accuracy, metric, r)))
        for beta, by_name in runs.items()
        for name, ended in by_name.items()
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
        notes=[*of_part(options.dataset, OF_PART), READING_NOTE, *open_notes(options.dataset), DIRICHLET_NOTE],
    )


def _compared(
    options: Options, betas: tuple[float, ...], title: str, tuned: bool = False, **training: Any
) -> Reproduction:
    """All algorithms at these β, both readings, rounds to the target and final accuracy; `training` is not the usual."""
    names = (OURS, *RIVALS, "local")
    rates = tuned_rates(options, names, betas) if tuned else {}
    runs = _runs(options, betas, names, rates, **training)
    target = TARGETS[options.dataset]
    cells: list[Cell] = []
    diverged: list[str] = []
    for beta, by_name in runs.items():
        for name, ended in by_name.items():
            row, outcomes = f"Dir({beta}) {name}", finished(ended)
            diverged += said(row, ended)
            rounds = PAPER_ROUNDS.get((options.dataset, beta), {}).get(name)
            final = PAPER_FINAL.get((options.dataset, beta), {}).get(name)
            for word, metric in READINGS.items():
                reached = [r for o in outcomes if (r := rounds_to(o, target, metric))]
                counted = figures(ended, partial(_counted, target, metric))
                column = f"rounds to {target:.0%}, {word}"
                cells.append(cell(row, column, [float(r) for r in reached], unit="rounds"))
                cells.append(cell(row, f"{NEVER}, {word}", [float(len(outcomes) - len(reached))], unit="runs"))
                cells.append(cell(row, f"{COUNTED}, {word}", counted, rounds, unit="rounds"))
                cells.append(cell(row, f"final, {word}", figures(ended, partial(_accuracy, metric, None)), final))
            if rates:
                cells.append(cell(row, "rate", [rates[beta, name]], unit=""))
            if name == OURS:
                cells.append(cell(row, "median affinity", noted(outcomes, "affinity_quantiles", 2), unit=""))
                cells.append(cell(row, "eigengap", noted(outcomes, "eigengap"), unit=""))
    rule = TUNED_NOTE.format(rates=", ".join(f"{r:g}" for r in RATES), rounds=TUNING_ROUNDS, seeds=TUNING_SEEDS)
    regime = [rule] if tuned else _regime(options.dataset, **training)
    return Reproduction(
        paper=OURS,
        table="",
        title=title,
        dataset=options.dataset,
        settings=settings(experiment(options, OURS, betas[0], plain=tuned, **training), seeds=len(runs[betas[0]][OURS]))
        | ({"optimiser": "SGD without momentum, rate as shown"} if tuned else {}),
        cells=cells,
        notes=[*diverged, *of_part(options.dataset, OF_PART), READING_NOTE, *regime, DIRICHLET_NOTE, COUNTED_NOTE],
    )


def _regime(dataset: str, lr: float = 0.0, momentum: float | None = None, **_: Any) -> list[str]:
    """What is said of steps that are not tuned: see `experiment`, which gives SCAFFOLD its own."""
    if momentum == 0:
        return [UNSAID_NOTE, PLAIN_NOTE]
    return [*open_notes(dataset, regime=True), *[FAST_NOTE] * bool(lr)]


def _counted(target: float, metric: str, outcome: Outcome) -> float:
    """Rounds to the target; one more than there were where it was never reached."""
    return float(rounds_to(outcome, target, metric) or 1 + max(outcome.curve()))


def _accuracy(metric: str, round: int | None, outcome: Outcome) -> float:
    return outcome.accuracy(round, metric)


def _runs(
    options: Options,
    betas: tuple[float, ...],
    names: tuple[str, ...],
    rates: Mapping[tuple[float, str], float] | None = None,
    **training: Any,
) -> Runs:
    seeds = options.count(3)

    def own(beta: float, name: str) -> dict[str, Any]:
        return training | ({"lr": rates[beta, name], "plain": True} if rates else {})

    return {
        beta: {name: options.tried(experiment(options, name, beta, **own(beta, name)), seeds) for name in names}
        for beta in betas
    }


_BOTH = ("mnist", "fashion_mnist")
_ALL = (*_BOTH, "cifar10", "cifar100")
TABLES = {
    "table1": Table(table1, _ALL, claims.table1),
    "table1_fast": Table(table1_fast, _BOTH, claims.compared),
    "table1_sgd": Table(table1_sgd, _BOTH, claims.compared),
    "tuning": Table(tuning, _ALL, claims.tuning),
    "table1_tuned": Table(table1_tuned, _ALL, claims.compared),
    "table2_tuned": Table(table2_tuned, _ALL, claims.compared),
    "table2": Table(table2, _ALL, claims.table2),
    "beta08": Table(beta08, _BOTH, claims.compared, part_of="table2"),
    "beta03": Table(beta03, _BOTH, claims.compared, part_of="table2"),
    "beta01": Table(beta01, _BOTH, claims.compared, part_of="table2"),
    "fig2": Table(ablations.fig2, ("fashion_mnist", "mnist"), claims.fig2),
    "fig3": Table(ablations.fig3, ("fashion_mnist", "mnist"), claims.fig3),
    "fig4": Table(fig4, _ALL, claims.fig4, part_of="table2"),
    "fig5": Table(ablations.fig5, ("fashion_mnist", "mnist", "cifar10", "cifar100"), claims.fig5),
    "alignment": Table(ablations.alignment, _BOTH, claims.alignment),
    "linkage": Table(linkage.linkage, _BOTH, claims.linkage),
    "linkage_told": Table(linkage.linkage_told, _BOTH, claims.linkage_told),
}
