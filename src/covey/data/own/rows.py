"""What is known of each row beside its values: what is to be predicted, whose it is, and whether it is for testing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from covey.data.own.encoding import all_numbers, in_order, is_number, refuse_unread
from covey.data.own.rules import Rules
from covey.data.own.sheet import Numbers, Words, as_words, spelt
from covey.data.sources.files import held_out
from covey.errors import CoveyError

MOST_CLASSES = 1000
SPLIT = 0x5110  # which rows are held back: the same on every machine
TRUE, FALSE = ("true", "1", "yes", "test"), ("false", "0", "no", "train")


@dataclass(frozen=True)
class Targets:
    """What is to be predicted of each row."""

    y: NDArray[Any]  # as `Dataset.task` says
    classes: tuple[str, ...]
    task: str


@dataclass(frozen=True)
class Owners:
    """Whose each row is."""

    codes: NDArray[np.int64]  # [m]
    names: tuple[str, ...]


# ---------------------------------------------------------------- what is to be predicted


def targets_of_columns(columns: dict[str, Numbers | Words], task: str, at: Any, place: str) -> Targets:
    """Of the label column, or of several; `at(row)` says where a row stands."""
    for name, column in columns.items():
        gaps = column.codes < 0 if isinstance(column, Words) else np.isnan(column)
        if gaps.any():
            raise CoveyError(
                f"{at(int(np.flatnonzero(gaps)[0]))}: the label column '{name}' has no value: fill it or drop that row"
            )
    if len(columns) == 1:
        ((name, column),) = columns.items()
        task = task or _guessed_task(name, column, place)
        if task == "classes":
            return classes_of(as_words(column), f"{place}: column '{name}'")
    stacked = np.stack([_numbers(name, column, task, place) for name, column in columns.items()], 1).astype(np.float32)
    binary = bool(((stacked == 0) | (stacked == 1)).all())
    task = task or ("labels" if binary else "")
    if task in ("", "classes"):
        names = ", ".join(columns)
        raise CoveyError(
            f"{place}: the labels {names} are not all 0 or 1: say data.task = 'numbers' to predict numbers"
        )
    if task == "labels" and not binary:
        row, column_at = (int(i) for i in np.argwhere((stacked != 0) & (stacked != 1))[0])
        raise CoveyError(
            f"{at(row)}: label '{list(columns)[column_at]}' is {stacked[row, column_at]:g}, expected 0 or 1: correct it"
        )
    if not np.isfinite(stacked).all():
        row = int(np.argwhere(~np.isfinite(stacked))[0][0])
        raise CoveyError(f"{at(row)}: the label is no finite number of 32 bits: correct or drop that row")
    return Targets(stacked, tuple(columns), task)


def _numbers(name: str, column: Numbers | Words, task: str, place: str) -> Numbers:
    if isinstance(column, np.ndarray):
        return column
    wrong = [word for word in column.names if not is_number(word)]
    if wrong:
        raise CoveyError(
            f"{place}: label column '{name}' holds '{wrong[0][:40]}', task '{task or 'labels'}' needs numbers: encode it"
        )
    return np.array([*map(float, column.names), np.nan])[column.codes]


def _guessed_task(name: str, column: Numbers | Words, place: str) -> str:
    if isinstance(column, Words):
        if column.category:
            return "classes"
        if not all_numbers(column):
            refuse_unread(column, f"{place}: the label column '{name}'", "say data.task = 'classes' if each is a class")
            return "classes"
        column = _numbers(name, column, "", place)  # texts by their type only
    if not (column == np.rint(column)).all():
        return "numbers"
    if len(np.unique(column)) > 100:
        raise CoveyError(
            f"{place}: column '{name}' holds {len(np.unique(column))} different whole numbers: say data.task = 'numbers' to "
            "predict them, or 'classes' if each is a class"
        )
    return "classes"


def classes_of(words: Words, what: str, names: Sequence[str] = ()) -> Targets:
    """One class per row; numbers by size, other names by the alphabet, or as `names` has them."""
    used = [word for word, count in zip(words.names, words.used) if count]
    if len(used) > MOST_CLASSES:
        raise CoveyError(
            f"{what} holds {len(used)} different labels in {len(words.codes)} rows: name a column of classes as data.label, or say "
            "data.task = 'numbers'"
        )
    order = tuple(names) or in_order(used)
    number = {word: i for i, word in enumerate(order)}
    return Targets(np.array([number.get(word, -1) for word in words.names], np.int64)[words.codes], order, "classes")


def targets_of_array(y: NDArray[Any], task: str, classes: Sequence[str], place: str) -> Targets:
    """Of labels as an array has them: names, numbers of classes, 0/1 per label, or numbers."""
    if y.ndim == 2 and y.shape[1] == 1 and task != "labels":
        y = y[:, 0] if task == "classes" or (not task and y.dtype.kind in "iub") else y
    if not task:
        task = "classes" if y.ndim == 1 and (y.dtype.kind in "iubUSO" or (y == np.rint(y)).all()) else "numbers"
        if y.ndim == 2 and y.dtype.kind in "fiub" and ((y == 0) | (y == 1)).all():
            task = "labels"
    if task == "classes":
        return _classes_of_array(y, tuple(classes), place)
    if y.dtype.kind not in "fiub" or y.ndim > 2:
        raise CoveyError(
            f"{place} has labels of {y.dtype} and shape {list(y.shape)}, task '{task}' needs numbers [rows, outputs]: convert them"
        )
    stacked = np.asarray(y.reshape(len(y), -1), np.float32)
    names = tuple(classes) or tuple(f"{'label' if task == 'labels' else 'output'} {j}" for j in range(stacked.shape[1]))
    if len(names) != stacked.shape[1]:
        raise CoveyError(
            f"{place} has {stacked.shape[1]} numbers per label and {len(names)} names in classes: give one name each"
        )
    return Targets(stacked, names, task)


def _classes_of_array(y: NDArray[Any], classes: tuple[str, ...], place: str) -> Targets:
    if y.ndim != 1:
        raise CoveyError(
            f"{place} has labels of shape {list(y.shape)}: expected one class per row, its name or its number"
        )
    if y.dtype.kind == "O":
        wrong = [i for i, v in enumerate(y) if not isinstance(v, str | int | np.integer | np.bool_)]
        if wrong:
            raise CoveyError(
                f"{place}, row {wrong[0]}: the label is {y[wrong[0]]!r}, expected the name or number of a class: correct it"
            )
        y = y.astype(str)
    if y.dtype.kind == "f":
        if not np.isfinite(y).all() or (y != np.rint(y)).any():
            row = int(np.flatnonzero(~np.isfinite(y) | (y != np.rint(y)))[0])
            raise CoveyError(
                f"{place}, row {row}: the label is {y[row]}, no class: correct it, or give task='numbers' to predict numbers"
            )
        y = y.astype(np.int64)
    if y.dtype.kind == "S":
        y = y.astype(str)
    values, codes = np.unique(y, return_inverse=True)
    if classes and y.dtype.kind in "iub":
        outside = np.flatnonzero((y < 0) | (y >= len(classes)))
        if len(outside):
            raise CoveyError(
                f"{place}, row {outside[0]}: the label is {y[outside[0]]}, there are the classes 0 to {len(classes) - 1}: "
                "relabel that row, or name more classes"
            )
        return Targets(y.astype(np.int64), classes, "classes")
    words = Words(codes.astype(np.int64), tuple(str(v) if y.dtype.kind == "U" else spelt(float(v)) for v in values))
    strange = [word for word in words.names if classes and word not in classes]
    if strange:
        row = int(np.flatnonzero(codes == words.names.index(strange[0]))[0])
        raise CoveyError(
            f"{place}, row {row}: the label is '{strange[0][:40]}', none of the {len(classes)} classes: correct it, or name it"
        )
    return classes_of(words, place, classes)


# ---------------------------------------------------------------- whose it is


def owners_of(column: Numbers | Words, at: Any, name: str) -> Owners:
    """Of the client column; clients in the order of their names."""
    words = as_words(column)
    gaps = np.flatnonzero(words.codes < 0)
    if len(gaps):
        raise CoveyError(f"{at(int(gaps[0]))}: the client column '{name}' has no value: fill it or drop that row")
    used = in_order([word for word, count in zip(words.names, words.used) if count])
    number = {word: i for i, word in enumerate(used)}
    return Owners(np.array([number.get(word, -1) for word in words.names], np.int64)[words.codes], used)


def large_enough(owners: Owners, rules: Rules, test: NDArray[np.bool_] | None) -> NDArray[np.bool_]:
    """Rows of the clients that are kept; a client that cannot be both trained and tested is refused, unless it is left out."""
    counts = np.bincount(owners.codes, minlength=len(owners.names))
    tested = counts if test is None else np.bincount(owners.codes[test], minlength=len(owners.names))
    trained = counts if test is None else counts - tested
    kept = counts >= max(rules.min_rows, 1)
    bare = (counts < 2) if test is None else (tested < 1) | (trained < 1)
    if rules.min_rows:
        kept &= ~bare
    elif bare.any():
        which = int(np.flatnonzero(bare)[0])
        has = f"{counts[which]} row" if test is None else f"{trained[which]} training and {tested[which]} test rows"
        raise CoveyError(
            f"client '{owners.names[which]}' has {has}, too few to train and to test ({int(bare.sum())} such clients): "
            "leave them out with data.min_rows = 2 or more"
        )
    if not kept.any():
        raise CoveyError(
            f"no client has {max(rules.min_rows, 2)} rows: lower data.min_rows, or name another client column"
        )
    return np.asarray(kept[owners.codes])


def without_gaps(owners: Owners) -> Owners:
    """The same without clients that have no rows left."""
    used, codes = np.unique(owners.codes, return_inverse=True)
    return Owners(codes.astype(np.int64), tuple(owners.names[i] for i in used))


# ---------------------------------------------------------------- which are for testing


def test_column(column: Numbers | Words, at: Any, name: str) -> NDArray[np.bool_]:
    """Of a column that says true, 1, yes or test, and false, 0, no or train."""
    words = as_words(column)
    meaning = [1 if word.lower() in TRUE else 0 if word.lower() in FALSE else -1 for word in words.names] + [-1]
    marks = np.array(meaning, np.int64)[words.codes]
    if (marks < 0).any():
        row = int(np.flatnonzero(marks < 0)[0])
        spelling = words.names[words.codes[row]] if words.codes[row] >= 0 else "no value"
        raise CoveyError(
            f"{at(row)}: the test column '{name}' has '{spelling[:40]}': write test or train, 1 or 0, true or false"
        )
    return np.asarray(marks == 1)


def held_back(share: float, targets: Targets, owners: Owners | None) -> NDArray[np.bool_]:
    """A share of every class, or of every client with its classes spread evenly: at least one row of each client."""
    labels = targets.y if targets.task == "classes" else np.zeros(len(targets.y), np.int64)
    if owners is None:
        apart = held_out(labels, SPLIT, share)
        if not apart.any():  # too few of every class
            apart[-1:] = len(apart) > 1
        return apart
    counts = np.bincount(owners.codes, minlength=len(owners.names))
    wanted = np.minimum(np.maximum(np.rint(share * counts), 1), counts - 1).astype(np.int64)
    order = np.lexsort((np.random.default_rng([SPLIT]).random(len(labels)), labels, owners.codes))
    first = np.cumsum(counts) - counts
    rank = np.arange(len(labels)) - np.repeat(first, counts)  # within the client, class by class
    size, tests = np.repeat(counts, counts), np.repeat(wanted, counts)
    apart = np.zeros(len(labels), np.bool_)
    apart[order] = (rank + 1) * tests // size > rank * tests // size
    return apart
