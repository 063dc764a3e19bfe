"""CSV and Parquet files, read by pyarrow: fast, strict about the number of fields, and every text as it stands there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from covey.data.own.limits import explained, room
from covey.data.own.lines import check_lines, header_of, separator_of
from covey.data.own.rules import TABLES
from covey.data.own.sheet import Column, Origin, Sheet, beyond, of_arrow, words_of
from covey.errors import CoveyError

NO_VALUE = [
    "",
    "NA",
    "N/A",
    "n/a",
    "NaN",
    "nan",
    "null",
    "NULL",
    "?",
]  # texts of a CSV that say that a value is missing


def is_table(path: Path) -> bool:
    return path.name.lower().endswith(TABLES)


def read_table(path: Path) -> Sheet:
    """All columns of a file."""
    try:
        import pyarrow  # noqa: F401
    except ModuleNotFoundError as absent:
        raise CoveyError(
            f"{path} needs pyarrow to be read: pip install 'covey[data]', or give the samples as .npz"
        ) from absent
    if path.is_file() and path.stat().st_size > room():
        raise CoveyError(
            f"{path} has {path.stat().st_size / 2**30:.1f} GiB, {room() / 2**30:.1f} GiB is the most that is read here: "
            "write it as .npy files, which are mapped (docs/your_own_data.md)"
        )
    with explained(path):
        return _parquet(path) if path.name.lower().endswith(".parquet") else _csv(path)


def _parquet(path: Path) -> Sheet:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(path)
    except pa.ArrowException as e:
        raise CoveyError(f"{path} cannot be read ({_one_line(e)}): write it again as Parquet") from e
    return of_arrow(table, str(path))


def _csv(path: Path) -> Sheet:
    import pyarrow as pa
    from pyarrow import csv as arrow_csv

    header = header_of(path)
    twice = [name for name in header if header.count(name) > 1]
    if twice:
        raise CoveyError(
            f"{path} has {header.count(twice[0])} columns called '{twice[0]}' in its first line: expected one"
        )
    try:
        table = arrow_csv.read_csv(
            path,
            read_options=arrow_csv.ReadOptions(column_names=header, skip_rows=1, block_size=8 * 2**20),
            parse_options=arrow_csv.ParseOptions(delimiter=separator_of(path), newlines_in_values=True),
            convert_options=arrow_csv.ConvertOptions(
                column_types={name: pa.string() for name in header},
                null_values=NO_VALUE,
                strings_can_be_null=True,
            ),
        )
    except pa.ArrowException as e:
        check_lines(path, header)
        if "Empty CSV file" in str(e):  # a header without a line after it
            return Sheet({name: np.zeros(0) for name in header}, (Origin(str(path), 0, path),))
        raise CoveyError(f"{path} cannot be read ({_one_line(e)}): write it again as UTF-8 CSV") from e
    columns = {name: _column(table.column(name)) for name in header}
    return Sheet(columns, (Origin(str(path), table.num_rows, path),))


def _column(texts: Any) -> Column:
    """Numbers where every value is one, else words."""
    import pyarrow as pa
    import pyarrow.compute as pc

    for attempt in (texts, None):
        try:
            column = attempt if attempt is not None else pc.utf8_trim_whitespace(texts)
            numbers = np.array(column.cast(pa.float64()).to_numpy(), np.float64)
            whole = beyond(numbers) and pc.all(pc.match_substring_regex(column, "^-?[0-9]+$")).as_py()
            return words_of(column) if whole else numbers
        except pa.ArrowInvalid:
            if attempt is not None and not _mostly_numbers(texts):
                break
    return words_of(texts)


def _mostly_numbers(texts: Any) -> bool:
    """Whether blanks around numbers may be all that is wrong: judged by the first value."""
    for text in texts.slice(0, 100).to_pylist():
        if text is not None:
            try:
                float(text)
            except ValueError:
                return False
            return True
    return False


def _one_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0][:200] if str(error).strip() else type(error).__name__
