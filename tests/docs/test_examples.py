"""The worked examples of the documentation run, and say what they should."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

from covey import Experiment, run
from covey.data.sources.load import load

SMALL = {"dataset": "digits", "algorithm": "fedavg", "clusters": 1, "model": "softmax", "engine": {"workers": 1}}
EXAMPLES = Path(__file__).parents[2] / "examples"


def test_own_algorithm_learns_and_its_bound_binds() -> None:
    clipped = runpy.run_path(str(EXAMPLES / "own_algorithm.py"))["ClippedAverage"]
    table = {"dataset": "digits", "clients": 6, "partition": {"name": "iid"}, "engine": {"workers": 2}}
    training = {"rounds": 8, "batch_size": 10, "lr": 0.1}
    free, bound = (
        run(Experiment.of(table, algorithm=clipped(bound=b), training=training), quiet=True).accuracy["global"]
        for b in (9.0, 1e-3)
    )
    assert free > 0.85 > 0.5 > bound


def test_own_attack_reads_what_the_server_is_told() -> None:
    attack = runpy.run_path(str(EXAMPLES / "own_attack.py"))["WhoIsRich"]
    experiment = Experiment.of(
        dataset="digits",
        clients=12,
        clusters=3,
        partition={"name": "dirichlet", "beta": 0.5, "equal": False},
        training={"rounds": 2},
    )
    told = run(experiment, attacks=[attack()], quiet=True).attacks["who_is_rich"]
    assert told["value"] == 1.0 and told["verdict"] == "broken"
    silent = Experiment.of(experiment.table(), algorithm="local")
    assert run(silent, attacks=[attack()], quiet=True).attacks["who_is_rich"]["value"] == pytest.approx(0.5, abs=0.5)


def test_own_metric_lies_between_accuracy_and_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(EXAMPLES)
    evaluation = {"metrics": ["own_metric:top_two"]}
    experiment = Experiment.of(SMALL, clients=4, partition="iid", evaluation=evaluation, training={"rounds": 2})
    metrics = run(experiment, quiet=True).metrics
    assert metrics["accuracy"]["mean"] < metrics["top_two"]["mean"] < 1
    assert metrics["top_two"]["title"] == "Share of samples whose class is among the two most probable"
    import own_metric  # type: ignore[import-not-found]

    assert Experiment.of(SMALL, evaluation={"metrics": [own_metric.top_two]}).evaluation == experiment.evaluation


def test_own_partition_gives_few_clients_most_samples() -> None:
    skewed = runpy.run_path(str(EXAMPLES / "own_partition.py"))["Skewed"]
    data = load("digits")
    sizes = [len(rows) for rows in skewed(power=1.5).make(data, 10, 1, 0).clients]
    assert sizes == sorted(sizes, reverse=True) and sizes[0] > 10 * sizes[-1] > 0
    again = skewed(power=1.5).make(data, 10, 1, 0).clients
    assert all((a == b).all() for a, b in zip(again, skewed(power=1.5).make(data, 10, 1, 0).clients))
    assert run(Experiment.of(SMALL, clients=5, partition=skewed(), training={"rounds": 1}), quiet=True).rounds == 1


def test_own_defence_bounds_what_a_client_changes() -> None:
    short = runpy.run_path(str(EXAMPLES / "own_defence.py"))["ShortSteps"]
    experiment = Experiment.of(
        SMALL, clients=3, partition="iid", training={"rounds": 2, "lr": 1.0}, defence=short(0.05)
    )
    result = run(experiment, quiet=True)
    assert result.defence == "short_steps" and result.privacy == {}
    assert result.records[-1]["extra"]["moved"] == pytest.approx(0.05)


def test_own_compression_sends_a_bit_a_number_and_learns() -> None:
    signs = runpy.run_path(str(EXAMPLES / "own_compression.py"))["Signs"]
    training = {"rounds": 20, "epochs": 2, "batch_size": 10, "lr": 0.1}
    table = SMALL | {"clients": 4, "partition": "iid", "training": training, "model": "fcnn"}
    packed, plain = (run(Experiment.of(table, compression=c), quiet=True) for c in (signs(), None))
    assert packed.bytes["up"] < plain.bytes["up"] / 25
    assert packed.accuracy["global"] > 0.8
