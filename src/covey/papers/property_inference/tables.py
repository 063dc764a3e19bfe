"""Property inference on clustered FL (RAID 2023): Tables 3 to 9, Figs. 2 to 4 and Appendix A, by
`covey reproduce property_inference --table NAME`. Many partitions at a time on a GPU: see `settings.py`.

A run is one partition, one start and one attack. The paper averages five seeds and gives no spread; an independent check saw
the order of CFL and FL vary with the partition by ± .3. So every verdict here is on the mean of paired differences over
partitions, with its interval, and the main task's own accuracy stands beside every AUC. Two scores of each run are judged: of
the attacker that subtracts its own upload, and of the paper's, which by its text does not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from covey.papers.harness import Cell, Claim, Options, Outcome, Reproduction, Table, cell, claim
from covey.papers.property_inference import figures as printed
from covey.papers.property_inference.acquisition import appendix
from covey.papers.property_inference.grids import GRIDS, METHODS, partitions
from covey.papers.property_inference.notes import label_gaps, ledger
from covey.papers.property_inference.settings import (
    BETA,
    CLIP,
    CLUSTERS,
    DELTA,
    MILD,
    TASKS,
    Wanted,
    auc,
    finding,
    kept,
)
from covey.statistics import student_interval

SCORES = {"own upload subtracted": auc, "own upload left in": kept}
READINGS = {
    "whole test set": "global",
    "clients' own data": "client_mean",
}  # of the main task; a cluster serves its own
TITLE = "Property inference on clustered federated learning (RAID 2023)"


def table3(options: Options) -> Reproduction:
    """Passive attack on FL and CFL, 5 to 20 clients."""
    return _passive(options, "table3", "Passive property inference on FL and CFL")


def table9(options: Options) -> Reproduction:
    """Passive attack on FL and CFL, 3 to 20 clients."""
    return _passive(options, "table9", "Passive property inference on FL and CFL, from 3 clients on")


def tasks(options: Options) -> Reproduction:
    """Passive attack on FL and CFL, 5 clients, every task of the dataset (a column of Table 3)."""
    return _passive(options, "tasks", "Passive property inference on every task, 5 clients")


def _passive(options: Options, table: str, title: str) -> Reproduction:
    grid, runs = measure(options, table)
    cells = _cells(grid, runs)
    rows = list(dict.fromkeys(w.row for w in grid))
    claims = []
    for words, score in SCORES.items():
        differences: list[float] = []
        means: dict[str, list[float]] = {m: [] for m in METHODS}
        wins = 0
        for row in rows:
            fl, cfl = ([score(o) for o in _runs(grid, runs, row, m)] for m in METHODS)
            paired = [b - a for a, b in zip(fl, cfl)]
            differences += paired
            wins += float(np.mean(paired)) > 0
            for m, values in zip(METHODS, (fl, cfl)):
                means[m].append(float(np.mean(values)))
            cells += _difference_cells(row, words, paired)
        claims.append(_cfl_above_fl(words, differences, wins, len(rows)))
        by_size = {m: _falls(values, len(TASKS[options.dataset])) for m, values in means.items()}
        claims.append(
            claim(
                f"The attack weakens as clients are added ({words}).",
                None if table == "tasks" or len(rows) < 3 else all(by_size.values()),
                f"Mean AUC by row, FL: {_list(means['FL'])}; CFL: {_list(means['CFL'])}.",
                partly=any(by_size.values()),
            )
        )
    return _made(options, table, title, cells, claims)


def table4(options: Options) -> Reproduction:
    """Active attack: γ = 1 on FL and CFL, γ = 5 and 10 on CFL, beside the passive one."""
    grid, runs = measure(options, "table4")
    rows = list(dict.fromkeys(w.row for w in grid))

    def gain(column: str, over: str, score: Callable[[Outcome], float]) -> list[float]:
        pairs = [(_runs(grid, runs, row, column), _runs(grid, runs, row, over)) for row in rows]
        return [score(b) - score(a) for high, low in pairs for b, a in zip(high, low)]

    scaled = [w for w in ("CFL γ=5", "CFL γ=10") if any(g.column == w for g in grid)]
    claims = []
    for words, score in SCORES.items():
        for column in scaled:
            text = f"Scaling up (γ = {column.split('=')[1]}) beats γ = 1 on CFL ({words})."
            claims.append(_gain(text, gain(column, "CFL γ=1", score)))
        text = f"The active attack at γ = 1 beats the passive one on CFL ({words})."
        claims.append(_gain(text, gain("CFL γ=1", "CFL", score)))
    return _made(options, "table4", "Active property inference", _cells(grid, runs), claims)


def table5(options: Options) -> Reproduction:
    """Dropout and L2 against the passive attack."""
    return _regularised(options, "table5", "passive")


def table6(options: Options) -> Reproduction:
    """Dropout and L2 against the active attack (γ = 5)."""
    return _regularised(options, "table6", "active")


def _regularised(options: Options, table: str, attack: str) -> Reproduction:
    grid, runs = measure(options, table)
    claims = []
    for words in dict.fromkeys(w.column for w in grid if w.column != "none"):
        rows = [w.row for w in grid if w.column == words]
        changes = [
            auc(b) - auc(a)
            for row in rows
            for a, b in zip(_runs(grid, runs, row, "none"), _runs(grid, runs, row, words))
        ]
        low, high = student_interval(changes)
        why = f"AUC changes by {np.mean(changes):+.3f} [{low:+.3f}, {high:+.3f}] over {len(changes)} paired runs."
        claims.append(claim(f"{words} does not help reliably against the {attack} attack.", high >= 0, why))
    return _made(options, table, f"Dropout and L2 against the {attack} attack", _cells(grid, runs), claims)


def table7(options: Options) -> Reproduction:
    """DP-SGD at σ = 0.2 and 0.5: what is left of the attack."""
    grid, runs = measure(options, "table7")
    claims = []
    for words, score in SCORES.items():
        hidden = [score(o) for w, outcomes in zip(grid, runs) for o in outcomes if not w.column.endswith("σ=0")]
        bare = [score(o) for w, outcomes in zip(grid, runs) for o in outcomes if w.column.endswith("σ=0")]
        low, high = student_interval(hidden)
        worst = max(
            (float(np.mean([score(o) for o in f])), f"{w.row}, {w.column}")
            for w, f in zip(grid, runs)
            if not w.column.endswith("σ=0")
        )
        why = f"Mean AUC {np.mean(hidden):.3f} [{low:.3f}, {high:.3f}] with noise, {np.mean(bare):.3f} without; "
        why += f"highest with noise: {worst[0]:.3f} ({worst[1]})."
        near = bool(abs(np.mean(hidden) - 0.5) < 0.05)
        text = f"Under DP-SGD at both σ the attack guesses: AUC within .5 ± .05 ({words})."
        claims.append(claim(text, near and low > 0.45 and high < 0.55, why, partly=near))
    return _made(options, "table7", "Property inference under DP-SGD", _cells(grid, runs), claims, ledger(options))


def table8(options: Options) -> Reproduction:
    """DP-SGD at σ = 0.2 and 0.5: what is left of the main task, and the ε of a step and of the run."""
    grid, runs = measure(options, "table8")
    passive = [(w, outcomes) for w, outcomes in zip(grid, runs) if w.row.endswith("passive")]
    cells, claims = [], []
    for on, metric in READINGS.items():
        losses = {}
        for w, outcomes in passive:
            m, sigma = w.column.split(" σ=")
            values = [o.accuracy(metric=metric) for o in outcomes]
            figure = printed.UTILITY.get((w.task, m, float(sigma), 5)) if metric == "client_mean" else None
            cells.append(cell(f"{w.row.removesuffix(', passive')}, {w.column}", on, values, figure, unit="accuracy"))
            bare = [o.accuracy(metric=metric) for o in _runs(grid, runs, w.row, f"{m} σ=0")]
            losses[w.task, m, sigma] = [b - a for a, b in zip(values, bare)]
        for sigma in ("0.2", "0.5"):
            pairs = [(losses[t, "FL", sigma], losses[t, "CFL", sigma]) for t in TASKS[options.dataset]]
            text = f"At σ = {sigma} CFL loses less of its main task than FL, {on} (FL's loss less CFL's)."
            claims.append(_gain(text, [f - c for fl, cfl in pairs for f, c in zip(fl, cfl)]))
    notes = ["The paper's figures are the main task's AUC, ours its accuracy.", *ledger(options)]
    return _made(options, "table8", "The main task under DP-SGD", cells, claims, notes)


def fig2(options: Options) -> Reproduction:
    """Figs. 2 to 4: t-SNE of the updates (in each run's report) and the cosine similarity of consecutive updates."""
    grid, runs = measure(options, "fig2")
    cells, alike = _cells(grid, runs), {}
    for w, outcomes in zip(grid, runs):
        details = [finding(o)["details"] for o in outcomes]
        alike[w.column] = [float(d["cosine of consecutive updates"]) for d in details]
        mean, deviation = printed.COSINE[w.column]
        cells.append(cell(f"{w.row}, cosine", w.column, alike[w.column], mean, unit="cosine"))
        spread = [float(d["its deviation"]) for d in details]
        cells.append(cell(f"{w.row}, deviation", w.column, spread, deviation, unit="cosine"))
    paired = [b - a for a, b in zip(alike["FL"], alike["CFL"])]
    claims = [_gain("Consecutive updates are more alike on CFL than on FL.", paired)]
    return _made(options, "fig2", "Updates as the attacker sees them", cells, claims)


def mild_skew(options: Options) -> Reproduction:
    """K = 5, β = 10: the attack, its placebo, and DP-SGD (not a table of the paper)."""
    return _mild(options, "mild", "Mild skew: attack, placebo and noise")


def undefended(options: Options) -> Reproduction:
    """K = 5, β = 10 on FL: the attack and its placebo (two rows of `mild`)."""
    return _mild(options, "undefended", "Mild skew: the attack on FL and its placebo")


def _mild(options: Options, table: str, title: str) -> Reproduction:
    grid, runs = measure(options, table)
    wanted = {"undefended": (0.7, 1.0), "placebo": (0.35, 0.65), "DP-SGD σ=0.5": (0.35, 0.65)}
    claims = []
    for w, outcomes in sorted(zip(grid, runs), key=lambda pair: list(wanted).index(pair[0].column)):
        m, (low, high) = w.row.split(", ")[-1], wanted[w.column]
        for how, score in SCORES.items():
            values = [score(o) for o in outcomes]
            mean = float(np.mean(values))
            why = f"Mean {mean:.3f} over {len(values)} partitions, from {min(values):.3f} to {max(values):.3f}."
            claims.append(claim(f"{m}, {w.column}: mean AUC in {low} to {high} ({how}).", low <= mean <= high, why))
    return _made(options, table, title, _cells(grid, runs), claims)


# What they share


def measure(options: Options, table: str) -> tuple[list[Wanted], list[list[Outcome]]]:
    grid = GRIDS[table](options)
    return grid, [options.run(w.table, partitions(options, table)) for w in grid]


def _runs(grid: Sequence[Wanted], runs: Sequence[list[Outcome]], row: str, column: str) -> list[Outcome]:
    return next((outcomes for w, outcomes in zip(grid, runs) if (w.row, w.column) == (row, column)), [])


def _cells(grid: Sequence[Wanted], runs: Sequence[list[Outcome]]) -> list[Cell]:
    """A row for each setting: AUC without and with the attacker's own upload, the placebo's, and the main task's accuracy."""
    cells = []
    for w, outcomes in zip(grid, runs):
        row = f"{w.row}, {w.column}"
        placebo = [finding(o)["controls"]["placebo property"] for o in outcomes]
        cells += [
            *(
                cell(row, words, [score(o) for o in outcomes], w.paper if score is kept else None, unit="AUC")
                for words, score in SCORES.items()
            ),
            cell(row, "placebo control", placebo, unit="AUC"),
            *(
                cell(row, f"main task, {on}", [o.accuracy(metric=metric) for o in outcomes], unit="accuracy")
                for on, metric in READINGS.items()
            ),
        ]
    return cells


def _difference_cells(row: str, words: str, values: Sequence[float]) -> list[Cell]:
    """CFL's AUC less FL's over the same partitions: its mean, and the ends of the mean's interval."""
    low, high = student_interval(values)
    known = np.isfinite([low, high]).all()
    ends = {"interval from": low, "interval to": high}
    return [
        cell(f"{row}, CFL − FL", words, values, unit="AUC"),
        *(cell(f"{row}, CFL − FL, {end}", words, [v] if known else [], unit="AUC") for end, v in ends.items()),
    ]


def _gain(text: str, differences: Sequence[float]) -> Claim:
    """Holds where the whole interval of the mean lies above 0; partly where only the mean does."""
    if len(differences) < 2:
        return claim(text, None, f"{len(differences)} paired runs: too few for an interval.")
    low, high = student_interval(differences)
    mean = float(np.mean(differences))
    positive = sum(d > 0 for d in differences)
    why = f"Mean {mean:+.3f} [{low:+.3f}, {high:+.3f}]; above 0 in {positive} of {len(differences)} paired runs."
    return claim(text, low > 0, why, partly=mean > 0)


def _cfl_above_fl(words: str, differences: Sequence[float], wins: int, cells: int) -> Claim:
    text = f"The passive attack is stronger on CFL than on FL, in the paper in 80 of 85 settings ({words})."
    gain = _gain(text, differences)
    spread = (
        f" The mean is above 0 in {wins} of {cells} settings; single partitions run from {min(differences):+.2f} to "
    )
    return Claim(gain.text, gain.verdict, gain.why + spread + f"{max(differences):+.2f}.")


def _falls(values: list[float], tasks: int) -> bool:
    """Whether, in every task, the AUC with the most clients is below that with the fewest."""
    each = len(values) // tasks
    return all(values[t * each + each - 1] < values[t * each] for t in range(tasks))


def _list(values: Sequence[float]) -> str:
    return ", ".join(f"{v:.3f}" for v in values)


def _made(
    options: Options, table: str, title: str, cells: list[Cell], claims: list[Claim], notes: Sequence[str] = ()
) -> Reproduction:
    about = TASKS[options.dataset]
    first = GRIDS[table](options)[0].table
    beta = MILD if table in ("mild", "undefended") else BETA
    return Reproduction(
        paper="property_inference",
        table=table,
        title=title,
        dataset=options.dataset,
        settings={
            "rounds": first["training"]["rounds"],
            "lr": first["training"]["lr"],
            "batch": 32,
            "local steps": 1,
            "clusters": CLUSTERS,
            "Dirichlet β": beta,
            "clip C": CLIP,
            "δ": DELTA,
            "partitions": partitions(options, table),
            "property batch": "every 5th round",
            "cluster chosen on": "the current batch",
            "AUC covers": "rounds of the victim's cluster after a tenth of all",
            "simulated groups": "clients / clusters, one fewer where the own upload is subtracted",
        },
        cells=cells,
        claims=claims,
        notes=[
            *(f"{name}: {task.words}; {task.said}." for name, task in about.items()),
            *label_gaps(options, beta),
            *notes,
        ],
    )


_DATASETS = ("utkface", "lfw", "yelp-like")
TABLES = {
    "table3": Table(table3, _DATASETS),
    "table4": Table(table4, _DATASETS),
    "table5": Table(table5, _DATASETS),
    "table6": Table(table6, _DATASETS),
    "table7": Table(table7, _DATASETS),
    "table8": Table(table8, _DATASETS),
    "table9": Table(table9, _DATASETS),
    "fig2": Table(fig2, _DATASETS),
    "mild": Table(mild_skew, _DATASETS),
    "undefended": Table(undefended, _DATASETS),
    "tasks": Table(tasks, _DATASETS),
    "acquisition": Table(appendix, ("digits",)),
}
