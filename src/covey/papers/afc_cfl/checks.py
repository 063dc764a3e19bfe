"""Beyond AFC-CFL's own tables: its tuning, its defences at equal noise and clipping, and the choices that it leaves open."""

from __future__ import annotations

from typing import Any

from covey.papers.afc_cfl.rows import UNPRINTED, attacked, framed
from covey.papers.afc_cfl.settings import (
    DATA,
    LOCAL,
    NAMES,
    PRINTED,
    SEEDS,
    SMALL_CLIP,
    adp,
    afc,
    base,
    best_control,
    digits,
    finding,
    ldp,
    matched_budget,
    mean,
    noise_norm,
    noted,
    rows_matched,
    target,
    tune,
)
from covey.papers.cells import Cell, cell
from covey.papers.harness import Options, Reproduction

CHOICES: dict[str, dict[str, Any]] = {"as everywhere": {}} | {
    **{f"subsets of {size}": {"subset_size": size} for size in (2, 4, 8, 10)},
    "groups of 2": {"group_size": 2},
    "all of the update, sketched": {"features": "update"},
    "output biases alone": {"features": "bias"},
    "one hidden layer": {"model": "mlp"},
    "present: over 1 % of the samples": {"least": 0.01},
}


def tuning(options: Options) -> Reproduction:
    """Budgets: AFC-CFL's for the paper's F1, then common LDP's (small fixed C) for the same F1 as that."""
    tuned = tune(options, target(options.dataset))
    cells: list[Cell] = []
    for method, by in tuned.tried.items():
        for epsilon, outcomes in by.items():
            row = f"{method}, ε = {epsilon:g}"
            cells += [cell(row, "F1", finding(outcomes, "value")), cell(row, "best control", best_control(outcomes))]
            cells += [cell(row, "noise-aware F1", finding(outcomes, "details", "noise_aware"))]
            cells += [cell(row, "accuracy", [run.accuracy() for run in outcomes])]
            cells += [
                cell(row, "C", noted(outcomes, "clip"), unit=""),
                cell(row, "noise norm", noted(outcomes, "noise"), unit=""),
            ]
    settings = {"target F1": tuned.target, "ε of AFC-CFL": tuned.afc, "ε of common LDP": tuned.ldp, "C": SMALL_CLIP}
    title = f"Tuning to equal F1 on {NAMES[options.dataset]}"
    return framed(options, "tune", title, cells, options.count(SEEDS), settings)


def matched(options: Options) -> Reproduction:
    """The same defences at equal noise and equal clipping: what remains of the advantage.

    Two kinds of equal: the baselines with one C and one σ for all rounds, so that both are equal on average over rounds and
    clients; and AFC-CFL itself with its noise spread evenly, which is equal in every round of every client.
    """
    seeds, data = options.count(SEEDS), DATA[options.dataset]
    cells: list[Cell] = []
    settings: dict[str, Any] = {}
    for budget in data.matched:
        at = f"ε = {budget:g}: "
        ours = options.run(base(options, defence=afc(budget)), seeds)
        options.settled(ours)
        exactly = [mean(noted(ours, name)) for name in ("clip", "noise")]
        clip, noise = map(digits, exactly)
        same = digits(matched_budget(options.dataset, clip, noise))
        small = digits(matched_budget(options.dataset, SMALL_CLIP, noise))
        kinds = (
            afc(budget, "equal"),
            ldp(same, clip),
            adp(same, clip),
            ldp(small, SMALL_CLIP),
            ldp(budget, SMALL_CLIP),
        )
        defences = dict(zip(rows_matched(), kinds, strict=True))
        runs = {"AFC-CFL": ours} | {row: options.run(base(options, defence=d), seeds) for row, d in defences.items()}
        for row, outcomes in runs.items():
            cells += attacked(at + row, outcomes)
            cells += [cell(at + row, "C", noted(outcomes, "clip"), unit="")]
            cells += [cell(at + row, "noise norm", noted(outcomes, "noise"), unit="")]
        alpha = exactly[1] / noise_norm(options.dataset, budget, exactly[0])
        settings |= {
            f"{at}C matched": clip,
            f"{at}ε matched": same,
            f"{at}α of AFC-CFL (root mean square)": digits(alpha),
        }
    title = f"Defences at equal noise and clipping on {NAMES[options.dataset]}"
    return framed(options, "matched", title, cells, seeds, settings)


def choices(options: Options) -> Reproduction:
    """What the paper leaves open, one choice changed at a time: subset size, features, attack model, truth."""
    seeds = options.count(SEEDS)
    table = base(options)
    runs = {
        row: options.run({**table, "attacks": [table["attacks"][0] | choice]}, seeds) for row, choice in CHOICES.items()
    }
    cells = [c for row, outcomes in runs.items() for c in attacked(row, outcomes)]
    title = f"Choices of the attacker on {NAMES[options.dataset]}"
    return framed(options, "choices", title, cells, seeds)


def local_work(options: Options) -> Reproduction:
    """How much a client trains in a round, undefended: which reading reaches the accuracy that the paper prints."""
    seeds = options.count(SEEDS)
    cells = [
        c
        for row, work in LOCAL.items()
        for c in attacked(
            row, options.run(base(options, training=work), seeds), PRINTED.get(options.dataset, UNPRINTED)
        )
    ]
    title = f"Local work in a round on {NAMES[options.dataset]}"
    return framed(options, "local_work", title, cells, seeds)
