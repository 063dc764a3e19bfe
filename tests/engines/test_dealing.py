"""Workers get about as many samples each, in the order of the clients."""

from __future__ import annotations

import numpy as np
import pytest

from covey.engines.dealing import WEIGHED, dealt


@pytest.mark.parametrize("workers", [2, 3, 7])
def test_uneven_clients_are_dealt_by_weight(workers: int) -> None:
    sizes = np.random.default_rng(workers).pareto(1.5, 100).astype(np.int64) * 10 + 1
    owners = np.array(dealt(sizes, workers))
    loads = np.bincount(owners, sizes, workers)
    assert loads.max() - loads.min() <= sizes.max()
    for begin in range(0, 98, workers):  # no worker waits for another's turn
        assert len(set(owners[begin : begin + workers])) == len(owners[begin : begin + workers])


def test_equal_clients_and_very_many_go_in_turn() -> None:
    assert dealt(np.full(5, 50), 2) == [0, 1, 0, 1, 0]
    many = np.ones(WEIGHED + 1, np.int64)
    many[0] = 9
    assert dealt(many, 2)[:3] == [0, 1, 0]
    assert dealt(np.array([3, 1]), 1) == [0, 0]
    assert dealt(np.zeros(0, np.int64), 2) == []


def test_the_largest_of_a_row_goes_where_least_is() -> None:
    assert dealt(np.array([1, 5, 4, 1]), 2) == [1, 0, 1, 0]
