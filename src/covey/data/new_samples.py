"""Samples to predict, as files hold them: .npy, .npz with `x` (and `y`, where they are labelled), or a .csv of numbers."""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from covey.errors import CoveyError

LABEL = "label"


def read_samples(path: Path, shape: Sequence[int], kind: str) -> tuple[NDArray[Any], NDArray[Any] | None]:
    """(samples [n, *shape], labels [n] or None)."""
    if not path.is_file():
        raise CoveyError(f"{path} is no file: give an .npz with x, an .npy or a .csv")
    if path.suffix == ".csv":
        x, y = _table(path)
    elif path.suffix in (".npz", ".npy"):
        x, y = _arrays(path)
    else:
        raise CoveyError(f"{path.name} is of no kind that is read here: give an .npz with x, an .npy or a .csv")
    if x.ndim == 2 and len(shape) > 1 and x.shape[1] == math.prod(shape):  # flat rows of pictures
        x = x.reshape(len(x), *shape)
    if path.suffix == ".csv" and kind in ("image", "binary", "tokens") and (x == np.rint(x)).all():
        x = x.astype(np.int32 if kind == "tokens" else np.uint8) if x.min() >= 0 and x.max() < 2**31 else x
    return x, y


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


def _table(path: Path) -> tuple[NDArray[Any], NDArray[Any] | None]:
    with path.open(newline="", encoding="utf-8-sig") as file:
        rows = list(csv.reader(file))
    if len(rows) < 2:
        raise CoveyError(f"{path} has no row under its header: put at least one sample there")
    header, body = rows[0], rows[1:]
    at = header.index(LABEL) if LABEL in header else -1
    values = np.empty((len(body), len(header) - (at >= 0)))
    for i, row in enumerate(body):
        if len(row) != len(header):
            raise CoveyError(f"{path.name}:{i + 2} has {len(row)} values under {len(header)} names: correct that line")
        cells = [cell for j, cell in enumerate(row) if j != at]
        try:
            values[i] = [float(cell) for cell in cells]
        except ValueError as e:
            raise CoveyError(f"{path.name}:{i + 2}: {e}; correct or drop that line") from e
    return values, np.array([row[at] for row in body]) if at >= 0 else None
