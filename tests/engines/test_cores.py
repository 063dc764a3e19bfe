"""How many cores a run may use where nobody says how many workers it has."""

from __future__ import annotations

import pytest

from covey.engines.prepare import prepare
from covey.engines.simulate import InProcess, Workers, cores
from covey.engines.start import start_engine
from covey.errors import CoveyError
from covey.experiment.experiment import Experiment


def engine_of(**engine: int) -> type:
    experiment = Experiment.of(dataset="digits", model="softmax", clients=4, clusters=2, engine=engine)
    federation, network, setting = prepare(experiment)
    hosts = start_engine(experiment, network, federation, setting, {}, {})
    hosts.close()
    return type(hosts)


def test_the_environment_says_how_many_and_an_experiment_overrides_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COVEY_CORES", "1")
    assert engine_of() is InProcess and engine_of(workers=2) is Workers
    monkeypatch.setenv("COVEY_CORES", "3")
    assert cores() == 3 and engine_of() is Workers
    monkeypatch.delenv("COVEY_CORES")
    assert cores() >= 1


@pytest.mark.parametrize("wrong", ["0", "-1", "2.5", "all", " "])
def test_what_is_no_number_of_cores_is_one_sentence(wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COVEY_CORES", wrong)
    with pytest.raises(CoveyError, match=r"COVEY_CORES is .*at least 1"):
        cores()
