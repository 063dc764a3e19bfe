"""Memories of clients in a mapped file: the same run, places used again, and no page of it held in memory."""

from __future__ import annotations

import gc
from typing import Any

import pytest
import torch

from covey.engines.shelf import SEGMENT, Shelf
from covey.errors import CoveyError
from covey.experiment.experiment import Experiment
from covey.rounds.loop import run


def test_vectors_beyond_the_limit_read_as_they_were() -> None:
    shelf = Shelf(2 * 8000)
    written = {i: {"c": torch.arange(2000.0) + i, "short": torch.ones(3), "n": i} for i in range(5)}
    kept = {i: shelf.put(i, memory) for i, memory in written.items()}
    assert kept[1]["c"] is written[1]["c"]  # two fit
    assert kept[2]["c"] is not written[2]["c"]
    assert kept[2]["short"] is written[2]["short"]
    shelf.rest()
    for i, memory in kept.items():
        assert torch.equal(memory["c"], torch.arange(2000.0) + i)
        assert memory["n"] == i


def test_a_place_is_used_again_once_nobody_reads_it() -> None:
    shelf, length = Shelf(0), 1 << 20
    memory, part = {"c": torch.zeros(length)}, torch.zeros(0)
    for turn in range(100):  # 400 MB in all
        memory = shelf.put(0, {"c": torch.full((length,), float(turn))})
        if turn == 10:
            part = memory["c"][5:9]
        gc.collect(0)
    assert shelf.mapped == SEGMENT
    assert torch.equal(part, torch.full((4,), 10.0))  # somebody still holds it
    assert torch.equal(memory["c"], torch.full((length,), 99.0))


def test_a_disk_without_room_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any, **__: Any) -> Any:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("covey.engines.shelf.mmap.mmap", full)
    with pytest.raises(CoveyError, match=r"has no room for the rest \(No space left on device\): set TMPDIR"):
        Shelf(0).put(0, {"c": torch.zeros(5000)})


@pytest.mark.parametrize("workers", [1, 2])
def test_scaffold_is_the_same_to_the_bit(workers: int) -> None:
    def models(state_mb: float) -> Any:
        experiment = Experiment.of(
            algorithm="scaffold",
            clients=6,
            clusters=1,
            partition="iid",
            training={"rounds": 3, "epochs": 1},
            participation={"share": 0.5},
            evaluation={"every": 3},
            engine={"workers": workers, "state_mb": state_mb},
        )
        return run(experiment, quiet=True).state

    near, far = models(1024), models(0)
    assert torch.equal(near.model, far.model)
    assert torch.equal(near.variate, far.variate)
