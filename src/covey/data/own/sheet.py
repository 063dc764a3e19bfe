"""A table as columns, before any of it is believed: numbers, words, or what is neither."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from covey.data.own.lines import line_of
from covey.errors import CoveyError

Numbers = NDArray[np.float64]  # [m]; NaN: missing
EXACT = 2.0**53  # whole numbers from here on are not all told apart as Numbers: two clients would become one


@dataclass(frozen=True)
class Words:
    """A column of texts: the number of each, and the texts in the order in which they first appear."""

    codes: NDArray[np.int64]  # [m]; -1: missing
    names: tuple[str, ...]
    category: bool = False  # its type says that they are names, even where they are numbers

    @property
    def used(self) -> NDArray[np.int64]:
        """Rows of each text, [names]."""
        return np.bincount(self.codes[self.codes >= 0], minlength=len(self.names))


@dataclass(frozen=True)
class Other:
    """A column that no rule reads: dates, lists, objects."""

    what: str


Column = Numbers | Words | Other


@dataclass(frozen=True)
class Origin:
    """Where rows come from, so that a sentence can say it."""

    place: str
    rows: int
    lines: Path | None = None  # a CSV: whose lines people look for

    def at(self, row: int) -> str:
        """`hearts.csv, line 5`, or `the frame, row 3`, counting rows from 0 as Python does."""
        return f"{self.place}, row {row}" if self.lines is None else f"{self.place}, line {line_of(self.lines, row)}"


@dataclass(frozen=True)
class Sheet:
    """The columns of one or more tables."""

    columns: Mapping[str, Column]
    origins: tuple[Origin, ...] = field(default=())

    @property
    def rows(self) -> int:
        return sum(origin.rows for origin in self.origins)

    @property
    def place(self) -> str:
        return self.origins[0].place if len(self.origins) == 1 else f"{self.origins[0].place} and others"

    def at(self, row: int) -> str:
        """Where a row stands, for a sentence."""
        for origin in self.origins:
            if row < origin.rows:
                return origin.at(row)
            row -= origin.rows
        raise IndexError(row)


def missing(column: Column) -> NDArray[np.bool_]:
    """[m] where a column has no value."""
    if isinstance(column, Words):
        return np.asarray(column.codes < 0)
    return np.isnan(column) if isinstance(column, np.ndarray) else np.zeros(0, np.bool_)


def taken(column: Column, rows: NDArray[np.int64]) -> Column:
    """Some rows of a column."""
    if isinstance(column, Words):
        return Words(column.codes[rows], column.names, column.category)
    return column if isinstance(column, Other) else column[rows]


def as_words(column: Numbers | Words) -> Words:
    """Numbers as texts: 3 for 3.0, as people write them."""
    if isinstance(column, Words):
        return column
    values, codes = np.unique(column, return_inverse=True)  # every NaN is one value, the last
    codes = np.where(np.isnan(column), -1, codes)
    return Words(codes.astype(np.int64), tuple(spelt(v) for v in values if not np.isnan(v)))


def spelt(value: float) -> str:
    return str(int(value)) if float(value).is_integer() else repr(float(value))


def joined(sheets: Sequence[Sheet]) -> Sheet:
    """One under the other; they must have the same columns, in any order."""
    if len(sheets) == 1:
        return sheets[0]
    names = list(sheets[0].columns)
    for sheet in sheets[1:]:
        if set(sheet.columns) != set(names):
            odd = sorted(set(sheet.columns) ^ set(names))[0]
            lacking, having = (sheet, sheets[0]) if odd in names else (sheets[0], sheet)
            raise CoveyError(
                f"{lacking.place} has no column '{odd}', {having.place} has one: give all tables the same columns"
            )
    columns = {name: _joined([sheet.columns[name] for sheet in sheets]) for name in names}
    return Sheet(columns, tuple(origin for sheet in sheets for origin in sheet.origins))


def _joined(columns: list[Column]) -> Column:
    others = [c for c in columns if isinstance(c, Other)]
    if others:
        return others[0]
    if all(isinstance(c, np.ndarray) for c in columns):
        return np.concatenate([c for c in columns if isinstance(c, np.ndarray)])
    words = [as_words(c) for c in columns if not isinstance(c, Other)]  # numbers here, texts there: texts
    names = tuple(dict.fromkeys(name for w in words for name in w.names))
    number = {name: i for i, name in enumerate(names)}
    parts = [np.array([number[n] for n in w.names] + [-1], np.int64)[w.codes] for w in words]
    return Words(np.concatenate(parts), names, any(w.category for w in words))


# ---------------------------------------------------------------- from tables in memory


def of_arrow(table: Any, place: str) -> Sheet:
    """Of a pyarrow table; its columns keep their types."""
    import pyarrow as pa

    columns: dict[str, Column] = {}
    for name in table.column_names:
        column = table.column(name)
        kind, coded = column.type, False
        if pa.types.is_dictionary(kind):
            column, coded = column.cast(kind.value_type), True
            kind = kind.value_type
        if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
            columns[str(name)] = words_of(column)
        elif pa.types.is_null(kind):
            columns[str(name)] = np.full(len(column), np.nan)
        elif (
            pa.types.is_integer(kind)
            or pa.types.is_floating(kind)
            or pa.types.is_boolean(kind)
            or pa.types.is_decimal(kind)
        ):
            numbers = numbers_of(column)
            if coded:
                columns[str(name)] = replace(as_words(numbers), category=True)
                continue
            exact = not pa.types.is_integer(kind) or not beyond(numbers)
            columns[str(name)] = numbers if exact else words_of(column)
        else:
            columns[str(name)] = Other(str(kind))
    return Sheet(columns, (Origin(place, table.num_rows),))


def numbers_of(column: Any) -> Numbers:
    """Of an arrow column of numbers or truth values."""
    import pyarrow as pa

    if pa.types.is_boolean(column.type):
        column = column.cast(pa.int8())
    return np.array(column.cast(pa.float64(), safe=False).to_numpy(), np.float64)


def beyond(numbers: Numbers) -> bool:
    """Whether some are too large for whole numbers to be told apart."""
    return bool((np.abs(numbers) >= EXACT).any())


def words_of(column: Any) -> Words:
    """Of an arrow column of texts; blanks around them do not count, and nothing but blanks is missing."""
    import pyarrow as pa

    encoded = column.cast(pa.large_string()).combine_chunks().dictionary_encode()
    encoded = encoded.combine_chunks() if isinstance(encoded, pa.ChunkedArray) else encoded
    codes = np.asarray(encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False), np.int64)
    return _trimmed(codes, encoded.dictionary.to_pylist())


def _trimmed(codes: NDArray[np.int64], texts: Sequence[str]) -> Words:
    clean = [text.strip() for text in texts]
    names = tuple(dict.fromkeys(text for text in clean if text))
    if list(names) == list(texts):
        return Words(codes, names)
    number = {name: i for i, name in enumerate(names)} | {"": -1}
    return Words(np.array([number[text] for text in clean] + [-1], np.int64)[codes], names)


def of_frame(frame: Any, place: str = "the frame") -> Sheet:
    """Of a pandas frame, a pyarrow table, or anything with `to_arrow` or `to_pandas`."""
    if hasattr(frame, "column_names") and hasattr(frame, "num_rows"):
        return of_arrow(frame, place)
    if hasattr(frame, "to_arrow"):
        return of_arrow(frame.to_arrow(), place)
    if not hasattr(frame, "columns") and hasattr(frame, "to_pandas"):
        frame = frame.to_pandas()
    if not hasattr(frame, "columns") or not hasattr(frame, "index"):
        raise CoveyError(
            f"{place} is a {type(frame).__name__}: give a pandas frame, a pyarrow table, or Federation.from_arrays"
        )
    names = [str(name) for name in frame.columns]
    if len(set(names)) < len(names):
        raise CoveyError(
            f"{place} has two columns called '{max(names, key=names.count)}': give every column its own name"
        )
    columns = {name: _of_series(frame[own]) for name, own in zip(names, frame.columns)}
    return Sheet(columns, (Origin(place, len(frame)),))


def _of_series(series: Any) -> Column:
    """Of a pandas series; a column of objects counts as texts where all its values are texts or truth values."""
    kind = getattr(series.dtype, "kind", "O")
    if kind in "fiub" and not hasattr(series, "cat"):
        read = np.asarray(series.to_numpy(dtype=np.float64, na_value=np.nan), np.float64)
        if kind not in "iu" or not beyond(read):
            return read
        codes, values = series.factorize()
        return Words(np.asarray(codes, np.int64), tuple(str(v) for v in values))
    if kind in "mM":
        return Other("dates or times")
    try:
        codes, values = series.factorize()
    except TypeError:  # lists, dictionaries: nothing that could be counted
        return Other("values that are neither numbers nor texts")
    if hasattr(series, "cat") and all(isinstance(v, int | float | np.number) for v in values):
        return Words(np.asarray(codes, np.int64), tuple(spelt(v) for v in values), category=True)
    if all(isinstance(v, bool | int | float | np.number | np.bool_) for v in values):
        numbers = np.array([float(v) for v in values] + [np.nan], np.float64)
        if beyond(numbers) and all(isinstance(v, int | np.integer) for v in values):
            return Words(np.asarray(codes, np.int64), tuple(str(v) for v in values))
        return np.asarray(numbers[codes], np.float64)
    if not all(isinstance(v, str | bool | int | float | np.number | np.bool_) for v in values):
        wrong = next(v for v in values if not isinstance(v, str | bool | int | float | np.number | np.bool_))
        return Other(f"values of type {type(wrong).__name__}")
    texts = [v if isinstance(v, str) else str(v) for v in values]
    return _trimmed(np.asarray(codes, np.int64), texts)
