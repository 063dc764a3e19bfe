"""The pages behind the addresses: reports, audits, tables and comparisons, rendered from the files of a folder when asked for.

    at/FOLDER/report.html    a run, also one under way
    at/FOLDER/audit.html     an audit
    at/FOLDER/NAME.html      a reproduced table
    at/FOLDER/status.html    a party of a deployment (`operation.py`)
    compare.html?run=FOLDER&run=FOLDER

The addresses mirror the folder, so that the links within a page, which are written for files side by side, lead on.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from covey.errors import CoveyError
from covey.report.comparison import named
from covey.report.page import comparison_page, render, report_page
from covey.results.contents import Run
from covey.results.folder import RunFolder
from covey.ui.scan import OF_A_RUN

MOST = 8  # runs in a comparison: as many as there are colours to tell them apart


def page_at(root: Path, path: str) -> str:
    """The page of an address below `at/`. Raises CoveyError where there is none."""
    folder, _, name = path.rpartition("/")
    if name == "report.html":
        return render(report_page(_run(root, folder)))
    stem = name.removesuffix(".html")
    if not name.endswith(".html") or not stem:
        raise CoveyError("only reports, audits and reproduced tables are shown here")
    if name == "audit.html":
        return _audit(confined(root, folder, "audit.json"))
    return _table(confined(root, folder, f"{stem}.json"))


def comparison_of(root: Path, folders: Sequence[str]) -> str:
    if not 2 <= len(folders) <= MOST:
        raise CoveyError(f"a comparison takes 2 to {MOST} runs, {len(folders)} are ticked")
    return render(comparison_page(named([_run(root, folder) for folder in folders])))


def confined(root: Path, folder: str, file: str = "") -> Path:
    """The path below `root`. Refused: ways up, hidden names, and links that lead out of it."""
    parts = [part for part in (*folder.split("/"), file) if part]
    if any(part.startswith(".") or "\\" in part or "\0" in part for part in parts):
        raise CoveyError("this address leads out of the folder")
    path = root.joinpath(*parts)
    if not path.resolve().is_relative_to(root.resolve()):
        raise CoveyError("this address leads out of the folder")
    return path


def _run(root: Path, folder: str) -> Run:
    for name in OF_A_RUN:
        confined(root, folder, name)  # a file may be a link, too
    return RunFolder(confined(root, folder)).read()


def _audit(path: Path) -> str:
    from covey.audit.page import page_of

    content = _read(path)
    try:
        return page_of(content)
    except (AttributeError, KeyError, TypeError, IndexError, StopIteration) as e:
        raise CoveyError("audit.json is not an audit of this version of covey: run `covey audit` again") from e


def _table(path: Path) -> str:
    from covey.papers.harness import Reproduction
    from covey.papers.present import page

    _read(path)
    try:
        return page(Reproduction.read(path))
    except (AttributeError, KeyError, TypeError) as e:
        raise CoveyError(f"{path.name} is no reproduced table of this version of covey") from e


def _read(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as e:
        raise CoveyError(f"there is no {path.name} to show here") from e
    if not isinstance(content, dict):
        raise CoveyError(f"{path.name} holds no table")
    return content
