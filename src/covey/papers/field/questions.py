"""Two questions that a leaderboard does not ask: what a wrong number of clusters costs, and how newcomers fare who know little.

Both with one learning rate for all, untuned, on the embedded digits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from covey.papers.cells import Cell, Sheet, at, cell
from covey.papers.field.settings import SETTINGS, Trial, table_of
from covey.papers.harness import Options, Reproduction
from covey.papers.outcome import Outcome
from covey.papers.verdict import Part, Statement, above, within

RATE, SEEDS = 0.1, 5
TOLD = ("ifca", "fesem", "fedgroup")  # methods that are told k: by losses, by distances of models, by first updates
WHERE = ("label_sets", "concept_shift")
OWN = "own test data"
# How a newcomer finds its model, and what it needs for that.
ARRIVING = {
    "ifca": "its losses, with labels",
    "fesem": "its trained model, with labels",
    "fedgroup": "its first update, with labels",
    "flhc": "its first update, with labels",
    "stocfl": "its first update, with labels",
    "pacfl": "singular vectors of its samples, without labels",
    "flux": "moments of what a model says, without labels",
    "fedavg": "nothing: there is one model",
    "fedavg_ft": "nothing to place; labels to fine-tune",
    "local": "nothing: it trains alone, with labels",
}
UNLABELLED = (
    "pacfl",
    "flux",
    "fedavg",
)  # those that take a newcomer without labels: by its samples, or with one model for all
ARRIVALS = (*WHERE, "feature_shift")
SAMPLES = (1, 5, 20)
AGES = ("0", "1", "5")
WHEN = "after 5 rounds"
BEFORE, FIRST = 10, 15  # rounds before they come, clients that are there by then


def wrong_k(options: Options) -> Reproduction:
    """Accuracy with 1 to 2k clusters where there are k."""
    cells: list[Cell] = []
    for setting in WHERE[: 1 if options.quick else None]:
        true = SETTINGS[setting].clusters
        for k in range(1, 2 * true + 1):
            for method in TOLD:
                table = table_of(setting, options.dataset, method, Trial(RATE), options.quick)
                table |= {"clusters": k, "true_clusters": true}
                values = _figures(options, table, lambda run: run.accuracy(metric="client_mean"))
                cells += [cell(f"{setting}, k = {k}", method, values)] if values else []
    return Reproduction(
        paper="field",
        table="wrong_k",
        title="What a wrong number of clusters costs",
        dataset=options.dataset,
        settings={"true clusters": {s: SETTINGS[s].clusters for s in WHERE}, "lr": RATE, "seeds": options.count(SEEDS)},
        cells=cells,
        notes=[f"One learning rate for all ({RATE}), untuned; clients, rounds and batches as in the field's tables."],
    )


def claims_on_wrong_k(sheet: Sheet) -> list[Statement]:
    """Too few costs more than too many: the price of half the clusters less that of twice as many."""
    statements = []
    for setting in WHERE:
        true = SETTINGS[setting].clusters
        half, right, twice = (f"{setting}, k = {k}" for k in (max(1, true // 2), true, 2 * true))
        parts = [Part(m, at(twice, m) - at(half, m), above()) for m in TOLD]
        statements.append(
            Statement(f"{setting}: twice as many clusters cost less than half as many.", parts, whose="ours")
        )
        parts = [Part(m, at(twice, m) - at(right, m), within(0.02)) for m in TOLD]
        statements.append(
            Statement(f"{setting}: twice as many clusters cost nothing (within 2 points).", parts, whose="ours")
        )
    return statements


def newcomers(options: Options) -> Reproduction:
    """Clients that come after ten rounds with 1, 5 or 20 samples, with labels or without: accuracy after 0, 1 and 5 rounds."""
    cells: list[Cell] = []
    for setting in ARRIVALS[: 1 if options.quick else None]:
        for samples in SAMPLES:
            for method, labels in (*((m, True) for m in ARRIVING), *((m, False) for m in UNLABELLED)):
                runs = _runs(options, newcomers_table(setting, options.dataset, method, samples, labels))
                row = f"{setting}, {samples} sample{'s' * (samples != 1)}{', no labels' * (not labels)}: {method}"
                for age in AGES:
                    values = [value for run in runs for value in (_at_age(run, age),) if value is not None]
                    cells += [cell(row, f"after {age} rounds", values)] if values and len(values) == len(runs) else []
    return Reproduction(
        paper="field",
        table="newcomers",
        title="Newcomers with few samples",
        dataset=options.dataset,
        settings={"joined after round": BEFORE, "there by then": FIRST, "lr": RATE, "placed by": ARRIVING},
        cells=cells,
        notes=[
            "Five of twenty clients come after ten rounds; their accuracy is that of the model they use, on the test data of their "
            "cluster. After 0 rounds: the model that they find, before they have sent anything.",
            "A newcomer with labels also trains, from its first round on. Without labels (participation.newcomer_labels = false) "
            "it trains nothing: it takes part once, with moments of its samples (FLUX) or their singular vectors (PACFL), and uses "
            "the model of the cluster it is placed in; with FedAvg it does nothing but use the model. The other methods refuse it.",
            "One sample has no deviation: FLUX then compares a deviation of 0 with those of clusters, and a newcomer can be worse "
            "off after it was placed than with the common model that it found (label sets, 1 sample).",
            f"One learning rate for all ({RATE}), untuned.",
        ],
    )


def newcomers_table(setting: str, dataset: str, method: str, samples: int, labels: bool = True) -> dict[str, Any]:
    table = table_of(setting, dataset, method, Trial(RATE))
    first = {"partition": {**table["partition"], "in_turn": True}} if setting == "label_sets" else {}
    return {
        **table,
        **first,
        "participation": {
            "initial": FIRST,
            "join": table["clients"] - FIRST,
            "join_every": BEFORE,
            "newcomer_samples": samples,
            "newcomer_labels": labels,
        },
        "training": {**table["training"], "rounds": BEFORE + 5},
        "evaluation": {**table["evaluation"], "every": 1},
    }


def claims_on_newcomers(sheet: Sheet) -> list[Statement]:
    statements = []
    for setting in WHERE:
        row = f"{setting}, 5 samples: "
        parts = [
            Part(m, at(row + m, "after 1 rounds") - at(row + "local", "after 5 rounds"), above())
            for m in ("ifca", "fedgroup", "flux")
        ]
        text = f"{setting}: after one round a newcomer with 5 samples is better off than alone after five."
        statements.append(Statement(text, parts, whose="ours"))
    for setting in ARRIVALS:
        parts = [
            Part(
                m,
                at(f"{setting}, 20 samples, no labels: {m}", WHEN) - at(f"{setting}, 20 samples: {m}", WHEN),
                within(0.02),
            )
            for m in UNLABELLED[:2]
        ]
        text = f"{setting}: 20 samples without labels serve a newcomer as well as with (after five rounds, within 2 points)."
        statements.append(Statement(text, parts, whose="ours"))
        parts = [
            Part(
                m,
                at(f"{setting}, 20 samples, no labels: {m}", WHEN)
                - at(f"{setting}, 20 samples, no labels: fedavg", WHEN),
                above(),
            )
            for m in UNLABELLED[:2]
        ]
        text = f"{setting}: a newcomer without labels is better off with the cluster it is placed in than with one model for all."
        statements.append(Statement(text, parts, whose="ours"))
    return statements


def _runs(options: Options, table: dict[str, Any]) -> list[Outcome]:
    """All seeds, or none."""
    seeds = options.count(SEEDS)
    runs = [options.attempt(table, seed) for seed in range(seeds)]
    done = [run for run in runs if isinstance(run, Outcome) and not run.stands_in]
    return done if len(done) == seeds else []


def _figures(options: Options, table: dict[str, Any], figure: Any) -> Sequence[float]:
    return [figure(run) for run in _runs(options, table)]


def _at_age(run: Outcome, age: str) -> float | None:
    values = [r["newcomers"][age]["accuracy"] for r in run.records if age in (r.get("newcomers") or {})]
    return float(values[-1]) if values else None
