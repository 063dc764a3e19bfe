"""The charts of the benchmarks are those of the stored figures."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))

import goals  # noqa: E402
from charts import CHARTS, FIGURES, PAGES, TABLES, with_tables  # noqa: E402
from goals import SOURCES, merged  # noqa: E402


@pytest.mark.parametrize("name", CHARTS)
def test_a_chart_is_drawn_from_its_file(name: str) -> None:
    stored = (FIGURES / f"bench-{name}.svg").read_text(encoding="utf-8")
    assert stored == CHARTS[name]() + "\n", "run `python benchmarks/charts.py`"
    assert f"figures/bench-{name}.svg" in (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")


def test_tables_are_those_of_the_stored_figures() -> None:
    pages = [page.read_text(encoding="utf-8") for page in PAGES]
    assert pages == [with_tables(page) for page in pages], "run `python benchmarks/charts.py`"
    assert [sum(f"<!-- {name}, by" in page for page in pages) for name in TABLES] == [1] * len(TABLES)
    assert "| met |" in pages[0]


def test_every_figure_says_when_it_was_measured_and_by_what() -> None:
    stored = {name for name in SOURCES if goals.read(name)}
    assert stored <= set(goals.read("measured")), "goals.note"
    for _, command in SOURCES.values():
        assert (ROOT / "benchmarks" / command.split()[0]).is_file()


def test_a_figure_of_a_busy_machine_is_marked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(goals, "RESULTS", tmp_path)
    (tmp_path / "scale.json").write_text('{"ratio": 1.5}')
    assert "| **missed** | unknown |" in goals.table()
    goals.note("scale", 0.0)
    assert "busy" not in goals.table()
    goals.note("scale", 1.2)
    assert ", **busy** |" in goals.table()


def test_cases_that_are_not_measured_again_stay_with_the_machine_they_were_measured_on() -> None:
    old = {"load": 9.0, "cases": [{"model": "fcnn", "epochs": 1, "n": 1}, {"model": "fcnn", "epochs": 5, "n": 2}]}
    new = {"load": 0.1, "cases": [{"model": "fcnn", "epochs": 1, "n": 3}]}
    assert merged(new, old) == {"load": 0.1, "cases": [new["cases"][0], {"load": 9.0} | old["cases"][1]]}
    assert merged(new, {}) == new
    assert merged({"ckks": 2}, {"ckks": 1, "ifca": 1}) == {"ckks": 2, "ifca": 1}
