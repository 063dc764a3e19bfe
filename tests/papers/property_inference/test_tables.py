"""The property-inference tables: the paper's figures against its own sentences, and what is wanted."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from covey.data.dataset import Dataset
from covey.experiment.experiment import Experiment
from covey.papers.cells import Sheet, cell
from covey.papers.harness import Options, Reproduction, tables
from covey.papers.outcome import Outcome
from covey.papers.pages.content import drawn as pictures_of
from covey.papers.property_inference import figures as printed
from covey.papers.property_inference import notes as property_notes
from covey.papers.property_inference import tables as property_inference
from covey.papers.property_inference.grids import GRIDS, partitions
from covey.papers.property_inference.settings import TASKS
from covey.papers.verdict import judge


def test_the_figures_say_what_the_paper_says_of_them() -> None:
    pairs = [(printed.PASSIVE[t, "FL", k], printed.PASSIVE[t, "CFL", k]) for t in printed.TASKS for k in range(3, 21)]
    assert len(pairs) == 90 and sum(b > a for a, b in pairs) == 85
    assert 100 * np.mean([b / a - 1 for a, b in pairs]) == pytest.approx(30.32, abs=1.5)  # over its 85
    cells = [(t, k) for t in "ABC" for k in printed.SOME]
    scaled = [printed.ACTIVE[t, "CFL scaled up", k] / printed.ACTIVE[t, "CFL γ=1", k] - 1 for t, k in cells]
    assert 100 * np.mean(scaled) == pytest.approx(4.14, abs=0.2)
    assert sum(printed.ACTIVE[t, "CFL γ=1", k] < printed.PASSIVE[t, "CFL", k] for t, k in cells) == 8
    assert max(printed.NOISED.values()) == 0.5111
    dropped = [
        printed.REGULARISED["passive", "A", "dropout 0.1", k] / printed.PASSIVE["A", "CFL", k] - 1 for k in printed.SOME
    ]
    assert 100 * np.mean(dropped) == pytest.approx(1.26, abs=0.5)


@pytest.mark.parametrize("dataset", list(TASKS))
def test_every_table_wants_experiments_that_can_be_built(dataset: str, tmp_path: Path) -> None:
    for quick in (False, True):
        options = Options(out=tmp_path, dataset=dataset, quick=quick)
        for name, grid in GRIDS.items():
            wanted = grid(options)
            assert len({(w.row, w.column) for w in wanted}) == len(wanted) > 0, name
            built = [Experiment.of(w.table) for w in wanted]
            assert all(len(e.attacks) == 1 and e.training.steps == 1 and e.exposure.every == 5 for e in built)
            assert all(
                e.evaluation.every == e.training.rounds for e in built
            )  # no table looks at what is before the end
            assert not quick or all(e.training.rounds <= 1000 for e in built)


def test_all_grids_are_tables_and_the_quick_active_table_is_three_runs() -> None:
    assert set(GRIDS) | {"acquisition"} == set(tables("property_inference"))
    quick = GRIDS["table4"](Options(out=Path(), dataset="utkface", quick=True))
    assert [w.column for w in quick] == ["CFL", "CFL γ=1", "CFL γ=5"]
    full = {w.column for w in GRIDS["table4"](Options(out=Path(), dataset="utkface"))}
    assert full >= {"FL", "CFL", "FL γ=1", "CFL γ=1", "CFL γ=5", "CFL γ=10"}


def test_more_clients_are_tables_of_their_own_so_that_those_of_five_stay_whole() -> None:
    options = Options(out=Path(), dataset="lfw")
    for n in (4, 5, 6, 7, 8):
        five, rest = GRIDS[f"table{n}"](options), GRIDS[f"table{n}_more"](options)
        assert {w.table["clients"] for w in five} == {5} and {w.table["clients"] for w in rest} == {10, 15, 20}
        assert len(rest) == 3 * len(five)
        figures = {(w.row, w.column): w.paper for w in rest}  # the paper's stand wherever those of five clients do
        for w in five:
            others = [figures[w.row.replace("5 clients", f"{k} clients"), w.column] for k in (10, 15, 20)]
            assert (
                (w.paper is None) == all(one is None for one in others) and w.paper not in others
            ) or w.paper is None
    assert partitions(options, "table4") == 5 and partitions(options, "table4_more") == 3


def test_stand_ins_and_noisy_labels_are_named() -> None:
    assert all("stand-in" in task.said for task in TASKS["yelp-like"].values())
    assert all(task.said for tasks in TASKS.values() for task in tasks.values())


def test_what_the_paper_leaves_open_is_shown_with_every_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        property_inference, "label_gaps", lambda tasks, beta, clients, partitions: [f"gaps at {beta:g}"]
    )
    options = Options(out=Path(), dataset="utkface")
    for table, beta in (("mild", 10.0), ("undefended", 10.0), ("table9", 1.0)):
        made = property_inference._made(options, table, "", [])
        open_points = {"Dirichlet β", "clip C", "δ", "clusters", "simulated groups", "AUC covers", "cluster chosen on"}
        assert open_points <= set(made.settings) and made.settings["Dirichlet β"] == beta
        assert f"gaps at {beta:g}" in made.notes


@pytest.mark.parametrize("drawn", [True, False])
def test_a_map_is_drawn_from_what_its_run_kept_or_the_table_says_that_it_is_not(
    drawn: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = {"x": [0.0, 1.0], "y": [2.0, 0.5], "label": ["property", "other"]}
    details = {"pictures": [{"kind": "histogram"}, {"kind": "scatter", "title": "any", **given}]} if drawn else {}
    grid = GRIDS["fig3"](Options(out=Path(), dataset="yelp-like"))
    assert {(w.task, w.table["clients"]) for w in grid} == {("D", 13)}  # the paper's setting
    monkeypatch.setattr(property_inference, "measure", lambda options, table: (grid, [[Outcome({}, [])]] * 2))
    monkeypatch.setattr(property_inference, "finding", lambda outcome: {"details": details})
    # Scores of the first partition, which is the one that is drawn.
    scores = [
        cell("D, 13 clients, FL", name, values)
        for name, values in (("own upload left in", [0.9, 0.6]), ("placebo control", [0.8]))
    ]
    monkeypatch.setattr(property_inference, "_cells", lambda grid, runs: scores)
    asked_of = []
    monkeypatch.setattr(
        property_inference,
        "label_gaps",
        lambda tasks, beta, clients, partitions: asked_of.append((*tasks, clients)) or [],
    )
    made = property_inference.fig3(Options(out=Path(), dataset="yelp-like"))
    assert asked_of == [("D", 13)]
    said = {"FL": "AUC: own upload in 0.90, placebo 0.80", "CFL": ""}
    assert made.maps == (
        [{"title": f"D, 13 clients, {m}", "said": words, **given} for m, words in said.items()] if drawn else []
    )
    assert any("drew no t-SNE" in note for note in made.notes) is not drawn
    stored = Reproduction.of(json.loads(json.dumps(made.json())))
    on_maps = [svg.count("<circle") for svg in pictures_of(stored) if said["FL"] in svg]
    assert on_maps == ([2 + 4] if drawn else [])  # the legend's, and a dot of each label on each map


def test_cosines_stand_beside_the_printed_ones_of_the_papers_task_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    details = {"cosine of consecutive updates": 0.5, "its deviation": 0.1}
    monkeypatch.setattr(property_inference, "finding", lambda outcome: {"details": details})
    monkeypatch.setattr(property_inference, "_cells", lambda grid, runs: [])
    monkeypatch.setattr(property_inference, "label_gaps", lambda tasks, beta, clients, partitions: [])
    for dataset, figures in (("lfw", {0.3074, 0.9234, 0.2752, 0.1725}), ("yelp-like", {None})):
        options = Options(out=Path(), dataset=dataset)
        grid = GRIDS["fig4"](options)
        monkeypatch.setattr(
            property_inference, "measure", lambda options, table, grid=grid: (grid, [[Outcome({}, [])]] * 2)
        )
        assert {c.paper for c in property_inference.fig4(options).cells} == figures


def test_a_gap_is_the_distance_of_the_victims_label_shares(monkeypatch: pytest.MonkeyPatch) -> None:
    # The 40 rows with the property are those of label 1: the victim's property rows and its others share no label.
    y = np.repeat([0, 1], [400, 40])
    x = np.zeros((440, 2), np.float32)
    faces = Dataset("faces", x, y, x, y, classes=("a", "b"), attributes={"black": (y == 1).astype(np.uint8)})
    monkeypatch.setattr(property_notes, "load", lambda name: faces)
    (said,) = property_notes.label_gaps(TASKS["utkface"], 10.0, 5, 3)
    assert said.count("1.00") == 3 and "partitions 0 to 2: " in said


def test_defences_do_not_help_only_where_that_is_shown() -> None:
    def verdict(changes: list[float]) -> str:
        score = "own upload left in"  # the paper's attack
        bare = cell("C, 5 clients, CFL, none", score, [0.8] * len(changes), unit="AUC")
        with_it = [0.8 + c for c in changes]
        full = Sheet([bare, cell("C, 5 clients, CFL, dropout 0.1", score, with_it, unit="AUC")])
        other, only = property_inference.TABLES["table5"].claims(full)
        assert judge(other, full).verdict == "not measured" and score in only.text
        return judge(only, full).verdict

    assert verdict([-0.01, 0.0, 0.01]) == "holds"  # ± .025: it takes less than .05
    assert verdict([-0.1, 0.0, 0.1]) == "undecided"  # that nothing was rejected is no proof
    assert verdict([-0.2, -0.21, -0.19]) == "does not hold"
