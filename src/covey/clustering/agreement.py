"""How well found groups agree with true ones. Label names never matter, and the numbers of groups may differ."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from covey.errors import CoveyError


def contingency(found: ArrayLike, truth: ArrayLike) -> NDArray[np.int64]:
    """How many members each found group shares with each true one, [found groups, true groups]."""
    found, truth = np.asarray(found), np.asarray(truth)
    if found.ndim != 1 or found.shape != truth.shape or not found.size:
        raise CoveyError(f"expected two label lists of one length, found shapes {found.shape} and {truth.shape}")
    rows, row = np.unique(found, return_inverse=True)
    columns, column = np.unique(truth, return_inverse=True)
    table = np.zeros((rows.size, columns.size), np.int64)
    np.add.at(table, (row, column), 1)
    return table


def accuracy(found: ArrayLike, truth: ArrayLike) -> float:
    """The share in the right group under the best one-to-one matching; members of unmatched groups count as wrong."""
    table = contingency(found, truth)
    best = table.argmax(1)
    if len(np.unique(best)) == len(
        best
    ):  # each found group gets the true one that it shares most with: nothing is better
        return float(table.max(1).sum() / table.sum())
    from scipy.optimize import linear_sum_assignment  # its import takes as long as a small run

    rows, columns = linear_sum_assignment(table, maximize=True)
    return float(table[rows, columns].sum() / table.sum())


def adjusted_rand_index(found: ArrayLike, truth: ArrayLike) -> float:
    """Hubert and Arabie (1985): agreement over pairs, 1 for equal partitions, 0 expected for random ones."""
    table = contingency(found, truth)

    def pairs(counts: NDArray[np.int64]) -> int:
        return int((counts * (counts - 1) // 2).sum())

    together, in_found, in_truth = pairs(table), pairs(table.sum(1)), pairs(table.sum(0))
    expected = in_found * in_truth / max(pairs(table.sum(keepdims=True)), 1)
    best = (in_found + in_truth) / 2
    if best == expected:  # both partitions are all-in-one or all-alone: equal, and chance cannot do otherwise
        return 1.0
    return float((together - expected) / (best - expected))


def normalised_mutual_information(found: ArrayLike, truth: ArrayLike) -> float:
    """Mutual information over the mean of both entropies: 1 for equal partitions, 0 for independent ones; not adjusted for chance.

    Many small groups score above 0 by chance alone, so read it beside the adjusted Rand index.
    """
    table = contingency(found, truth)
    joint = table / table.sum()
    rows, columns = joint.sum(1), joint.sum(0)
    entropies = [float(-(p * np.log(p)).sum()) for p in (rows, columns)]
    if max(entropies) == 0:  # all in one group, both times
        return 1.0
    there = joint > 0
    shared = float((joint[there] * np.log(joint[there] / np.outer(rows, columns)[there])).sum())
    return max(0.0, min(1.0, 2 * shared / sum(entropies)))
