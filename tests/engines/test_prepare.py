"""What a run is told before its first round."""

from __future__ import annotations

import warnings

import pytest

from covey.engines.prepare import cut, refuse_phases
from covey.errors import CoveyWarning
from covey.experiment.experiment import Experiment


def test_a_change_that_the_run_does_not_reach_is_said() -> None:
    drifting = {"dataset": "digits", "algorithm": "ifca", "clients": 6, "clusters": 2, "partition": "drift"}
    experiments = [
        Experiment.of(drifting, training={"rounds": rounds}) for rounds in (9, 10)
    ]  # it changes after round 10
    federation = cut(experiments[0])
    with pytest.warns(CoveyWarning, match="from round 11 on, which this run of 9 rounds does not reach"):
        refuse_phases(experiments[0], federation, attacked=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        refuse_phases(experiments[1], federation, attacked=False)  # the record of round 10 tests on what follows
