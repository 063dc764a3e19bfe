"""Samples that nobody trained on, in a client's own proportions: what membership inference is calibrated on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from covey.data.federation import Federation

Rows = NDArray[np.int64]


def unused(federation: Federation, least: int = 500) -> Rows:
    """Samples that no client holds and no server was given: training rows, or, if they are few, those of the test set.

    Test samples count on from the training rows.
    """
    rows = len(federation.dataset.y_train)
    taken = np.zeros(rows, bool)
    for held in (*federation.clients, *federation.public):
        taken[held] = True
    free = np.flatnonzero(~taken)
    return free if len(free) >= least else np.arange(rows, rows + len(federation.dataset.y_test))


def samples_at(federation: Federation, rows: Rows) -> tuple[NDArray[np.generic], NDArray[Any]]:
    """Samples and labels (or what else is predicted) of training rows and, counting on, of test samples."""
    dataset, border = federation.dataset, len(federation.dataset.y_train)
    x = np.empty((len(rows), *dataset.x_train.shape[1:]), dataset.x_train.dtype)
    y = np.empty((len(rows), *dataset.y_train.shape[1:]), dataset.y_train.dtype)
    seen, fresh = rows < border, rows >= border
    x[seen], y[seen] = dataset.x_train[rows[seen]], dataset.y_train[rows[seen]]
    x[fresh], y[fresh] = dataset.x_test[rows[fresh] - border], dataset.y_test[rows[fresh] - border]
    return x, y


def matched(federation: Federation, rows: Rows, pool: Rows, rng: np.random.Generator) -> Rows:
    """Rows of the pool in the given rows' proportions of kinds, at most as many as given."""
    kinds = kinds_of(federation)
    wanted = np.bincount(kinds[rows], minlength=int(kinds.max()) + 1)
    there = np.bincount(kinds[pool], minlength=len(wanted))
    asked = wanted > 0
    share = min(1.0, float((there[asked] / wanted[asked]).min()))
    if share * len(rows) < 100:  # a rare kind would leave almost nothing: take what each kind has
        counts = np.minimum(wanted, there)
    else:
        counts = np.floor(share * wanted).astype(np.int64)
    shuffled = rng.permutation(pool)
    picked = [shuffled[kinds[shuffled] == g][: counts[g]] for g in np.flatnonzero(counts)]
    return np.asarray(rng.permutation(np.concatenate(picked)) if picked else np.zeros(0), np.int64)


def dealt(federation: Federation, holders: Sequence[Rows], pool: Rows, rng: np.random.Generator) -> list[Rows]:
    """The pool, dealt out among several clients by the kinds that their rows have: no two of them get the same row."""
    kinds = kinds_of(federation)
    parts: list[list[Rows]] = [[] for _ in holders]
    shuffled = rng.permutation(pool)
    for kind in np.unique(kinds[pool]):
        asking = [i for i, rows in enumerate(holders) if (kinds[rows] == kind).any()]
        hand = np.array_split(shuffled[kinds[shuffled] == kind], max(len(asking), 1))
        for i, rows in zip(rng.permutation(asking), hand):  # the first hands may be one larger
            parts[i].append(rows)
    return [np.concatenate([*part, np.zeros(0, np.int64)]).astype(np.int64) for part in parts]


def kinds_of(federation: Federation) -> Rows:
    """The kind of every training row and, counting on, of every test sample.

    Kinds are the labels, within the partition's feature clusters where it has such; where a sample has no label of its own, but
    several or numbers, all are of one kind.
    """
    dataset = federation.dataset
    kinds = np.concatenate([dataset.y_train, dataset.y_test])
    if dataset.task != "classes":
        kinds = np.zeros(len(kinds), np.int64)
    clusters = federation.notes.get("feature_clusters")
    if isinstance(clusters, np.ndarray):
        kinds = kinds + len(dataset.classes) * np.concatenate([clusters, federation.test_groups])
    return np.asarray(kinds, np.int64)
