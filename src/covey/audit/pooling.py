"""One score out of several seeds', and which of many scores are more than luck. Pure functions of findings.

An interval over seeds covers what differs within a run (its clients, samples, rounds) and between runs (their partitions and
draws): random effects, as meta-analyses have it. With three seeds the spread between them is known roughly: more tell more.
Where every run has the same clients, as four hospitals are the same four whatever the seed, runs tell of draws only: what differs
between clients is known no better than from one run.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from covey.attacks.finding import Finding
from covey.statistics import Z

LUCK = 0.05  # of at least one leak among the scores of a cell where nothing leaks


def pooled(findings: Sequence[Finding], same_clients: bool = False) -> Finding:
    """The same attack in several runs. Runs in which it could measure nothing are left out, unless all are such.

    `same_clients`: the runs have the same clients with the same samples, so they are no further evidence about clients.
    """
    measured = [one for one in findings if one.measured]
    if len(measured) < 2:
        return (measured or findings)[0]
    first = measured[0]
    values = np.array([one.value for one in measured])
    below = np.array([one.value - (one.low or 0.0) for one in measured])
    above = np.array([(one.high or 0.0) - one.value for one in measured])
    mean, ends = float(values.mean()), (min(0.0, float(values.min())), max(1.0, float(values.max())))
    names = dict.fromkeys(name for one in measured for name in one.controls)
    controls = {name: _mean([one.controls[name] for one in measured if name in one.controls]) for name in names}
    kinds = dict.fromkeys(variant.attack for one in measured for variant in one.variants)
    by_kind = [[v for one in measured for v in one.variants if v.attack == kind] for kind in kinds]
    alike = " with the same clients" if same_clients else ""
    note = f"In the first run: {first.note[0].lower()}{first.note[1:]}" if first.note else ""
    return replace(
        first,
        value=mean,
        chance=None if first.chance is None else _mean([one.chance for one in measured if one.chance is not None]),
        low=max(ends[0], mean - _half(values, below, same_clients)),
        high=min(ends[1], mean + _half(values, above, same_clients)),
        controls=controls,
        used=f"{first.used} (in each of {len(measured)} runs{alike})",
        details={},
        variants=[pooled(same, same_clients) for same in by_kind],
        note=note,
    )


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values))


def _half(values: np.ndarray, halves: np.ndarray, same_clients: bool) -> float:  # type: ignore[type-arg]
    """Half the width of the mean's interval, on one side: errors within the runs, and what the runs differ by beyond them."""
    within, spread = float((halves / Z).__pow__(2).mean()), float(values.var(ddof=1))
    if same_clients:
        return Z * math.sqrt(within + spread / len(values))
    between = max(0.0, spread - within)
    return Z * math.sqrt((within + between) / len(values))


def beyond_luck(findings: Sequence[Finding]) -> list[bool]:
    """Which of all these scores exceed their bars by more than luck among so many explains: Holm's procedure at 5 %.

    How improbable a score is follows from its interval, as if it were normal.
    """
    chances = [_probability(one) for one in findings]
    certain = [False] * len(findings)
    for rank, place in enumerate(sorted(range(len(findings)), key=lambda i: chances[i])):
        if chances[place] > LUCK / (len(findings) - rank):
            break
        certain[place] = True
    return certain


def _probability(one: Finding) -> float:
    """Two-sided, of a score as far beyond its bar by luck; 1 where it is not beyond."""
    if one.bar is None or one.interval is None or not one.scale.beats(one.value, one.bar):
        return 1.0
    error = abs(one.value - one.interval[0 if one.scale.upwards else 1]) / Z
    return math.erfc(abs(one.value - one.bar) / (error * math.sqrt(2))) if error > 0 else 0.0
