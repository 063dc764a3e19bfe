"""A silo's own samples, as they lie in its folder, read by the rules that the federation has agreed on.

    train.npz, test.npz       arrays x [n, …] and y [n]
    train.csv, test.csv       (or .parquet) a header with the label column (`label`, or what data.label says)
    train/, test/             one folder per class with its .png or .jpg images

One part alone is called data.npz, data.csv or data/; class folders may also lie in the folder itself. Without a test part
a share of every class is held out (data.test, a tenth), the same one each time. Labels are names of classes, or their numbers
from 0. A table's columns are numbers, in the order of the file, taken as they are; with `silos.columns` they are found by their
names, in any order, and encoded as agreed: categories one-hot, numbers by the agreed mean and scale, or, where none is agreed, by
the mean and deviation of this silo's own training rows, which never leave it.

Everything is checked against what the federation has agreed on before it is believed: shape, kind and classes, numbers that
are none, and, before any memory is taken, how much a file claims to hold. Nothing is resized, rescaled unasked or unpickled.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from covey.data.own.arrays import read_npz
from covey.data.own.encoding import Feature, encode, fitted, numbers, plain
from covey.data.own.images import read_pictures
from covey.data.own.limits import explained
from covey.data.own.places import part_of
from covey.data.own.rows import SPLIT
from covey.data.own.rules import Rules
from covey.data.own.sheet import Sheet, as_words
from covey.data.own.tables import is_table, read_table
from covey.data.sources.files import held_out
from covey.errors import CoveyError, nearest

LABEL = "label"
Labelled = tuple[NDArray[Any], NDArray[Any]]


class Described(Protocol):
    """What samples are agreed to be: `Agreed` and `Silos` say so."""

    @property
    def shape(self) -> Sequence[int]: ...
    @property
    def kind(self) -> str: ...
    @property
    def classes(self) -> Sequence[str]: ...
    @property
    def vocabulary(self) -> int: ...


def read_folder(
    path: Path, agreed: Described, rules: Rules | None = None, columns: Sequence[Feature] = ()
) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any]]:
    """(x_train, y_train, x_test, y_test) of a silo's folder."""
    return read_with_columns(path, agreed, rules, columns)[0]


def read_with_columns(
    path: Path, agreed: Described, rules: Rules | None = None, columns: Sequence[Feature] = ()
) -> tuple[tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any]], tuple[Feature, ...]]:
    """(the samples, how its tables' columns were read): with this silo's own means and deviations, which are for itself alone."""
    rules = rules or Rules()
    folder = _folder(path)
    parts = _parts(folder, agreed)
    read = [_Part(part, agreed, rules, columns) for part in parts]
    if len(read) == 2:
        train, test = read
        if columns and bool(train.sheet.columns) != bool(test.sheet.columns):
            raise CoveyError(
                f"{train.path} and {test.path} are not both tables, and the federation agreed on columns: give both as tables"
            )
        fit = train.fitted(np.ones(train.rows, np.bool_))
        return (*train.samples(fit), *test.samples(fit)), fit
    (only,) = read
    share = rules.test if isinstance(rules.test, float) else 0.1
    labels = only.labels if only.labels.ndim == 1 else np.zeros(len(only.labels), np.int64)
    apart = held_out(labels, SPLIT, share)
    if not apart.any():  # too few of every class for a tenth of it
        apart[-1:] = len(labels) > 1
    fit = only.fitted(~apart)
    x, y = only.samples(fit)
    return (x[~apart], y[~apart], x[apart], y[apart]), fit


def read_part(path: Path, agreed: Described, rules: Rules | None = None, columns: Sequence[Feature] = ()) -> Labelled:
    """All samples of a folder that has one part: data.npz, data.csv, data/, or class folders."""
    parts = _parts(_folder(path), agreed)
    if len(parts) > 1:
        raise CoveyError(f"{path} has a train and a test part: one part is expected, call it data")
    part = _Part(parts[0], agreed, rules or Rules(), columns)
    return part.samples(part.fitted(np.ones(part.rows, np.bool_)))


def _folder(path: Path) -> Path:
    folder = Path(path).expanduser()
    if not folder.is_dir():
        raise CoveyError(f"{folder} is no folder: give the folder that holds the silo's samples")
    return folder


def _parts(folder: Path, agreed: Described) -> list[Path]:
    parts = [part.path for part in part_of(folder)]
    if not parts and any((folder / name).is_dir() for name in agreed.classes):
        parts = [folder]
    if not parts:
        raise CoveyError(
            f"{folder} holds no samples: expected train and test (or data) as .npz, .csv, .parquet or a folder of class folders"
        )
    return parts


class _Part:
    """One part: its labels are read at once, its samples when it is known which rows are for training."""

    def __init__(self, path: Path, agreed: Described, rules: Rules, columns: Sequence[Feature]) -> None:
        self.path, self.agreed, self.columns, self.sheet = path, agreed, tuple(columns), Sheet({})
        self.by_name = bool(columns)  # else columns are numbers in the order of each file
        with explained(path):
            self._read(rules)
        self.rows = len(self.labels)
        if not self.rows:
            raise CoveyError(f"{path} is empty: put at least one sample there")

    def _read(self, rules: Rules) -> None:
        path, agreed = self.path, self.agreed
        shape = tuple(agreed.shape)
        task = getattr(agreed, "task", "classes")
        if path.is_dir():
            if agreed.kind != "image" or len(shape) not in (2, 3) or shape[2:] not in ((), (1,), (3,)):
                raise CoveyError(
                    f"{path} is a folder of images, agreed are {agreed.kind} samples of {list(shape)}: use .npz or .csv"
                )
            pictures = read_pictures(path, shape, agreed.classes)
            self.x, self.labels = pictures.x, np.array([list(agreed.classes).index(n) for n in pictures.y], np.int64)
        elif is_table(path):
            self.sheet = read_table(path)
            self.labels = self._table_labels(rules, task)
        else:
            arrays = read_npz(path, shape)
            self.x, self.labels = arrays.x, self._labels(arrays.y, str(arrays.x.dtype), task)

    def fitted(self, train: NDArray[np.bool_]) -> tuple[Feature, ...]:
        """How columns are read, with the means and deviations of these rows where none are agreed; none where no columns are."""
        return fitted(self.sheet, self.columns, train) if self.by_name and self.sheet.columns else ()

    def samples(self, columns: Sequence[Feature]) -> Labelled:
        """All rows, in the type that their kind is kept in."""
        if not self.sheet.columns:
            return self._values(self.x), self.labels
        x = encode(self.sheet, columns or self.columns, np.ones(self.rows, np.bool_), strict=True)
        return self._values(x.reshape(len(x), *self.agreed.shape)), self.labels

    def _table_labels(self, rules: Rules, task: str) -> NDArray[Any]:
        names = rules.labels or (LABEL,)
        absent = [name for name in names if name not in self.sheet.columns]
        if absent:
            raise CoveyError(
                f"{self.path} has 0 columns called '{absent[0]}' in its first line: expected one"
                f"{nearest(absent[0], list(self.sheet.columns)) if rules.labels else ''}"
            )
        left_out = {*names, rules.client, *rules.drop}
        if not self.columns:
            others = [name for name in self.sheet.columns if name not in left_out]
            count = math.prod(self.agreed.shape)
            if len(others) != count:
                raise CoveyError(
                    f"{self.path} has {len(others)} columns beside '{names[0]}', a sample of shape "
                    f"{list(self.agreed.shape)} has {count}"
                )
            self.columns = plain(others)
        columns = [self.sheet.columns[name] for name in names]
        if task != "classes":
            values = np.stack([numbers(self.sheet, n, c) for n, c in zip(names, columns)], 1).astype(np.float32)
            return self._labels(values, "table", task)
        words = as_words(columns[0])  # type: ignore[arg-type]
        gaps = np.flatnonzero(words.codes < 0)
        if len(gaps):
            raise CoveyError(
                f"{self.sheet.at(int(gaps[0]))}: column '{names[0]}' has no value: fill it or drop that line"
            )
        numbers_of = np.full(len(words.names) + 1, -1, np.int64)
        for i, word in enumerate(words.names):
            first = np.flatnonzero(words.codes == i)
            if len(first):
                numbers_of[i] = _class(word, lambda row=int(first[0]): f"{self.sheet.at(row)}:", self.agreed)
        return numbers_of[words.codes]

    def _labels(self, y: NDArray[Any], x_type: str, task: str) -> NDArray[Any]:
        if task != "classes":
            wanted = len(self.agreed.classes)
            y = y.reshape(len(y), -1)
            if y.dtype.kind not in "fiub" or y.shape[1] != wanted or not np.isfinite(y).all():
                raise CoveyError(
                    f"{self.path} holds labels of {y.dtype} and shape {list(y.shape)}: agreed are {wanted} finite numbers per row"
                )
            if task == "labels" and not ((y == 0) | (y == 1)).all():
                raise CoveyError(f"{self.path} holds labels that are neither 0 nor 1: agreed is the task 'labels'")
            return y.astype(np.float32)
        if y.dtype.kind not in "iuU":
            raise CoveyError(
                f"{self.path} holds x of {x_type} and y of {y.dtype}: expected numbers, and whole numbers or names"
            )
        if y.ndim != 1:
            raise CoveyError(
                f"{self.path} holds x of {len(y)} samples and y of shape {list(y.shape)}: one label per sample"
            )
        classes = self.agreed.classes
        if y.dtype.kind == "U":
            return np.array([_class(str(word), lambda: str(self.path), self.agreed) for word in y], np.int64)
        wrong = (y < 0) | (y >= len(classes))
        if wrong.any():
            raise CoveyError(
                f"{self.path} holds the label {y[wrong][0]}, agreed are the classes 0 to {len(classes) - 1} "
                f"({', '.join(classes[:8])}{', …' if len(classes) > 8 else ''}): relabel or drop those samples"
            )
        return y.astype(np.int64)

    def _values(self, x: NDArray[Any]) -> NDArray[Any]:
        """The samples in the type that their kind is kept in, after checking every value."""
        agreed = self.agreed
        if agreed.kind == "real":
            wrong = ~_finite(x)
            if not wrong.any():
                with np.errstate(over="ignore"):
                    x = x.astype(np.float32, copy=False)
                wrong = ~_finite(x)  # a number that is finite may be none as float32
            if wrong.any():
                raise CoveyError(
                    f"{self.path} holds values that are not finite numbers{_first(wrong)}: correct or drop them"
                )
            return x
        top = {"image": 255, "binary": 1}.get(agreed.kind, agreed.vocabulary - 1)
        wrong = ~_finite(x)
        if not wrong.any():
            wrong = (x < 0) | (x > top) | (x != np.rint(x) if x.dtype.kind == "f" else False)
        if wrong.any():
            hint = "; pixels in [0, 1] must be multiplied by 255" if agreed.kind == "image" else ""
            hint += (
                "; for numbers of any size the federation agrees on silos.kind = 'real'"
                if len(agreed.shape) == 1
                else ""
            )
            raise CoveyError(
                f"{self.path} holds values{_first(wrong)} that do not fit {agreed.kind} samples: "
                f"expected whole numbers from 0 to {top}{hint}"
            )
        return x.astype(np.int32 if agreed.kind == "tokens" else np.uint8, copy=False)


def _finite(x: NDArray[Any]) -> NDArray[np.bool_]:
    if x.dtype.kind not in "fiub":
        return np.zeros(x.shape, np.bool_)
    return np.asarray(np.isfinite(x))


def _first(wrong: NDArray[np.bool_]) -> str:
    """Where the first wrong value is, for a sentence."""
    rows = np.flatnonzero(wrong.reshape(len(wrong), -1).any(1))
    return f" (first in sample {rows[0]})" if len(rows) else ""


def _class(word: str, where: Any, agreed: Described) -> int:
    """The number of a class that is given by name, or by that number."""
    if word in agreed.classes:
        return list(agreed.classes).index(word)
    if word.isascii() and word.isdigit() and int(word[:9]) < len(agreed.classes):
        return int(word[:9])
    raise CoveyError(f"{where()} has the unknown class '{word[:40]}'{nearest(word[:40], list(agreed.classes))}")
