"""Memories of clients in a mapped file: the same run, places used again, and no page of it held in memory."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from covey import files
from covey.engines import simulate
from covey.engines.spill import SEGMENT, Spill
from covey.errors import CoveyError
from covey.experiment.experiment import Experiment
from covey.rounds.loop import run


def test_vectors_beyond_the_limit_read_as_they_were() -> None:
    spill = Spill(2 * 8000)
    written = {i: {"c": torch.arange(2000.0) + i, "short": torch.ones(3), "n": i} for i in range(5)}
    kept = {i: spill.put(i, memory) for i, memory in written.items()}
    assert kept[1]["c"] is written[1]["c"]  # two fit
    assert kept[2]["c"] is not written[2]["c"]
    assert kept[2]["short"] is written[2]["short"]
    spill.rest()
    for i, memory in kept.items():
        assert torch.equal(memory["c"], torch.arange(2000.0) + i)
        assert memory["n"] == i


def test_a_place_is_used_again_once_nobody_reads_it() -> None:
    spill, length = Spill(0), 1 << 20
    memory, part = {"c": torch.zeros(length)}, torch.zeros(0)
    for turn in range(100):  # 400 MB in all
        memory = spill.put(0, {"c": torch.full((length,), float(turn))})
        if turn == 10:
            part = memory["c"][5:9]
        gc.collect(0)
    assert spill.mapped == SEGMENT
    assert torch.equal(part, torch.full((4,), 10.0))  # somebody still holds it
    assert torch.equal(memory["c"], torch.full((length,), 99.0))


def test_arrays_that_are_read_lie_in_the_file_beyond_the_limit_until_nobody_holds_them() -> None:
    spill = Spill(100_000)
    arrays = [np.full((100, 100), i, np.float32) for i in range(6)]
    kept = [torch.from_numpy(spill.keep(array)) for array in arrays]
    assert spill.mapped == SEGMENT
    kept[1] = torch.zeros(0)
    gc.collect()
    spill.rest()
    more = [spill.keep(np.full((100, 100), 9, np.float32)) for _ in range(3)]
    assert all((kept[i] == i).all() for i in (0, 2, 3, 4, 5)) and all((one == 9).all() for one in more)
    assert spill.keep(np.arange(3)).tolist() == [0, 1, 2]


def test_memories_cross_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulate, "PART", 9000)
    memories = {i: {"c": torch.full((1000,), float(i))} for i in (5, 1, 3)} | {7: {}}
    cut = list(simulate.parts(memories))
    assert [list(part) for part in cut] == [[5, 1, 3], [7]]
    assert list(simulate.parts({})) == []


@pytest.mark.parametrize("workers", [1, 2])
def test_a_run_goes_on_from_memories_that_never_were_in_memory(
    workers: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(simulate, "PART", 1)  # a client at a time
    monkeypatch.setattr(files, "MAPPED", 1)
    settings: dict[str, Any] = {
        "algorithm": "scaffold",
        "clients": 6,
        "clusters": 1,
        "partition": "iid",
        "training": {"rounds": 3, "epochs": 1},
        "participation": {"share": 0.7},
        "evaluation": {"every": 3},
        "engine": {"workers": workers, "state_mb": 0},
    }

    def stop(record: dict[str, Any], *_: Any) -> None:
        if record["round"] == 2:
            raise KeyboardInterrupt

    whole = run(Experiment.of(**settings), quiet=True).state
    with pytest.raises(KeyboardInterrupt):
        run(Experiment.of(**settings), out=tmp_path, callbacks=[stop], quiet=True)
    resumed = run(Experiment.of(**settings), out=tmp_path, resume=True, quiet=True).state
    assert torch.equal(whole.model, resumed.model)
    assert torch.equal(whole.variate, resumed.variate)


def test_a_disk_without_room_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any, **__: Any) -> Any:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("covey.engines.spill.mmap.mmap", full)
    with pytest.raises(CoveyError, match=r"has no room for the rest \(No space left on device\): set TMPDIR"):
        Spill(0).put(0, {"c": torch.zeros(5000)})


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
