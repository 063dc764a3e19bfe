"""The clients that the data have: a hospital, a user, a folder."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from covey.config import later
from covey.data.dataset import Dataset
from covey.data.federation import Federation
from covey.data.partitions.dealing import generator
from covey.errors import CoveyError


@dataclass(frozen=True)
class Natural:
    """Every client holds the rows that the data say are its own, and is tested on its own test rows.

    Nothing is drawn and the seed does not matter, unless `drawn` is set. `clients` and `clusters` of the experiment are not looked
    at; where the test rows are nobody's, a client is tested on all of them in the proportions of its own labels.
    """

    name: ClassVar[str] = "natural"
    label: ClassVar[str] = "Natural clients"
    title: ClassVar[str] = "the clients that the data have: hospitals, users, folders"
    every_task: ClassVar[bool] = True
    as_the_data_say: ClassVar[bool] = True
    stream: ClassVar[int] = 7

    # Which of its rows a client is tested on is drawn by the seed, as many as the data hold back: then an interval over seeds is
    # also one over splits. Numbers that were scaled with statistics of the first training rows stay scaled by them.
    drawn: bool = later(False)

    def make(self, dataset: Dataset, clients: int, clusters: int, seed: int) -> Federation:
        if dataset.owners is None:
            raise CoveyError(
                f"{dataset.name} names no clients: say data.client = COLUMN where a column says whose a row is, or choose a "
                "partition that cuts it, such as partition = 'iid' or 'dirichlet'"
            )
        if self.drawn:
            dataset = split_anew(dataset, generator(seed, self.stream))
        return Federation.by_owner(dataset)


def split_anew(dataset: Dataset, rng: np.random.Generator) -> Dataset:
    """The same rows and clients; of every client other rows for testing, as many as before."""
    if dataset.owners is None or dataset.test_owners is None:
        raise CoveyError(
            f"partition.drawn redraws each client's test rows, and the test rows of {dataset.name} are nobody's: leave it out"
        )
    if dataset.attributes:
        raise CoveyError(f"partition.drawn would part the attributes of {dataset.name} from its rows: leave it out")
    owners = np.concatenate([dataset.test_owners, dataset.owners])
    x, y = np.concatenate([dataset.x_test, dataset.x_train]), np.concatenate([dataset.y_test, dataset.y_train])
    held_back = np.bincount(dataset.test_owners, minlength=len(dataset.holders))
    order = np.lexsort((rng.random(len(owners)), owners))
    counts = np.bincount(owners, minlength=len(dataset.holders))
    rank = np.arange(len(owners)) - np.repeat(np.cumsum(counts) - counts, counts)
    test = np.zeros(len(owners), np.bool_)
    test[order] = rank < np.repeat(held_back, counts)
    return replace(
        dataset,
        x_train=x[~test],
        y_train=y[~test],
        x_test=x[test],
        y_test=y[test],
        owners=owners[~test],
        test_owners=owners[test],
    )
