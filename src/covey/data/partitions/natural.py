"""The clients that the data have: a hospital, a user, a folder."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from covey.data.federation import Dataset, Federation
from covey.data.partitions.dealing import Rows, by_label
from covey.errors import CoveyError


@dataclass(frozen=True)
class Natural:
    """Every client holds the rows that the data say are its own, and is tested on its own test rows.

    Nothing is drawn and the seed does not matter. `clients` and `clusters` of the experiment are not looked at; where the test
    rows are nobody's, a client is tested on all of them in the proportions of its own labels.
    """

    name: ClassVar[str] = "natural"
    label: ClassVar[str] = "Natural clients"
    title: ClassVar[str] = "the clients that the data have: hospitals, users, folders"
    every_task: ClassVar[bool] = True
    as_the_data_say: ClassVar[bool] = True

    def make(self, dataset: Dataset, clients: int, clusters: int, seed: int) -> Federation:
        if dataset.owners is None:
            raise CoveyError(
                f"{dataset.name} names no clients: say data.client = COLUMN where a column says whose a row is, or choose a "
                "partition that cuts it, such as partition = 'iid' or 'dirichlet'"
            )
        order = np.argsort(dataset.owners, kind="stable")
        counts = np.bincount(dataset.owners, minlength=len(dataset.holders))
        held: tuple[Rows, ...] = tuple(np.split(order.astype(np.int64), np.cumsum(counts)[:-1]))
        if dataset.test_owners is None:
            shared = by_label(dataset, held, np.zeros(0, np.int64))
            return Federation(dataset, held, None, shared.test_groups, shared.distributions, names=dataset.holders)
        return Federation(dataset, held, None, dataset.test_owners, _identity(len(held)), names=dataset.holders)


def _identity(n: int) -> NDArray[np.float64]:
    """[n, n], of which only 2n - 1 numbers are stored: ten thousand clients would take 800 MB."""
    line = np.zeros(2 * n - 1)
    line[n - 1] = 1.0
    return np.lib.stride_tricks.as_strided(line[n - 1 :], (n, n), (-line.itemsize, line.itemsize), writeable=False)
