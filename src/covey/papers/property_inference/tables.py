"""Property inference on clustered FL (RAID 2023): Tables 3 to 9, Figs. 2 to 4 and Appendix A, by
`covey reproduce property_inference --table NAME`. Many partitions at a time on a GPU: see `covey/papers/pool.py`.

A run is one partition, one start and one attack. The paper averages five seeds and gives no spread; an independent check saw
the order of CFL and FL vary with the partition by ± .3. So every verdict here is on the mean of paired differences over
partitions, with its interval, and the main task's own accuracy stands beside every AUC. Two scores of each run are judged: of
the attacker that subtracts its own upload, and of the paper's, which by its text does not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from covey.papers.cells import Cell, cell
from covey.papers.harness import Options, Reproduction, Table
from covey.papers.outcome import Outcome
from covey.papers.property_inference import claims
from covey.papers.property_inference import figures as printed
from covey.papers.property_inference.acquisition import appendix
from covey.papers.property_inference.grids import FIVE, GRIDS, METHODS, MORE, more, partitions
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

SCORES = dict(zip(claims.SCORES, (auc, kept)))
READINGS = dict(zip(claims.READINGS, ("global", "client_mean")))
TITLE = "Property inference on clustered federated learning (RAID 2023)"
MAPS_NOTE = (
    "t-SNE of up to 250 updates of the victim's cluster, of the first partition: directions, and distances between groups, mean "
    "nothing. Each map says what the attack reaches on its partition, and what a forest reaches there that learnt a placebo: rows "
    "without the property. Where that one tells the rounds apart as well, so do the dots, and the property is not why."
)
ON_MAPS = {claims.SCORES[1]: "own upload in", claims.SCORES[0]: "out", "placebo control": "placebo"}
NO_MAPS = "Its runs drew no t-SNE: they were made for another table in a pool. With an --out of its own this command draws it."


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
    for row in rows:
        for words, score in SCORES.items():
            fl, cfl = ([score(o) for o in _runs(grid, runs, row, m)] for m in METHODS)
            cells += _difference_cells(row, words, [b - a for a, b in zip(fl, cfl)])
    return _made(options, table, title, cells)


def table4(options: Options) -> Reproduction:
    """Active attack: γ = 1 on FL and CFL, γ = 5 and 10 on CFL, beside the passive one."""
    grid, runs = measure(options, "table4")
    return _made(options, "table4", "Active property inference", _cells(grid, runs))


def table4_more(options: Options) -> Reproduction:
    """Table 4 with 10, 15 and 20 clients."""
    grid, runs = measure(options, "table4_more")
    return _made(options, "table4_more", "Active property inference, 10 to 20 clients", _cells(grid, runs))


def table5(options: Options) -> Reproduction:
    """Dropout and L2 against the passive attack."""
    return _regularised(options, "table5", "passive")


def table6(options: Options) -> Reproduction:
    """Dropout and L2 against the active attack (γ = 5)."""
    return _regularised(options, "table6", "active")


def table5_more(options: Options) -> Reproduction:
    """Table 5 with 10, 15 and 20 clients."""
    return _regularised(options, "table5_more", "passive")


def table6_more(options: Options) -> Reproduction:
    """Table 6 with 10, 15 and 20 clients."""
    return _regularised(options, "table6_more", "active")


def _regularised(options: Options, table: str, attack: str) -> Reproduction:
    grid, runs = measure(options, table)
    how_many = ", 10 to 20 clients" * (table in MORE)
    return _made(options, table, f"Dropout and L2 against the {attack} attack{how_many}", _cells(grid, runs))


def table7(options: Options) -> Reproduction:
    """DP-SGD at σ = 0.2 and 0.5: what is left of the attack."""
    grid, runs = measure(options, "table7")
    return _made(options, "table7", "Property inference under DP-SGD", _cells(grid, runs), ledger(options))


def table7_more(options: Options) -> Reproduction:
    """Table 7 with 10, 15 and 20 clients."""
    grid, runs = measure(options, "table7_more")
    notes = ledger(options, more(options)[-1])
    return _made(options, "table7_more", "Property inference under DP-SGD, 10 to 20 clients", _cells(grid, runs), notes)


def table8(options: Options) -> Reproduction:
    """DP-SGD at σ = 0.2 and 0.5: what is left of the main task, and the ε of a step and of the run."""
    return _utility(options, "table8", "The main task under DP-SGD", 5)


def table8_more(options: Options) -> Reproduction:
    """Table 8 with 10, 15 and 20 clients."""
    return _utility(options, "table8_more", "The main task under DP-SGD, 10 to 20 clients", more(options)[-1])


def _utility(options: Options, table: str, title: str, most: int) -> Reproduction:
    grid, runs = measure(options, table)
    passive = [(w, outcomes) for w, outcomes in zip(grid, runs) if w.row.endswith("passive")]
    cells = []
    for on, metric in READINGS.items():
        for w, outcomes in passive:
            values = [o.accuracy(metric=metric) for o in outcomes]
            cells.append(cell(f"{w.row.removesuffix(', passive')}, {w.column}", on, values, unit="accuracy"))
    for w, outcomes in passive:
        m, sigma = w.column.split(" σ=")
        figure = printed.UTILITY.get((w.task, m, float(sigma), w.table["clients"]))
        areas = [o.records[-1]["metrics"]["auc"]["mean"] for o in outcomes]
        cells.append(cell(f"{w.row.removesuffix(', passive')}, {w.column}", claims.MAIN_AUC, areas, figure, unit="AUC"))
    notes = [
        "The paper prints the main task's AUC; ours is the mean of the clients' on their own data.",
        *ledger(options, most),
    ]
    return _made(options, table, title, cells, notes)


def fig2(options: Options) -> Reproduction:
    """The updates of the victim's cluster as a map (t-SNE), coloured by truth: task C with 5 clients."""
    return _mapped(options, "fig2")


def fig3(options: Options) -> Reproduction:
    """The same where the paper finds that CFL leaks no more than FL: task D with 13 clients."""
    return _mapped(options, "fig3")


def _mapped(options: Options, table: str) -> Reproduction:
    """The map of the first partition for each method; another would be another map. The attack's scores stand beside."""
    grid, runs = measure(options, table)
    cells = _cells(grid, runs)
    maps = [
        _map(f"{w.row}, {w.column}", finding(outcomes[0])["details"], cells)
        for w, outcomes in zip(grid, runs)
        if outcomes
    ]
    drawn = [one for one in maps if one is not None]
    notes = [MAPS_NOTE if drawn else NO_MAPS]
    made = _made(options, table, "Updates as the attacker sees them", cells, notes)
    return replace(made, maps=drawn)


def _map(row: str, details: dict[str, Any], cells: Sequence[Cell]) -> dict[str, Any] | None:
    """As a `Map` of dots, with what the attack and its placebo reach on just these; None where the run drew none."""
    given = next((one for one in details.get("pictures", ()) if one["kind"] == "scatter"), None)
    first = {one.column: one.values[0] for one in cells if one.row == row and one.values}
    said = ", ".join(f"{words} {first[column]:.2f}" for column, words in ON_MAPS.items() if column in first)
    return given and {
        "title": row,
        "said": f"AUC: {said}" * bool(said),
        **{name: given[name] for name in ("x", "y", "label")},
    }


def fig4(options: Options) -> Reproduction:
    """How alike the updates of consecutive rounds are: their cosine, its mean and deviation, and the attack's scores beside."""
    grid, runs = measure(options, "fig4")
    cells = _cells(grid, runs)
    for w, outcomes in zip(grid, runs):
        details = [finding(o)["details"] for o in outcomes]
        printed_for = printed.COSINE[w.column] if w.task == "C" else (None, None)
        for name, key, figure in zip(claims.COSINES, ("cosine of consecutive updates", "its deviation"), printed_for):
            values = [float(d[key]) for d in details]
            cells.append(cell(f"{w.row}, {name}", w.column, values, figure, unit="cosine"))
    return _made(options, "fig4", "Cosine of consecutive updates", cells)


def mild_skew(options: Options) -> Reproduction:
    """K = 5, β = 10: the attack, its placebo, and DP-SGD (not a table of the paper)."""
    return _mild(options, "mild", "Mild skew: attack, placebo and noise")


def undefended(options: Options) -> Reproduction:
    """K = 5, β = 10 on FL: the attack and its placebo (two rows of `mild`)."""
    return _mild(options, "undefended", "Mild skew: the attack on FL and its placebo")


def _mild(options: Options, table: str, title: str) -> Reproduction:
    grid, runs = measure(options, table)
    return _made(options, table, title, _cells(grid, runs))


# What they share


def measure(options: Options, table: str) -> tuple[list[Wanted], list[list[Outcome]]]:
    grid = GRIDS[table](options)
    runs = [options.run(w.table, partitions(options, table)) for w in grid]
    options.alone()
    return grid, runs


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
        cell(f"{row}, {claims.GAP}", words, values, unit="AUC"),
        *(cell(f"{row}, {claims.GAP}, {end}", words, [v] if known else [], unit="AUC") for end, v in ends.items()),
    ]


def _made(options: Options, table: str, title: str, cells: list[Cell], notes: Sequence[str] = ()) -> Reproduction:
    grid = GRIDS[table](options)
    first, on = grid[0].table, {w.task for w in grid}
    about = {name: task for name, task in TASKS[options.dataset].items() if name in on}
    clients = {w.table["clients"] for w in grid}
    counted = more(options) if table in MORE else clients if len(clients) == 1 else FIVE
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
        notes=[
            *(f"{name}: {task.words}; {task.said}." for name, task in about.items()),
            *(words for k in counted for words in label_gaps(about, beta, k, partitions(options, table))),
            *notes,
        ],
    )


_FACES = ("utkface", "lfw")
_DATASETS = (*_FACES, "yelp-like")
TABLES = {
    "table3": Table(table3, _DATASETS, claims.passive),
    "table4": Table(table4, _DATASETS, claims.table4),
    "table5": Table(table5, _DATASETS, claims.regularised("passive")),
    "table6": Table(table6, _DATASETS, claims.regularised("active")),
    "table7": Table(table7, _DATASETS, claims.table7),
    "table8": Table(table8, _DATASETS, claims.table8),
    "table4_more": Table(table4_more, _FACES, claims.table4),
    "table5_more": Table(table5_more, _FACES, claims.regularised("passive")),
    "table6_more": Table(table6_more, _FACES, claims.regularised("active")),
    "table7_more": Table(table7_more, _FACES, claims.table7),
    "table8_more": Table(table8_more, _FACES, claims.table8),
    "table9": Table(table9, _DATASETS, claims.passive),
    "fig2": Table(fig2, _DATASETS, claims.maps, pictured=True),
    "fig3": Table(fig3, ("yelp-like",), claims.maps, pictured=True),
    "fig4": Table(fig4, _DATASETS, claims.fig4),
    "mild": Table(mild_skew, _DATASETS, claims.mild),
    "undefended": Table(undefended, _DATASETS, claims.mild),
    "tasks": Table(tasks, _DATASETS, claims.passive),
    "acquisition": Table(appendix, ("digits",), claims.acquisition),
}
