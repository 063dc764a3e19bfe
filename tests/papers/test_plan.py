"""What `covey reproduce --plan` says of a table: what it needs, what is stored, what that took."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from covey.papers import plan, present
from covey.papers.cells import cell
from covey.papers.harness import Options, Reproduction, stored
from covey.papers.named import ITEMS, PAPER
from covey.papers.pool import chosen
from covey.papers.rehearsal import Item, items
from covey.results.provenance import EXACT

DOCS = Path(__file__).resolve().parents[2] / "docs"


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
    assert known["mnist"].words() == ["mingledpie/table2/mnist", "full", "3", "20", "100", "1,234", "cpu"]
    assert known["mnist"].command == "covey reproduce mingledpie --table table2 --dataset mnist"
    (drawn,) = (line for line in lines if line.item.table == "fig3")
    assert drawn.words() == ["mingledpie/fig3", "not run", "", "its own", "", "–", ""]
    present.store(replace(one, table="fig3", dataset="", runs={}, seconds=617.5), tmp_path)
    again = plan.lines(["mingledpie"], Options(tmp_path / "runs"), tmp_path)
    (drawn,) = (line for line in again if line.item.table == "fig3")
    assert drawn.words()[-2:] == ["618", ""]  # what the command took, where there are no runs to add up
    page = plan.markdown(lines)
    assert f"{len(lines)} tables and figures, by dataset: 1 full, 1 one seed, 1 without" in page
    assert "| mingledpie/table2/mnist | full | 3 | 20 | 100 | 1,234 | cpu |" in page


def test_a_table_with_fewer_rows_than_stored_replaces_nothing(tmp_path: Path) -> None:
    whole = Reproduction(
        "field", "label_sets", "", "digits", {}, [cell(row, "b", [0.5]) for row in ("x", "y", "z", "w", "v")]
    )
    assert present.less_than_stored(whole, tmp_path) == ""
    present.store(whole, tmp_path)
    assert present.less_than_stored(whole, tmp_path) == ""
    part = replace(whole, cells=whole.cells[:1])
    assert "rows that this table lacks (y, z, w and 1 more): finish its runs" in present.less_than_stored(
        part, tmp_path
    )
    assert present.less_than_stored(replace(part, dataset="mnist"), tmp_path) == ""


def test_a_rounded_table_replaces_no_exact_one(tmp_path: Path) -> None:
    exact = Reproduction("field", "label_sets", "", "digits", {}, [cell("x", "b", [0.5])], runs={"arithmetic": [EXACT]})
    rounded = replace(exact, runs={"arithmetic": ["tf32"]})
    assert present.less_than_stored(rounded, tmp_path) == ""
    present.store(rounded, tmp_path)
    assert present.less_than_stored(rounded, tmp_path) == present.less_than_stored(exact, tmp_path) == ""
    present.store(exact, tmp_path)
    assert "was computed in ieee float32, this table in tf32: remove" in present.less_than_stored(rounded, tmp_path)


def test_items_of_the_papers_are_tables_that_there_are_each_once() -> None:
    named = [(item.paper, item.label) for item in ITEMS]
    assert len(named) == len(set(named)) and sum(item.whose == PAPER for item in ITEMS) == 45
    known = {item.name for item in items()}
    assert [table for item in ITEMS for table in item.tables if table not in known] == []


def test_an_item_is_full_where_all_its_datasets_are() -> None:
    lines = [line(table, plan.NONE) for table in dict.fromkeys(t for item in ITEMS for t in item.tables)]
    assert plan.counted_items(lines)[0].endswith("0 full, 0 in part, 45 missing.")
    some = [replace(one, kind=plan.FULL) if one.item.dataset != "cifar100" else one for one in lines]
    (row,) = (row for row in plan.item_rows(some) if row[0] == "MingledPie, Table II")
    places = "MNIST, Fashion-MNIST, CIFAR-10, Location-30"
    assert row[1:] == ["in part", places, "CIFAR-100: not run (3 runs, 60 rounds)", ""]
    every = [replace(one, kind=plan.FULL, without=2) for one in lines]
    assert plan.counted_items(every)[0].endswith("45 full, 0 in part, 0 missing.")
    assert plan.counted_items([*every, line("field/silos/heart", plan.FULL)])[-1] == (
        "1 tables by dataset are beyond both: 1 of them full."
    )
    assert "MNIST (2 of its printed figures have no number of ours)" in plan.item_rows(every)[1][2]


def test_coverage_says_what_is_stored() -> None:
    """Else: `covey reproduce --plan --docs`. What tables need is not asked again here: that takes long."""
    made = {one.name: one for one in stored(DOCS)}
    lines = []
    for item in items():
        name = "-".join(part for part in (item.paper, item.table, item.dataset) if part)
        one = made.get(name) or made.get(f"{name}-quick")
        kind, part = plan._kind(one, bool(item.dataset)), plan._part(one)
        lines.append(replace(line(item.name, kind), without=plan._without(one), part=part))
    page = (DOCS / "coverage.md").read_text(encoding="utf-8")
    assert plan.counted(lines) in page and " ".join(plan.counted_items(lines)) in page
    shown = [[part.strip() for part in row.split("|")[1:4]] for row in page.splitlines() if row.startswith("| ")]
    for label, state, full, *_ in plan.item_rows(lines):
        assert [label, state, full] in shown


def test_what_lacks_of_the_papers_is_in_a_part_of_the_gpu_script() -> None:
    script = (DOCS.parent / "benchmarks" / "papers_gpu.sh").read_text(encoding="utf-8")
    patterns = re.findall(r"'([a-z_]+/[^']+)'", script)
    known = {one.name for one in chosen(patterns)}  # each names a table
    made = {one.name: one for one in stored(DOCS)}
    wanted = dict.fromkeys(table for item in ITEMS for table in item.tables)
    trained = [t for t in wanted if t.count("/") > 1]  # the others are timed or computed, on a CPU
    lacking = [t for t in trained if plan._kind(made.get(t.replace("/", "-")), True) != plan.FULL]
    assert [table for table in lacking if table not in known] == []


def line(table: str, kind: str) -> plan.Line:
    paper, name, dataset = [*table.split("/"), ""][:3]
    return plan.Line(Item(paper, name, dataset), "", 3, 60, False, False, kind, "", 0.0, "")
