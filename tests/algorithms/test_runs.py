"""Every baseline through the real loop and machine on digits: pinned to its neighbour, resumed, with clients coming and going."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from covey import files as checkpoint
from covey.algorithms.fedavg import FedAvg
from covey.experiment import encryptions
from covey.experiment.experiment import Experiment
from covey.experiment.participation import Participation
from covey.rounds.loop import run
from covey.rounds.result import Result

PERSONAL = ["fedavg_ft", "ditto", "fedper", "fedrep", "apfl", "perfedavg"]
BASELINES = ["local", "fedavg", "fedprox", "scaffold", "feddyn", "fedem", "ifca", "sattler", "fedsoft"]
SPLITTING = {"name": "sattler", "eps1": 0.6, "eps2": 0.6, "gamma": 0.0}  # thresholds that split in the first rounds
COMING_AND_GOING = {"share": 0.6, "dropout": 0.2, "initial": 6, "join": 2, "join_every": 2}


def digits(algorithm: Any, **more: Any) -> Experiment:
    table: dict[str, Any] = {
        "dataset": "digits",
        "algorithm": algorithm,
        "clients": 12,
        "clusters": 2,
        "partition": {"name": "label_sets", "samples": 40},
        "training": {"rounds": 3, "epochs": 1, "batch_size": 10, "lr": 0.1},
        "evaluation": {"every": 3},
        "engine": {"workers": 1},
    }
    return Experiment.of(table, **more)


def go(algorithm: Any, **more: Any) -> Result:
    return run(digits(algorithm, **more), quiet=True)


def tensors(value: Any) -> list[torch.Tensor]:
    """All tensors of a state, in order."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        return [t for v in value.values() for t in tensors(v)]
    if isinstance(value, tuple | list):
        return [t for v in value for t in tensors(v)]
    return tensors(list(vars(value).values())) if hasattr(value, "__dict__") else []


def close(a: torch.Tensor, b: torch.Tensor) -> bool:
    return torch.allclose(a, b, rtol=0, atol=2e-6)


def test_fedprox_without_pull_is_fedavg() -> None:
    average = go("fedavg").state.model
    assert close(go({"name": "fedprox", "mu": 0.0}).state.model, average)
    assert not close(go({"name": "fedprox", "mu": 1.0}).state.model, average)


def test_scaffold_with_zero_variates_is_fedavg() -> None:
    one, two = {"rounds": 1}, {"rounds": 2}
    by_clients = {"name": "fedavg", "weighting": "clients"}
    assert close(go("scaffold", training=one).state.model, go(by_clients, training=one).state.model)
    assert not close(go("scaffold", training=two).state.model, go(by_clients, training=two).state.model)


def test_fedem_with_one_component_is_fedavg() -> None:
    assert close(go("fedem", clusters=1).state.models[0], go("fedavg", clusters=1).state.model)


def test_fedsoft_with_one_cluster_is_fedprox() -> None:
    soft, prox = {"name": "fedsoft", "pull": 0.5}, {"name": "fedprox", "mu": 0.5}
    assert close(go(soft, clusters=1).state.models[0], go(prox, clusters=1).state.model)


def test_sattler_without_a_split_is_fedavg() -> None:
    whole = go({"name": "sattler", "eps1": 1e-9}).state
    assert len(whole.nodes) == 1
    assert close(whole.nodes[0].sent.model, go({"name": "fedavg", "weighting": "clients"}).state.model)


def test_ifca_with_one_cluster_is_fedavg() -> None:
    by_clients = {"name": "fedavg", "weighting": "clients"}
    assert close(go("ifca", clusters=1).state.models[0], go(by_clients, clusters=1).state.model)


class Interrupted(KeyboardInterrupt):
    pass


@pytest.mark.parametrize("algorithm", [*BASELINES, *PERSONAL[1:5], SPLITTING], ids=str)
def test_a_resumed_run_ends_as_an_uninterrupted_one(algorithm: Any, tmp_path: Path) -> None:
    """With clients sampled, lost and joining: state on the server and in the clients' memories survives."""
    experiment = digits(algorithm, training={"rounds": 6}, participation=COMING_AND_GOING)

    def interrupt(record: dict[str, Any], state: Any) -> None:
        if record["round"] == 4:
            raise Interrupted

    whole = run(experiment, out=tmp_path / "whole", quiet=True)
    with pytest.raises(Interrupted):
        run(experiment, out=tmp_path / "parts", callbacks=[interrupt], quiet=True)
    parts = run(experiment, out=tmp_path / "parts", resume=True, quiet=True)
    assert parts.rounds == whole.rounds == 6
    assert algorithm != SPLITTING or len(whole.state.nodes) > 1
    content, resumed = (checkpoint.load(tmp_path / name / "checkpoint")[0] for name in ("whole", "parts"))
    for part in ("state", "memories"):
        pairs = list(zip(tensors(content[part]), tensors(resumed[part]), strict=True))
        assert all(torch.equal(a, b) for a, b in pairs)


@pytest.mark.parametrize("algorithm", ["scaffold", "feddyn", "fedem", "fedsoft"])
def test_memory_is_kept_for_those_who_took_part_and_nobody_else(algorithm: str, tmp_path: Path) -> None:
    participation = {"share": 0.25, "dropout": 0.3}
    run(digits(algorithm, participation=participation), out=tmp_path, quiet=True)
    who = Participation(**participation)
    took_part = {int(i) for round in (1, 2, 3) for i in who.participants(0, round, 12)[0]}
    assert 0 < len(took_part) < 12
    assert set(checkpoint.load(tmp_path / "checkpoint")[0]["memories"]) == took_part


@pytest.mark.parametrize("algorithm", ["scaffold", "feddyn", "fedem", "fedsoft", SPLITTING], ids=str)
def test_memories_spread_over_processes_change_nothing(algorithm: Any) -> None:
    alone, spread = (
        go(algorithm, participation={"share": 0.5}, engine={"workers": workers, "wave": wave})
        for workers, wave in ((1, 16), (2, 2))
    )
    assert all(close(a, b) for a, b in zip(tensors(alone.state), tensors(spread.state), strict=True))


@pytest.mark.parametrize("algorithm", ["fedem", "fedsoft"])
def test_soft_clusters_are_found_and_their_memberships_recorded(algorithm: str) -> None:
    result = go(algorithm, training={"rounds": 8})
    assert result.clustering == {"accuracy": 1.0, "ari": 1.0, "nmi": pytest.approx(1.0)}
    memberships = result.records[-1]["memberships"]
    assert len(memberships) == 12 and all(sum(m) == pytest.approx(1.0, abs=1e-5) for m in memberships)


def test_scaffold_and_feddyn_learn_more_than_fedavg_where_clients_drift() -> None:
    """Label sets of two, twenty local steps: three seeds, mean global accuracy of the last round."""
    training = {"rounds": 8, "epochs": 5}
    partition = {"name": "label_sets", "samples": 40, "public": 0}

    def mean(algorithm: str) -> float:
        runs = [
            go(algorithm, clusters=5, seed=s, training=training, partition=partition, evaluation={"every": 8})
            for s in range(3)
        ]
        return sum(r.accuracy["global"] for r in runs) / 3

    average = mean("fedavg")
    assert mean("scaffold") > average
    assert mean("feddyn") > average


def test_every_baseline_has_a_title_and_schemes() -> None:
    from covey.algorithms import ALGORITHMS

    for name in (*BASELINES, *PERSONAL):
        algorithm = ALGORITHMS[name]
        assert algorithm.name == name and algorithm.title and "\n" not in algorithm.title
        assert encryptions.able(algorithm)[0] == "none"
    assert FedAvg.name == "fedavg"
