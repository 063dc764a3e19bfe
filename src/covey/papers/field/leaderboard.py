"""Who leads the field: ranks over places (a setting on a dataset), with intervals from drawing seeds anew.

A method's rank in a place is by its mean own-data accuracy over seeds among all methods that have a row there, equal ones sharing
the mean of their ranks; its rank is the mean over the places that it has. The interval is the middle 95 % of that, over draws of
the seeds of every place with replacement, the same for all methods (which met the same clients): of five seeds it is a rough one,
and it says nothing of other places. Costs are ratios to FedAvg's in the same place, geometric means over places.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from covey.algorithms import ALGORITHMS
from covey.algorithms.contract import declaration
from covey.papers.cells import Sheet
from covey.papers.field.settings import SETTINGS
from covey.papers.field.tables import DOWN, OWN, SECONDS, UP, WORST
from covey.papers.harness import Reproduction
from covey.randomness import generator

DRAWS = 1000
BASE = "fedavg"
FAMILIES = {"one": "one model", "own": "alone", "clusters": "clustered"}


@dataclass(frozen=True)
class Standing:
    method: str
    label: str
    family: str
    rank: float
    interval: tuple[float, float]
    places: int  # that it has a row in
    own: float  # mean over these places
    worst: float
    traffic: float | None  # × FedAvg's, up and down together
    seconds: float | None  # × FedAvg's


def places(reproductions: Sequence[Reproduction]) -> list[Reproduction]:
    """The tables that methods are ranked in."""
    return [one for one in reproductions if one.table in SETTINGS and one.cells and not one.quick]


def standings(reproductions: Sequence[Reproduction]) -> list[Standing]:
    """The best first; those that lack places after those that have all."""
    every = places(reproductions)
    methods = list(dict.fromkeys(row for one in every for row in one.sheet().rows))
    ranks, low, high = _ranks(every, methods)
    lines = []
    for number, method in enumerate(methods):
        own = [one.sheet() for one in every if one.sheet().get((method, OWN))]
        lines.append(
            Standing(
                method,
                label_of(method),
                family_of(method),
                float(ranks[number]),
                (float(low[number]), float(high[number])),
                len(own),
                float(np.mean([sheet.mean(method, OWN) for sheet in own])),
                float(np.mean([sheet.mean(method, WORST) for sheet in own])),
                _ratio(own, method, (UP, DOWN)),
                _ratio([one.sheet() for one in every if _on_a_core(one)], method, (SECONDS,)),
            )
        )
    return sorted(lines, key=lambda line: (line.places < len(every), line.rank))


def _ranks(
    every: Sequence[Reproduction], methods: Sequence[str]
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Mean rank of each method, and the ends of its interval."""
    drawn = np.full((DRAWS + 1, len(every), len(methods)), np.nan)
    for at, one in enumerate(every):
        sheet = one.sheet()
        values = {m: cell.values for m in methods if (cell := sheet.get((m, OWN))) and cell.values}
        seeds = min(len(v) for v in values.values())
        table = np.array([values[m][:seeds] if m in values else [np.nan] * seeds for m in methods])  # [methods, seeds]
        rng = generator(0, "leaderboard", one.name)
        choices = np.vstack([np.arange(seeds), rng.integers(0, seeds, (DRAWS, seeds))])
        for draw, chosen in enumerate(choices):
            drawn[draw, at] = ranked(table[:, chosen].mean(1))
    means = np.nanmean(drawn, axis=1)
    low, high = np.quantile(means[1:], [0.025, 0.975], axis=0)
    return means[0], low, high


def ranked(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """1 for the greatest; equal ones share the mean of their ranks, NaN has none."""
    known = values[:, None]
    above = (known < values[None]).sum(1)
    equal = (known == values[None]).sum(1)
    return np.where(np.isnan(values), np.nan, above + (equal + 1) / 2)


def _on_a_core(one: Reproduction) -> bool:
    """Whether its seconds are of a CPU: a GPU's are those of starting small computations, whatever is computed."""
    return all(str(device).startswith("cpu") for device in one.runs.get("device", ()))


def _ratio(sheets: Sequence[Sheet], method: str, columns: Sequence[str]) -> float | None:
    logs = []
    for sheet in sheets:
        own, base = (sum(sheet.mean(row, column) for column in columns) for row in (method, BASE))
        if own > 0 and base > 0:  # not a number where it has no row
            logs.append(math.log(own / base))
    return math.exp(float(np.mean(logs))) if logs else None


def label_of(method: str) -> str:
    return declaration(ALGORITHMS[method]).label if method in ALGORITHMS else method


def family_of(method: str) -> str:
    if method not in ALGORITHMS:
        return "not here any more"
    declared = declaration(ALGORITHMS[method])
    return declared.family or FAMILIES[declared.trains]


def chosen(reproductions: Sequence[Reproduction]) -> Mapping[str, Mapping[str, str]]:
    """method -> place -> the parameters that its trials chose, in words."""
    words: dict[str, dict[str, str]] = {}
    for one in places(reproductions):
        for method, fields in one.settings.get("chosen", {}).items():
            said = ", ".join(
                f"{name} {value:g}" if isinstance(value, float) else f"{name} {value}" for name, value in fields.items()
            )
            words.setdefault(method, {})[one.name] = said
    return words
