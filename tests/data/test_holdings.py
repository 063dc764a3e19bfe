"""Who holds which rows as two arrays: to a reader the same as a tuple of arrays."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from covey.data.dataset import Dataset
from covey.data.federation import Federation, check
from covey.data.holdings import Holdings
from covey.errors import CoveyError

PARTS = (np.array([4, 1]), np.array([0]), np.array([2, 3, 5]))


def federation() -> Federation:
    x, y = np.zeros((6, 2), np.float32), np.array([0, 1, 0, 1, 0, 1])
    return Federation(
        Dataset("six", x, y, x, y, ("a", "b"), kind="real"), PARTS, None, y, np.full((3, 2), 0.5), names=("p", "q", "r")
    )


def test_reads_as_the_arrays_that_it_was_made_of() -> None:
    holdings = federation().clients
    assert isinstance(holdings, Holdings)
    assert len(holdings) == 3
    assert all((a == b).all() for a, b in zip(holdings, PARTS, strict=True))
    assert holdings[-1].tolist() == [2, 3, 5]
    assert [rows.tolist() for rows in holdings[::-1]] == [[2, 3, 5], [0], [4, 1]]
    assert holdings.sizes.tolist() == [2, 1, 3]
    assert holdings.owners.tolist() == [0, 0, 1, 2, 2, 2]
    with pytest.raises(IndexError):
        holdings[3]


def test_label_counts_of_some_clients_are_rows_of_those_of_all() -> None:
    every = federation().histogram()
    assert every.tolist() == [[1, 1], [1, 0], [1, 2]]
    assert federation().histogram([2, 0]).tolist() == [[1, 2], [1, 1]]


@pytest.mark.parametrize(
    ("clients", "sentence"),
    [
        ((PARTS[0], np.array([0.5]), PARTS[2]), r"the rows of client 1 \('q'\) are no array of whole numbers"),
        ((PARTS[0], PARTS[1], [2, 3]), r"the rows of client 2 \('r'\) are no array of whole numbers"),
        ((PARTS[0], PARTS[1], np.zeros(0, np.int64)), r"client 2 \('r'\) has no training rows"),
        ((PARTS[0], PARTS[1], np.array([2, 9])), r"client 2 \('r'\) holds row 9, there are the rows 0 to 5"),
        ((PARTS[0], PARTS[0], PARTS[2]), r"row 1 is held by client 0 \('p'\) and client 1 \('q'\)"),
    ],
)
def test_what_is_wrong_is_said_of_the_client(clients: tuple[object, ...], sentence: str) -> None:
    with pytest.raises(CoveyError, match=sentence):
        check(replace(federation(), clients=clients))


def test_a_distribution_that_is_none_is_said_of_the_first_client() -> None:
    shares = np.array([[0.5, 0.5], [0.7, 0.2], [2.0, -1.0]])
    with pytest.raises(CoveyError, match=r"the distribution of client 1 \('q'\) sums to 0.9"):
        check(replace(federation(), distributions=shares))
    with pytest.raises(CoveyError, match=r"client 2 \('r'\) has no test rows"):
        check(replace(federation(), test_groups=np.array([0, 1, 0, 1, 0, 1]), distributions=np.eye(3)))
