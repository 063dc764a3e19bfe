"""Every command that a page or a docstring shows is one that covey takes: presets, keys, tables and datasets are there."""

from __future__ import annotations

import re
import shlex
from itertools import pairwise
from pathlib import Path

import pytest

from covey import config
from covey.data.sources.load import source_of
from covey.data.sources.store import is_installed
from covey.experiment.experiment import Experiment
from covey.experiment.presets import DEFAULT, PRESETS
from covey.papers.harness import tables
from covey.sweep.grid import axis, points

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), *sorted((ROOT / "src" / "covey").rglob("*.py"))]
COMMAND = re.compile(r"^\s*(covey (?:run|reproduce)(?: .*?)?)(?:\s{2,}.*)?$", re.MULTILINE)


def commands() -> dict[str, list[str]]:
    """Where a command stands alone on its line, with what follows two spaces (a remark) left out."""
    found = {}
    for page in PAGES:
        for line in COMMAND.findall(page.read_text(encoding="utf-8")):
            found[f"{page.name}: {line}"] = shlex.split(line)[1:]
    return found


COMMANDS = commands()


def test_there_are_commands() -> None:
    assert len(COMMANDS) > 40


@pytest.mark.parametrize("words", [w for w in COMMANDS.values() if w[0] == "run"], ids=" ".join)
def test_runs_are_experiments(words: list[str]) -> None:
    sets = [value for option, value in pairwise(words) if option == "--set"]
    named = [w for before, w in pairwise(words) if not before.startswith("--") and not w.startswith("--")]
    if named and named[0].endswith((".toml", ".csv")):
        return  # the reader's own file
    table = PRESETS[named[0] if named else DEFAULT]
    for assignment in sets:
        table = config.assign(table, assignment)
    _, source, _ = source_of(Experiment.of(table).dataset)
    if source.package and not is_installed(source):
        pytest.skip(f"{source.package} is not installed here")
    points(table, [axis(value) for option, value in pairwise(words) if option == "--sweep"])


@pytest.mark.parametrize("words", [w for w in COMMANDS.values() if w[0] == "reproduce"], ids=" ".join)
def test_tables_are_there(words: list[str]) -> None:
    given = dict(pairwise(words))
    if "--table" in given:
        table = tables(words[1])[given["--table"]]
        assert given.get("--dataset", "") in ("", *table.datasets)
