"""Configuration: file, command line and Python say the same; mistakes are answered with the nearest valid name."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from covey import config
from covey.algorithms import ALGORITHMS
from covey.attacks import ATTACKS
from covey.data.partitions import PARTITIONS
from covey.defences import DEFENCES
from covey.engines.prepare import prepare
from covey.errors import CoveyError
from covey.experiment.experiment import Experiment
from covey.results.folder import hash_of


def test_an_experiment_survives_its_own_file(tmp_path: Path) -> None:
    experiment = Experiment.of(
        dataset="mnist",
        algorithm={"name": "ifca", "weighting": "samples"},
        partition={"name": "dirichlet", "beta": 0.3},
        training={"rounds": 7, "lr_milestones": [3, 5]},
        participation={"share": 0.5, "drops": [[2, 1]]},
        seed=9,
    )
    path = tmp_path / "e.toml"
    path.write_text(experiment.toml())
    assert Experiment.read(path) == experiment


def test_the_command_line_changes_one_key() -> None:
    table = config.assign({"training": {"lr": 0.1}, "algorithm": "ifca"}, "training.rounds=3")
    table = config.assign(table, "algorithm.weighting=samples")
    table = config.assign(table, "participation.share=0.5")
    experiment = Experiment.of(table)
    assert (experiment.training.rounds, experiment.training.lr) == (3, 0.1)
    assert experiment.algorithm.weighting == "samples"
    assert experiment.participation.share == 0.5


@pytest.mark.parametrize("registry", [ALGORITHMS, ATTACKS, DEFENCES, PARTITIONS])
def test_everything_that_can_be_named_has_a_title_that_fits_a_line(registry: dict[str, type]) -> None:
    for name, kind in registry.items():
        assert vars(kind)["title"] and len(vars(kind)["title"]) <= 100, name


def test_a_number_has_no_keys() -> None:
    with pytest.raises(CoveyError, match="'clients' is 60, no table"):
        config.assign({"clients": 60}, "clients.share=0.5")


def test_no_defence_by_name() -> None:
    assert Experiment.of(defence="none").defence is None
    assert Experiment.of({"defence": {"name": "none"}}).defence is None


@pytest.mark.parametrize(
    ("table", "says"),
    [
        ({"trainig": {}}, "did you mean 'training'"),
        ({"training": {"lrr": 1}}, "did you mean 'lr'"),
        ({"algorithm": "ifka"}, "did you mean 'ifca'"),
        ({"partition": {"name": "label_sets", "homogenous": True}}, "did you mean 'homogeneous'"),
        ({"model": "fcn"}, "did you mean 'fcnn'"),
        ({"encryption": "ckss"}, "did you mean 'ckks'"),
        ({"encryption": "ckks", "algorithm": "fedavg"}, "cannot run with encryption"),
        ({"training": {"lr": -0.1}}, "training.lr is -0.1"),
        ({"training": {"lr": "fast"}}, "expected a number"),
        ({"training": {"lr": float("nan")}}, "finite"),
        ({"training": {"rounds": 0}}, "at least one round"),
        ({"training": {"rounds": 2.5}}, "expected a whole number"),
        ({"clients": 3, "clusters": 5}, "5 clusters for 3 clients"),
        ({"participation": {"share": 0}}, "share"),
        ({"participation": {"join": 5}}, "join_every"),
        ({"attacks": "a1"}, "expected a list"),
        ({"attacks": [5]}, "attacks is 5: expected a name"),
        ({"algorithm": 5}, "algorithm is 5: expected a name"),
        ({"algorithm": "none"}, "unknown algorithm 'none'"),
        ({"partition": "none"}, "unknown partition 'none'"),
        ({"partition": None}, "partition is None"),
        ({"defence": 3}, "defence is 3"),
        ({"seeds": 0}, "seeds"),
        ({"engine": {"device": "tpu"}}, "auto, cpu or cuda"),
        ({"deployment": {"missing": "go"}}, "did you mean 'go_on'"),
        ({"deployment": {"round_seconds": 0}}, "above 0"),
        ({"deployment": {"min_silos": 21}}, "of 20 clients"),
        ({"silos": {"kind": "pixels"}}, "image, binary, real, tokens"),
        ({"silos": {"shape": [28, 0]}}, "at least 1"),
        ({"silos": {"classes": ["a", "a"]}}, "a name of its own"),
        ({"dataset": "silos"}, "needs silos.shape"),
        ({"dataset": "silos", "silos": {"kind": "tokens", "shape": [9], "classes": ["a", "b"]}}, "vocabulary"),
    ],
)
def test_mistakes_are_answered_with_what_to_change(table: dict[str, object], says: str) -> None:
    with pytest.raises(CoveyError) as caught:
        Experiment.of(table)
    assert says in str(caught.value)


def test_toml_that_is_not_toml(tmp_path: Path) -> None:
    path = tmp_path / "bad.toml"
    path.write_text("a = = 1")
    with pytest.raises(CoveyError, match="not valid TOML"):
        config.read_toml(path)
    with pytest.raises(CoveyError, match="cannot be read"):
        config.read_toml(tmp_path / "absent.toml")
    with pytest.raises(CoveyError, match="key=value"):
        config.assign({}, "lr")


def test_written_toml_reads_back() -> None:
    table = {"a": 1, "b": 'q"uote\n', "c": [1.5, True], "d": {"e": {"f": "x"}, "g": 2}}
    assert tomllib.loads(config.to_toml(table)) == table


def test_tables_of_a_deployment_read_back_and_do_not_rename_a_run() -> None:
    silos = {"shape": [2, 2], "classes": ["cat", "dog"], "public": "public"}
    experiment = Experiment.of(dataset="silos", silos=silos, deployment={"missing": "wait", "max_megabytes": 12})
    assert experiment.silos.shape == (2, 2) and experiment.deployment.max_megabytes == 12.0
    assert Experiment.of(tomllib.loads(experiment.toml())) == experiment
    assert hash_of(Experiment.of(deployment={"missing": "wait"})) == hash_of(Experiment())


def test_a_simulation_of_real_silos_is_refused() -> None:
    experiment = Experiment.of(dataset="silos", silos={"shape": [2], "classes": ["a", "b"], "kind": "real"})
    with pytest.raises(CoveyError, match="only the silos have"):
        prepare(experiment)


@pytest.mark.parametrize("given", ["ifca-digits", 3])
def test_what_is_no_table_is_refused_in_a_sentence(given: Any) -> None:
    with pytest.raises(CoveyError, match=r"Experiment\.of was given .*table_of\(NAME, \[\]\) is that of a preset"):
        Experiment.of(given)
