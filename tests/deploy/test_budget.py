"""A silo's privacy budget: counted over runs, kept beside its keys, and refused when it is spent."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from covey.deploy.budget import NAME, Budget, BudgetSpent, total
from covey.deploy.letters import Refused, RoundReply, Spent
from covey.errors import CoveyError
from covey.files import write_state
from covey.ledger.events import GaussianRelease, LaplaceRelease
from covey.ledger.pricing import price
from support.deployment import Deployment, rehearsal

RELEASE = GaussianRelease(epsilon=1.0, delta=1e-5, sigma=4.0, sensitivity=1.0)
OTHER = LaplaceRelease(epsilon=0.5, coordinates=2, sensitivity=1.0)


def cost(count: int) -> float:
    return float(price([(n, 0, RELEASE) for n in range(count)])["gaussian"]["epsilon"])


def test_runs_add_up_as_one_and_mechanisms_by_their_sum() -> None:
    assert total({}) == 0.0
    assert total({"a": {1: [RELEASE], 2: [RELEASE]}, "b": {1: [RELEASE]}}) == pytest.approx(cost(3))
    assert cost(3) < 3 * cost(1)
    assert total({"a": {1: [RELEASE, OTHER]}}) == pytest.approx(cost(1) + 1.0)
    nothing = GaussianRelease(epsilon=math.inf, delta=1e-5, sigma=0.0, sensitivity=1.0)
    assert total({"a": {1: [nothing]}}) == math.inf


def test_what_is_over_the_limit_is_refused_and_not_booked(tmp_path: Path) -> None:
    budget = Budget(tmp_path, limit=cost(2) + 1e-6)
    budget.book("a", 1, [RELEASE])
    budget.book("a", 2, [])  # a round that spends nothing
    Budget(tmp_path).book("b", 1, [RELEASE])  # another process, another run: the limit is remembered
    with pytest.raises(BudgetSpent, match=r"over 2 runs with these keys, and its budget is .*: it is spent"):
        Budget(tmp_path).book("b", 2, [RELEASE])
    assert Budget(tmp_path).epsilon == pytest.approx(cost(2))
    Budget(tmp_path, limit=cost(3) + 1e-6).book("b", 2, [RELEASE])  # its owner allows more


def test_a_round_that_is_computed_anew_counts_once(tmp_path: Path) -> None:
    budget = Budget(tmp_path)
    budget.book("a", 1, [RELEASE])
    budget.book("a", 1, [RELEASE])
    assert budget.epsilon == pytest.approx(cost(1))


@pytest.mark.parametrize("limit", [0.0, -1.0, math.inf, math.nan])
def test_a_budget_is_a_number_above_0(limit: float, tmp_path: Path) -> None:
    with pytest.raises(CoveyError, match="a budget of"):
        Budget(tmp_path, limit)


def test_a_file_that_cannot_be_read_is_no_empty_one(tmp_path: Path) -> None:
    (tmp_path / NAME).write_bytes(b"garbage")
    with pytest.raises(CoveyError, match="what this silo has spent is not known"):
        Budget(tmp_path)
    write_state(tmp_path / NAME, {"limit": 1.0})
    with pytest.raises(CoveyError, match="it holds something else"):
        Budget(tmp_path)


def noised() -> Any:
    return rehearsal(
        "fedavg",
        model="softmax",
        defence={"name": "ldp", "epsilon": 5.0, "sensitivity": "round"},
        training={"rounds": 3, "epochs": 1},
        deployment={"rehearsal": False, "report_accuracy": False},
    )


def test_a_silo_stops_when_its_budget_is_spent_and_says_so(tmp_path: Path) -> None:
    """North allows two rounds; the others go on without it, and it still gets the last model. A second run finds it spent."""
    deployment = Deployment(tmp_path, noised())
    at = tmp_path / "keys" / "silos" / "north"

    def allow_one_more(done: int, record: Any) -> None:
        if done == 1:
            (spent,) = Budget(at).account.spends.values()
            deployment.parties["north"].budget = Budget(at, limit=1.01 * total({"run": {1: spent[1], 2: spent[1]}}))

    result = deployment.coordinator().run(allow_one_more)
    assert [r["participants"] for r in result.records] == [4, 4, 3]
    assert any("its budget is" in line and "it is spent" in line for line in deployment.said)
    assert any("refused north: its privacy budget is spent" in line for line in deployment.said)
    summary = json.loads((tmp_path / "state/north/summary.json").read_text())
    assert summary["budget"]["spent"] == pytest.approx(summary["privacy"]["ldp"]["epsilon"])
    assert 0 < summary["budget"]["spent"] <= summary["budget"]["limit"]
    again = deployment.silo("north", tmp_path / "new state")
    session = deployment.coordinator().session
    session.run = "another run"
    broadcast = again.experiment.algorithm.start(again.setting)
    letter = session.mailbox.write(session.run, "round", "client:0", 1, broadcast)[0]
    assert isinstance(session.mailbox.read(again.handle(letter)).letter.body, Spent)
    other = deployment.silo("south", tmp_path / "other state")
    letter = session.mailbox.write(session.run, "round", f"client:{other.number}", 1, broadcast)[0]
    assert isinstance(session.mailbox.read(other.handle(letter)).letter.body, RoundReply)


def question(deployment: Deployment, name: str, run: str, round: int) -> Any:
    """(a letter of the coordinator's with the start models, how to read its answer)."""
    silo, mailbox = deployment.parties[name], deployment.coordinator().session.mailbox
    broadcast = silo.experiment.algorithm.start(silo.setting)
    letter = mailbox.write(run, "round", f"client:{silo.number}", round, broadcast)[0]
    return letter, lambda answer: mailbox.read(answer).letter.body


def test_a_budget_that_is_removed_or_restored_is_no_fresh_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deployment = Deployment(tmp_path, noised())
    silo, at = deployment.parties["north"], tmp_path / "keys" / "silos" / "north" / NAME
    letter, read = question(deployment, "north", "run", 1)
    assert isinstance(read(silo.handle(letter)), RoundReply)
    old = at.read_bytes()
    letter, read = question(deployment, "north", "run", 2)
    assert isinstance(read(silo.handle(letter)), RoundReply)
    for copy in (None, old):
        at.unlink() if copy is None else at.write_bytes(copy)
        with pytest.raises(CoveyError, match=r"have spent in 2 rounds, and the budget beside them knows of [01]"):
            deployment.silo("north")
    monkeypatch.setattr("covey.deploy.silo.REFUSAL_SECONDS", 0.0)
    letter, read = question(deployment, "north", "run", 3)
    assert isinstance(read(silo.handle(letter)), Refused)  # one that runs on finds the old copy when it books
    assert any("it was removed, or is an old copy" in line for line in deployment.said)


def test_a_silo_whose_budget_is_spent_says_the_same_when_it_is_asked_again(tmp_path: Path) -> None:
    """Else it would count among those who cannot work with what they were sent, and sums would be taken back."""
    deployment = Deployment(tmp_path, noised())
    silo = deployment.parties["north"]
    silo.budget = Budget(tmp_path / "keys" / "silos" / "north", limit=1e-6)
    for _ in range(2):
        letter, read = question(deployment, "north", "run", 1)
        assert isinstance(read(silo.handle(letter)), Spent)


def test_a_budget_that_limits_nothing_is_said_to(tmp_path: Path) -> None:
    plain = rehearsal("fedavg", model="softmax", deployment={"rehearsal": False}, training={"rounds": 1, "epochs": 1})
    deployment = Deployment(tmp_path, plain)
    silo = deployment.parties["north"]
    silo.budget = Budget(tmp_path / "keys" / "silos" / "north", limit=8.0)
    letter, read = question(deployment, "north", "run", 1)
    assert isinstance(read(silo.handle(letter)), RoundReply)
    assert any("its budget of ε = 8 limits nothing in this run" in line for line in deployment.said)
