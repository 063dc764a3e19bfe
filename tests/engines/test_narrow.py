"""When a run trains by covey's own loops for narrow convolutions: where they are faster, and pay."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from covey.engines import narrow as rule
from covey.engines.narrow import trains_narrow
from covey.engines.prepare import prepare
from covey.engines.start import start_engine
from covey.experiment.experiment import Experiment
from covey.learn.kernels.convolutions import narrow
from covey.rounds.loop import run


def experiment(
    model: str = "cnn",
    engine: dict[str, Any] | None = None,
    defence: str | None = None,
    clients: int = 4,
    **training: int,
) -> Experiment:
    asked = {"rounds": 1, "epochs": 1, "batch_size": 50, **training}
    return Experiment.of(
        algorithm="fedavg", dataset="digits", model=model, clients=clients, clusters=1, training=asked,
        engine={"device": "cpu", "workers": 2, **(engine or {})}, **({"defence": defence} if defence else {}),
    )  # fmt: skip


def trains(one: Experiment) -> bool:
    federation, network, _ = prepare(one)
    return trains_narrow(one, network, federation, one.engine.workers)


def test_long_runs_of_narrow_networks(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[int] = []
    monkeypatch.setattr(narrow, "is_here", lambda: not compiled.append(1))
    # digits: some 1,400 samples, 1,240 activations each
    assert not trains(experiment(rounds=100)) and not compiled  # nothing is compiled for a short run
    assert trains(experiment(rounds=2000))
    assert trains(experiment(steps=1000, rounds=20)) and not trains(experiment(steps=10, rounds=20))
    assert trains(experiment(rounds=2000, batch_size=0))
    for other in (
        experiment("cnn5", rounds=2000),
        experiment(rounds=2000, batch_size=9),
        experiment(rounds=2000, engine={"kernel": "stacked"}),
        experiment(rounds=2000, engine={"workers": 64}),
        experiment(rounds=2000, defence="dp_sgd"),
        experiment(rounds=2000, clients=200),  # of 6 or 7 samples each
    ):
        assert not trains(other)
    monkeypatch.setattr(narrow, "is_here", lambda: False)
    assert not trains(experiment(rounds=2000))


@pytest.mark.parametrize(("workers", "threads", "own"), [(2, 2, True), (1, 1, True), (1, 2, False)])
def test_only_where_a_process_computes_in_one_thread(
    workers: int, threads: int, own: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[bool] = []
    monkeypatch.setattr(rule, "PAYS", 0)
    monkeypatch.setattr(narrow, "is_here", lambda: True)
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    monkeypatch.setattr("covey.engines.start.make_host", lambda *given: made.append(given[-1]))
    monkeypatch.setattr("covey.engines.start.Workers", lambda make, *_: make())
    one = experiment(engine={"workers": workers})
    federation, network, setting = prepare(one)
    start_engine(one, network, federation, setting, {}, {})
    assert made == [own]


def test_workers_train_by_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(narrow, "is_here", lambda: True)
    models: list[torch.Tensor] = []
    for pays in (1e30, 0):
        monkeypatch.setattr(rule, "PAYS", pays)
        run(experiment(batch_size=20), callbacks=[lambda _, state: models.append(state.model.clone())], quiet=True)
    assert not torch.equal(*models)  # they round otherwise
    torch.testing.assert_close(*models, rtol=0, atol=1e-4)
