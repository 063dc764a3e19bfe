"""The pages of the papers: made of stored results alone, complete, small, and the same in Markdown and in a browser."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from covey.cli.reproduce import reproduce
from covey.errors import CoveyError
from covey.papers import PAPERS, present
from covey.papers.cells import cell
from covey.papers.claims import counted_once, judged, rows
from covey.papers.harness import Reproduction, stored
from covey.papers.pages.content import Exhibit, label
from covey.papers.pages.grid import written_out
from covey.papers.pages.markdown import FIRM, effect_words, heading, judgement
from covey.papers.pages.shapes import Curves, Dots, Shades, mark, pictures, usual
from covey.papers.pages.write import write_pages, write_paper
from covey.papers.verdict import Claim, Effect
from covey.statistics import student

DOCS = Path(__file__).resolve().parents[3] / "docs"
OURS, CLAIM = "fedcaprivacy", Claim("It is accurate.", "holds", "")
EFFECT = Effect("", 1.234, 0.4, 2.0, 3, "points", "above 0", "holds")


def made(**more: Any) -> Reproduction:
    cells = [
        cell("MingledPie", "accuracy", [0.97, 0.98, 0.99], 0.9751),
        cell("FedEM", "accuracy", [], 0.8714),
        cell("MingledPie − FedEM", "accuracy", [0.1, 0.2, 0.1]),
    ]
    claims = [Claim("It is accurate.", "holds", "98.00 %.", [EFFECT]), Claim("It is | cheap.", "not measured", "")]
    values: dict[str, Any] = {"title": "A title", "settings": {"rounds": 2}, "notes": ["short"], "command": "covey …"}
    values |= {"paper": "someone", "table": "table1", "dataset": "mnist", "cells": cells, "claims": claims}
    return Reproduction(**(values | more))


def test_pages_are_made_of_stored_results_alone(tmp_path: Path) -> None:
    with pytest.raises(CoveyError, match="no results"):
        write_pages(tmp_path)
    present.store(made(), tmp_path)
    present.store(made(quick=True, title="A quick one"), tmp_path)
    stale = tmp_path / "papers" / "someone" / "table7.md"
    stale.parent.mkdir(parents=True)
    stale.write_text("# Of a table that is no longer stored")
    broken = tmp_path / "results" / "torn.json"
    broken.write_text('{"cells": [')
    with pytest.raises(CoveyError, match=r"torn\.json is not JSON"):
        write_pages(tmp_path)
    broken.write_text("[1, 2]")  # a table of something else
    glance = write_pages(tmp_path).read_text()
    assert not stale.exists()
    assert "do not edit" in glance
    assert "[Table 1](papers/someone/table1.md)" in glance
    holds = f"**✓ holds** +1.23 points [0.4,{FIRM}2]"
    assert holds in glance and "quick variant" not in glance  # the whole table is stored, too
    assert "It is \\| cheap." in glance and "**– not measured**" in glance
    page = (tmp_path / "papers" / "someone" / "table1.md").read_text()
    assert "## A title" in page and "## A quick one" in page and "| MingledPie | 98.00 % ± 1.00 (3) | 97.51 % |" in page
    for picture in ("table1-mnist.svg", "table1-mnist-quick.svg"):
        assert f"figures/{picture}" in page and (tmp_path / "papers" / "someone" / "figures" / picture).exists()


def test_the_pages_in_the_documentation_are_those_of_its_results(tmp_path: Path) -> None:
    """Else: `covey reproduce --docs`."""
    (tmp_path / "results").mkdir()
    for path in DOCS.glob("results/*.json"):
        (tmp_path / "results" / path.name).write_bytes(path.read_bytes())
    write_pages(tmp_path)
    wanted = ["results.md", *(p.relative_to(tmp_path).as_posix() for p in (tmp_path / "papers").rglob("*.*"))]
    assert sorted(wanted[1:]) == sorted(p.relative_to(DOCS).as_posix() for p in (DOCS / "papers").rglob("*.*"))
    differ = [name for name in wanted if (tmp_path / name).read_bytes() != (DOCS / name).read_bytes()]
    assert differ == []
    rejudged = [
        p.name for p in DOCS.glob("results/*.json") if p.read_bytes() != (tmp_path / "results" / p.name).read_bytes()
    ]
    assert rejudged == []


def test_every_stored_table_has_a_figure_and_every_claim_a_row() -> None:
    reproductions = stored(DOCS)
    assert {one.paper for one in reproductions} == set(PAPERS)
    figures = {p.relative_to(DOCS / "papers").as_posix() for p in DOCS.glob("papers/*/figures/*.svg")}
    stems = {one.name: f"{one.paper}/figures/{one.name.removeprefix(f'{one.paper}-')}" for one in reproductions}
    assert [n for n, stem in stems.items() if not {f"{stem}.svg", f"{stem}-1.svg"} & figures] == []
    every = judged(DOCS)
    assert sum(map(judgements, DOCS.glob("papers/*/README.md"))) == len(every)
    once = counted_once(every)
    assert judgements(DOCS / "results.md") == sum(row.whose == "paper" for row in once)
    questions = re.findall(r"#claims\), (\d+) judgements?: ", (DOCS / "results.md").read_text(encoding="utf-8"))
    assert sum(map(int, questions)) == sum(row.whose != "paper" for row in once)


def judgements(page: Path) -> int:
    verdicts = re.findall(
        r"\*\*[✓✗?–] (?:holds|does not hold|undecided|not measured)\*\*", page.read_text(encoding="utf-8")
    )
    return len(verdicts) - 4  # which stand in the sentence that explains them


def test_what_is_part_of_a_stored_table_is_counted_once() -> None:
    """FedCAPrivacy's β alone are runs of its Table II."""
    whole, part = (Reproduction(OURS, table, "", "mnist", {}, [], [CLAIM]) for table in ("table2", "beta08"))
    quick = replace(whole, quick=True)
    assert [row.table for row in counted_once([*rows(whole), *rows(part)])] == ["table2"]
    assert [row.table for row in counted_once([*rows(quick), *rows(part)])] == ["table2", "beta08"]
    assert len(counted_once([*rows(whole), *rows(replace(part, dataset="fashion_mnist"))])) == 2
    assert [row.quick for row in counted_once([*rows(quick), *rows(whole)])] == [False]


def test_a_mark_is_our_mean_with_students_interval_beside_the_papers_figure() -> None:
    values = [0.97, 0.98, 0.99]
    one = mark(cell("a", "b", values, 0.9751), 3.0)
    assert one.interval == pytest.approx((student(values).low, 1.0))  # a share: Student's would end at 1.005
    seconds = mark(cell("a", "b", values, unit="s"), 3.0)
    assert seconds.interval == pytest.approx((student(values).low, student(values).high))
    assert (one.place, one.value, one.printed) == (3.0, pytest.approx(0.98), 0.9751)
    assert mark(cell("a", "b", [0.5]), 0.0).interval is None


def test_drawings_pick_their_cells() -> None:
    cells = [cell(f"round {r}", name, [r / 100], r / 50) for r in (10, 20) for name in ("IFCA", "local")]
    curves = Curves("round", {"": r"round (?P<x>\d+) \| (?P<series>.+)"})
    (svg,) = pictures(made(cells=cells), [curves])
    assert svg.count('class="line c0"') == svg.count('class="line c1"') == 1 and svg.count('class="line dash') == 2
    (grid,) = pictures(made(cells=cells), [Shades(r"(?P<x>.+) \| (?P<panel>.+)")])
    assert grid.count('class="cell') == 4
    assert pictures(made(cells=cells), [Dots({"": "nothing (?P<x>.+)"})]) == []
    mixed = [cell("a", "x", [1.0]), cell("a", "y", [1.0], unit="s")]
    with pytest.raises(CoveyError, match="one unit"):
        pictures(made(cells=mixed), [Dots({"both": r"(?P<x>.+) \| [xy]"})])


def test_a_table_without_a_declared_figure_gets_the_usual() -> None:
    by_round = [cell(f"round {r}", name, [r / 100]) for r in (10, 20, 30) for name in ("IFCA", "local")]
    curves = usual(by_round)
    assert isinstance(curves, Curves) and curves.x_label == "round"
    (svg,) = pictures(made(cells=by_round), [])
    assert svg.count('class="line c') == 2
    assert isinstance(usual(by_round[:4]), Dots)  # two rounds are no curve
    assert isinstance(usual([*by_round, cell("round 10", "time", [1.0], unit="s")]), Dots)
    assert isinstance(usual([*by_round, cell("at the end", "IFCA", [1.0])]), Dots)


def test_differences_stay_off_the_scale_of_what_they_are_between() -> None:
    (svg,) = pictures(made(), [usual(made().cells)])
    assert "FedEM</text>" in svg and "−" not in svg


def test_effects_in_words() -> None:
    asked = replace(EFFECT, asked="within ± 1")
    assert effect_words(asked) == f"+1.23 points [0.4,{FIRM}2] (±{FIRM}1)"
    assert effect_words(replace(EFFECT, unit="%", low=None, high=None, n=1)) == "1.23 %"
    assert effect_words(replace(EFFECT, n=0, asked="below 3")) == f"+1.23 points, computed (<{FIRM}3)"
    assert effect_words(replace(EFFECT, value=None)) == ""


def test_a_cell_says_which_part_decides_where_parts_are_asked_different_things() -> None:
    row = next(row for row in judged(DOCS) if row.effect and len({effect.asked for effect in row.effects}) == 1)
    other = replace(
        row, effects=[EFFECT, replace(EFFECT, asked="within ± 4")], effect=replace(EFFECT, name="F1, a − b")
    )
    assert "F1, a − b: +1.23 points" in judgement(other)
    assert "F1, a − b" not in judgement(replace(other, effects=[EFFECT]))


def test_numbers_are_written_out() -> None:
    numbers = [0.0, 1.0, 46.333, 0.70143, 10_350.4, 4.81e-5, -1667.2, 3.2e-9, math.inf]
    assert [written_out(one, 4) for one in numbers] == [
        *("0", "1", "46.33", "0.7014", "10,350", "0.0000481", "-1,667", "3.2e-09", "inf")
    ]
    assert [written_out(one, 2) for one in (288.7, 0.059123, 3.512)] == ["289", "0.059", "3.5"]


def test_labels() -> None:
    names = ("table3", "fig2", "own_one", "beta01")
    assert [label("fedcaprivacy", t) for t in names] == ["Table 3", "Fig. 2", "Own one", "All under Dir(0.1)"]


def test_a_page_says_in_its_heading_what_it_shows() -> None:
    def of(table: str, title: str, paper: str = "mingledpie", dataset: str = "fashion_mnist") -> str:
        return heading(Exhibit(table, [made(title=title, table=table, paper=paper, dataset=dataset)], {}))

    assert of("table2", "Profiling accuracy on Fashion MNIST") == "Table 2: profiling accuracy"
    assert of("table7", "IID rate, on Fashion MNIST") == "Table 7: IID rate"
    assert of("fig3", "Mild skew: who guesses") == "Fig. 3: mild skew, who guesses"
    assert (
        of("table1_fast", "Table I at three times the learning rate", "fedcaprivacy")
        == "Table 1 at three times the rate"
    )
    assert of("table2", "Table II: final accuracy", "fedcaprivacy") == "Table 2: final accuracy"
    subset = "Choices of the attacker on a subset of EMNIST ByMerge"
    assert of("choices", subset, "afc_cfl", "emnist_bymerge47") == "Choices of the attacker"


def test_a_papers_page_for_a_browser_has_what_was_made_here_first(tmp_path: Path) -> None:
    docs, runs = tmp_path / "docs", tmp_path / "runs"
    assert write_paper("someone", runs, docs) is None
    present.store(made(), docs)
    runs.mkdir()
    (runs / "other.json").write_text('{"no": "table"}')
    present.write(made(title="Made here"), runs)
    page = write_paper("someone", runs, docs)
    assert page is not None
    text = page.read_text(encoding="utf-8")
    assert "Made here" in text and "A title" not in text and "data:image/svg+xml;base64," in text
    assert f"+1.23 points [0.4,{FIRM}2]" in text


def test_a_paper_by_name_writes_its_page_and_says_where(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)  # no docs here: those of the source checkout
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    reproduce("pqfed")
    said = capsys.readouterr().out
    page = Path("runs/reproduce-pqfed/pqfed.html")
    assert str(page) in said and "table2" in said
    assert "Membership power" in page.read_text(encoding="utf-8")
    assert opened == []  # this is no terminal


def test_a_judgement_says_which_part_decides_and_what_became_of_runs() -> None:
    def said(*effects: Effect) -> str:
        (row,) = rows(replace(made(), claims=[Claim("s", effects[0].verdict, "", list(effects))]))
        return judgement(row)

    one = Effect("fedavg − ours, at most", -5850.0, -5900.0, -5800.0, 3, "rounds", "above 0", "does not hold")
    assert said(one).replace(FIRM, " ") == "**✗ does not hold** −5,850 rounds [−5,900, −5,800] (at most)"
    several = said(one, replace(one, name="other", verdict="holds"))
    assert several.startswith("**✗ does not hold** fedavg − ours, at most: −5,850 rounds")
    lost = Effect("a − b", None, None, None, 0, "points", "above 0", "undecided", lost="diverged in 3 of 3 seeds")
    assert said(lost) == "**? undecided** a − b: diverged in 3 of 3 seeds"
