"""The table of a comparison in the forms of other tools: CSV for programs, LaTeX and Markdown for papers and notes."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence

from covey.report.comparison import Column, columns
from covey.report.format import NBSP
from covey.results.contents import Run

LATEX = str.maketrans(
    {
        "\\": r"\textbackslash{}",
        "&": r"\&",
        "%": r"\%",
        "$": r"\$",
        "#": r"\#",
        "_": r"\_",
        "{": r"\{",
        "}": r"\}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "ε": r"$\varepsilon$",
        "±": r"$\pm$",
        "–": "--",
        "−": "$-$",
        "∞": r"$\infty$",
        NBSP: "~",
    }
)


def as_csv(runs: Sequence[Run]) -> str:
    """Numbers as they are, with the deviation over seeds in a column of its own where there are seeds."""
    compared = columns(runs)
    head, lines = ["run"], [[run.name] for run in runs]
    for column in compared:
        head.append(column.name)
        spread = any(value is not None for value in column.deviations)
        head += [f"{column.name} (std)"] if spread else []
        for i, line in enumerate(lines):
            line.append(_number(column.values[i]))
            line += [_number(column.deviations[i])] if spread else []
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([head, *lines])
    return text.getvalue()


def as_markdown(runs: Sequence[Run]) -> str:
    head, rows = _cells(runs)
    clean = [[cell.replace("|", r"\|").replace(NBSP, " ") for cell in row] for row in (head, *rows)]
    rule = ["---", *["---:"] * (len(head) - 1)]
    return "".join(f"| {' | '.join(row)} |\n" for row in (clean[0], rule, *clean[1:]))


def as_latex(runs: Sequence[Run]) -> str:
    r"""A `tabular` with rules of the package booktabs: `\input` it."""
    head, rows = _cells(runs)
    lines = [" & ".join(cell.translate(LATEX) for cell in row) + r" \\" for row in (head, *rows)]
    begin = rf"\begin{{tabular}}{{l{'r' * (len(head) - 1)}}}"
    return "\n".join([begin, r"\toprule", lines[0], r"\midrule", *lines[1:], r"\bottomrule", r"\end{tabular}", ""])


FORMS: dict[str, Callable[[Sequence[Run]], str]] = {"csv": as_csv, "markdown": as_markdown, "latex": as_latex}


def _cells(runs: Sequence[Run]) -> tuple[list[str], list[list[str]]]:
    compared = columns(runs)
    rows = [[run.name, *(_said(column, i) for column in compared)] for i, run in enumerate(runs)]
    return ["Run", *(column.name for column in compared)], rows


def _said(column: Column, i: int) -> str:
    value = column.values[i]
    if value is None:
        return "–"
    deviation = column.deviations[i] if column.deviations else None
    return column.form(value) + (f" ± {column.form(deviation)}" if deviation else "")


def _number(value: float | None) -> str:
    return "" if value is None else repr(float(value))
