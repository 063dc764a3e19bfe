"""Which rows of two rounds belong together: matchings by coordinates, by distances and by block norms. Pure functions."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Matches = NDArray[np.int64]  # for each row now the row before that it is taken for; -1: none
_GRID = np.linspace(0.0, 1.0, 33)


def assignment(cost: Floats) -> Matches:
    """The one-to-one matching of columns to rows of least total cost: for each column its row, -1 if it has none."""
    from scipy.optimize import linear_sum_assignment

    rows, columns = linear_sum_assignment(cost)
    matched = np.full(cost.shape[1], -1, np.int64)
    matched[columns] = rows
    return matched


def between(before: Floats, now: Floats) -> Floats:
    """Squared distances [n, m] of rows of two rounds, each round relative to its mean: the blinds drop out."""
    return squared(before - before.mean(0), now - now.mean(0))


def profiles(apart: Floats) -> Floats:
    """Each row's distances to the others, sorted, on a grid of quantiles, in units of their median: [n, grid]."""
    n = len(apart)
    others = np.sort(apart[~np.eye(n, dtype=bool)].reshape(n, n - 1), axis=1)
    return np.asarray(np.quantile(others, _GRID, axis=1).T / max(float(np.median(others)), 1e-30))


def block_profiles(rows: Floats, block: int) -> Floats:
    """Each row's squared norms by block, relative to the round's mean row, sorted, in units of their mean: [n, blocks]."""
    off = rows - rows.mean(0)
    off = np.pad(off, ((0, 0), (0, -off.shape[1] % block)))
    norms = (off.reshape(len(off), -1, block) ** 2).sum(2)
    return np.asarray(np.sqrt(np.sort(norms, axis=1)[:, ::-1] / max(float(norms.mean()), 1e-30)))


def refined(before: Floats, now: Floats, matched: Matches, steps: int = 50) -> Matches:
    """A better matching of two distance matrices: rows that are matched lend the others their coordinates.

    Given a matching, each row's distances to the matched rows of its own round can be compared one by one, without
    sorting; that gives a new assignment, and so on until it repeats itself.
    """
    a, b = in_medians(before), in_medians(now)
    for _ in range(steps):
        better = assignment(disagreement(a, b, matched))
        if np.array_equal(better, matched):
            break
        matched = better
    return matched


def in_medians(apart: Floats) -> Floats:
    return np.asarray(apart / max(float(np.median(apart)), 1e-30), np.float64)


def disagreement(a: Floats, b: Floats, matched: Matches) -> Floats:
    """[n, m]: mean squared difference of a's and b's distances to matched rows other than the two themselves, since a row
    is always at distance 0 of itself and would vote for the match that it has.
    """
    have = np.flatnonzero(matched >= 0)
    at = matched[have]
    total = squared(a[:, at], b[:, have])
    left, right = np.zeros((len(a), len(b))), np.zeros((len(a), len(b)))
    left[:, have], right[at] = a[:, at] ** 2, b[:, have].T ** 2
    terms = np.full((len(a), len(b)), len(have), np.float64)
    terms[:, have] -= 1
    terms[at] -= 1
    terms[at, have] += 1
    return np.asarray((total - left - right) / np.maximum(terms, 1))


def squared(a: Floats, b: Floats) -> Floats:
    return np.asarray((a**2).sum(1)[:, None] + (b**2).sum(1) - 2 * a @ b.T)
