"""What `covey reproduce --plan` says of a table: what it needs, what is stored, what that took."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from covey.papers import plan, present
from covey.papers.cells import cell
from covey.papers.harness import Options, Reproduction


def test_lines_say_what_a_table_needs_and_what_is_stored_of_it(tmp_path: Path) -> None:
    cells = [cell("a", "b", [0.5, 0.6, 0.7]), cell("a", "rate", [0.1], unit="")]
    one = Reproduction(
        "mingledpie", "table2", "Profiling", "mnist", {}, cells, runs={"seconds": 1234.5, "device": ["cpu"]}
    )
    present.store(one, tmp_path)
    present.store(replace(one, dataset="cifar10", cells=[replace(cells[0], values=[])], runs={}), tmp_path)
    present.store(replace(one, dataset="location30", cells=[cell("a", "b", [0.5])], runs={}), tmp_path)
    present.store(replace(one, dataset="fashion_mnist", quick=True), tmp_path)
    lines = plan.lines(["mingledpie"], Options(tmp_path / "runs"), tmp_path)
    known = {line.item.dataset: line for line in lines if line.item.table == "table2"}
    assert {dataset: line.kind for dataset, line in known.items()} == {
        "mnist": plan.FULL,
        "fashion_mnist": plan.QUICK,
        "cifar10": plan.SEEDLESS,
        "cifar100": plan.NONE,
        "location30": plan.ONE,
    }
    assert known["mnist"].words() == ["mingledpie/table2/mnist", "full", "3", "6", "30", "1,234", "cpu"]
    assert known["mnist"].command == "covey reproduce mingledpie --table table2 --dataset mnist"
    (drawn,) = (line for line in lines if line.item.table == "fig3")
    assert drawn.words() == ["mingledpie/fig3", "not run", "", "its own", "", "–", ""]
    page = plan.markdown(lines)
    assert f"{len(lines)} tables and figures, by dataset: 1 full, 1 one seed, 1 without" in page
    assert "| mingledpie/table2/mnist | full | 3 | 6 | 30 | 1,234 | cpu |" in page


def test_a_table_with_fewer_rows_than_stored_replaces_nothing(tmp_path: Path) -> None:
    whole = Reproduction(
        "field", "label_sets", "", "digits", {}, [cell(row, "b", [0.5]) for row in ("x", "y", "z", "w", "v")]
    )
    assert present.fewer_rows(whole, tmp_path) == ""
    present.store(whole, tmp_path)
    assert present.fewer_rows(whole, tmp_path) == ""
    part = replace(whole, cells=whole.cells[:1])
    assert "rows that this table lacks (y, z, w and 1 more): finish its runs" in present.fewer_rows(part, tmp_path)
    assert present.fewer_rows(replace(part, dataset="mnist"), tmp_path) == ""
