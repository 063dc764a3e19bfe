"""`covey reproduce`: an option does what it says or is refused, and what cannot be written or read is said."""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from covey.cli.main import main
from covey.cli.reproduce import reproduce
from covey.errors import CoveyError, CoveyWarning
from covey.papers import PAPERS, harness, pool, present, rehearsal
from covey.papers.cells import cell
from covey.papers.harness import Options, Reproduction, Table
from covey.papers.rehearsal import Item

NOWHERE = Path("/proc/covey")  # where nobody can write, not even root
MADE = Reproduction("mingledpie", "attackers", "Attackers", "digits", {}, [cell("a", "b", [0.5, 0.6])], quick=True)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (
            "mingledpie --dataset mnist",
            "nothing is made without a table: leave out --dataset, or say which with --table",
        ),
        (
            "mingledpie --quick",
            "leave out --quick, or say which with --table (`covey reproduce mingledpie` lists them)",
        ),
        ("mingledpie --seeds 2 --workers 1", "leave out --seeds and --workers"),
        ("mingledpie --json", "leave out --json"),
        ("mingledpie --docs", "--docs writes the pages of all papers: leave out 'mingledpie', or name a table"),
        ("--seeds 2", "leave out --seeds, or say which, e.g. `covey reproduce mingledpie --table table3`"),
        ("--quick", "leave out --quick"),
        ("--json", "leave out --json"),
        ("--docs --quick", "leave out --quick"),
        ("--out here", "leave out --out"),
        ("--table table3", "--table needs a paper: e.g. `covey reproduce mingledpie --table table3`"),
        ("--table table3 --plan", "--table needs a paper"),
        ("mingledpie --many pqfed/*", "--many names tables by PAPER/TABLE/DATASET: leave out 'mingledpie'"),
        ("mingledpie --many pqfed/* --plan", "leave out 'mingledpie'"),
        ("mingledpie --table table3 --many pqfed/*", "leave out 'mingledpie' and --table"),
        ("--many pqfed/* --dataset mnist", "leave out --dataset"),
        ("--many pqfed/* --json", "JSON is printed of one table, named by --table: leave out --json"),
        ("pqfed --minutes 1 --json", "leave out --json"),
        ("mingledpie --table table3 --minutes 1", "--minutes is for --many, or for a paper without --table"),
        ("--plan --minutes 1", "--plan runs nothing, and prints a list: leave out --minutes"),
        ("--plan --json", "leave out --json"),
        ("--plan --docs pqfed", "--plan --docs writes docs/coverage.md of all papers: leave out 'pqfed'"),
        ("--plan --docs --many pqfed/*", "leave out --many"),
        ("pqfed --plan --table tabel2", "there is no table 'tabel2': `covey reproduce pqfed` lists what there is"),
        ("pqfed --plan --table table2 --dataset lfw", "there is no table 'table2' on 'lfw'"),
        ("--many pqfed/* --minutes nan", "--minutes is no number"),
        ("pqfed --minutes nan", "--minutes is no number"),
        (f"pqfed --table fig5 --out {NOWHERE}", "nothing can be written in /proc ("),
        (f"pqfed --out {NOWHERE}", "nothing can be written in /proc ("),
        (f"--many pqfed/fig5/* --out {NOWHERE} --minutes 0", "nothing can be written in /proc ("),
    ],
)
def test_what_nothing_would_come_of_is_refused(
    words: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for module in (harness, rehearsal):
        monkeypatch.setattr(module, "completed", lambda *_: pytest.fail("nothing may run"), raising=False)
    assert main(["reproduce", *words.split()]) == 2
    out, err = capsys.readouterr()
    assert not out and says in err and len(err.strip().splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("below", ["", "below"])
@pytest.mark.parametrize("words", ["mingledpie", "mingledpie --table fig3", "--many mingledpie/fig3"])
def test_a_file_is_no_folder_for_tables(
    words: str, below: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("in the way")
    assert main(["reproduce", *words.split(), "--out", str(tmp_path / "file" / below)]) == 2
    out, err = capsys.readouterr()
    assert (out, err) == ("", f"covey: {tmp_path / 'file'} is a file: choose a folder with --out\n")


@pytest.mark.parametrize(
    ("words", "tables"),
    [
        ("--many pqfed/fig4/*", ["pqfed/fig4/mnist", "pqfed/fig4/cifar10"]),
        ("pqfed --table fig4", ["pqfed/fig4/mnist", "pqfed/fig4/cifar10"]),
        ("pqfed --table fig4 --dataset mnist", ["pqfed/fig4/mnist"]),
        ("--many mingledpie/fig3 --many pqfed/fig4/mnist", ["mingledpie/fig3", "pqfed/fig4/mnist"]),
    ],
)
def test_a_plan_lists_the_tables_that_are_named(
    words: str, tables: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["reproduce", "--plan", *words.split(), "--out", str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[1 : lines.index("")]] == tables
    what = "table or figure" if len(tables) == 1 else "tables and figures"
    assert lines[-1].startswith(f"{len(tables)} {what}, by dataset: ")
    assert "beyond both" not in "\n".join(lines)  # they are a part of what the paper prints


@pytest.mark.parametrize("words", ["pqfed --table fig5", "--many pqfed/fig5/*"])
def test_a_link_that_leads_nowhere_and_a_folder_for_an_archive_are_no_places(
    words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "lost").symlink_to(tmp_path / "gone")
    (tmp_path / "odd" / "runs.tar.xz").mkdir(parents=True)
    for place, why in (("lost", "is a link that leads nowhere"), ("odd", "is a folder, where a pool keeps an archive")):
        assert main(["reproduce", *words.split(), "--out", str(tmp_path / place)]) == 2
        assert why in capsys.readouterr().err


def test_a_stored_table_that_is_damaged_is_not_replaced_without_a_word(tmp_path: Path) -> None:
    present.store(MADE, tmp_path).write_text("{")
    assert re.search(
        r"attackers-digits-quick\.json is damaged .*: remove that file", present.less_than_stored(MADE, tmp_path)
    )


def test_a_damaged_run_costs_no_other_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def needy(options: Options) -> Reproduction:
        """One run."""
        (outcome,) = options.run({"dataset": "digits", "training": {"rounds": 1}}, 1)
        return Reproduction("", "", "Needy", "", {}, [cell("a", "b", [outcome.accuracy()])])

    known = {"alone": Table(alone, ("",), lambda sheet: []), "needy": Table(needy, ("",), lambda sheet: [])}
    for module in (rehearsal, harness):
        monkeypatch.setattr(module, "tables", lambda paper: known)
    options, items = Options(tmp_path, quiet=True, workers=1), [Item("own", "needy", ""), Item("own", "alone", "")]
    needy(options)
    (result,) = tmp_path.glob("runs/*/result.json")
    result.write_text("{")
    wishes = pool.Wishes(items, options)
    job = wishes.next()
    assert job is not None and job.item.table == "alone" and job.experiment is None and wishes.next() is None
    (problem,) = wishes.problems
    assert problem.startswith("own/needy: ") and "is damaged" in problem and "remove the folder" in problem
    alone_made = replace(MADE, paper="own", table="alone", dataset="", quick=False)
    present.write(alone_made, tmp_path)
    made, lacking = pool.complete_tables(items, options)
    assert [one.table for one in made] == ["alone"] and "is damaged" in lacking[items[0]]


def made_in(folder: Path) -> Path:
    path, *_ = present.write(MADE, folder)
    return path


@pytest.mark.parametrize("content", ['{"cells": [', "[1, 2]", '{"a": 1}', ""])
def test_a_table_that_cannot_be_read_is_named_and_left_out(
    content: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = made_in(tmp_path)
    path.write_text(content)
    (tmp_path / "notes.json").write_text("[1]")  # is none
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("default")  # as a command has it: once for each sentence
        reproduce("mingledpie", out=tmp_path, browser=False)
    (one,) = [w for w in said if issubclass(w.category, CoveyWarning)]
    assert str(one.message).startswith(f"{path} is damaged (")
    assert str(one.message).endswith("and left out: make its table again, or remove it")
    assert f"page  {tmp_path / 'mingledpie.html'}" in capsys.readouterr().out


def alone(options: Options) -> Reproduction:
    """No run at all."""
    options.alone()
    return Reproduction("", "", "Alone", "", {}, [cell("a", "b", [1.0])])


def test_a_pools_own_files_that_cannot_be_read_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known = {"alone": Table(alone, ("",), lambda sheet: [])}
    for module in (rehearsal, harness):
        monkeypatch.setattr(module, "tables", lambda paper: known)
    (tmp_path / "own-alone.json").write_text("{")
    item = Item("own", "alone", "")
    made, lacking = pool.complete_tables([item], Options(tmp_path, quiet=True))
    assert made == [] and "own-alone.json is damaged" in lacking[item] and "remove it" in lacking[item]
    (tmp_path / pool.REFUSED).write_text("[3")
    with pytest.raises(CoveyError, match=r"refused\.json is damaged .*remove it"):
        pool.refused(tmp_path)


def test_json_is_of_one_table_and_nothing_else_is_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def drawn(options: Options) -> Reproduction:
        """Drawn."""
        return Reproduction("", "", "Drawn", "", {}, [cell("a", "b", [1.0])])

    monkeypatch.setitem(harness.tables("pqfed"), "table0", Table(drawn, ("",), lambda sheet: []))
    assert main(["reproduce", "pqfed", "--table", "table0", "--json", "--out", str(tmp_path)]) == 0
    assert json.loads(capsys.readouterr().out)["table"] == "table0"


def test_lists_are_of_a_paper_or_of_all(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def first_words() -> Sequence[str]:
        return [line.split()[0] for line in capsys.readouterr().out.splitlines() if line and line[0] != " "]

    assert main(["reproduce"]) == 0
    assert set(PAPERS) <= set(first_words())
    assert main(["reproduce", "pqfed", "--out", str(tmp_path), "--no-browser"]) == 0
    assert first_words() == ["pqfed", "page"]
