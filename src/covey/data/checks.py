"""What a federation must be before anything trains on it. One sentence for what is not: where, what was expected, what to do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from covey.data.federation import Dataset, Federation
from covey.data.holdings import Holdings, held
from covey.errors import CoveyError, meant

KINDS = ("image", "binary", "real", "tokens")
TASKS = ("classes", "labels", "numbers")
PIECE = 64 * 2**20  # bytes looked at in one go: a mapped array may be larger than the memory


def check(federation: Federation) -> Federation:
    """The same federation, or one sentence on what is wrong with it."""
    if not isinstance(federation, Federation):
        raise CoveyError(
            f"federation is a {type(federation).__name__}: make one with covey.Federation.from_arrays(x, y, clients=…) "
            "or from_frame"
        )
    check_dataset(federation.dataset)
    for now in (federation, *(federation.at(phase.first) for phase in federation.phases)):
        _check_clients(now)
        _check_tests(now)
    return federation


def check_dataset(dataset: Dataset) -> Dataset:
    """The same dataset, or one sentence."""
    if not isinstance(dataset, Dataset):
        raise CoveyError(f"the federation's dataset is a {type(dataset).__name__}: expected a covey Dataset")
    for value, known, what in ((dataset.kind, KINDS, "kind"), (dataset.task, TASKS, "task")):
        if value not in known:
            raise CoveyError(
                f"{_called(dataset)} has {what} {value!r}: choose one of {', '.join(known)}{meant(str(value), known)}"
            )
    for part in ("train", "test"):
        check_samples(getattr(dataset, f"x_{part}"), getattr(dataset, f"y_{part}"), dataset, part)
    shape, other = dataset.x_train.shape[1:], dataset.x_test.shape[1:]
    if shape != other:
        raise CoveyError(
            f"{_called(dataset)} has training samples of shape {list(shape)} and test samples of {list(other)}: make them alike"
        )
    if dataset.task == "classes" and dataset.outputs < 2:
        raise CoveyError(f"{_called(dataset)} has {dataset.outputs} class: a model needs at least 2 to tell apart")
    if dataset.task == "classes" and (dataset.y_train == dataset.y_train[0]).all():
        only = dataset.classes[int(dataset.y_train[0])]
        raise CoveyError(
            f"all {len(dataset.y_train)} training samples of {_called(dataset)} are of class '{only}': "
            "add samples of another class, or name another label"
        )
    if len(set(dataset.classes)) < len(dataset.classes):
        twice = max(dataset.classes, key=dataset.classes.count)
        raise CoveyError(f"{_called(dataset)} has two classes called '{twice}': give every class a name of its own")
    return dataset


def check_samples(x: Any, y: Any, dataset: Dataset, part: str) -> None:
    """Samples and labels of one part, against what the dataset says of itself."""
    what = f"x_{part} of {_called(dataset)}"
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
    what = f"y_{part} of {_called(dataset)}"
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


def _check_clients(federation: Federation) -> None:
    rows = len(federation.dataset.y_train)
    if not federation.clients:
        raise CoveyError(
            f"{_called(federation.dataset)} names no clients: give clients=…, or a partition that cuts it, such as iid"
        )
    if not isinstance(federation.clients, Holdings):  # what could not be joined
        wrong = next(i for i, own in enumerate(federation.clients) if not isinstance(held((own,)), Holdings))
        raise CoveyError(
            f"the rows of {who(federation, wrong)} are no array of whole numbers: give row numbers of x_train"
        )
    every, sizes = federation.holdings.rows, federation.holdings.sizes
    if not sizes.min():
        raise CoveyError(f"{who(federation, int(sizes.argmin()))} has no training rows: give it some, or leave it out")
    if every.min() < 0 or every.max() >= rows:
        at = np.flatnonzero((every < 0) | (every >= rows))[0]
        holder = who(federation, federation.holdings.owners[at])
        raise CoveyError(f"{holder} holds row {every[at]}, there are the rows 0 to {rows - 1}: correct it")
    taken = np.zeros(rows, np.bool_)  # a count of each would take eight times the memory
    taken[every] = True
    if np.count_nonzero(taken) < len(every) and not federation.notes.get("overlap"):
        row = int(np.bincount(every, minlength=rows).argmax())
        holders = [who(federation, i) for i in federation.holdings.owners[every == row][:2]]
        twice = f"{holders[0]} twice" if holders[0] == holders[1] else " and ".join(holders)
        raise CoveyError(
            f"row {row} is held by {twice}: give each row to one client, or note the overlap in notes['overlap']"
        )
    if federation.clusters is not None and np.shape(federation.clusters) != (len(federation.clients),):
        raise CoveyError(
            f"clusters has shape {list(np.shape(federation.clusters))}, there are {len(federation.clients)} clients: "
            "give one number per client, or None"
        )
    for j, public in enumerate(federation.public):
        if len(public) and not 0 <= int(np.min(public)) <= int(np.max(public)) < rows:
            raise CoveyError(f"public part {j} names rows outside 0 to {rows - 1}: correct it")
    if federation.names and len(set(federation.names)) < len(federation.clients):
        raise CoveyError(
            f"names lists {len(set(federation.names))} different names for {len(federation.clients)} clients: give one each"
        )


def _check_tests(federation: Federation) -> None:
    """Every client must be tested on something: a score of nothing would read as 0."""
    n, tests, shares = len(federation.clients), len(federation.dataset.y_test), federation.distributions
    if np.ndim(shares) != 2 or len(shares) != n:
        raise CoveyError(
            f"distributions has shape {list(np.shape(shares))}, expected [{n}, groups]: one row per client"
        )
    if np.shape(federation.test_groups) != (tests,):
        raise CoveyError(
            f"test_groups has shape {list(np.shape(federation.test_groups))}, there are {tests} test rows: one group each"
        )
    groups = federation.test_groups
    if groups.dtype.kind not in "iu" or groups.min() < 0 or groups.max() >= shares.shape[1]:
        raise CoveyError(
            f"test_groups holds groups outside 0 to {shares.shape[1] - 1}: distributions has that many columns"
        )
    tested = np.bincount(groups, minlength=shares.shape[1]) > 0
    if federation.tested_apart:
        _refuse_bare(federation, np.flatnonzero(~tested))
        return
    for start, part in pieces(shares):
        totals = part.sum(1)
        wrong = np.flatnonzero(~(np.abs(totals - 1) < 1e-6) | (part.min(1) < 0))
        bare = np.flatnonzero(~part[:, tested].any(1))
        if len(wrong) and (not len(bare) or wrong[0] <= bare[0]):
            raise CoveyError(
                f"the distribution of {who(federation, start + int(wrong[0]))} sums to {totals[wrong[0]]:g}: shares of 0 or more "
                "that sum to 1"
            )
        _refuse_bare(federation, start + bare)


def _refuse_bare(federation: Federation, bare: NDArray[np.int64]) -> None:
    if len(bare):
        raise CoveyError(
            f"{who(federation, int(bare[0]))} has no test rows: hold some of its rows back, or leave it out (data.min_rows)"
        )


def who(federation: Federation, client: int) -> str:
    """A client in a sentence."""
    name = f" ('{federation.names[client]}')" if client < len(federation.names) else ""
    return f"client {client}{name}"


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


def _called(dataset: Dataset) -> str:
    return f"'{dataset.name}'"
