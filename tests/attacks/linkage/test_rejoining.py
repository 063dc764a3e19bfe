"""Clients that come back under another name: recognised by their updates, not through noise, nor by chance."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from covey.attacks.finding import BROKEN, NOT_MEASURED, NOTHING_SEEN, Finding
from covey.attacks.linkage.matchings import assignment
from covey.attacks.linkage.rejoining import BY_SIZE, RANDOM, Rejoining, apart, opposite, right
from covey.audit.questions import Questions
from covey.errors import CoveyError
from covey.experiment.experiment import Experiment
from covey.rounds.loop import run

TABLE: dict[str, Any] = {
    "dataset": "digits",
    "algorithm": "fedavg",
    "clients": 10,
    "clusters": 1,
    "partition": {"name": "iid"},
    "training": {"rounds": 5, "epochs": 1, "batch_size": 10, "lr": 0.1},
    "evaluation": {"every": 50, "samples": 50},
    "engine": {"workers": 1},
    "attacks": ["rejoining"],
}


def found(**changes: Any) -> Finding:
    finding = Finding.of("rejoining", run(Experiment.of(TABLE, **changes), quiet=True).attacks["rejoining"])
    assert finding is not None
    return finding


@pytest.mark.parametrize("change", [{}, {"algorithm": "sattler"}, {"attacks": [{"name": "rejoining", "away": 3}]}])
def test_updates_recognise_clients_even_of_equally_distributed_data(change: dict[str, Any]) -> None:
    linked = found(**change)
    assert linked.verdict == BROKEN and linked.controls[RANDOM] < 0.2 and linked.controls[BY_SIZE] < 0.3
    assert [variant.attack for variant in linked.variants] == [
        "rejoining_biases",
        "rejoining_opposite",
        "rejoining_samples",
    ]


@pytest.mark.parametrize("algorithm", ["scaffold", "feddyn"])
def test_who_takes_back_what_it_sent_is_recognised_through_noise(algorithm: str) -> None:
    """SCAFFOLD's updates point nowhere, FedDyn's are all noise here: both remember the noise, too, and correct for it."""
    noised = found(algorithm=algorithm, clients=20, defence={"name": "ldp", "epsilon": 0.01})
    named = {variant.attack: variant for variant in noised.variants}
    assert noised.verdict == NOTHING_SEEN and named["rejoining_opposite"].verdict == BROKEN
    assert max(named["rejoining_opposite"].controls.values()) < 0.3


def test_who_remembers_nothing_takes_nothing_back() -> None:
    assert found(clients=20, defence={"name": "ldp", "epsilon": 0.01}).variants[1].value < 0.3


def test_scaffold_hides_nobody() -> None:
    linked = found(algorithm="scaffold", clients=20)
    assert linked.value < 0.2 and linked.variants[1].value > 0.6


def test_opposite_by_hand() -> None:
    rng = np.random.default_rng(0)
    before = rng.normal(size=(6, 2000)) * np.geomspace(1, 1e3, 2000)  # a few parameters are most of the norm
    labels = np.outer(rng.normal(size=6), rng.normal(size=2000)) * np.geomspace(1, 1e3, 2000)  # … and stay as they are
    order = rng.permutation(6)
    cost = opposite(before + labels, (-before + 3 * labels)[order] + rng.normal(size=(6, 2000)))
    assert (assignment(cost) == order).all()


def test_noise_hides_them() -> None:
    assert found(defence={"name": "ldp", "epsilon": 0.01}).verdict == NOTHING_SEEN


def test_numbers_of_samples_recognise_clients_of_different_size() -> None:
    sizes = found(partition={"name": "dirichlet", "beta": 0.5}).variants[2]
    assert sizes.attack == "rejoining_samples" and sizes.value > 0.7 and sizes.controls[BY_SIZE] < 0.3


def test_sealed_uploads_are_not_read_and_one_part_alone_links_nobody() -> None:
    sealed = Experiment.of(TABLE, algorithm="mingledpie", encryption="ckks", clusters=3)
    assert "carries" in Questions(sealed).unfit("rejoining")
    assert found(attacks=[{"name": "rejoining", "away": 4}]).verdict == NOT_MEASURED


def test_matching_by_hand() -> None:
    rng = np.random.default_rng(0)
    assert right(apart(np.array([1.0, 5.0, 9.0]), np.array([1.5, 4.0, 20.0])), rng) == 1.0
    assert right(np.zeros((50, 50)), rng) < 0.1  # ties are by lot
    with pytest.raises(CoveyError, match="2 clients"):
        Rejoining(clients=1)
