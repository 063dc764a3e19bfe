"""From columns to the numbers that a network reads: categories one-hot, numbers standardised, missing values marked."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from covey.data.own.limits import room
from covey.data.own.rules import Rules
from covey.data.own.sheet import Column, Numbers, Other, Sheet, Words, as_words, missing, spelt
from covey.errors import CoveyError, nearest

SHOWN = 8  # columns that a message names
MOSTLY = 0.9  # of the texts in a column are numbers: the others are mistakes
TRUTH = {"true": "1", "false": "0"}
NAMES = 20  # texts that are different in most rows are no categories, if there are more than this
DATES = re.compile(r"\d{4}-\d{1,2}-\d{1,2}([T ].*)?|\d{1,2}[./-]\d{1,2}[./-]\d{2,4}( .*)?|\d{1,2}:\d\d(:\d\d.*)?")
AMOUNTS = re.compile(r"[-+]?[$€£]? ?[-+]?\d+([.,' ]\d+)*( ?[%€$£])?")  # 53,5 and 1,200.50 and 12 %


@dataclass(frozen=True)
class Feature:
    """How one column is read; a federation of silos agrees on such a list, and simulations make one from their data."""

    name: str
    values: tuple[str, ...] = ()  # a category: its names, one output each; none: a number
    mean: float = 0.0  # a number less this …
    scale: float = 0.0  # … and divided by this; 0: each silo's own mean and deviation, which never leave it
    missing: bool = False  # values may be missing, and one more output says where

    def __post_init__(self) -> None:
        if not self.name:
            raise CoveyError("a column of silos.columns has no name: write for example { name = 'age' }")
        if len(set(self.values)) < len(self.values):
            raise CoveyError(
                f"column '{self.name}' lists the value '{max(self.values, key=self.values.count)}' twice: once is enough"
            )
        if self.scale < 0 or not np.isfinite([self.mean, self.scale]).all():
            raise CoveyError(
                f"column '{self.name}' has mean {self.mean:g} and scale {self.scale:g}: finite, and a scale of 0 or more"
            )

    @property
    def width(self) -> int:
        return (len(self.values) or 1) + self.missing

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the numbers that it becomes."""
        named = tuple(f"{self.name} = {value}" for value in self.values) or (self.name,)
        return (*named, f"{self.name} missing") if self.missing else named


def width(features: Sequence[Feature]) -> int:
    """Numbers in a sample."""
    return sum(feature.width for feature in features)


# ---------------------------------------------------------------- made from data


def fit(sheet: Sheet, names: Sequence[str], rules: Rules, train: NDArray[np.bool_]) -> tuple[Feature, ...]:
    """How these columns are read, by the rules; means and deviations are those of the training rows."""
    return tuple(_fit(sheet, name, rules, train) for name in names)


def _fit(sheet: Sheet, name: str, rules: Rules, train: NDArray[np.bool_]) -> Feature:
    column = sheet.columns[name]
    if isinstance(column, Other):
        raise CoveyError(
            f"{sheet.place}: column '{name}' holds {column.what}: turn it into numbers or texts, or leave it out with data.drop"
        )
    if isinstance(column, Words) and not column.category and name not in rules.categories:
        if all_numbers(column):  # texts by their type only, as Parquet and frames may have them
            column = numbers(sheet, name, column)
        else:
            _refuse_stray_texts(sheet, name, column)
            _refuse_dates_and_names(sheet, name, column)
    gaps = missing(column)
    if gaps.any() and rules.missing == "refuse":
        row = int(np.flatnonzero(gaps)[0])
        raise CoveyError(
            f"{sheet.at(row)}: column '{name}' has no value: fill it, or set data.missing to indicator or mean"
        )
    if gaps.all():
        raise CoveyError(f"{sheet.place}: column '{name}' has no value at all: leave it out with data.drop")
    marked = bool(gaps.any()) and rules.missing == "indicator"
    if isinstance(column, Words) or name in rules.categories:
        return Feature(name, _values(sheet, name, as_words(column), rules), missing=marked)
    if np.isinf(column).any():
        row = int(np.flatnonzero(np.isinf(column))[0])
        raise CoveyError(f"{sheet.at(row)}: column '{name}' is infinite: correct or drop it")
    if rules.standardise == "none":
        return Feature(name, scale=1.0, missing=marked)
    if rules.standardise == "clients":
        return Feature(name, missing=marked)
    known = column[train & ~gaps]
    with np.errstate(over="ignore", invalid="ignore"):
        mean, deviation = (float(known.mean()), float(known.std())) if len(known) else (0.0, 0.0)
    _refuse_endless(sheet, name, column, [mean, deviation])
    return Feature(name, mean=mean, scale=deviation if deviation > 1e-9 * max(1.0, abs(mean)) else 1.0, missing=marked)


def _values(sheet: Sheet, name: str, column: Words, rules: Rules) -> tuple[str, ...]:
    used = [word for word, count in zip(column.names, column.used) if count]
    if len(used) > rules.most_values:
        raise CoveyError(
            f"{sheet.place}: column '{name}' holds {len(used)} different texts in {sheet.rows} rows (such as '{used[0][:40]}'): "
            f"leave it out with data.drop, or raise data.most_values above {rules.most_values}"
        )
    return in_order(used)


def in_order(words: Sequence[str]) -> tuple[str, ...]:
    """Numbers by size, other texts by the alphabet."""
    numeric = all(is_number(word) for word in words)
    return tuple(sorted(words, key=lambda word: (float(word) if numeric else 0.0, word)))


def _refuse_stray_texts(sheet: Sheet, name: str, column: Words) -> None:
    """A text among numbers is a mistake, not a category."""
    numeric = np.array([is_number(word) for word in column.names] or [False])
    if not numeric.any() or column.used[numeric].sum() < MOSTLY * column.used.sum():
        return
    code = int(np.flatnonzero(~numeric & (column.used > 0))[0])
    row = int(np.flatnonzero(column.codes == code)[0])
    raise CoveyError(
        f"{sheet.at(row)}: column '{name}' has '{column.names[code][:40]}' among numbers: correct it, or list the column in "
        "data.categories if they are names"
    )


def _refuse_dates_and_names(sheet: Sheet, name: str, column: Words) -> None:
    """Each would become a category of its own, from which nothing can be learned about another row."""
    refuse_unread(column, f"{sheet.place}: column '{name}'", "list the column in data.categories if they are names")
    different = int((column.used > 0).sum())
    if different > NAMES and 2 * different > column.used.sum():
        raise CoveyError(
            f"{sheet.place}: column '{name}' holds {different} different texts in {sheet.rows} rows (such as "
            f"'{column.names[0][:40]}'): leave it out with data.drop, or list it in data.categories if rows share them"
        )


def refuse_unread(column: Words, what: str, otherwise: str) -> None:
    """Dates, and numbers in a spelling that is not read, are not taken for names."""
    for spelling, holds, instead in (
        (DATES, "dates or times", "turn them into numbers, such as years or days"),
        (AMOUNTS, "numbers in a spelling that is not read", "write them like 1234.5, without separators and signs"),
    ):
        such = np.array([bool(spelling.fullmatch(word)) for word in column.names] or [False])
        if such.any() and column.used[such].sum() >= MOSTLY * column.used.sum():
            word = column.names[int(np.flatnonzero(such & np.array([not is_number(w) for w in column.names]))[0])]
            raise CoveyError(f"{what} holds {holds} (such as '{word[:40]}'): {instead}, or {otherwise}")


def all_numbers(column: Words) -> bool:
    """Whether every text is a number; False where there is none."""
    return bool(column.names) and all(is_number(word) for word in column.names)


def is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


# ---------------------------------------------------------------- applied


def encode(
    sheet: Sheet,
    features: Sequence[Feature],
    train: NDArray[np.bool_],
    groups: NDArray[np.int64] | None = None,
    strict: bool = False,
) -> NDArray[np.float32]:
    """[m, width]. Where a feature has no agreed scale, with mean and deviation of the training rows of each row's group.

    A missing number is the mean, a missing text none of the values; `strict`: refused, unless the feature has an output for it.
    """
    total = width(features)
    if 4 * total * max(sheet.rows, 1) > room():
        fits = room() // (4 * total)
        raise CoveyError(
            f"{sheet.place} has more than the {fits:,} samples that fit here: split them over several silos"
        )
    x = np.zeros((sheet.rows, total), np.float32)
    at = 0
    for feature in features:
        if feature.name not in sheet.columns:
            names = ", ".join(list(sheet.columns)[:SHOWN]) + (" …" if len(sheet.columns) > SHOWN else "")
            raise CoveyError(f"{sheet.place} has no column '{feature.name}', which was agreed on: add it to {names}")
        column = sheet.columns[feature.name]
        if strict and not feature.missing and (gaps := missing(column)).any():
            raise CoveyError(
                f"{sheet.at(int(np.flatnonzero(gaps)[0]))}: column '{feature.name}' has no value: fill it, or agree on "
                "missing = true for it in silos.columns"
            )
        if feature.values:
            _one_hot(x[:, at : at + feature.width], sheet, feature, column)
        else:
            _scaled(x[:, at : at + feature.width], sheet, feature, numbers(sheet, feature.name, column), train, groups)
        at += feature.width
    return x


def numbers(sheet: Sheet, name: str, column: Column) -> Numbers:
    """A column that must be numbers."""
    if isinstance(column, np.ndarray):
        return column
    if isinstance(column, Other):
        raise CoveyError(f"{sheet.place}: column '{name}' holds {column.what}, expected numbers: convert it")
    words = [
        TRUTH.get(word.lower(), word) for word in column.names
    ]  # a frame's truth values are numbers, a CSV's texts
    wrong = [i for i, word in enumerate(words) if not is_number(word)]
    bad = np.isin(column.codes, wrong)
    if bad.any():
        row = int(np.flatnonzero(bad)[0])
        word = column.names[column.codes[row]]
        raise CoveyError(f"{sheet.at(row)}: '{word[:40]}' is no number; correct or drop that line (column '{name}')")
    return np.array([*map(float, words), np.nan])[column.codes]


def _one_hot(out: NDArray[np.float32], sheet: Sheet, feature: Feature, column: Column) -> None:
    if isinstance(column, Other):
        raise CoveyError(f"{sheet.place}: column '{feature.name}' holds {column.what}, expected texts: convert it")
    words = as_words(column)
    if {value.lower() for value in feature.values} == set(TRUTH):  # as True, TRUE, true or 1, whoever wrote the table
        spelling = {TRUTH[value.lower()]: value for value in feature.values}
        names = [spelling.get(TRUTH.get(word.lower(), word), word) for word in words.names]
        numbered = {name: i for i, name in enumerate(dict.fromkeys(names))}
        codes = np.array([numbered[name] for name in names] + [-1], np.int64)[words.codes]
        words = Words(codes, tuple(numbered), words.category)
    place = {value: i for i, value in enumerate(feature.values)}
    strange = [i for i, word in enumerate(words.names) if word not in place and words.used[i]]
    if strange:
        row = int(np.flatnonzero(words.codes == strange[0])[0])
        word = words.names[strange[0]]
        raise CoveyError(
            f"{sheet.at(row)}: column '{feature.name}' has the value '{word[:40]}', which is none of the "
            f"{len(feature.values)} agreed{nearest(word[:40], list(feature.values))}"
        )
    gaps = missing(words)
    codes = np.array([place.get(word, -1) for word in words.names] + [-1], np.int64)[words.codes]
    rows = np.flatnonzero(codes >= 0)
    out[rows, codes[rows]] = 1.0
    if feature.missing:
        out[:, -1] = gaps


def _scaled(
    out: NDArray[np.float32],
    sheet: Sheet,
    feature: Feature,
    column: Numbers,
    train: NDArray[np.bool_],
    groups: NDArray[np.int64] | None,
) -> None:
    gaps = np.isnan(column)
    mean: Numbers | float
    scale: Numbers | float
    mean, scale = feature.mean, feature.scale
    if feature.scale == 0:
        group = np.zeros(len(column), np.int64) if groups is None else groups
        means, scales = _by_group(column, group, train & ~gaps)
        _refuse_endless(sheet, feature.name, column, [*means, *scales])
        mean, scale = means[group], scales[group]
    with np.errstate(over="ignore", invalid="ignore"):
        values = np.where(gaps, 0.0, (column - mean) / scale).astype(np.float32)
    if not np.isfinite(values).all():
        row = int(np.flatnonzero(~np.isfinite(values))[0])
        raise CoveyError(
            f"{sheet.at(row)}: column '{feature.name}' is {spelt_of(column[row])}, no finite number of 32 bits: correct it"
        )
    out[:, 0] = values
    if feature.missing:
        out[:, -1] = gaps


def _by_group(column: Numbers, group: NDArray[np.int64], known: NDArray[np.bool_]) -> tuple[Numbers, Numbers]:
    """Mean and deviation of the known values of each group; 0 and 1 where a group has none, or always the same."""
    groups = int(group.max()) + 1 if len(group) else 1
    at, values = group[known], column[known]
    counts = np.maximum(np.bincount(at, minlength=groups), 1)
    with np.errstate(over="ignore", invalid="ignore"):
        means = np.bincount(at, weights=values, minlength=groups) / counts
        deviations = np.sqrt(np.bincount(at, weights=(values - means[at]) ** 2, minlength=groups) / counts)
        return means, np.where(deviations <= 1e-9 * np.maximum(1.0, np.abs(means)), 1.0, deviations)


def _refuse_endless(sheet: Sheet, name: str, column: Numbers, statistics: Sequence[float]) -> None:
    """A mean or a deviation that no number holds would make zeros of all the other rows."""
    if not np.isfinite(statistics).all():
        row = int(np.nanargmax(np.abs(column)))
        raise CoveyError(
            f"{sheet.at(row)}: column '{name}' is {spelt_of(column[row])}, no finite number of 32 bits: correct it"
        )


def fitted(sheet: Sheet, features: Sequence[Feature], train: NDArray[np.bool_]) -> tuple[Feature, ...]:
    """The same with the mean and deviation of these training rows where no scale is agreed.

    They are what is known of the source beyond a file of new samples, which may hold one row. They tell of the training data: for
    the owner of these alone.
    """
    return tuple(_with_statistics(sheet, f, train) for f in features)


def _with_statistics(sheet: Sheet, feature: Feature, train: NDArray[np.bool_]) -> Feature:
    if feature.values or feature.scale or feature.name not in sheet.columns:
        return feature
    column = numbers(sheet, feature.name, sheet.columns[feature.name])
    means, scales = _by_group(column, np.zeros(len(column), np.int64), train & ~np.isnan(column))
    _refuse_endless(sheet, feature.name, column, [*means, *scales])
    return replace(feature, mean=float(means[0]), scale=float(scales[0]))


def spelt_of(value: float) -> str:
    return spelt(value) if abs(value) < 1e16 else f"{value:g}"


def plain(names: Sequence[str]) -> tuple[Feature, ...]:
    """Numbers as they are, for silos that have agreed on a shape and nothing else."""
    return tuple(Feature(name, scale=1.0) for name in names)


def agreed_on(features: Sequence[Feature], own_statistics: bool) -> tuple[Feature, ...]:
    """The same features for a federation to agree on, without the means and deviations of anybody's data if so wanted."""
    return tuple(replace(f, mean=0.0, scale=0.0) if own_statistics and not f.values else f for f in features)
