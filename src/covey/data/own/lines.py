"""CSV files as lines of text: their first line, what parts its names, and the line of a row, for errors."""

from __future__ import annotations

import contextlib
import csv
import gzip
import io
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

from covey.errors import CoveyError


def header_of(path: Path) -> list[str]:
    """The names in the first line."""
    try:
        with opened(path) as file:
            names = [name.strip() for name in next(csv.reader(file, delimiter=separator_of(path)), [])]
    except UnicodeDecodeError as e:
        raise CoveyError(f"{path} is not written in UTF-8: save it as 'CSV UTF-8'") from e
    if not names:
        raise CoveyError(f"{path} is empty: its first line must name the columns, 0 columns are named")
    return names


def separator_of(path: Path) -> str:
    """What parts the names of the first line: a comma, a semicolon or a tab."""
    with opened(path) as file:
        try:
            first = file.readline()
        except UnicodeDecodeError:
            return ","
    return max(",;\t", key=first.count)


def line_of(path: Path, row: int) -> int:
    """The line of a CSV that a row begins on; read again, since only an error asks."""
    with opened(path) as file:
        lines = csv.reader(file, delimiter=separator_of(path))
        seen = -1  # the header
        for fields in lines:
            if fields:
                if seen == row:
                    return lines.line_num
                seen += 1
    return row + 2


def check_lines(path: Path, header: list[str]) -> None:
    """Raises with the first line that has another number of fields than the header, if there is one."""
    try:
        with opened(path) as file:
            lines = csv.reader(file, delimiter=separator_of(path))
            for fields in lines:
                if fields and len(fields) != len(header):
                    raise CoveyError(
                        f"{path}, line {lines.line_num}: {len(fields)} fields, the first line has {len(header)}: correct that line"
                    )
    except UnicodeDecodeError as e:
        raise CoveyError(f"{path} is not written in UTF-8 (byte {e.start}): save it as 'CSV UTF-8'") from e


@contextlib.contextmanager
def opened(path: Path) -> Iterator[TextIO]:
    """A CSV as text, packed or not."""
    if path.name.lower().endswith(".gz"):
        with gzip.open(path, "rb") as packed, io.TextIOWrapper(packed, "utf-8-sig", newline="") as file:
            yield file
    else:
        with path.open(newline="", encoding="utf-8-sig") as file:
            yield file
