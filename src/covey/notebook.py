"""`%load_ext covey.notebook` gives a notebook the line magic `%covey`: the terminal's commands, with progress and pages inline."""

from __future__ import annotations

import contextlib
import io
import shlex
import sys
from pathlib import Path
from typing import Any

from covey.errors import CoveyError
from covey.report.notebook import frame, html_of


def covey(line: str) -> Any:
    """Runs a command as the terminal would; the page that it wrote, if any, is shown below what it printed."""
    from covey.cli.main import run

    output = io.StringIO()
    try:
        with contextlib.redirect_stdout(output):
            run(shlex.split(line))
    except CoveyError as problem:
        print(f"covey: {problem}", file=sys.stderr)
        return None
    finally:
        print(output.getvalue(), end="")
    return _page(output.getvalue())


def _page(output: str) -> Any:
    """Commands that write a page say where."""
    for line in reversed(output.splitlines()):
        path = Path(line.split("  ")[-1].strip())
        if path.suffix == ".html" and path.is_file():
            return html_of(frame(path.read_text("utf-8")))
    return None


def load_ipython_extension(shell: Any) -> None:
    shell.register_magic_function(covey, "line", "covey")
