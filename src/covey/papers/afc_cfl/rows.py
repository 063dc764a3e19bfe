"""What all tables of AFC-CFL share: the row of an attacked run, and the frame around a table's cells."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from covey.papers.afc_cfl.settings import DATA, DELTA, READING, base, finding, without_update
from covey.papers.cells import Cell, cell
from covey.papers.extent import of_part
from covey.papers.harness import Options, Reproduction
from covey.papers.outcome import Outcome

CONTROLS = ("all present", "label frequency", "null query", "null query, pairs", "single samples")
UNPRINTED = (None,) * 4


def attacked(row: str, runs: Sequence[Outcome], paper: Sequence[float | None] = UNPRINTED) -> list[Cell]:
    """A row of any table: the attack, its controls, what the update adds, the accuracy."""
    return [
        cell(row, "precision", finding(runs, "details", "precision"), paper[0]),
        cell(row, "recall", finding(runs, "details", "recall"), paper[1]),
        cell(row, "F1", finding(runs, "value"), paper[2]),
        *(cell(row, name, controlled(runs, name)) for name in CONTROLS),
        cell(row, "leak of the update", finding(runs, "details", "leak")),
        cell(row, "noise-aware F1", finding(runs, "details", "noise_aware")),
        cell(row, "noise-aware leak", finding(runs, "details", "noise_aware_leak")),
        cell(row, "accuracy", [run.accuracy() for run in runs], paper[3]),
    ]


def controlled(runs: Sequence[Outcome], name: str) -> list[float]:
    """A control's score per run; nothing where a stored run is older than the control, so that the cell says "not run"."""
    reached = [without_update(run) for run in runs]
    return [] if any(name not in one for one in reached) else [one[name] for one in reached]


def framed(
    options: Options,
    table: str,
    title: str,
    cells: list[Cell],
    seeds: int,
    more: Mapping[str, Any] | None = None,
) -> Reproduction:
    data, training = DATA[options.dataset], base(options)["training"]
    settings = {
        "model": data.model,
        "rounds": training["rounds"],
        "learning rate": data.lr,
        "batch": data.batch,
        "auxiliary samples": base(options)["partition"]["public"],
        "rounds between attacks": base(options)["attacks"][0]["every"],
        "δ": DELTA,
        "seeds": seeds,
        **(more or {}),
    }
    notes = [*READING, *of_part(options.dataset), *([data.remark] if data.remark else [])]
    if options.quick:
        notes.append("Quick: 21 rounds, four of them attacked, 2,000 subsets, 400 rows, one seed, 2,000 test samples.")
    return Reproduction("afc_cfl", table, title, options.dataset, settings, cells, notes=notes)
