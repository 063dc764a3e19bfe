"""As many trials for everybody, chosen without looking at a figure; a table of what is finished, whenever it is asked for."""

from __future__ import annotations

import math
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from covey import Experiment
from covey.algorithms import ALGORITHMS
from covey.engines.settle import cut
from covey.errors import CoveyError
from covey.papers.field import tables
from covey.papers.field.questions import newcomers_table
from covey.papers.field.settings import DECISIVE, GIVEN, RATES, SETTINGS, TUNED_ON, table_of, trials
from covey.papers.harness import Options, reproduce
from covey.papers.rehearsal import Item, asked

METHODS = ["local", "ifca"]


def test_every_method_has_as_many_trials_and_all_of_them_are_experiments() -> None:
    assert {*DECISIVE, *GIVEN} <= set(ALGORITHMS)
    for name in ALGORITHMS:
        tried = trials(name)
        assert len(tried) == len(set(tried)) == len(RATES)
        for trial in tried:
            experiment = Experiment.of(table_of("label_sets", "digits", name, trial))
            assert experiment.training.lr == trial.lr
            assert all(getattr(experiment.algorithm, field) == value for field, value in trial.own)


@pytest.mark.parametrize("setting", SETTINGS)
def test_clients_of_every_dataset_fit(setting: str) -> None:
    for dataset in tables.TABLES[setting].datasets:
        experiment = Experiment.of(table_of(setting, dataset, "ifca", trials("ifca")[0]))
        assert experiment.clusters == SETTINGS[setting].clusters


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "methods", lambda: METHODS)


def test_a_table_grows_with_what_is_finished_and_its_parameters_are_those_of_the_best_trial(
    tmp_path: Path, few: None
) -> None:
    options = Options(tmp_path, quick=True, seeds=2, device="cpu", workers=1, quiet=True, dataset="digits")
    empty = reproduce("field", "label_sets", replace(options, read_only=True))
    assert not empty.cells and empty.settings["rows"] == "0 of 2" and set(empty.settings["missing"]) == set(METHODS)
    assert {claim.verdict for claim in empty.claims} == {"not measured"}

    item = Item("field", "label_sets", "digits")
    first = asked(item, options)
    assert first.more and len(first.missing) == len(METHODS) * len(RATES)
    whole = reproduce("field", "label_sets", options)
    assert whole.settings["rows"] == "2 of 2" and not whole.settings["missing"]
    for method in METHODS:
        tried, chosen = whole.settings["trials"][method], whole.settings["chosen"][method]
        best = max(tried, key=lambda trial: trial["accuracy"])
        assert len(tried) == len(RATES) and {**chosen, "accuracy": best["accuracy"]} == best
    own = {c.row: c for c in whole.cells if c.column == tables.OWN}
    assert all(len(c.values) == 2 and all(map(math.isfinite, c.values)) for c in own.values())
    assert {Experiment.read(path).seed for path in tmp_path.rglob("config.toml")} == {0, 1, TUNED_ON}

    # What is finished is read back; a figure that is lost costs its method's row and no other.
    again = reproduce("field", "label_sets", replace(options, read_only=True))
    assert again.cells == whole.cells and again.settings == whole.settings
    lost = next(p.parent for p in tmp_path.rglob("config.toml") if _is(Experiment.read(p), "ifca", 1))
    shutil.rmtree(lost)
    fewer = reproduce("field", "label_sets", replace(options, read_only=True))
    assert list(fewer.settings["missing"]) == ["ifca"] and fewer.settings["rows"] == "1 of 2"
    then = asked(item, options)
    assert [e.seed for e in then.missing.values()] == [1] and not then.more


def _is(experiment: Experiment, algorithm: str, seed: int) -> bool:
    return experiment.algorithm.name == algorithm and experiment.seed == seed


def test_what_a_method_refuses_costs_its_row_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "methods", lambda: ["local", "pqfed"])
    options = Options(tmp_path, quick=True, seeds=1, device="cpu", workers=1, quiet=True)
    made = reproduce("field", "silos", options)
    assert made.dataset == "heart" and made.settings["rows"] == "1 of 2"
    assert "public" in made.settings["missing"]["pqfed"]

    # In a pool, what was refused is not waited for.
    heard = asked(Item("field", "silos", "heart"), options)
    assert heard.more and {e.algorithm.name for e in heard.missing.values()} == {"pqfed"}
    refused = dict.fromkeys(heard.missing, "PQFed's server needs public images")
    assert not asked(Item("field", "silos", "heart"), replace(options, failed=refused)).more


def test_the_algorithm_may_be_told_another_number_than_the_data_have() -> None:
    wrong = cut(Experiment.of(clusters=3, true_clusters=5))
    right = cut(Experiment.of(clusters=5))
    assert (wrong.clusters == right.clusters).all() and int(max(wrong.clusters)) == 4
    with pytest.raises(CoveyError, match="true_clusters is 21 for 20 clients"):
        Experiment.of(true_clusters=21)


def test_newcomers_may_hold_few_samples_and_are_tested_as_ever() -> None:
    table = newcomers_table("label_sets", "digits", "ifca", 5)
    few, all_of_them = cut(Experiment.of(table)), cut(Experiment.of({**table, "participation": {}}))
    assert [len(rows) for rows in few.clients[15:]] == [5] * 5
    assert [len(rows) for rows in few.clients[:15]] == [len(rows) for rows in all_of_them.clients[:15]]
    assert (few.distributions == all_of_them.distributions).all()
    with pytest.raises(CoveyError, match="of clients that join later"):
        Experiment.of(participation={"newcomer_samples": 5})
