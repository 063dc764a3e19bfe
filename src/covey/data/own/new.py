"""New samples to predict: arrays (.npy, .npz with `x`, and `y` where they are labelled), or a table that is read as the
training data's was.

Numbers that were standardised with the federation's statistics are so again, and those of a deployed silo with its own training
rows'. Where each client of a simulation used its own (data.standardise = "clients"), which no run keeps, a file of new samples uses
its own as well: the same sample is read otherwise among other rows, and one row alone is refused.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from covey.data.own.encoding import Feature, encode, is_number, numbers, plain
from covey.data.own.sheet import Other, Sheet, Words, of_frame
from covey.data.own.tables import is_table, read_table
from covey.errors import CoveyError

LABELS = ("label", "target", "class", "y")  # a column of these names holds no input, unless the training data's did


def read_samples(
    path: Path, shape: Sequence[int], columns: Sequence[Feature] = (), label: Sequence[str] = (), labelled: bool = False
) -> tuple[NDArray[Any], NDArray[Any] | None]:
    """(samples [n, *shape], labels [n] or None) of a file. `columns`: how the training table was read; none: it was arrays.

    `label`: the columns that it was to predict. Labels are read only of samples that are `labelled`: others may have gaps there.
    """
    if not path.is_file():
        raise CoveyError(f"{path} is no file: give an .npz with x, an .npy or a table")
    if is_table(path):
        sheet = read_table(path)
        if not sheet.rows:
            raise CoveyError(f"{path} has no row under its header: put at least one sample there")
        x, y = of_sheet(sheet, columns, label, labelled)
    elif path.suffix in (".npz", ".npy"):
        x, y = _arrays(path)
    else:
        raise CoveyError(
            f"{path.name} is of no kind that is read here: give an .npz with x, an .npy, a .csv or a .parquet"
        )
    if x.ndim == 2 and len(shape) > 1 and x.shape[1] == math.prod(shape):  # flat rows of pictures
        x = x.reshape(len(x), *shape)
    return x, y


def of_samples(given: Any, columns: Sequence[Feature]) -> NDArray[Any]:
    """Samples as arrays; of a frame, read as the training table was."""
    if columns and not isinstance(given, np.ndarray | list | tuple):
        return of_sheet(of_frame(given), columns)[0]
    return np.asarray(given)


def by_own_rows(columns: Sequence[Feature]) -> bool:
    """Whether new samples are standardised with their own mean and deviation, since no others are known."""
    return any(not column.scale and not column.values for column in columns)


def of_sheet(
    sheet: Sheet, columns: Sequence[Feature], label: Sequence[str] = (), labelled: bool = False
) -> tuple[NDArray[Any], NDArray[Any] | None]:
    """A table's samples, and the labels in the columns of these names or in one of a usual name."""
    inputs = {column.name for column in columns}
    marked = [name for name in label if name in sheet.columns and name not in inputs]
    if len(label) > 1 and len(marked) < len(label):
        marked = []  # some of what was to predict is not there, so that no loss can be said
    elif not marked:
        marked = [name for name in LABELS if name in sheet.columns and name not in inputs][:1]
    read = tuple(columns) or plain([name for name in sheet.columns if name not in marked])
    if sheet.rows == 1 and by_own_rows(columns):
        raise CoveyError(
            f"{sheet.place} holds one row, and this run's clients standardised with their own mean and deviation, which it did not "
            "keep: give more rows of one source together, or train with data.standardise = 'all'"
        )
    x: NDArray[Any] = encode(sheet, read, np.ones(sheet.rows, np.bool_), strict=True)
    if not columns and (x == np.rint(x)).all() and x.min(initial=0) >= 0 and x.max(initial=0) < 256:
        x = x.astype(np.uint8)  # pixels, bits, tokens: whole numbers, as arrays hold them
    labels = [_labels(sheet, name) for name in marked if labelled]
    return x, None if not labels else labels[0] if len(labels) == 1 else np.stack(labels, 1)


def _labels(sheet: Sheet, name: str) -> NDArray[Any]:
    column = sheet.columns[name]
    if isinstance(column, Words) and not all(is_number(word) for word in column.names):
        if (column.codes < 0).any():
            raise CoveyError(
                f"{sheet.at(int(np.flatnonzero(column.codes < 0)[0]))}: column '{name}' has no value: fill it"
            )
        return np.array(column.names)[column.codes]
    if isinstance(column, Other):
        raise CoveyError(f"{sheet.place}: column '{name}' holds {column.what}, expected labels: convert it")
    values = numbers(sheet, name, column)
    if not np.isfinite(values).all():
        raise CoveyError(
            f"{sheet.at(int(np.flatnonzero(~np.isfinite(values))[0]))}: column '{name}' has no value: fill it"
        )
    return values.astype(np.int64) if (values == np.rint(values)).all() else values


def _arrays(path: Path) -> tuple[NDArray[Any], NDArray[Any] | None]:
    try:
        held = np.load(path, allow_pickle=False)
        if isinstance(held, np.ndarray):
            return held, None
        names = list(held.files)
        x = held["x"] if "x" in names else held[names[0]] if len(names) == 1 else None
        y = held["y"] if "y" in names else None
    except (ValueError, OSError, EOFError, KeyError) as e:
        raise CoveyError(f"{path} cannot be read as arrays ({e}): write it with numpy.savez(path, x=…)") from e
    if x is None:
        raise CoveyError(f"{path} holds {', '.join(names) or 'nothing'}, expected an array x")
    return x, y
