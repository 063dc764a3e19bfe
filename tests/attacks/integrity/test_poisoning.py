"""Model poisoning: what one participant does to the others, and what bears it."""

from __future__ import annotations

from typing import Any

import pytest

from covey.attacks import ATTACKS
from covey.attacks.finding import NOTHING_SEEN, Finding
from covey.audit.matrix import LEAKING
from covey.errors import CoveyError
from covey.experiment.experiment import Experiment
from covey.rounds.loop import run

TABLE: dict[str, Any] = {
    "dataset": "digits",
    "algorithm": "fedavg",
    "clients": 8,
    "clusters": 1,
    "partition": {"name": "iid", "public": 0},
    "training": {"rounds": 8, "epochs": 1, "batch_size": 10, "lr": 0.1},
    "evaluation": {"every": 50, "samples": 50},
    "engine": {"workers": 1},
    "attacks": ["model_poisoning"],
}


def found(**changes: Any) -> Finding:
    finding = Finding.of("model_poisoning", run(Experiment.of(TABLE, **changes), quiet=True).attacks["model_poisoning"])
    assert finding is not None
    return finding


def test_one_client_spoils_an_average() -> None:
    spoilt = found()
    assert spoilt.verdict in LEAKING and spoilt.value > 0.3
    assert spoilt.details["and after"] < 0.7 * spoilt.details["likelihood of victims' samples before"]


def test_a_median_bears_it() -> None:
    borne = found(algorithm={"name": "fedavg", "aggregation": "median", "weighting": "clients"})
    assert borne.verdict == NOTHING_SEEN and borne.value < 0.1


def test_a_cluster_that_is_not_its_own_can_be_spoilt() -> None:
    """IFCA lets a client say of which cluster it is."""
    sets = {"clusters": 2, "algorithm": "ifca", "partition": {"name": "label_sets"}, "start": {"common": False}}
    chosen = found(**sets, attacks=[{"name": "model_poisoning", "cluster": 0}])
    other = found(**sets, attacks=[{"name": "model_poisoning", "cluster": 1}])
    assert chosen.value > 0.3 and other.value > 0.3  # whichever it names: one of the two is not its own


def test_what_makes_no_sense_is_refused() -> None:
    with pytest.raises(CoveyError, match="model_poisoning"):
        ATTACKS["model_poisoning"](vantage="server")
