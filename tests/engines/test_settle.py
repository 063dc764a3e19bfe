"""What the data decide about an experiment."""

from __future__ import annotations

import warnings

import pytest

from covey.engines.settle import settle
from covey.errors import CoveyWarning
from covey.experiment.experiment import Experiment


def test_a_number_of_clients_that_the_data_have_not_is_said_to_be_unused() -> None:
    hospitals = {"dataset": "heart", "model": "softmax", "algorithm": "fedavg", "partition": "natural", "clusters": 2}
    with pytest.warns(CoveyWarning, match="clients = 7 is not used: the data say whose they are, and have 4 clients"):
        settled, _ = settle(Experiment.of(hospitals, clients=7))
    assert settled.clients == 4
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for more in ({}, {"clients": 4}):
            assert settle(Experiment.of(hospitals, **more))[0].clients == 4
