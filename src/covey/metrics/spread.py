"""A metric over clients: its mean, who is worst off, and how far they are apart. Every client counts the same."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from covey.metrics.counted import f1s, precisions, recalls
from covey.metrics.metric import Metric
from covey.metrics.totals import LABELS, NUMBERS, Floats, Totals
from covey.statistics import deviation, tallied

IN_FULL = 200  # clients (classes) of which every evaluated round lists each; beyond them only the last round does
DIGITS = 6


def spread(
    metric: Metric, values: Mapping[int, float], clusters: Mapping[int, int], listed: Sequence[int], full: bool
) -> dict[str, Any]:
    """`spread_of` from tables by client; a client without a cluster is in none."""
    of = members(np.array([clusters.get(client, -1) for client in values], np.int64))
    return spread_of(metric, list(values), np.array(list(values.values())), of, listed, full)


def members(clusters: NDArray[np.int64]) -> list[NDArray[np.int64] | slice]:
    """The places of each cluster's clients; -1: a client is in none."""
    groups = tallied(clusters if clusters.min(initial=0) >= 0 else clusters[clusters >= 0])[0]
    if len(groups) == 1 and clusters.min() >= 0:
        return [slice(None)]
    return [np.flatnonzero(clusters == c) for c in groups]


def spread_of(
    metric: Metric,
    clients: Sequence[int],
    values: NDArray[np.float64],
    of_clusters: Sequence[NDArray[np.int64] | slice],
    listed: Sequence[int],
    full: bool,
) -> dict[str, Any]:
    """A round's record of one metric of these clients and of the `members` of each cluster. `full`: with the value of each client
    that is listed, None of one that has none.

    worst, p10, gap: the client worst off, the value that a tenth of the clients do not reach, and how far the worst is from the
    best. Of a metric that is less the better, "reach" means to be as low.
    """
    there = ~np.isnan(values)
    known = values if there.all() else values[there]
    if not len(known):
        return {"mean": None, "unknown": len(values)} | ({"why": metric.lacks} if metric.lacks else {})
    mean, ends = known.mean(), (known.min(), known.max())
    alike = ends[0] == ends[1]  # as all clients of one model are
    worst, best = ends[:: 1 if metric.higher else -1]
    low, median, high = [float(worst)] * 3 if alike else _quantiles(np.sort(known), (0.1, 0.5, 0.9))
    figures = {
        "mean": mean,
        "worst": worst,
        "p10": low if metric.higher else high,
        "median": median,
        "p90": high if metric.higher else low,
        "best": best,
        "gap": abs(best - worst),
        "spread": 0.0 if alike else deviation(known),
    }
    record: dict[str, Any] = {name: float(value) for name, value in figures.items()}
    if len(known) < len(values):
        record["unknown"] = len(values) - len(known)
    record["per_cluster"] = [
        float(mean) if isinstance(places, slice) else _mean_of(values[places], there[places]) for places in of_clusters
    ]
    if full or len(listed) <= IN_FULL:
        rounded = {value: _rounded(value) for value in set(known.tolist())}  # clients alike share theirs; none: None
        of_each = list(map(rounded.get, values.tolist()))
        record["clients"] = of_each if clients == listed else list(map(dict(zip(clients, of_each)).get, listed))
    return record


def _mean_of(values: Floats, there: NDArray[np.bool_]) -> float | None:
    known = values if there.all() else values[there]
    return float(np.mean(known)) if len(known) else None


def _quantiles(ordered: Floats, shares: Sequence[float]) -> list[float]:
    """numpy's quantiles, to the bit, in less than half of its time: every metric of every evaluated round asks for them."""
    found = []
    for share in shares:
        at = share * (len(ordered) - 1)
        first = math.floor(at)
        below, above = float(ordered[first]), float(ordered[min(first + 1, len(ordered) - 1)])
        part = at - first
        found.append(below + (above - below) * part if part < 0.5 else above - (above - below) * (1 - part))
    return found


def per_class(task: str, totals: Sequence[Floats], full: bool) -> dict[str, Any]:
    """Of each class, label or output: `totals` summed over clients, of all of them, then of each cluster."""
    whole = Totals(task, totals[0])
    if task == NUMBERS:
        return {"rmse": _list(np.sqrt(whole.squared)), "mae": _list(whole.absolute)}
    if len(whole.true) > IN_FULL and not full:
        return {}
    record: dict[str, Any] = {
        "uneven": task == LABELS or _uneven(whole.true),
        "share": _list(whole.true),
        "recall": _list(recalls(whole)),
        "precision": _list(precisions(whole)),
        "f1": _list(f1s(whole)),
    }
    if len(totals) > 2:
        record["recall_per_cluster"] = [_list(recalls(Totals(task, one))) for one in totals[1:]]
    return record


def _uneven(shares: Floats) -> bool:
    """Whether the largest class has at least twice the samples of the smallest: then accuracy alone says little."""
    held = shares[shares > 0]
    return len(held) > 1 and bool(held.max() >= 2 * held.min())


def _list(values: Floats) -> list[Any]:
    return list(map(_rounded, values.tolist()))


def _rounded(value: float) -> float | None:
    return None if math.isnan(value) else round(value, DIGITS)
