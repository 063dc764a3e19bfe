"""Preference profiling: each attack where it must win, where it must fail, and against its closed form."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Annotated, Any, ClassVar

import numpy as np
import pytest
import torch

from covey import roles
from covey.algorithms.ifca import ClusterUpdate
from covey.algorithms.mingledpie.mingledpie import MingledUpdate
from covey.algorithms.routing import RoutedUpdate, Routing
from covey.attacks.preference.identity import identity_set
from covey.attacks.preference.identity_sets import (
    hit,
    intersection,
    last_set,
    score,
    sizes_by_likelihood,
    sizes_by_moments,
)
from covey.attacks.preference.model_sensitivity import Coalition, plain_model
from covey.crypto import fmd
from covey.crypto.identity_math import effective_rate, guess_accuracy
from covey.crypto.sealing import sealing
from covey.errors import CoveyError
from covey.experiment.experiment import Experiment
from covey.randomness import generator
from covey.rounds.loop import run

SIZES = (12, 12, 24, 36, 36)


def drawn(k: int, p: float, t: int, truth: list[int], stream: int = 0) -> list[list[int]]:
    random = generator("test sets", k, t, stream)
    keys = fmd.generate_keys(k, p, random.bytes)
    return [fmd.draw_set(keys, j, t, draw=random.bytes) for j in truth]


@pytest.mark.parametrize(("k", "p", "t"), [(5, 0.5, 2), (7, 0.3, 3)])
def test_the_uniform_guess_equals_its_closed_form(k: int, p: float, t: int) -> None:
    truth = [i % k for i in range(800)]
    hits = [hit(last_set([s], k), j) for s, j in zip(drawn(k, p, t, truth), truth)]
    error = float(np.std(hits, ddof=1)) / len(hits) ** 0.5
    assert abs(np.mean(hits) - guess_accuracy(k, p, t)) < 4 * error
    assert error < 0.007  # so that the closed form of another reading would not pass


def test_cluster_sizes_beat_the_uniform_guess() -> None:
    truth = [j for j, n in enumerate(SIZES) for _ in range(n)] * 6
    sets = drawn(5, 0.5, 2, truth)
    uniform = np.mean([hit(last_set([s], 5), j) for s, j in zip(sets, truth)])
    weighted = np.mean([hit(last_set([s], 5) * np.array(SIZES), j) for s, j in zip(sets, truth)])
    assert weighted > 0.44 and uniform < 0.38


def test_sizes_are_found_in_the_sets_themselves() -> None:
    truth = [j for j, n in enumerate(SIZES) for _ in range(10 * n)]
    sets = drawn(5, 0.5, 2, truth)
    possible = [last_set([s], 5) for s in sets]
    share = np.array(SIZES) / sum(SIZES)
    moments = sizes_by_moments(sum(possible).tolist(), len(sets), effective_rate(5, 0.5, 2))  # type: ignore[union-attr]
    assert moments / moments.sum() == pytest.approx(share, abs=0.08)
    assert sizes_by_likelihood(possible) == pytest.approx(share, abs=0.08)


def test_the_intersection_by_hand() -> None:
    assert intersection([[0, 1, 2], [1, 2, 3]], 5).tolist() == [0, 1, 1, 0, 0]
    assert intersection([[0, 1], [2, 3], [3, 4]], 5).tolist() == [
        0,
        0,
        0,
        1,
        0,
    ]  # moved: counting starts anew at [2, 3]
    assert hit(intersection([[0, 1, 2], [1, 2, 3]], 5), 2) == 0.5 and hit(intersection([[0, 1]], 5), 4) == 0.0


def test_controls_ignore_the_observation() -> None:
    beliefs = {i: np.eye(3)[i % 3] for i in range(9)}
    value, controls = score(beliefs, {i: i % 3 for i in range(9)})
    assert value == 1.0
    assert controls["largest cluster"] == pytest.approx(1 / 3) and controls["another client"] == pytest.approx(2 / 8)


def test_a_message_without_identity_leaves_all_clusters_possible() -> None:
    assert identity_set(RoutedUpdate([b""]), 4) == [0, 1, 2, 3]
    assert identity_set(ClusterUpdate(torch.zeros(1), 2, 1), 4) == [2]
    assert identity_set(MingledUpdate([3, 1], b""), 4) == [3, 1]


@dataclass(frozen=True)
class Declared:
    """A message of somebody's own: nothing in it is spelt as ours is."""

    shown: Annotated[list[int], roles.IdentitySet]
    weights: Annotated[torch.Tensor, roles.Model]


def test_messages_are_read_by_what_they_carry_not_by_spelling() -> None:
    @dataclass(frozen=True)
    class Undeclared:
        cluster: int
        model: torch.Tensor

    assert identity_set(Declared([2], torch.zeros(3)), 4) == [2]
    assert identity_set(Undeclared(2, torch.zeros(3)), 4) == [0, 1, 2, 3]
    assert plain_model(Declared([2], torch.ones(3)), None).tolist() == [1, 1, 1]  # type: ignore[arg-type, union-attr]
    assert plain_model(Undeclared(2, torch.ones(3)), None) is None  # type: ignore[arg-type]


def watched(algorithm: Any, attacks: list[Any], **more: Any) -> dict[str, dict[str, Any]]:
    table: dict[str, Any] = {
        "dataset": "digits",
        "algorithm": algorithm,
        "clients": 40,
        "clusters": 5,
        "partition": {"name": "label_sets", "public": 20},
        "training": {"rounds": 5, "epochs": 3, "batch_size": 10, "lr": 0.1},
        "attacks": attacks,
        "evaluation": {"every": 5},
        "engine": {"workers": 1},
    }
    return run(Experiment.of(table, **more), quiet=True).attacks


def test_against_ifca_everything_works() -> None:
    found = watched("ifca", ["a1", "a1_prior", "a1_intersection", "a1_bayes", "a2", "coalition"])
    for name, one in found.items():
        assert one["value"] > 0.95 and one["low"] > max(one["chance"], *one["controls"].values()), name
        assert one["verdict"] == "broken" and one["used"]


def test_against_mingledpie_with_encryption() -> None:
    found = watched("mingledpie", ["a1", "a1_intersection", "a2", "coalition"], encryption="ckks")
    a1 = found["a1"]
    assert a1["low"] < a1["details"]["closed form"] < a1["high"]
    assert len(set(a1["details"]["by round"].values())) == 1  # remembered sets: the same guess every round
    assert found["a1_intersection"]["value"] == a1["value"]  # … and nothing to intersect
    assert found["a2"]["value"] == pytest.approx(0.2) and found["a2"]["details"]["models"] == 0
    assert found["coalition"]["value"] == 1.0 and found["coalition"]["verdict"] == "broken"


def test_redrawn_sets_are_broken_by_intersection() -> None:
    found = watched({"name": "mingledpie", "remember": "never"}, ["a1", "a1_intersection", "a1_bayes"])
    assert found["a1_intersection"]["details"]["by round"]["5"] >= 0.85
    assert found["a1_bayes"]["value"] >= 0.85 and found["a1"]["value"] < 0.5


def test_a2_reads_models_that_nothing_seals() -> None:
    for algorithm in ("mingledpie", "routing", "fedavg"):
        assert watched(algorithm, ["a2"])["a2"]["value"] > 0.9


def test_routing_hides_identities_exactly_until_a_client_helps() -> None:
    attacks = ["a1", "a1_prior", "a1_intersection", "a1_bayes", "a2", "coalition"]
    found = watched("routing", attacks, encryption="ckks", clients=15, training={"rounds": 2})
    for name in ("a1", "a1_prior", "a1_intersection", "a1_bayes", "a2"):
        assert found[name]["value"] == pytest.approx(0.2) and found[name]["verdict"] == "not measured"
        assert found[name]["used"].startswith("nothing: ")
    assert found["coalition"]["value"] == 1.0


def test_a_coalition_that_no_key_serves_measures_nothing() -> None:
    (blind,) = watched("scaffold", ["coalition"], training={"rounds": 1}).values()
    assert blind["verdict"] == "not measured" and blind["used"] == "nothing: no update that the keys of 0 clients open"


@pytest.mark.parametrize("name", ["mingledpie", "routing"])
def test_a_coalition_of_fewer_than_the_quorum_opens_no_update_where_no_key_is_shared(name: str) -> None:
    """Server and one, t − 1 and t clients: as much as A1 guesses from the sets, and everything."""
    algorithm = {"name": name, "quorum": 3}
    values, uses = [], []
    for size in (1, 2, 3):
        vantage = "+".join(["server", *(f"client:{i}" for i in range(size))])
        attacks = ["a1", {"name": "coalition", "vantage": vantage}]
        found = watched(algorithm, attacks, encryption="threshold", clients=20, model="softmax", training={"rounds": 1})
        values.append((found["coalition"]["value"], found["a1"]["value"]))
        uses.append(found["coalition"]["used"])
    for value, guess in values[:2]:
        assert value == guess
    assert values[2][0] == 1.0
    assert uses[1].endswith("no update that the keys of 2 clients open")
    assert uses[2].endswith("updates, as the keys of 3 clients open them")


def test_a_coalition_opens_with_the_key_that_the_algorithm_names() -> None:
    @dataclass(frozen=True)
    class Vaulted(Routing):
        sealed_with: ClassVar[str] = "vault"

    for algorithm, opens in ((Vaulted(), True), (Routing(), False)):
        material = {"client:0": {"vault": sealing.generate_keys("none")}}
        coalition = Coalition()
        coalition.begin(SimpleNamespace(setting=None, algorithm=algorithm, keys=material))  # type: ignore[arg-type]
        assert bool(coalition.held) == opens


def test_an_unknown_target_is_refused() -> None:
    with pytest.raises(CoveyError, match="'identity' or 'preference'"):
        watched("ifca", [{"name": "a1", "target": "colour"}])
