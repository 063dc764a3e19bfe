"""What a run keeps of its past, and when."""

from __future__ import annotations

from pathlib import Path

import pytest

from covey.experiment.experiment import EngineConfig
from covey.results.folder import RunFolder
from covey.rounds import checkpoints
from covey.rounds.asynchronous import UnderWay
from covey.rounds.checkpoints import Checkpoints, Past


def test_a_round_that_is_cut_short_is_taken_back_once() -> None:
    past = Past(spends=[(1, 0, "one")])
    before = past.way
    past.begin(2)
    past.spends.append((2, 0, "two"))
    past.way = UnderWay(clock=3.0)
    assert past.take_back(1)
    assert past.spends == [(1, 0, "one")] and past.way is before
    past.begin(2)
    past.spends.append((2, 0, "two"))
    assert not past.take_back(2)
    assert len(past.spends) == 2


def test_checkpoints_are_due_by_rounds_and_by_minutes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(checkpoints.time, "monotonic", lambda: now[0])
    kept = Checkpoints(RunFolder(tmp_path), EngineConfig(checkpoint_every=3, checkpoint_minutes=2.0), "a model", {})
    kept.begin(0)
    assert [kept.is_due(done) for done in (1, 2, 3)] == [False, False, True]
    now[0] = 120.0
    assert kept.is_due(1)
    kept.save(Past(), None, 1, {}, [])
    assert not kept.lacks(1) and kept.lacks(2)
    assert not kept.is_due(1) and not kept.is_due(3) and kept.is_due(4)
    assert RunFolder(tmp_path).load()[0]["round"] == 1


def test_without_a_folder_nothing_is_due() -> None:
    kept = Checkpoints(None, EngineConfig(checkpoint_every=1), "a model", {})
    kept.begin(0)
    assert not kept.lacks(5) and not kept.is_due(5)
