"""What a run will cost is what it then costs."""

from __future__ import annotations

from pathlib import Path

import pytest

from covey.experiment.experiment import Experiment
from covey.rounds.estimate import MOST_ROUNDS, estimate
from covey.rounds.loop import run


def small(**more: object) -> Experiment:
    table = {"clients": 6, "clusters": 3, "training": {"rounds": 6, "epochs": 1}, "engine": {"workers": 1}}
    return Experiment.of(table | more)


@pytest.mark.parametrize("algorithm", ["ifca", "mingledpie"])  # mingledpie's first round has no sums to send yet
def test_bytes_are_those_of_the_run(algorithm: str) -> None:
    cost, result = estimate(small(algorithm=algorithm)), run(small(algorithm=algorithm), quiet=True)
    assert (cost.up, cost.down) == (result.records[-1]["bytes"]["up"], result.records[-1]["bytes"]["down"])
    assert (cost.tried, cost.rounds, cost.participants) == (MOST_ROUNDS, 6, 6)
    assert cost.traffic == 6 * 6 * (cost.up + cost.down)
    assert "about" in "\n".join(cost.lines())


def test_seeds_count_and_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert estimate(small(seeds=3)).rounds == 18
    assert not list(tmp_path.iterdir())


def test_a_run_says_before_it_starts_that_its_messages_are_heavy(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("covey.rounds.loop.HEAVY", 100e3)
    run(small(clusters=1, training={"rounds": 1}))
    assert "every client gets" not in capsys.readouterr().err
    run(small(training={"rounds": 1}))
    assert "every client gets 180" in capsys.readouterr().err  # three models of 60 kB
