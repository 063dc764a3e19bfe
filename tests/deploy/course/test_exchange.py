"""What a coordinator believes of an answer that passed every check of its letter and its reply."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from covey.deploy.course.exchange import Exchange
from covey.deploy.letters import RoundReply
from support.deployment import Deployment, rehearsal


@pytest.fixture(scope="module")
def exchange(tmp_path_factory: pytest.TempPathFactory) -> Exchange:
    folder: Path = tmp_path_factory.mktemp("exchange")
    return Deployment(folder, rehearsal("fedavg", evaluation={"metrics": ["f1"]})).coordinator().exchange


@pytest.mark.parametrize("told", [1.01, -0.5, math.nan, math.inf, True, "1", 1, [0.5]])
def test_an_accuracy_that_cannot_be_is_none(exchange: Exchange, told: Any) -> None:
    assert exchange.checked(RoundReply("old", told), "new") == RoundReply("new", None, {})


def test_shares_are_believed_and_metrics_that_were_asked_for(exchange: Exchange) -> None:
    given = {"f1": 0.25, "rmse": 0.5, "loss": math.inf}
    assert exchange.checked(RoundReply("old", 1.0, given), "new") == RoundReply("new", 1.0, {"f1": 0.25})
    assert exchange.checked(RoundReply("old", 0.0, {"f1": math.nan}), "new").metrics == {}
    assert exchange.checked(RoundReply("old", None, "f1"), "new").metrics == {}  # type: ignore[arg-type]
    assert exchange.reported({0: RoundReply("x", None)}) == {"accuracy": None}
