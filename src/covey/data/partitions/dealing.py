"""What every partition does with rows: draw, share out, hand out, count. Pure functions of a generator."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from covey.data.federation import Federation
from covey.data.holdings import Holdings, Rows
from covey.errors import CoveyError

by_label = Federation.by_label  # where partitions of one's own import it from


def generator(seed: int, stream: int) -> np.random.Generator:
    """Every kind of partition has a stream of its own: the same seed cuts independently under another."""
    if seed < 0:
        raise CoveyError(f"seed is {seed}; it must be 0 or more.")
    return np.random.default_rng([seed, 0xDA7A, stream])


def check_clients(clients: int) -> None:
    if clients < 1:
        raise CoveyError(f"clients is {clients}; a federation needs at least 1.")


def hand_out(rows: Rows, owner: NDArray[np.int64], clients: int, rng: np.random.Generator) -> Holdings:
    """The rows of each client, in random order, so that any prefix of them is a fair sample."""
    order = np.lexsort((rng.random(len(rows)), owner))
    return Holdings.cut(rows[order], np.bincount(owner, minlength=clients))


def apportion(total: int, weights: NDArray[np.float64], least: int = 0) -> NDArray[np.int64]:
    """Integers in proportion to the weights that sum to `total` (largest remainders), none below `least`.

    Ties go to the lower index. `least * len(weights)` must not exceed `total`.
    """
    weights = np.asarray(weights, np.float64)
    share = weights / weights.sum() * total
    parts: NDArray[np.int64] = np.floor(share).astype(np.int64)
    short = total - int(parts.sum())
    parts[np.argsort(-(share - parts), kind="stable")[:short]] += 1
    while parts.min() < least:  # at most `least * len(weights)` moves
        parts[parts.argmin()] += 1
        parts[parts.argmax()] -= 1
    return parts


def set_aside(rows: Rows, count: int, rng: np.random.Generator) -> tuple[Rows, Rows]:
    """(`count` random rows, the others): what the public side gets, and what is left for clients."""
    if not 0 <= count < len(rows):
        raise CoveyError(
            f"public is {count}, but there are {len(rows)} training samples; take less than that for the public."
        )
    order = rng.permutation(rows)
    return order[:count], np.sort(order[count:])


def look_alikes(labels: NDArray[np.int64], marked: Rows, others: Rows, rng: np.random.Generator) -> Rows:
    """Random rows of `others` with as many of each label as `marked` has, or half of what there is if that is
    less.
    """
    chosen = []
    for label, count in zip(*np.unique(labels[marked], return_counts=True)):
        pool = rng.permutation(others[labels[others] == label])
        chosen.append(pool[: min(int(count), len(pool) // 2)])
    return rng.permutation(np.concatenate(chosen))
