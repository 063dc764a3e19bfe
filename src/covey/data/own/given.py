"""Datasets of what is in memory already: arrays, frames, torch and Hugging Face datasets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from covey import config
from covey.data.dataset import Dataset
from covey.data.own.arrays import Arrays
from covey.data.own.read import Reading, of_arrays, of_mapped, of_sheet, read_path
from covey.data.own.rules import Rules
from covey.data.own.sheet import joined, of_arrow, of_frame
from covey.errors import CoveyError


def from_arrays(
    x: Any,
    y: Any,
    clients: Any,
    test: Any,
    test_clients: Any,
    classes: Sequence[str],
    kind: str,
    task: str,
    name: str,
) -> Dataset:
    place = f"'{name}'"
    samples, labels = _array(x, "x", place), _array(y, "y", place)
    _same_length(samples, labels, place)
    owners = None if clients is None else _array(clients, "clients", place)
    rules = config.build(Rules, {"kind": kind, "task": task}, "")
    training = Arrays(place, samples, labels, owners)
    if isinstance(test, tuple):
        if len(test) != 2:
            raise CoveyError(f"test of {place} has {len(test)} parts: give (x, y), a share, or a mask of the test rows")
        x_test, y_test = _array(test[0], "x of test", place), _array(test[1], "y of test", place)
        _same_length(x_test, y_test, f"the test part of {place}")
        if test_clients is not None and owners is None:
            raise CoveyError(f"{place} has test_clients but no clients: give both, or neither")
        tested = None if test_clients is None else _array(test_clients, "test_clients", place)
        there = Arrays(f"the test part of {place}", x_test, y_test, tested)
        return of_mapped(training, there, rules, name, classes).dataset
    if test_clients is not None:
        raise CoveyError(f"{place} has test_clients without a test part: they belong to test=(x, y)")
    mask, rules = _test_rule(test, rules, len(labels), place)
    return of_arrays(training, rules, name, None, mask, classes).dataset


def from_frame(frame: Any, label: Any, client: str, test: Any, name: str, more: Mapping[str, Any]) -> Dataset:
    sheet, rules = of_frame(frame), _rules(label, client, more)
    if hasattr(test, "columns") or hasattr(test, "column_names"):
        other = of_frame(test, "the test frame")
        mask = np.arange(sheet.rows + other.rows) >= sheet.rows
        return of_sheet(joined([sheet, other]), rules, name, None, mask).dataset
    if isinstance(test, str):
        return of_sheet(sheet, replace(rules, test=test), name).dataset
    marks, rules = _test_rule(test, rules, sheet.rows, "the frame")
    return of_sheet(sheet, rules, name, None, marks).dataset


def from_path(path: str, more: Mapping[str, Any]) -> Dataset:
    return reading_of(path, more).dataset


def reading_of(path: str, more: Mapping[str, Any]) -> Reading:
    """What lies at a path, by rules as a table has them."""
    return read_path(Path(path), config.build(Rules, dict(more), "data."))


def from_torch(samples: Any, test: Any, clients: Any, name: str, more: Mapping[str, Any]) -> Dataset:
    known = {"test_clients", "classes", "kind", "task"}
    strange = sorted(set(more) - known)
    if strange:
        raise CoveyError(f"from_torch does not know '{strange[0]}': it takes {', '.join(sorted(known))}")
    x, y = _items(samples, f"'{name}'")
    if hasattr(test, "__getitem__") and hasattr(test, "__len__") and not isinstance(test, np.ndarray | tuple | list):
        test = _items(test, f"the test part of '{name}'")
    options = {"test_clients": None, "classes": (), "kind": "", "task": ""} | dict(more)
    return from_arrays(x, y, clients, test, name=name, **options)


def _items(samples: Any, place: str) -> tuple[NDArray[Any], NDArray[Any]]:
    """All (sample, label) of a torch dataset."""
    if not hasattr(samples, "__len__") or not hasattr(samples, "__getitem__"):
        raise CoveyError(
            f"{place} is a {type(samples).__name__}: give a torch Dataset with a length, not an iterable or a loader"
        )
    x: list[NDArray[Any]] = []
    y: list[NDArray[Any]] = []
    for i in range(len(samples)):
        try:
            item = samples[i]
        except Exception as e:  # the caller's own code
            raise CoveyError(
                f"{place}, item {i} cannot be read ({type(e).__name__}: {str(e)[:200]}): correct the dataset's __getitem__"
            ) from e
        if not isinstance(item, tuple | list) or len(item) != 2:
            raise CoveyError(f"{place}, item {i} is a {type(item).__name__}: expected (sample, label)")
        x.append(np.asarray(item[0]))
        y.append(np.asarray(item[1]))
        if x[-1].shape != x[0].shape:
            raise CoveyError(
                f"{place}, item {i} has shape {list(x[-1].shape)}, item 0 has {list(x[0].shape)}: make them alike"
            )
    if not x:
        raise CoveyError(f"{place} has no items: give at least one")
    stacked = np.stack(x)
    if (
        stacked.ndim == 4 and stacked.shape[1] in (1, 3) and stacked.shape[3] not in (1, 3)
    ):  # channels first, as torch has them
        stacked = np.ascontiguousarray(np.moveaxis(stacked, 1, 3))
        stacked = stacked[..., 0] if stacked.shape[3] == 1 else stacked
    return stacked, np.stack(y)


def from_huggingface(
    samples: Any, label: Any, client: str, column: str, test: Any, name: str, more: Mapping[str, Any]
) -> Dataset:
    splits = dict(samples) if isinstance(samples, Mapping) else {"train": samples}
    if "train" not in splits:
        raise CoveyError(
            f"'{name}' has the splits {', '.join(map(str, splits))}: give one dataset, or a dictionary with train (and test)"
        )
    train, tested = splits["train"], splits.get("test")
    if not hasattr(train, "column_names") or not hasattr(train, "with_format"):
        raise CoveyError(
            f"'{name}' is a {type(train).__name__}: give a dataset of the package `datasets` that is loaded, no stream"
        )
    rules = _rules(label, client, more)
    arrays = column or _array_column(train, {*rules.labels, client})
    parts = [train] if tested is None else [train, tested]
    if not arrays:
        sheets = [of_arrow(_named_classes(part), f"'{name}'") for part in parts]
        mask = None if tested is None else np.arange(sum(s.rows for s in sheets)) >= sheets[0].rows
        if tested is None:
            mask, rules = _test_rule(test, rules, sheets[0].rows, f"'{name}'")
        return of_sheet(joined(sheets), rules, name, None, mask).dataset
    labels = rules.labels[0] if rules.labels else "label"
    for wanted in (arrays, labels, *([client] if client else [])):
        if wanted not in train.column_names:
            raise CoveyError(f"'{name}' has no column '{wanted}': it has {', '.join(train.column_names)}")
    read = [_stacked(part, arrays, labels, client, f"'{name}'") for part in parts]
    classes = tuple(getattr((train.features or {}).get(labels), "names", None) or ())
    (x, y, owners), share = read[0], test if tested is None else (read[1][0], read[1][1])
    test_owners = read[1][2] if len(read) > 1 and owners is not None else None
    return from_arrays(x, y, owners, share, test_owners, classes, rules.kind, rules.task, name)


def _array_column(samples: Any, others: set[str]) -> str:
    """The column that holds images or arrays, where there is one."""
    features = samples.features or {}
    wide = [
        name
        for name, feature in features.items()
        if name not in others
        and (type(feature).__name__ in ("Image", "Array2D", "Array3D", "Array4D", "Sequence", "List", "LargeList"))
    ]
    return wide[0] if len(wide) == 1 else ""


def _named_classes(samples: Any) -> Any:
    """The dataset as an arrow table, numbers of classes as their names."""
    import pyarrow as pa

    table = samples.with_format("arrow")[:]
    for name, feature in (samples.features or {}).items():
        names = getattr(feature, "names", None)
        if names:
            words = [None if v is None or v < 0 else names[v] for v in table.column(name).to_pylist()]
            table = table.set_column(table.column_names.index(name), name, pa.array(words, pa.string()))
    return table


def _stacked(samples: Any, column: str, label: str, client: str, place: str) -> tuple[Any, Any, Any]:
    plain = samples.with_format(None)
    x: list[NDArray[Any]] = []
    for i in range(len(plain)):
        value = np.asarray(plain[i][column])
        if x and value.shape != x[0].shape:
            raise CoveyError(
                f"{place}, item {i}: '{column}' has shape {list(value.shape)}, item 0 has {list(x[0].shape)}: make them alike"
            )
        x.append(value)
    if not x:
        raise CoveyError(f"{place} has no items: give at least one")
    return np.stack(x), np.asarray(plain[:][label]), np.asarray(plain[:][client]) if client else None


# ---------------------------------------------------------------- what all of them ask


def _array(value: Any, what: str, place: str) -> NDArray[Any]:
    """As numpy has it; a mapped array stays mapped, and nothing is copied that need not be."""
    if isinstance(value, np.ndarray):
        return value
    if hasattr(value, "detach") and hasattr(value, "cpu"):
        value = value.detach().cpu()
    try:
        array = np.asarray(value)
    except (ValueError, TypeError, RuntimeError) as e:
        raise CoveyError(f"{what} of {place} is no array ({str(e).splitlines()[0]}): give rows of one length") from e
    if array.ndim == 0:
        raise CoveyError(f"{what} of {place} is {value!r}: expected an array with one entry per row")
    return array


def _same_length(x: NDArray[Any], y: NDArray[Any], place: str) -> None:
    if not len(x):
        raise CoveyError(f"{place} has no rows: give at least two, one to train on and one to test on")
    if x.ndim < 2:
        raise CoveyError(
            f"{place} has samples of shape {list(x.shape)}, expected [rows, …]: reshape(-1, 1) makes one feature of it"
        )
    if len(x) != len(y):
        raise CoveyError(f"{place} has {len(x)} samples and {len(y)} labels: give one label per sample")


def _test_rule(test: Any, rules: Rules, rows: int, place: str) -> tuple[NDArray[np.bool_] | None, Rules]:
    """A mask of the test rows, or rules with the share to hold back."""
    if isinstance(test, float | int) and not isinstance(test, bool):
        return None, replace(rules, test=float(test))
    mask = _array(test, "test", place)
    if mask.dtype != np.bool_ or mask.shape != (rows,):
        raise CoveyError(
            f"test of {place} is an array of {mask.dtype} and shape {list(mask.shape)}: give a share, a mask of true and false "
            f"for its {rows} rows, or a test part"
        )
    return mask, rules


def _rules(label: Any, client: str, more: Mapping[str, Any]) -> Rules:
    words = {"label": label if isinstance(label, str) else list(label), "client": client}
    return config.build(Rules, words | dict(more), "")
