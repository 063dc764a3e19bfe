"""Methods in their own authors' setting, beside what they printed: what a leaderboard of ours cannot show.

IFCA's rotated MNIST (Ghosh et al., NeurIPS 2020, Table 1; github.com/jichan3751/ifca, folder mnist): four quarter turns, each with
all 60,000 images, m clients of n of them; ten steps on all of a client's samples with rate 0.1, everybody in each of 300 rounds;
one hidden layer of 200; models begin at different random ones.

Limit: the printed figures below were not checked against a copy of the paper. Compare them with its
Table 1 before a verdict of this table is quoted.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from covey.papers.cells import Cell, Sheet, at, cell
from covey.papers.harness import Options, Outcome, Reproduction
from covey.papers.verdict import Part, Statement, within

OWN = "test accuracy"
MARGIN = 0.01
UNCHECKED = "IFCA's printed figures were not checked against a copy of the paper."
# (clients, samples) -> algorithm -> what the paper prints (not checked: see above)
ROTATED: Mapping[tuple[int, int], Mapping[str, float]] = {
    (1200, 200): {"ifca": 0.9525, "fedavg": 0.8973, "local": 0.8005},
    (2400, 100): {"ifca": 0.9505, "fedavg": 0.8865, "local": 0.7366},
}


def rotated(options: Options) -> Reproduction:
    """IFCA's rotated MNIST, as its authors set it."""
    cells: list[Cell] = []
    seeds = options.count(2)
    sizes = {(40, 100): {}} if options.quick else ROTATED
    rounds = 3 if options.quick else 300
    for (clients, samples), printed in sizes.items():
        for name in ("ifca", "fedavg", "local"):
            table = rotated_table(options.dataset, name, clients, samples, rounds)
            runs = [options.attempt(table, seed) for seed in range(seeds)]
            done = [run for run in runs if isinstance(run, Outcome) and not run.stands_in]
            if len(done) == seeds:
                values = [run.accuracy(metric="client_mean") for run in done]
                cells.append(cell(f"{name}, m = {clients}, n = {samples}", OWN, values, printed.get(name)))
    return Reproduction(
        paper="field",
        table="rotated",
        title="IFCA's rotated MNIST, as its authors set it",
        dataset=options.dataset,
        settings={"rounds": rounds, "steps": 10, "batch": "all", "lr": 0.1, "clusters": 4, "seeds": seeds},
        cells=cells,
        notes=[
            UNCHECKED,
            "The paper's 'global model' is FedAvg here, its 'local model' training alone; it repeats five times.",
            "A client is tested on the test samples of its own turn, at most 4,000 of 40,000; the authors test on all.",
        ],
    )


def rotated_table(dataset: str, algorithm: str, clients: int, samples: int, rounds: int) -> dict[str, Any]:
    return {
        "dataset": dataset,
        "model": "fcnn",
        "clients": clients,
        "clusters": 4,
        "partition": {"name": "feature_shift", "samples": samples, "copies": True},
        "algorithm": algorithm,
        "start": {"common": False, "pretrain_epochs": 0},
        "training": {"rounds": rounds, "steps": 10, "batch_size": 0, "lr": 0.1},
        "evaluation": {"every": rounds, "samples": 4000},
    }


def claims_on_rotated(sheet: Sheet) -> list[Statement]:
    statements = []
    for (clients, samples), printed in ROTATED.items():
        names = {name: f"{name}, m = {clients}, n = {samples}" for name in printed}
        parts = [Part(row, at(row, OWN) - printed[name], within(MARGIN)) for name, row in names.items()]
        text = f"Accuracies with {clients:,} clients of {samples} samples are those printed (within 1 point)."
        statements.append(Statement(text, parts))
    return statements
