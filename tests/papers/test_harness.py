"""Reproductions: cells and verdicts by hand, runs that are not repeated, documents made from nothing but stored JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from covey.errors import CoveyError, Unavailable
from covey.papers import PAPERS, harness, present
from covey.papers.cells import Cell, Sheet, at, cell
from covey.papers.harness import Options, Reproduction, Table, reproduce, tables
from covey.papers.pages.grid import grid
from covey.papers.verdict import Claim, Part, Statement, above
from covey.results.folder import hash_of
from covey.results.provenance import code
from covey.rounds import completion

DIGITS: dict[str, Any] = {
    "dataset": "digits",
    "algorithm": "ifca",
    "clients": 5,
    "clusters": 5,
    "partition": {"name": "label_sets", "public": 20},
    "training": {"rounds": 2, "epochs": 1, "batch_size": 10, "lr": 0.1},
}


def made(**more: Any) -> Reproduction:
    cells = [
        cell("MingledPie", "accuracy", [0.97, 0.98, 0.99], 0.9751),
        cell("FedEM", "accuracy", [], 0.8714),
        cell("MingledPie", "time", [1.5], unit="s"),
    ]
    claims = [Claim("It is accurate.", "holds", "98.00 %."), Claim("It is | cheap.", "not measured", "")]
    values: dict[str, Any] = {
        "title": "A title",
        "settings": {"rounds": 2},
        "notes": ["short"],
        "seconds": 3.0,
        "command": "covey …",
    }
    return Reproduction("paper", "table1", dataset="mnist", cells=cells, claims=claims, **(values | more))


def test_cells_by_hand() -> None:
    assert cell("a", "b", [1.0, 2.0, 3.0], 5.0) == Cell("a", "b", 2.0, 1.0, 3, 5.0, values=[1.0, 2.0, 3.0])
    assert cell("a", "b", [1.0]) == Cell("a", "b", 1.0, None, 1, None, values=[1.0])
    assert cell("a", "b", []).ours is None


def test_files_from_before_the_one_rule_are_read() -> None:
    old = made().json()
    old["claims"] = [{"text": "a", "verdict": v, "why": ""} for v in ("holds", "partly", "does not hold", "not tested")]
    for one in old["cells"]:
        del one["values"]
    read = Reproduction.of(json.loads(json.dumps(old)))
    assert [c.verdict for c in read.claims] == ["holds", "undecided", "does not hold", "not measured"]
    assert read.cells[0].ours == 0.98 and read.cells[0].values == []


def test_text_has_ours_beside_the_papers() -> None:
    text = "\n".join(present.lines(made()))
    assert "98.00 % ± 1.00 (3)" in text and "97.51 %" in text and "–" in text and "87.14 %" in text
    assert "HOLDS" in text and "NOT MEASURED" in text and "1.5 s" in text
    head, rows = grid(made())
    assert head == ["", "accuracy ours", "accuracy paper", "time"] and all(len(row) == 4 for row in rows)


def test_json_reads_back_and_files_are_written(tmp_path: Path) -> None:
    paths = present.write(made(), tmp_path)
    assert [p.suffix for p in paths] == [".json", ".txt", ".html"]
    assert Reproduction.read(paths[0]) == made()
    page = paths[2].read_text()
    assert "A title" in page and "97.51" in page and "<script" in page


def test_finished_runs_are_read_back_and_interrupted_ones_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = Options(tmp_path, quiet=True, workers=1)
    first = options.run(DIGITS, seeds=2)
    assert len(list((tmp_path / "runs").iterdir())) == 2
    assert first[0].curve().keys() == {1, 2} and first[0].accuracy(round=1) == first[0].curve()[1]

    calls: list[bool] = []
    real = completion.run

    def counted(*args: Any, **kwargs: Any) -> Any:
        calls.append(kwargs["resume"])
        return real(*args, **kwargs)

    monkeypatch.setattr(completion, "run", counted)
    again = options.run(DIGITS, seeds=2)
    assert not calls and [o.accuracy() for o in again] == [o.accuracy() for o in first]
    folder = next((tmp_path / "runs").iterdir())
    (folder / "result.json").unlink()  # as after an interruption: the checkpoint is there, the result is not
    options.run(DIGITS, seeds=2)
    assert calls == [True]


def test_where_a_run_happens_does_not_name_it() -> None:
    from covey.experiment.experiment import Experiment

    here, there = Experiment.of(DIGITS), Experiment.of(DIGITS, engine={"workers": 1}, out="x")
    assert hash_of(here) == hash_of(there)
    assert hash_of(here) != hash_of(Experiment.of(DIGITS, seed=1))


def test_tables_and_datasets_that_are_not_there_are_refused(tmp_path: Path) -> None:
    options = Options(tmp_path, quiet=True)
    with pytest.raises(CoveyError, match=r"there is no paper 'mingledpy'.*mingledpie"):
        tables("mingledpy")
    with pytest.raises(CoveyError, match="has no table 'table33'"):
        reproduce("mingledpie", "table33", options)
    with pytest.raises(CoveyError, match="runs on mnist"):
        reproduce("mingledpie", "table3", Options(tmp_path, dataset="lfw", quiet=True))


def test_every_paper_lists_its_tables() -> None:
    for paper in PAPERS:
        for name, table in tables(paper).items():
            assert isinstance(table, Table) and table.datasets and table.about, (paper, name)


def test_command_time_and_versions_are_filled_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def table(options: Options) -> Reproduction:
        """A table."""
        return Reproduction("", "", "t", "", {}, [cell("a", options.dataset, [1.0, 1.0], 3.32)])

    def claims(sheet: Sheet) -> list[Statement]:
        return [Statement("It is there.", [Part("", at("a", sheet.dataset), above())])]

    monkeypatch.setitem(tables("mingledpie"), "table0", Table(table, ("digits", "mnist"), claims))
    found = reproduce("mingledpie", "table0", Options(tmp_path, quick=True, quiet=True), "covey reproduce …")
    assert (found.paper, found.table, found.dataset, found.quick) == ("mingledpie", "table0", "digits", True)
    assert [c.verdict for c in found.claims] == ["holds"]
    assert found.runs["kernel"] == ["no training"] and found.runs["code"] == [
        code()
    ]  # nothing was run, but by something
    assert found.command and found.versions["covey"] and found.seconds > 0
    assert found.cells[0].column == "digits" and json.loads(json.dumps(found.json()))["cells"][0]["paper"] == 3.32


def test_a_table_takes_no_runs_that_were_computed_otherwise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def table(options: Options) -> Reproduction:
        """A table."""
        runs = options.run(DIGITS, 2)
        return Reproduction("", "", "t", "", {}, [cell("a", "b", [o.accuracy() for o in runs])])

    def claims(sheet: Sheet) -> list[Any]:
        return []

    monkeypatch.setitem(tables("mingledpie"), "table0", Table(table, ("",), claims))
    options = Options(tmp_path, quiet=True, workers=1)
    alike = reproduce("mingledpie", "table0", options)
    assert alike.runs["runs"] == 2 and alike.runs["code"] == [code()] and alike.seconds == alike.runs["seconds"] > 0
    path = next(iter((tmp_path / "runs").iterdir())) / "result.json"
    path.write_text(path.read_text().replace(code(), "0123456789abcdef"))
    with pytest.raises(CoveyError, match=r"not all computed alike \(code: .*0123456789abcdef.*--mixed"):
        reproduce("mingledpie", "table0", options)
    marked = reproduce("mingledpie", "table0", Options(tmp_path, quiet=True, workers=1, mixed=True))
    assert "**Mixed** (code: 0123456789abcdef" in "\n".join(present.lines(marked))


def test_runs_of_one_arithmetic_are_not_taken_for_those_of_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def table(options: Options) -> Reproduction:
        """A table."""
        runs = options.run(DIGITS, 1)
        return Reproduction("", "", "t", "", {}, [cell("a", "b", [o.accuracy() for o in runs])])

    monkeypatch.setitem(tables("mingledpie"), "table0", Table(table, ("",), lambda sheet: []))
    exact, rounded = Options(tmp_path, quiet=True, workers=1), Options(tmp_path, quiet=True, arithmetic="tf32")
    reproduce("mingledpie", "table0", exact)
    with pytest.raises(CoveyError, match=r"computed in another arithmetic \(ieee float32\) than tf32.*--mixed"):
        reproduce("mingledpie", "table0", rounded)
    (path,) = tmp_path.glob("runs/*/result.json")
    path.write_text(path.read_text().replace("ieee float32", "tf32"))
    with pytest.raises(CoveyError, match=r"another arithmetic \(tf32\) than ieee: say which with --arithmetic"):
        reproduce("mingledpie", "table0", exact)
    reproduce("mingledpie", "table0", Options(tmp_path, quiet=True, mixed=True))
    said = "\n".join(present.lines(reproduce("mingledpie", "table0", rounded)))
    assert "; products and convolutions rounded to TF32 (10-bit mantissas); " in said
    content = json.loads(path.read_text())
    path.write_text(json.dumps(content | {"provenance": []}))  # from before it was kept: in float32
    reproduce("mingledpie", "table0", exact)
    with pytest.raises(CoveyError, match="not recorded"):
        reproduce("mingledpie", "table0", rounded)


def test_an_arithmetic_that_is_not_here_is_refused_before_anything_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(CoveyError, match="--arithmetic is 'tf23': choose ieee, torch, tf32, bf16"):
        Options(tmp_path, arithmetic="tf23")
    with pytest.raises(CoveyError, match="--device is cpu"):
        Options(tmp_path, device="cpu", arithmetic="tf32")
    monkeypatch.setattr(harness, "device_of", lambda experiment: "cpu")
    options = Options(tmp_path, quiet=True, arithmetic="tf32")
    for ask in (lambda: options.run(DIGITS), lambda: options.attempt(DIGITS, 0)):
        with pytest.raises(Unavailable, match="--arithmetic tf32 is a GPU's, and torch finds none here"):
            ask()
    assert not list(tmp_path.iterdir())
    Options(tmp_path).check_device()
