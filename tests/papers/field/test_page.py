"""Ranks by hand, intervals that hold what they should, and a page that says what it has not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from covey.papers.cells import cell
from covey.papers.field.leaderboard import ranked, standings
from covey.papers.field.page import beside
from covey.papers.field.tables import DOWN, OWN, SECONDS, UP, WORST, claims, picked_by_trials
from covey.papers.harness import Reproduction, rejudged
from covey.report.format import percent


def place(table: str, own: dict[str, list[float]], tried: dict[str, float] | None = None) -> Reproduction:
    cells = []
    for method, values in own.items():
        traffic = 3.0 if method == "ifca" else 1.0
        cells += [
            cell(method, OWN, values),
            cell(method, WORST, [v - 0.1 for v in values]),
            cell(method, UP, [traffic] * len(values), unit="kB"),
            cell(method, DOWN, [traffic] * len(values), unit="kB"),
            cell(method, SECONDS, [0.5] * len(values), unit="s"),
        ]
    trials = {m: [{"lr": 0.1, "accuracy": score}] for m, score in (tried or {}).items()}
    settings = {"rows": f"{len(own)} of 4", "chosen": {m: {"lr": 0.1} for m in own}, "trials": trials}
    return rejudged(Reproduction("field", table, table, "digits", settings, cells))


def test_ranks_share_and_leave_out() -> None:
    assert ranked(np.array([0.5, 0.9, 0.5, np.nan])).tolist()[:3] == [2.5, 1.0, 2.5]
    assert np.isnan(ranked(np.array([0.5, np.nan]))[1])


def test_standings_are_means_over_places_with_intervals_over_seeds() -> None:
    first = place("label_sets", {"ifca": [0.9, 0.8], "fedavg": [0.7, 0.6], "local": [0.8, 0.9]})
    second = place("drift", {"ifca": [0.9, 0.9], "fedavg": [0.8, 0.8]})
    lines = {line.method: line for line in standings([first, second])}
    assert [*lines] == ["ifca", "fedavg", "local"]  # local lacks a place, so it comes last
    assert lines["ifca"].rank == (1.5 + 1) / 2 and lines["fedavg"].rank == (3 + 2) / 2 and lines["local"].rank == 1.5
    assert lines["ifca"].interval == (1.0, 1.5)  # the seeds differ in who leads the first place, in nothing else
    assert lines["fedavg"].interval == (2.5, 2.5)
    assert lines["ifca"].traffic is not None and abs(lines["ifca"].traffic - 3) < 1e-12 and lines["fedavg"].seconds == 1
    assert lines["ifca"].family == "clustered" and lines["local"].family == "alone"


def test_the_page_says_where_clusters_pay_by_a_method_that_no_figure_picked(tmp_path: Path) -> None:
    own = {
        "ifca": [0.9, 0.91, 0.9],
        "fedavg": [0.5, 0.5, 0.5],
        "local": [0.7, 0.71, 0.72],
        "fedavg_ft": [0.8, 0.79, 0.81],
    }
    pays = place("label_sets", own, {"ifca": 0.9})
    fails = place("drift", {**own, "ifca": [0.5, 0.51, 0.5]}, {"ifca": 0.6})
    assert {claim.verdict for claim in pays.claims} == {"holds"}
    assert claims(pays.sheet())[0].text.startswith("The clustered method that its trials put first (ifca)")
    made = beside([pays, fails], tmp_path)
    text = made.files["field.md"]
    assert (
        "Shown to pay, against training alone and against FedAvg with fine-tuning, in 1 place: label sets on digits"
        in text
    )
    assert "Shown **not** to pay, against one of the two at least, in 1 place: drift on digits" in text
    assert "not measured" in text  # no audit is stored there
    assert made.files["figures/field.svg"].startswith("<svg") and any("IFCA" in line for line in made.lines)
    assert beside([], tmp_path).files == {}


def test_the_page_says_what_the_ranks_do_not_show(tmp_path: Path) -> None:
    one = place("label_sets", {"ifca": [0.9, 0.91], "fedavg": [0.5, 0.5]})
    one.settings["trials"] = {m: [{"lr": rate, "accuracy": 0.5} for rate in (0.05, 0.1)] for m in ("ifca", "fedavg")}
    one.settings["chosen"]["fedavg"] = {"lr": 0.05}
    one.settings["missing"] = {"pqfed": "no selection"}
    text = beside([one], tmp_path).files["field.md"]
    assert "- PQFed, label sets on digits: no selection" in text
    assert "in 1 of 2 choices among 2 trials the rate is the largest" in text and "in 1 the smallest" in text
    assert "at the largest: IFCA." in text  # and not FedAvg
    assert "No row is a private run" in text and "picked after a look at runs with seed 0" in text
    assert "IFCA's rotated MNIST is set up" in text and "FLamby's stores what its own runs gave" in text

    rotated = Reproduction(
        "field", "rotated", "Rotated", "mnist", {}, [cell("ifca, m = 1200, n = 200", "test accuracy", [0.95, 0.96])]
    )
    known = [cell("fedavg", "Cleveland", [0.7, 0.71], 0.73), cell("fedavg, rate 0.00316", "mean of the four", [0.72])]
    flamby = Reproduction("field", "flamby", "Hospitals", "flamby_heart", {}, known)
    text = beside([one, rotated, flamby], tmp_path).files["field.md"]
    assert (
        f"| ifca, m = 1200, n = 200 | {percent(0.955)} ± 0.71 (2) |\n" in text
    )  # what is only remembered is not shown as printed
    assert "As we remember them, unchecked: m = 1200, n = 200: ifca 95.25%" in text and "is set up" not in text
    assert f"| fedavg, Cleveland | {percent(0.705)} ± 0.71 (2) | {percent(0.73)} |" in text
    assert "|  | ours | stored |" in text


def test_the_page_counts_seeds_by_place_and_says_where_codes_are_mixed(tmp_path: Path) -> None:
    whole, fewer = (place(name, {"ifca": [0.9, 0.91], "fedavg": [0.5, 0.5]}) for name in ("label_sets", "drift"))
    whole.settings["seeds"], fewer.settings["seeds"] = 5, 3
    mixed = replace(fewer, runs={"code": ["a", "b"]})
    text = beside([whole, mixed], tmp_path).files["field.md"]
    assert "Figures are of 5 seeds (label sets on digits), 3 seeds (drift on digits)." in text
    assert "more than one state of covey's code stand together in drift on digits." in text
    assert "Figures are of 5 seeds (digits). Trials" in beside([whole], tmp_path).files["field.md"]


def test_a_trial_that_was_refused_picks_nothing() -> None:
    trials = {
        "ifca": [{"lr": 0.1, "accuracy": 0.7}, {"lr": 1.8, "refused": "not finite"}],
        "stocfl": [{"lr": 1.8, "refused": "so"}],
    }
    assert picked_by_trials({"trials": trials}, ["ifca", "stocfl", "fesem"]) == "ifca"
