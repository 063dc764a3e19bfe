"""What a dataset must be before anything trains on it. One sentence for what is not: where, what was expected, what to do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from covey.data.dataset import Dataset
from covey.errors import CoveyError, meant

KINDS = ("image", "binary", "real", "tokens")
TASKS = ("classes", "labels", "numbers")
PIECE = 64 * 2**20  # bytes looked at in one go: a mapped array may be larger than the memory


def check_dataset(dataset: Dataset) -> Dataset:
    """The same dataset, or one sentence."""
    if not isinstance(dataset, Dataset):
        raise CoveyError(f"the federation's dataset is a {type(dataset).__name__}: expected a covey Dataset")
    for value, known, what in ((dataset.kind, KINDS, "kind"), (dataset.task, TASKS, "task")):
        if value not in known:
            raise CoveyError(
                f"{called(dataset)} has {what} {value!r}: choose one of {', '.join(known)}{meant(str(value), known)}"
            )
    for part in ("train", "test"):
        check_samples(getattr(dataset, f"x_{part}"), getattr(dataset, f"y_{part}"), dataset, part)
    shape, other = dataset.x_train.shape[1:], dataset.x_test.shape[1:]
    if shape != other:
        raise CoveyError(
            f"{called(dataset)} has training samples of shape {list(shape)} and test samples of {list(other)}: make them alike"
        )
    if dataset.task == "classes" and dataset.outputs < 2:
        raise CoveyError(f"{called(dataset)} has {dataset.outputs} class: a model needs at least 2 to tell apart")
    if dataset.task == "classes" and (dataset.y_train == dataset.y_train[0]).all():
        only = dataset.classes[int(dataset.y_train[0])]
        raise CoveyError(
            f"all {len(dataset.y_train)} training samples of {called(dataset)} are of class '{only}': "
            "add samples of another class, or name another label"
        )
    if len(set(dataset.classes)) < len(dataset.classes):
        twice = max(dataset.classes, key=dataset.classes.count)
        raise CoveyError(f"{called(dataset)} has two classes called '{twice}': give every class a name of its own")
    return dataset


def check_samples(x: Any, y: Any, dataset: Dataset, part: str) -> None:
    """Samples and labels of one part, against what the dataset says of itself."""
    what = f"x_{part} of {called(dataset)}"
    if not isinstance(x, np.ndarray) or not isinstance(y, np.ndarray):
        wrong = type(x if not isinstance(x, np.ndarray) else y).__name__
        raise CoveyError(f"{what} or its labels are a {wrong}: give numpy arrays, as numpy.asarray makes them")
    if x.dtype.kind not in "fiub":
        raise CoveyError(f"{what} holds {_type(x)}, expected numbers: encode texts first, or use Federation.from_frame")
    if x.ndim < 2:
        raise CoveyError(
            f"{what} has shape {list(x.shape)}, expected [rows, …]: reshape(-1, 1) makes one feature of it"
        )
    if not len(x):
        more = "give a test part, or a share to hold back" if part == "test" else "give at least one row"
        raise CoveyError(f"{what} has no rows: {more}")
    if not x[0].size:
        raise CoveyError(f"{what} has shape {list(x.shape)}, no values in a sample: give at least one column")
    if len(x) != len(y):
        raise CoveyError(f"{what} has {len(x)} rows, but there are {len(y)} labels: give one label per row")
    _check_values(x, dataset.kind, what)
    _check_labels(y, dataset, part)


def _check_values(x: NDArray[Any], kind: str, what: str) -> None:
    place: tuple[int, ...] = ()
    if kind == "real" or x.dtype.kind == "f":
        place = first(x, lambda piece: ~np.isfinite(piece)) if x.dtype.kind == "f" else ()
        if place:
            raise CoveyError(f"{what}, {_place(x, place)}, no finite number: correct, fill or drop it")
    if kind == "real" or (kind == "image" and x.dtype == np.float32):
        return
    types = {"image": ("u1", "f4"), "binary": ("u1", "b1"), "tokens": ("i4", "i8", "u1", "u2")}[kind]
    if x.dtype.str[1:] not in types:
        wanted = {"image": "uint8 pixels from 0 to 255", "binary": "uint8 of 0 and 1", "tokens": "int32 ids"}[kind]
        raise CoveyError(f"{what} is of {x.dtype}, kind '{kind}' is kept as {wanted}: convert it, or give kind='real'")
    place = ()
    if kind == "binary" and x.dtype != np.bool_:
        place = first(x, lambda piece: piece > 1)
    elif kind == "tokens" and x.dtype.kind == "i":
        place = first(x, lambda piece: piece < 0)
    if place:
        raise CoveyError(
            f"{what}, {_place(x, place)}, which kind '{kind}' cannot hold: correct it, or give kind='real'"
        )


def _check_labels(y: NDArray[Any], dataset: Dataset, part: str) -> None:
    what = f"y_{part} of {called(dataset)}"
    if dataset.task != "classes":
        if y.dtype.kind not in "fiub" or y.ndim != 2 or y.shape[1] != dataset.outputs:
            raise CoveyError(
                f"{what} is {_type(y)} of shape {list(y.shape)}, task '{dataset.task}' needs numbers of "
                f"[rows, {dataset.outputs}]: convert or reshape it"
            )
        place = first(y, lambda piece: ~np.isfinite(piece))
        if place:
            raise CoveyError(f"{what}, {_place(y, place)}, no finite number: correct or drop that row")
        place = first(y, lambda piece: (piece != 0) & (piece != 1)) if dataset.task == "labels" else ()
        if place:
            raise CoveyError(
                f"{what}, {_place(y, place)}: a label applies (1) or does not (0); task 'numbers' is for others"
            )
        return
    if y.ndim != 1:
        raise CoveyError(
            f"{what} has shape {list(y.shape)}, expected one class per row: give its number, or task='labels' for several at once"
        )
    if y.dtype.kind not in "iu":
        raise CoveyError(
            f"{what} holds {_type(y)}, expected whole numbers from 0: Federation.from_arrays turns names of classes into them"
        )
    wrong = np.flatnonzero((y < 0) | (y >= dataset.outputs))
    if len(wrong):
        raise CoveyError(
            f"{what}, row {wrong[0]} is {y[wrong[0]]}, there are the classes 0 to {dataset.outputs - 1}: "
            "relabel that row, or name more classes"
        )


def first(array: NDArray[Any], wrong: Callable[[NDArray[Any]], NDArray[np.bool_]]) -> tuple[int, ...]:
    """The index of the first wrong value; (): there is none."""
    for start, piece in pieces(array):
        mask = wrong(piece)
        if mask.any():
            row, *inner = (int(i) for i in np.argwhere(mask)[0])
            return (start + row, *inner)
    return ()


def pieces(array: NDArray[Any]) -> Iterator[tuple[int, NDArray[Any]]]:
    """(first row, rows) of parts that fit in memory."""
    rows = max(1, PIECE // max(1, array[:1].nbytes))
    for start in range(0, len(array), rows):
        yield start, np.asarray(array[start : start + rows])


def _place(array: NDArray[Any], at: tuple[int, ...]) -> str:
    """A value in a sentence: "row 3, column 2 is nan"."""
    row, *inner = at
    column = f", column {inner[0]}" if len(inner) == 1 else f", place {inner}" if inner else ""
    return f"row {row}{column} is {array[at]}"


def _type(array: NDArray[Any]) -> str:
    names = {"U": "texts", "S": "bytes", "O": "Python objects", "f": "numbers with a point", "b": "true and false"}
    return names.get(array.dtype.kind, str(array.dtype))


def called(dataset: Dataset) -> str:
    return f"'{dataset.name}'"
