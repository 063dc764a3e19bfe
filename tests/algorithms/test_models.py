"""Every algorithm with every kind of model: the built-in transformers and tables, and modules of a user's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from covey import CoveyError, Experiment, run
from covey.algorithms import ALGORITHMS
from covey.data.dataset import Dataset
from covey.data.federation import Federation
from covey.models import MODELS
from support import own_models

OWN = "support.own_models:"
KINDS = {
    "vit": "image",
    "text_transformer": "tokens",
    "tabular": "real",
    "tabular_ids": "tokens",
    f"{OWN}Attentive": "image",
}
PAIRS = [(a, m) for a in sorted(ALGORITHMS) for m in KINDS]
FITTING = {
    "mingledpie": {"threshold": 1},
    "pqfed": {"components": 4, "strategy": "all"},
}  # to so few clusters and samples
QUICK = [(a, list(KINDS)[i % len(KINDS)]) for i, a in enumerate(sorted(ALGORITHMS))]


def federation(kind: str, task: str = "classes") -> Federation:
    """Four clients of two clusters with eight samples each, four of each cluster known to all."""
    rng = np.random.default_rng(1)
    y = np.arange(52) % 2
    if kind == "image":
        x: Any = (rng.integers(0, 128, (52, 8, 8)) + 100 * y[:, None, None]).astype(np.uint8)
    elif kind == "tokens":
        x = rng.integers(1, 9, (52, 6)).astype(np.int32)
        x[:, 0] = 1 + y
    else:
        x = rng.normal(size=(52, 6)).astype(np.float32) + y[:, None].astype(np.float32)
    targets: Any = y.astype(np.int64)
    names: tuple[str, ...] = ("low", "high")
    if task != "classes":
        targets = np.stack([y, 1 - y], 1).astype(np.float32)
    data = Dataset("tiny", x[:40], targets[:40], x[40:], targets[40:], names, kind=kind, task=task)
    rows = np.arange(40)
    clusters = np.array([0, 0, 1, 1])
    return Federation(
        data,
        tuple(rows[i * 8 : (i + 1) * 8] for i in range(4)),
        clusters,
        y[40:].astype(np.int64),
        np.array([[0.5, 0.5]] * 4),
        public=(rows[32:36], rows[36:40]),
    )


def experiment(algorithm: str, model: object, several: bool = False, **more: Any) -> Experiment:
    table = {
        "algorithm": {"name": algorithm, **FITTING.get(algorithm, {})},
        "model": model,
        "clients": 4,
        "clusters": 2,
        "training": {"rounds": 2, "epochs": 1, "batch_size": 4, "lr": 0.05},
        "start": {"pretrain_epochs": 0, "common": not several},
        "engine": {"workers": 1},
    }
    return Experiment.of(table, **more)


def check(algorithm: str, model: str) -> None:
    one = {"rounds": 1, "epochs": 1, "batch_size": 4, "lr": 0.05}
    result = run(
        experiment(algorithm, model, several=True, training=one), federation=federation(KINDS[model]), quiet=True
    )
    assert 0 <= result.accuracy["client_mean"] <= 1 and result.rounds >= 1


@pytest.mark.parametrize(("algorithm", "model"), QUICK)
def test_every_algorithm_trains_every_kind_of_model(algorithm: str, model: str) -> None:
    check(algorithm, model)


@pytest.mark.slow
@pytest.mark.parametrize(("algorithm", "model"), sorted(set(PAIRS) - set(QUICK)))
def test_every_algorithm_with_every_model(algorithm: str, model: str) -> None:
    check(algorithm, model)


def test_models_that_are_there() -> None:
    assert {name for name in KINDS if not name.startswith(OWN)} < set(MODELS)


@pytest.mark.parametrize("buffers", ["shared", "local"])
def test_running_statistics_survive_rounds_waves_workers_and_an_interruption(buffers: str, tmp_path: Path) -> None:
    data = federation("image")
    wanted = experiment("ifca", f"{OWN}Normed", layers={"buffers": buffers})
    whole = run(wanted, federation=data, quiet=True, out=tmp_path / "whole")
    engines = [{"workers": 2}, {"workers": 1, "clients_at_once": 1}]
    for engine in engines:
        other = run(
            experiment("ifca", f"{OWN}Normed", layers={"buffers": buffers}, engine=engine), federation=data, quiet=True
        )
        assert other.accuracy == whole.accuracy
        assert torch.equal(other.state.models, whole.state.models)
    wanted_module = whole.module(client=0)
    assert wanted_module.body[2].running_mean.abs().sum() > 0
    if buffers == "local":
        assert len(whole.models.kept.models) == 2 + 4  # the clusters', and each client's with its own statistics
        with pytest.raises(CoveyError, match="a cluster's model alone cannot predict: name a client"):
            whole.module(cluster=0)
    stopped = tmp_path / "stopped"
    with pytest.raises(KeyboardInterrupt):
        run(wanted, federation=data, quiet=True, out=stopped, callbacks=[_interrupt])
    again = run(wanted, federation=data, quiet=True, out=stopped, resume=True)
    assert torch.equal(again.state.models, whole.state.models) and again.accuracy == whole.accuracy


def _interrupt(record: dict[str, Any], state: Any) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("task", ["labels", "numbers"])
@pytest.mark.parametrize("algorithm", ["ifca", "fedem"])
def test_other_tasks(task: str, algorithm: str) -> None:
    result = run(experiment(algorithm, "tabular", several=True), federation=federation("real", task), quiet=True)
    assert result.rounds == 2


def test_a_given_module_is_known_by_its_fingerprint(tmp_path: Path) -> None:
    module = own_models.Attentive((1, 8, 8), 2)
    data = federation("image")
    wanted = experiment("fedavg", module)
    assert wanted.table()["model"] == {
        "name": "given",
        "of": f"{OWN}Attentive",
        "fingerprint": wanted.model.fingerprint,
    }
    result = run(wanted, federation=data, quiet=True, out=tmp_path / "run")
    read = Experiment.read(tmp_path / "run" / "config.toml")
    assert read.model == wanted.model  # this process was given it
    assert run(read, federation=data, quiet=True).accuracy == result.accuracy
    unknown = Experiment.of(wanted.table(), model={"name": "given", "of": f"{OWN}Attentive", "fingerprint": "0" * 16})
    with pytest.raises(CoveyError, match=r"given as an object.*no such module was given in this process"):
        run(unknown, federation=data, quiet=True)
    with pytest.raises(CoveyError, match=r"start.common = false wants another random start for each cluster"):
        run(experiment("ifca", module, start={"common": False}), federation=data, quiet=True)


def test_a_run_is_not_gone_on_with_another_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data, wanted = federation("image"), experiment("fedavg", f"{OWN}Attentive")
    with pytest.raises(KeyboardInterrupt):
        run(wanted, federation=data, quiet=True, out=tmp_path / "run", callbacks=[_interrupt])

    class Changed(own_models.Attentive):
        def __init__(self, input_shape: tuple[int, ...], classes: int) -> None:
            super().__init__(input_shape, classes)
            torch.nn.init.ones_(self.fixed.weight)

    monkeypatch.setattr(own_models, "Attentive", Changed)
    with pytest.raises(CoveyError, match=r"is not the one of this run.*the values of what it does not train differ"):
        run(wanted, federation=data, quiet=True, out=tmp_path / "run", resume=True)


def test_statistics_are_averaged_or_nothing() -> None:
    with pytest.raises(CoveyError, match=r"FedDyn hands out models that are no averages.*layers\.buffers = 'local'"):
        run(experiment("feddyn", f"{OWN}Normed"), federation=federation("image"), quiet=True)


def test_attacks_on_models_whose_statistics_they_lack_say_so() -> None:
    wanted = experiment("ifca", f"{OWN}Normed", layers={"buffers": "local"}, attacks=["a1"])
    with pytest.warns(UserWarning, match="what these attacks do not find here says little"):
        run(wanted, federation=federation("image"), quiet=True)


def test_one_line_where_clients_are_not_stacked() -> None:
    slow = experiment("fedavg", f"{OWN}Branching", engine={"workers": 1, "kernel": "stacked"})
    with pytest.warns(UserWarning, match="trains its clients one after another") as told:
        run(slow, federation=federation("image"), quiet=True)
    assert len([w for w in told if "one after another" in str(w.message)]) == 1
