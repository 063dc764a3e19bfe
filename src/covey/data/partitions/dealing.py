"""What every partition does with rows: draw, share out, hand out, count. Pure functions of a generator."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from covey.data.federation import Dataset, Federation
from covey.data.holdings import Holdings
from covey.errors import CoveyError

Rows = NDArray[np.int64]


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


def label_shares(clients: Sequence[Rows], labels: NDArray[np.int64], groups: int) -> NDArray[np.float64]:
    """Each client's empirical distribution over `groups` labels, [n, groups]."""
    joined = clients if isinstance(clients, Holdings) else Holdings.of(clients)
    cells = joined.owners * groups + labels[joined.rows]
    counts = np.bincount(cells, minlength=len(clients) * groups).reshape(-1, groups)
    return np.asarray(counts / counts.sum(1, keepdims=True), np.float64)


def by_label(dataset: Dataset, clients: Sequence[Rows], public: Rows, **notes: object) -> Federation:
    """Clients without true clusters, each to be tested on labels in the proportions that it holds.

    Where rows have no one label (several at once, numbers), all test rows are one group.
    """
    one_label = dataset.task == "classes"
    return Federation(
        dataset=dataset,
        clients=clients,
        clusters=None,
        test_groups=dataset.y_test if one_label else np.zeros(len(dataset.y_test), np.int64),
        distributions=label_shares(clients, dataset.y_train, len(dataset.classes))
        if one_label
        else np.ones((len(clients), 1)),
        public=(public,) if len(public) else (),
        notes=notes,
    )
