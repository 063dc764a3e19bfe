"""Another client's exact model: what the attack says can be solved for is solved for, and a minimum group size ends it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from covey import Experiment, run
from covey.attacks.contract import Finding, View
from covey.attacks.isolation.isolation import Isolation
from covey.audit.questions import Questions
from covey.leaks import CLIENT, ISOLATION, SERVER

FEW: dict[str, Any] = {
    "dataset": "digits",
    "clients": 4,
    "clusters": 2,
    "partition": {"name": "label_sets", "public": 10},
    "training": {"rounds": 6, "epochs": 1},
    "evaluation": {"every": 6, "samples": 50},
    "engine": {"workers": 1},
}


class Wire:
    """An eavesdropper that keeps all models: by it the attack's claims are checked."""

    name, vantage = "wire", "eavesdropper"

    def __init__(self) -> None:
        self.memory: dict[str, Any] = {}
        self.sent: dict[int, Tensor] = {}
        self.replies: dict[tuple[int, int], Any] = {}

    def begin(self, knowledge: Any) -> None: ...

    def observe(self, view: View) -> None:
        if view.sender == "server":
            self.sent[view.round] = view.message.models
        else:
            self.replies[view.round, int(view.sender.removeprefix("client:"))] = view.message

    def end_round(self, round: int) -> None: ...

    def finding(self, truth: Any) -> Finding:
        return Finding(self.name, self.vantage, "", 0.0, 0.0, 0.0, 1.0)


def found(
    algorithm: Any, vantage: str = "client:0", extra: tuple[Any, ...] = (), **more: Any
) -> tuple[Finding, Isolation]:
    attack = Isolation(vantage=vantage)
    result = run(Experiment.of(FEW, algorithm=algorithm, **more), attacks=[attack, *extra], quiet=True)
    return next(finding for finding in result.findings if finding.attack == "isolation"), attack


def test_a_client_of_a_pair_has_the_others_model() -> None:
    """Two clusters of two: own model off the average, and the other's is there, to the last bits of float32."""
    wire = Wire()
    finding, _ = found("ifca", extra=(wire,))
    assert finding.verdict == "broken" and finding.value == 1.0 and finding.details["clients ever isolated"] == 1
    assert finding.details["rounds"] == 5 and finding.controls == {"its own model alone": 0.0}
    for round in range(1, 6):
        own = wire.replies[round, 0]
        (other,) = (i for i in range(1, 4) if wire.replies[round, i].cluster == own.cluster)
        solved = 2 * wire.sent[round + 1][own.cluster] - own.model
        assert torch.allclose(solved, wire.replies[round, other].model, atol=1e-6)


@pytest.mark.parametrize(("algorithm", "least"), [("ifca", 3), ("mingledpie", 3), ("fedem", 5), ("scaffold", 5)])
def test_a_minimum_group_ends_it(algorithm: str, least: int) -> None:
    table: dict[str, Any] = {"name": algorithm, "min_group": least}
    if algorithm == "mingledpie":
        table |= {"threshold": 1, "remember": "never"}
    more = {"start": {"common": False}} if algorithm == "fedem" else {}
    finding, _ = found(table, **more)
    assert finding.verdict == "no leak seen" and finding.value == 0.0


def test_mingled_sums_isolate_somebody() -> None:
    finding, _ = found({"name": "mingledpie", "threshold": 1, "remember": "never"}, encryption="none")
    assert finding.value > 0 and finding.verdict in ("leaks", "broken")


def test_one_model_of_four_isolates_nobody_and_of_two_does() -> None:
    assert found("fedavg", clusters=1)[0].value == 0.0
    assert found("fedavg", clients=2, clusters=1)[0].value == 1.0


def test_a_server_is_shown_models_unless_they_are_sealed() -> None:
    assert found("ifca", "server")[0].value == 1.0
    routed, _ = found("routing", "server")
    assert routed.value == 0.0 and routed.verdict == "no leak seen"


def test_the_audit_has_a_row_for_it() -> None:
    questions = Questions(Experiment.of(FEW, algorithm="ifca"))
    assert ISOLATION in questions.rows
    assert questions.on(ISOLATION, CLIENT) == ["isolation"] and "own model" in questions.given(ISOLATION, SERVER)
    sealed = Questions(Experiment.of(FEW, algorithm="routing", encryption="ckks"))
    assert not sealed.given(ISOLATION, SERVER) and not questions.given(ISOLATION, CLIENT)
    assert ISOLATION.absent(Experiment.of(FEW, algorithm="local"))
