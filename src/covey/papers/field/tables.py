"""Methods × settings × datasets, one table for each setting and dataset; all of them in one pool of processes by

covey reproduce field --minutes 30
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from covey.algorithms import ALGORITHMS
from covey.algorithms.contract import declaration
from covey.papers.cells import Cell, Sheet, at, cell
from covey.papers.field.published import claims_on_flamby, claims_on_rotated, flamby, rotated
from covey.papers.field.questions import claims_on_newcomers, claims_on_wrong_k, newcomers, wrong_k
from covey.papers.field.settings import RATES, SETTINGS, SMALL, TUNED_ON, Trial, table_of, trials
from covey.papers.harness import UNFINISHED, Options, Reproduction, Table
from covey.papers.outcome import Outcome
from covey.papers.verdict import Part, Statement, above

TITLE = "The field: every algorithm in every setting, tuned by one rule"
OWN, WORST, AGREES = "own test data", "worst client", "clusters (ARI)"  # columns
UP, DOWN, SECONDS = "kB up per client and round", "kB down per client and round", "seconds a round, one core"
SEEDS, FEWER = 5, 3  # of small datasets, of others
ASIDE = ("auto_k",)  # counts clusters for another method, whose row is that one's
ALONE, TUNED_GLOBAL = "local", "fedavg_ft"  # what a clustering must beat


def methods() -> list[str]:
    return [name for name in ALGORITHMS if name not in ASIDE]


# ---------------------------------------------------------------- a table


def make(setting: str, options: Options) -> Reproduction:
    """Trials of all methods first; the figures of one follow once its trials are there."""
    count = options.count(SEEDS if options.dataset in SMALL else FEWER)
    tuning = {method: _trials(setting, options, method) for method in methods()}
    cells: list[Cell] = []
    chosen: dict[str, Any] = {}
    tried: dict[str, Any] = {}
    missing: dict[str, str] = {}
    unsettled: list[Outcome] = []
    for method, outcomes in tuning.items():
        ended = {trial: one for trial, one in outcomes.items() if isinstance(one, Outcome)}
        waiting = [one for one in ended.values() if one.stands_in]
        unsettled += waiting
        reasons = [one for one in outcomes.values() if isinstance(one, str)]
        if waiting or UNFINISHED in reasons or not ended:
            missing[method] = _lacks(reasons, len(ended))
            continue
        scores = {trial: _score(one) for trial, one in ended.items()}
        best = max(scores, key=lambda trial: scores[trial])
        table = table_of(setting, options.dataset, method, best, options.quick)
        figures = [options.attempt(table, seed) for seed in range(count)]
        runs = [one for one in figures if isinstance(one, Outcome) and not one.stands_in]
        if len(runs) < count:
            missing[method] = _lacks([one for one in figures if isinstance(one, str)], len(ended) + len(runs))
            continue
        chosen[method] = best.json()
        tried[method] = [trial.json() | {"accuracy": score} for trial, score in scores.items()]
        tried[method] += [t.json() | {"refused": one} for t, one in outcomes.items() if isinstance(one, str)]
        cells += _row(method, runs)
    options.settled(unsettled)
    return Reproduction(
        paper="field",
        table=setting,
        title=SETTINGS[setting].title,
        dataset=options.dataset,
        settings={
            **_common(setting, options),
            "seeds": count,
            "rows": f"{len(chosen)} of {len(tuning)}",
            "chosen": chosen,
            "trials": tried,
            "missing": missing,
        },
        cells=cells,
        notes=[
            f"{len(chosen)} of {len(tuning)} methods have a row; {len(RATES)} trials each on seed {TUNED_ON} chose their "
            "parameters (settings), by the rule in src/covey/papers/field/settings.py.",
            *(f"{method} has no row: {why}" for method, why in missing.items()),
        ],
    )


def _trials(setting: str, options: Options, method: str) -> dict[Trial, Outcome | str]:
    tried = trials(method, SETTINGS[setting].scale)
    tables = {trial: table_of(setting, options.dataset, method, trial, options.quick) for trial in tried}
    return {trial: options.attempt(table, TUNED_ON) for trial, table in tables.items()}


def _score(outcome: Outcome) -> float:
    """Of a trial; no number is below all."""
    score = outcome.accuracy(metric="client_mean")
    return score if math.isfinite(score) else -1.0


def _lacks(reasons: Sequence[str], finished: int) -> str:
    """Why a method has no row: what it refused, else how far it came."""
    refused = [reason for reason in reasons if reason != UNFINISHED]
    return refused[0] if refused else f"{finished} of its runs are finished, the others were not run in the time given"


def _row(method: str, runs: Sequence[Outcome]) -> list[Cell]:
    agrees = [(run.records[-1].get("clustering") or {}).get("ari") for run in runs]
    known = [a for a in agrees if a is not None]
    return [
        cell(method, OWN, [run.accuracy(metric="client_mean") for run in runs]),
        cell(method, WORST, [float(run.records[-1]["metrics"]["accuracy"]["worst"]) for run in runs]),
        *([cell(method, AGREES, known, unit="ARI")] if len(known) == len(runs) else []),
        cell(method, UP, [run.result["bytes"]["up"] / 1e3 for run in runs], unit="kB"),
        cell(method, DOWN, [run.result["bytes"]["down"] / 1e3 for run in runs], unit="kB"),
        cell(method, SECONDS, [_seconds(run) for run in runs], unit="s"),
    ]


def _seconds(run: Outcome) -> float:
    """Of all but evaluations, which are no part of a protocol."""
    phases = {phase for record in run.records for phase in record["seconds"]}
    return sum(run.seconds(phase) for phase in phases - {"evaluate"})


def _common(setting: str, options: Options) -> dict[str, Any]:
    table = table_of(setting, options.dataset, "", Trial(0.0), options.quick)
    training = {name: value for name, value in table["training"].items() if name != "lr"}
    return {name: table[name] for name in ("clients", "clusters", "partition", "model")} | {"training": training}


# ---------------------------------------------------------------- claims


def claims(sheet: Sheet) -> list[Statement]:
    """Whether clustering pays here: the clustered method that the trials put first, so that no figure picked it, and IFCA."""
    picked = picked_by_trials(sheet.settings, clustered())
    rivals = {ALONE: "training alone", TUNED_GLOBAL: "FedAvg with fine-tuning"}
    statements = []
    for name, words in {
        "ifca": "IFCA",
        **({picked: f"The clustered method that its trials put first ({picked})"} if picked else {}),
    }.items():
        statements += [
            Statement(
                f"{words} serves clients better on their own test data than {rival_words}.",
                [Part(f"{name} − {rival}", at(name, OWN) - at(rival, OWN), above())],
                whose="ours",
            )
            for rival, rival_words in rivals.items()
        ]
    return statements


def clustered() -> list[str]:
    return [name for name in methods() if declaration(ALGORITHMS[name]).trains == "clusters"]


def picked_by_trials(settings: Any, among: Sequence[str]) -> str | None:
    """The method with the best trial, of those that have a row."""
    tried = settings.get("trials", {})
    scores = {m: [t["accuracy"] for t in tried.get(m, ()) if "accuracy" in t] for m in among}  # without refused ones
    best = {m: max(own) for m, own in scores.items() if own}
    return max(best, key=lambda m: best[m]) if best else None


def _table(setting: str, datasets: tuple[str, ...]) -> Table:
    def made(options: Options) -> Reproduction:
        return make(setting, options)

    made.__doc__ = f"{SETTINGS[setting].title}: all methods, tuned by one rule."
    return Table(made, datasets, claims, grows=True)


_IMAGES = ("digits", "mnist", "fashion_mnist")
TABLES = {name: _table(name, ("heart",) if name == "silos" else _IMAGES) for name in SETTINGS} | {
    "wrong_k": Table(wrong_k, ("digits",), claims_on_wrong_k, grows=True),
    "newcomers": Table(newcomers, ("digits",), claims_on_newcomers, grows=True),
    "rotated": Table(rotated, ("mnist",), claims_on_rotated, grows=True),
    "flamby": Table(flamby, ("flamby_heart",), claims_on_flamby, grows=True),
}
