"""Whose uploads a server opens with the keys of clients on its side: with one where keys are shared, else with a quorum."""

from __future__ import annotations

from typing import Any

import pytest

from covey import Experiment, run
from covey.attacks.isolation.pooled_keys import PooledKeys
from covey.audit.questions import Questions
from covey.leaks import CLIENT, COALITION, IDENTITY, ISOLATION, MODELS, SERVER

SIX: dict[str, Any] = {
    "dataset": "digits",
    "model": "softmax",
    "clients": 6,
    "clusters": 2,
    "partition": {"name": "label_sets", "public": 10},
    "training": {"rounds": 1, "epochs": 1},
    "evaluation": {"samples": 50},
    "engine": {"workers": 1},
}


@pytest.mark.parametrize(
    ("algorithm", "encryption", "shares"),
    [
        ("routing", "bfv", {1: 1.0}),
        ("routing", "threshold", {1: 0.0, 3: 0.0, 4: 1.0}),
        ("fedavg", "secagg", {1: 0.0, 3: 0.0, 4: 1.0}),
        ("ifca", "secagg", {1: 0.0, 3: 0.0, 4: 1.0}),
    ],
)
def test_one_is_enough_where_keys_are_shared_else_a_quorum(
    algorithm: str, encryption: str, shares: dict[int, float]
) -> None:
    places = ["+".join(["server", *(f"client:{i}" for i in range(count))]) for count in shares]
    for place, share in zip(places, shares.values()):
        attack = PooledKeys(vantage=place)
        result = run(Experiment.of(SIX, algorithm=algorithm, encryption=encryption), attacks=[attack], quiet=True)
        (finding,) = result.findings
        assert finding.value == share and finding.details["uploads"] == 6 - place.count("client")
        assert (finding.verdict == "broken") == (share == 1.0)


def questions(algorithm: str, encryption: str) -> Questions:
    return Questions(Experiment.of(SIX, algorithm=algorithm, encryption=encryption, clients=12))


def test_what_reads_updates_does_not_apply_under_masks() -> None:
    clear, masked = questions("ifca", "none"), questions("ifca", "secagg")
    gone = {w.attack for w in clear.watches()} - {w.attack for w in masked.watches()}
    assert {"label_shares", "lira", "source", "upload_membership", "gradient_inversion"} <= gone
    assert clear.given(ISOLATION, SERVER) and not masked.given(ISOLATION, SERVER)
    assert ("pooled_keys", COALITION) in {(w.attack, w.column) for w in masked.watches()}
    assert masked.given(MODELS, CLIENT) == "every client gets all cluster models"


def test_who_helps_to_open_sums_sees_the_groups() -> None:
    """Clusters, where replies name them; the sets shown, where the server guesses from these; in routing nothing."""
    assert questions("ifca", "secagg").given(IDENTITY, CLIENT) == (
        "clients that help to open sums are told who is in which cluster"
    )
    assert not questions("ifca", "none").given(IDENTITY, CLIENT)
    assert questions("mingledpie", "threshold").implies(IDENTITY, CLIENT) == (SERVER,)
    assert questions("mingledpie", "bfv").implies(IDENTITY, CLIENT) == ()
    assert not questions("routing", "threshold").given(IDENTITY, CLIENT)
