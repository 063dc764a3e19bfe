"""k is counted once, from first updates, and then the method runs as if it had been told."""

from __future__ import annotations

from typing import Any

import pytest

from covey import Experiment, run
from covey.algorithms.clustered.auto_k import AutoK, FirstMove
from covey.algorithms.contract import declaration
from covey.errors import CoveyError, CoveyWarning
from covey.report.terminal import closing_lines

SMALL: dict[str, Any] = {
    "dataset": "digits",
    "clients": 20,
    "true_clusters": 4,
    "partition": {"name": "concept_shift"},
    "start": {"common": False, "pretrain_epochs": 0},
    "training": {"rounds": 4, "epochs": 1, "batch_size": 10, "lr": 0.1},
    "evaluation": {"every": 4},
    "engine": {"workers": 1},
}


def test_the_method_gets_the_number_that_was_counted() -> None:
    for under in ("ifca", "fedgroup"):
        result = run(Experiment.of(SMALL, clusters=8, algorithm={"name": "auto_k", "under": under}), quiet=True)
        first = result.records[0]["extra"]
        assert first["counted"] == first["counted_silhouette"] == 4
        assert result.declared["models"] == 4
        assert "counted" not in result.records[1]["extra"]
        assert max(result.records[-1]["clusters"]) < 5


def test_a_count_that_reaches_its_bound_ends_with_a_warning() -> None:
    short = {**SMALL, "training": {**SMALL["training"], "rounds": 2}, "evaluation": {"every": 2}}
    warned = {}
    for most in (2, 8):
        result = run(Experiment.of(short, clusters=most, algorithm="auto_k"), quiet=True)
        warned[most] = [line for line in closing_lines(result) if line.startswith("warning")]
    assert warned[8] == [] and "2 clusters were counted, the most that is looked for" in warned[2][0]


def test_later_rounds_are_those_of_the_method_that_was_told() -> None:
    counted = run(Experiment.of(SMALL, clusters=8, algorithm={"name": "auto_k", "under": "ifca"}), quiet=True)
    told = run(
        Experiment.of(SMALL, clusters=4, algorithm="ifca", training={"rounds": 3}, evaluation={"every": 3}), quiet=True
    )
    # One round later, so with other batches: as good, not the same.
    assert abs(counted.accuracy["client_mean"] - told.accuracy["client_mean"]) < 0.15
    assert counted.records[1]["bytes"]["down"] == told.records[0]["bytes"]["down"]  # four models, not eight


def test_what_cannot_run_under_it_is_refused() -> None:
    for under, words in {
        "fedavg": "not told a number of clusters",
        "auto_k": "not told a number of clusters",
        "mingledpie": "hides what clients send",
        "fedem": "a model for each cluster",
    }.items():
        with pytest.raises(CoveyError, match=words):
            AutoK(under=under)
    with pytest.raises(CoveyError, match="choose silhouette, gap, eigengap"):
        AutoK(estimator="silhouete")


def test_models_that_nobody_can_tell_apart_are_said() -> None:
    """Pre-trained starts are there for the true number only; with another one all clients stay in one cluster."""
    alike = Experiment.of(SMALL, clusters=8, algorithm="auto_k", start={"common": True}, training={"rounds": 1})
    with pytest.warns(CoveyWarning, match="set start.common = false"):
        run(alike, quiet=True)


def test_it_declares_what_counting_shows() -> None:
    declared = declaration(AutoK())
    under = set(declaration(AutoK().under).replies)
    assert set(declared.replies) == under | {FirstMove}
    assert any("count the clusters" in given.why for given in declared.gives)
