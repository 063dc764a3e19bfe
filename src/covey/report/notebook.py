"""In a Jupyter notebook: progress as a bar in the cell, pages in a frame below it. Needs nothing that a kernel does not have."""

from __future__ import annotations

import html
import importlib
import sys
import time
from pathlib import Path
from typing import Any

from covey.results.figures import Figures

PAUSE = 0.1  # seconds between two redrawings: a notebook keeps every message it is sent


def in_notebook() -> bool:
    """Whether a kernel runs this code; IPython in a terminal is a terminal."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return type(shell).__name__ == "ZMQInteractiveShell"


class Bar:
    """A line and a bar for each task, redrawn in place; the methods are those of rich's `Progress` that covey uses."""

    def __init__(self) -> None:
        self._handle: Any = None
        self._tasks: dict[int, dict[str, Any]] = {}
        self._given = 0
        self._drawn = 0.0

    def start(self) -> None:
        self._handle = _ipython().display(html_of(""), display_id=True)

    def add_task(self, title: str, total: int, completed: int = 0, words: str = "") -> int:
        self._given += 1
        self._tasks[self._given] = {"title": title, "total": total, "completed": completed, "words": words}
        return self._given

    def update(self, task: int, completed: int, words: str) -> None:
        self._tasks[task] |= {"completed": completed, "words": words}
        if time.monotonic() - self._drawn >= PAUSE or completed >= self._tasks[task]["total"]:
            self._draw()

    def remove_task(self, task: int) -> None:
        self._tasks.pop(task)

    def stop(self) -> None:
        self._draw()

    def _draw(self) -> None:
        self._drawn = time.monotonic()
        self._handle.update(html_of(self.markup()))

    def markup(self) -> str:
        return "".join(_line(task) for task in self._tasks.values())


def _line(task: dict[str, Any]) -> str:
    title, words = html.escape(task["title"]), html.escape(task["words"])
    amount = f'value="{task["completed"]}" max="{task["total"]}"'
    return f'<div><progress {amount} style="width:100%"></progress><div><b>{title}</b>: {words}</div></div>'


def html_of(markup: str) -> Any:
    """What a notebook shows as markup."""
    return _ipython().HTML(markup)


def _ipython() -> Any:
    return importlib.import_module("IPython.display")  # there inside a kernel only


def frame(page: str, height: int = 720) -> str:
    """A whole page within a notebook, cut off from it: its script runs, but reaches neither the notebook nor the network."""
    style = f"width:100%;height:{height}px;border:1px solid #8884;border-radius:8px;resize:vertical"
    inside = html.escape(page, quote=True)
    return f'<div><iframe sandbox="allow-scripts" srcdoc="{inside}" style="{style}"></iframe></div>'


def inline(result: Figures) -> str:
    """The report of a run: from its folder, and without one from what the result holds, which lacks data and configuration."""
    from covey.report.page import render, report_page
    from covey.results.contents import Run
    from covey.results.folder import RunFolder

    if result.folder is not None and Path(result.folder).is_dir():
        return frame(render(report_page(RunFolder(result.folder).read())))
    return frame(render(report_page(Run("this notebook", result.json(), tuple(result.records), {}, {}, ""))))
