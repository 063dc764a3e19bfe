"""What rounds recorded as one long table: a line for each number.

round   metric                       scope     id                    value
3       accuracy                     run       average_cluster       0.91
3       loss                         clients   worst                 0.62
3       loss                         client    17                    0.44
3       accuracy                     cluster   2                     0.93
3       recall                       class     ill                   0.61
3       bytes                        run       up                    60137
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from covey.errors import CoveyError
from covey.files import number
from covey.results.contents import fields

COLUMNS = ("round", "metric", "scope", "id", "value")
Line = tuple[int, str, str, str | int, float]


def frame(records: Sequence[Mapping[str, Any]], classes: Sequence[str] = ()) -> Any:
    """As a pandas frame."""
    try:
        import pandas
    except ModuleNotFoundError as e:
        raise CoveyError("a frame needs pandas: `pip install 'covey[data]'` adds it") from e
    return pandas.DataFrame(lines(records, classes), columns=list(COLUMNS))


def lines(records: Sequence[Mapping[str, Any]], classes: Sequence[str] = ()) -> list[Line]:
    """The table; what is unknown has no line."""
    return [line for record in records for line in _of_round(record, classes)]


def _of_round(record: Mapping[str, Any], classes: Sequence[str]) -> Iterator[Line]:
    round = int(record["round"])
    for name in ("participants", "dropped"):
        yield from _line(round, name, "run", "", record.get(name))
    for metric in ("accuracy", "clustering", "bytes", "seconds", "extra"):
        for id, value in fields(record.get(metric)).items():
            yield from _line(round, metric, "run", id, value)
    yield from _listed(round, "accuracy", "cluster", fields(record.get("accuracy")).get("per_cluster"))
    for metric, figures in fields(record.get("metrics")).items():
        for id, value in figures.items():
            yield from _line(round, metric, "clients", id, value)
        yield from _listed(round, metric, "client", figures.get("clients"), record.get("listed") or ())
        if metric not in record:  # of accuracy the clusters stand above, each with its own model
            yield from _listed(round, metric, "cluster", figures.get("per_cluster"))
    for metric, values in fields(record.get("classes")).items():
        yield from _listed(round, metric, "class", values, classes)


def _listed(round: int, metric: str, scope: str, values: Any, names: Sequence[str | int] = ()) -> Iterator[Line]:
    for i, value in enumerate(values if isinstance(values, list) else ()):
        yield from _line(round, metric, scope, names[i] if i < len(names) else i, value)


def _line(round: int, metric: str, scope: str, id: str | int, value: Any) -> Iterator[Line]:
    size = None if isinstance(value, bool) else number(value)
    if size is not None:
        yield round, metric, scope, id, size
