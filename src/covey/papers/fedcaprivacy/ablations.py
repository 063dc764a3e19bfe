"""FedCAPrivacy's Figs. 2, 3 and 5, and the worth of aligned memberships."""

from __future__ import annotations

from typing import Any

import numpy as np

from covey.papers.cells import Cell, cell
from covey.papers.extent import of_part
from covey.papers.fedcaprivacy.settings import (
    DIRICHLET_NOTE,
    OF_PART,
    READING_NOTE,
    READINGS,
    SIZE_NOTE,
    clusterings,
    experiment,
    noted,
    open_notes,
    settings,
)
from covey.papers.harness import Options, Reproduction
from covey.papers.outcome import Outcome

OURS = "fedcaprivacy"


def fig2(options: Options) -> Reproduction:
    """Clustering every 1, 10 and 50 rounds under Dir(.3)."""
    runs = {every: one(options, every=every) for every in (1, 10, 50)}
    cells = [c for every, outcomes in runs.items() for c in accuracies(f"every {every} rounds", outcomes)]
    return made("fig2", "Accuracy by clustering frequency", options, cells)


def fig3(options: Options) -> Reproduction:
    """The decay factor α: clusterings, their expectation, and accuracy, under Dir(.3), 200 rounds."""
    runs = {alpha: one(options, rounds=200, alpha=alpha) for alpha in (0.0, 0.005, 0.01, 0.1)}
    rounds = max(runs[0.0][0].curve())
    cells: list[Cell] = []
    for alpha, outcomes in runs.items():
        chances = np.array([1.0] + [1 / (1 + alpha * r) for r in range(2, rounds + 1)])
        counts = [float(clusterings(o)) for o in outcomes]
        row = f"α = {alpha}"
        cells += [cell(row, "clusterings", counts, unit=""), cell(row, "expected", [float(chances.sum())], unit="")]
        cells.append(cell(row, "seconds of clustering", [o.seconds("cluster") * rounds for o in outcomes], unit="s"))
        cells += accuracies(row, outcomes)
    return made("fig3", "Decaying clustering frequency", options, cells, rounds=rounds)


def fig5(options: Options) -> Reproduction:
    """2, 5, 10, 20 and 30 clusters under Dir(.3)."""
    counts = (2, 5, 10) if options.quick else (2, 5, 10, 20, 30)
    runs = {k: one(options, clusters=k) for k in counts}
    cells = [c for k, outcomes in runs.items() for c in accuracies(f"{k} clusters", outcomes)]
    return made("fig5", "Accuracy by number of clusters", options, cells, [SIZE_NOTE])


def alignment(options: Options) -> Reproduction:
    """Old memberships that stay with their participants against those that a fresh shuffle scrambles, α = .1."""
    runs = {(b, how): one(options, b, alignment=how) for b in (0.3, 0.1) for how in ("kept", "scrambled")}
    cells = [c for (b, how), outcomes in runs.items() for c in accuracies(f"Dir({b}) {how}", outcomes)]
    return made("alignment", "Stale memberships under a fresh shuffle", options, cells)


def one(options: Options, beta: float = 0.3, rounds: int = 0, clusters: int = 5, **fields: Any) -> list[Outcome]:
    table = experiment(options, OURS, beta, rounds=rounds, **fields)
    return options.run({**table, "clusters": clusters}, options.count(3))


def accuracies(row: str, outcomes: list[Outcome]) -> list[Cell]:
    cells = [
        cell(row, f"final, {word}", [o.accuracy(metric=metric) for o in outcomes]) for word, metric in READINGS.items()
    ]
    return [*cells, cell(row, "eigengap", noted(outcomes, "eigengap"), unit="")]


def made(
    name: str,
    title: str,
    options: Options,
    cells: list[Cell],
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
        notes=[
            *(notes or []),
            *of_part(options.dataset, OF_PART),
            READING_NOTE,
            *open_notes(options.dataset),
            DIRICHLET_NOTE,
        ],
    )
