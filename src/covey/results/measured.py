"""The metrics of a run as its files say them: figures over clients, with what each metric says of itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from covey.files import number
from covey.metrics import METRICS
from covey.results.contents import Json, Run, dig, fields

LEADING = "accuracy"  # what a record's accuracies are means of


@dataclass(frozen=True)
class Measured:
    name: str
    title: str
    higher: bool = True  # is better
    as_share: bool = True  # from 0 to 1, shown as a percentage
    beside: bool = False  # stands beside accuracy where classes are uneven
    asked: bool = False  # for by the experiment
    figures: Mapping[str, Any] = field(default_factory=dict)  # mean, worst, p10, gap, …

    def figure(self, name: str) -> float | None:
        return number(self.figures.get(name))


def read(metrics: Mapping[str, Any]) -> list[Measured]:
    """As result.json or a round has them; what a round does not say of a metric, the registry does, or nobody."""
    return [_one(str(name), fields(entry)) for name, entry in metrics.items()]


def measured(run: Run) -> list[Measured]:
    """What result.json says, else the last evaluated round."""
    return read(fields(run.final("metrics")))


def _one(name: str, entry: Json) -> Measured:
    claims = METRICS.claims(name)
    declared: Mapping[str, Any] = claims[0].declared if claims else {}
    return Measured(
        name,
        str(entry.get("title") or declared.get("title") or name),
        bool(entry.get("higher", declared.get("higher", True))),
        bool(entry.get("as_share", declared.get("share", bool(declared)))),
        bool(entry.get("beside", declared.get("uneven", False))),
        bool(entry.get("asked", False)),
        entry,
    )


def shown(every: list[Measured], is_uneven: bool) -> list[Measured]:
    """What a reader needs beside accuracy: what was asked for, and what accuracy hides; all where there is no accuracy."""
    if not any(one.name == LEADING for one in every):
        return every
    return [one for one in every if one.name != LEADING and (one.asked or (one.beside and is_uneven))]


CONSTANT = (
    "at most one class is ever recognised, in every cluster: the models give the same answer to all samples, as if nothing was "
    "learned; training.lr may be too high, or training too short"
)


def constant(classes: Mapping[str, Any]) -> bool:
    """Whether predictions are those of a constant, by the recall of each class at the end: 1 for one of them, 0 for the others.

    Clients of one cluster with different constants of their own are not told from models that err.
    """
    listed = classes.get("recall_per_cluster") or [classes.get("recall")]
    known = [sorted(v for one in row if (v := number(one)) is not None) for row in listed if isinstance(row, list)]
    return bool(known) and all(len(row) > 1 and row[-2] == 0 and row[-1] in (0, 1) for row in known)


def uneven(run: Run) -> bool:
    """Whether accuracy hides how small classes fare; see `metrics.spread`."""
    return dig(run.result, "classes", "uneven") is True or run.latest("classes", "uneven") is True
