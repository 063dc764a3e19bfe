"""Scores of category inference: precision and recall per cluster and round, F1 of their means, bootstrap, and the words.

The unit of every score is a *pair* (attacked round, cluster with clients in it). F1 = 2 p̄ r̄ / (p̄ + r̄) with p̄ and r̄ the
means over pairs, as the paper computes it: not the mean of the pairs' F1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Sets = NDArray[np.bool_]  # [pairs, classes]


@dataclass(frozen=True)
class Score:
    precision: float
    recall: float
    f1: float
    low: float
    high: float


@dataclass(frozen=True)
class Leak:
    """What reading the update adds to the best attacker that does not read it; interval over the same resamples."""

    value: float
    low: float
    high: float
    control: str  # the best one
    reached: float  # its F1


def resamples(pairs: Sequence[tuple[int, int]], count: int, random: np.random.Generator) -> NDArray[np.int64]:
    """Positions [count, pairs] for the bootstrap: clusters are drawn with replacement, then rounds within each.

    A cluster keeps most of its clients from round to round, so its rounds are nearly one observation: resampling pairs as if
    they were independent would call a difference of a hundredth certain after nine rounds of two clusters.
    """
    own = np.array([cluster for _, cluster in pairs])
    places = [np.flatnonzero(own == cluster) for cluster in np.unique(own)]
    drawn = random.integers(0, len(places), (count, len(places)))  # the cluster that stands in for each
    within = random.random((count, len(pairs)))
    index = np.empty((count, len(pairs)), np.int64)
    for n, place in enumerate(places):
        for other, rounds in enumerate(places):
            there = drawn[:, n] == other
            index[np.ix_(there, place)] = rounds[(within[np.ix_(there, place)] * len(rounds)).astype(np.int64)]
    return index


def per_pair(said: Sets, present: Sets) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """(precision [pairs], recall [pairs]); precision of saying nothing is 0."""
    hits = (said & present).sum(1)
    return hits / np.maximum(said.sum(1), 1), hits / np.maximum(present.sum(1), 1)


def f1_of(precision: NDArray[np.float64], recall: NDArray[np.float64]) -> NDArray[np.float64]:
    """2 p̄ r̄ / (p̄ + r̄) along the last axis; 0 where both are."""
    p, r = precision.mean(-1), recall.mean(-1)
    return np.asarray(np.divide(2 * p * r, p + r, out=np.zeros_like(p), where=p + r > 0))


def score(said: Sets, present: Sets, draws: NDArray[np.int64]) -> Score:
    """Means, and the 95 % interval of F1 over resamples; `draws` [repetitions, pairs]."""
    p, r = per_pair(said, present)
    low, high = np.percentile(f1_of(p[draws], r[draws]), [2.5, 97.5])
    return Score(float(p.mean()), float(r.mean()), float(f1_of(p, r)), float(low), float(high))


def leak(said: Sets, controls: Mapping[str, Sets], present: Sets, draws: NDArray[np.int64]) -> Leak:
    """The score less the best control's. The best is chosen anew in every resample, so that luck in choosing it counts."""
    own = per_pair(said, present)
    others = {name: per_pair(sets, present) for name, sets in controls.items()}
    reached = {name: float(f1_of(p, r)) for name, (p, r) in others.items()}
    best = max(reached, key=lambda name: reached[name])
    bars = np.max([f1_of(p[draws], r[draws]) for p, r in others.values()], axis=0)
    low, high = np.percentile(f1_of(own[0][draws], own[1][draws]) - bars, [2.5, 97.5])
    return Leak(float(f1_of(*own)) - reached[best], float(low), float(high), best, reached[best])


def coin(present: Sets) -> float:
    """F1 of a fair coin per category: recall 1/2, precision the share of categories that are there."""
    share = float(present.mean())
    return share / (share + 0.5) if share else 0.0


def describe(pairs: Sequence[tuple[int, int]], said: Sets, present: Sets) -> list[dict[str, Any]]:
    """Scores and sets of every attacked round and cluster."""
    precision, recall = per_pair(said, present)
    return [
        {
            "round": round,
            "cluster": cluster,
            "precision": float(p),
            "recall": float(r),
            "f1": float(f1_of(p[None], r[None])),
            "said": np.flatnonzero(s).tolist(),
            "present": np.flatnonzero(t).tolist(),
        }
        for (round, cluster), p, r, s, t in zip(pairs, precision, recall, said, present)
    ]


def by_round_and_cluster(scored: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The same as a table for the report."""
    head = ("round", "cluster", "precision", "recall", "f1", "said", "present")
    rows = [[", ".join(map(str, pair[k])) if isinstance(pair[k], list) else pair[k] for k in head] for pair in scored]
    return {"kind": "table", "title": "categories by round and cluster", "head": list(head), "rows": rows}


def in_words(added: Leak, value: float, aware: tuple[float, Leak] | None = None) -> str:
    """What a reader of the score must know first; `aware`: F1 and leak of the noise-aware attacker of a defended run."""
    bar = f"“{added.control}”, which never reads the update, reaches {added.reached:.3f}"
    origin = "What the attacker learns comes from the published cluster models, by filing auxiliary subsets by loss."
    change = _change(added)
    if added.low > 0:
        words = f"The update leaks categories: F1 {value:.3f}, {bar}; reading the update adds {change}."
    elif added.high < 0:
        words = (
            f"Reading the update makes the inference worse: F1 {value:.3f}, {bar}; it changes F1 by {change}. {origin}"
        )
    else:
        words = f"The update adds nothing that is seen: F1 {value:.3f}, but {bar}; reading it changes F1 by {change}. {origin}"
    if aware is None:
        return words
    return (
        f"{words} An attacker who adds the noise that it measures to its rows reaches {aware[0]:.3f}, "
        f"{_change(aware[1])} against its best control."
    )


def _change(added: Leak) -> str:
    return f"{added.value:+.3f} ({added.low:+.3f} to {added.high:+.3f})"
