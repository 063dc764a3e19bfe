"""Writes tutorial.ipynb from tutorial.md: text stays text, commands become `%covey …`, Python becomes cells. Run it after a change.

    python docs/make_notebook.py

A test compares the two, so that they cannot drift apart, and runs the notebook.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
NOTE = "This is [the tutorial](tutorial.md) as a notebook; `%covey` runs the commands of the terminal, reports appear below them."


def notebook(text: str) -> dict[str, Any]:
    """The notebook of a page, without outputs. Blocks of commands start with `covey`; other fenced blocks stay text."""
    cells = []
    title, _, rest = text.partition("\n")
    cells.append(_cell("markdown", f"{title}\n\n{NOTE}"))
    cells.append(_cell("code", "%load_ext covey.notebook"))
    for i, part in enumerate(re.split(r"```(python)?\n((?:covey .*?)|(?<=python\n).*?)```", rest, flags=re.S)):
        match i % 3:
            case 0 if part.strip():
                cells.append(_cell("markdown", part.strip()))
            case 2:
                commands = [f"%{line}" if line.startswith("covey ") else line for line in part.strip().splitlines()]
                cells.append(_cell("code", "\n".join(commands)))
    for number, cell in enumerate(cells):
        cell["id"] = f"cell-{number}"
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    metadata = {"kernelspec": kernel, "language_info": {"name": "python"}}
    return {"cells": cells, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}


def _cell(kind: str, source: str) -> dict[str, Any]:
    code = {"execution_count": None, "outputs": []} if kind == "code" else {}
    return {"cell_type": kind, "metadata": {}, "source": source.splitlines(keepends=True), **code}


def written(made: dict[str, Any]) -> str:
    return json.dumps(made, indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    (HERE / "tutorial.ipynb").write_text(written(notebook((HERE / "tutorial.md").read_text("utf-8"))), "utf-8")
