"""The worked examples of the documentation run, and say what they should."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

from covey import Experiment, run

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
