"""What clients remember: what a round changes counts when the round is whole, and stands in one place."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from covey.engines.cohort import Apart
from covey.engines.hosts.memories import Memories
from covey.engines.spill import Spill

CPU = torch.device("cpu")


def client(number: int, **memory: Any) -> Any:
    return SimpleNamespace(id=number, memory=memory)


def column(*rows: float) -> torch.Tensor:
    return torch.tensor(rows)[:, None].expand(-1, 3).contiguous()


def values(memories: dict[int, dict[str, Any]]) -> dict[int, float]:
    return {i: float(memory["v"][0]) for i, memory in memories.items()}


def test_a_round_that_is_cut_short_leaves_no_trace() -> None:
    memories = Memories(Spill(math.inf), CPU)
    memories.begin(1)
    memories.stage([client(0, v=torch.ones(3)), client(1)])
    assert memories.begin(2) and not memories.begin(2)
    memories.stage([client(0, v=torch.full((3,), 2.0))])
    assert float(memories.of(0)["v"][0]) == 2  # in the round itself it is there
    assert values(memories.changed([0, 1])) == {0: 2.0}
    assert values(memories.snapshot(1)) == {0: 1.0}
    assert values(memories.snapshot(2)) == {0: 2.0}
    assert memories.of(1) == {}


def test_what_clients_remember_as_one_is_found_by_each_and_by_others_as_one() -> None:
    memories = Memories(Spill(math.inf), CPU)
    memories.begin(1)
    memories.stage_rows(np.array([4, 7, 9]), {"v": column(4.0, 7.0, 9.0)})
    assert memories.of_rows(np.array([4, 7, 9]))["v"][:, 0].tolist() == [4, 7, 9]
    memories.begin(2)
    assert values(memories.snapshot(1)) == {4: 4.0, 7: 7.0, 9: 9.0}
    assert memories.of_rows(np.array([9, 4]))["v"][:, 0].tolist() == [9, 4]
    memories.spread([7])
    assert float(memories.of(7)["v"][0]) == 7


def test_the_newer_of_two_places_counts() -> None:
    memories = Memories(Spill(math.inf), CPU)
    memories.begin(1)
    memories.stage([client(0, v=torch.zeros(3)), client(1, v=torch.zeros(3))])
    memories.begin(2)
    memories.stage_rows(np.array([0, 1]), {"v": column(2.0, 3.0)})
    assert values(memories.snapshot(2)) == {0: 2.0, 1: 3.0}
    memories.begin(3)
    memories.spread([1])
    memories.stage([client(1, v=torch.full((3,), 5.0))])
    assert values(memories.snapshot(2)) == {0: 2.0, 1: 3.0}
    assert values(memories.snapshot(3)) == {0: 2.0, 1: 5.0}


def test_clients_that_remember_unlike_things_do_not_go_as_one() -> None:
    memories = Memories(Spill(math.inf), CPU)
    memories.begin(1)
    memories.stage([client(0, v=torch.zeros(3))])
    with pytest.raises(Apart):
        memories.of_rows(np.array([0, 1]))


def test_what_is_restored_takes_the_place_of_what_was_staged() -> None:
    memories = Memories(Spill(math.inf), CPU)
    memories.begin(3)
    memories.stage([client(0, v=torch.full((3,), 3.0))])
    memories.restore({0: {"v": torch.ones(3)}})
    assert values(memories.snapshot(3)) == {0: 1.0}
