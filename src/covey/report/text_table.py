"""Columns of text for a terminal or a log: the one place where cells are padded."""

from __future__ import annotations

import shutil
import sys
import textwrap
import unicodedata
from collections.abc import Collection, Sequence

GAP = "  "
NARROWEST = 24  # a last column of fewer letters is not wrapped: it would be a tower of single words


def text_table(
    rows: Sequence[Sequence[str]], *, indent: str = "", right: Collection[int] = (), width: int = 0
) -> list[str]:
    """The rows as lines: each column as wide as its widest cell, the columns in `right` aligned to the right.

    With a width, the last column is wrapped to it, under itself; columns before it are never cut. Spaces that do not break
    become plain ones: a terminal does not need them, and what is copied from it should not hold them.
    """
    if not rows:
        return []
    cells = [[cell.replace("\u00a0", " ") for cell in row] for row in rows]
    widths = [max(map(letters, column)) for column in zip(*cells, strict=True)]
    start = len(indent) + sum(widths[:-1]) + len(GAP) * (len(widths) - 1)
    lines = []
    for row in cells:
        last = textwrap.wrap(row[-1], width - start) if width - start >= NARROWEST else [row[-1]]
        first = [*row[:-1], *last[:1]] if last else row
        padded = [_pad(cell, widths[i], i in right) for i, cell in enumerate(first)]
        lines.append((indent + GAP.join(padded)).rstrip())
        lines += [" " * start + line for line in last[1:]]
    return lines


def terminal_width() -> int:
    """Columns of the terminal that standard output is; 0 where it is a pipe or a file, whose lines are to stay whole."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else 0


def letters(text: str) -> int:
    """How many columns a text takes: two for a wide letter, none for an accent that joins the letter before it."""
    if text.isascii():
        return len(text)
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def _pad(cell: str, width: int, right: bool) -> str:
    space = " " * (width - letters(cell))
    return space + cell if right else cell + space
