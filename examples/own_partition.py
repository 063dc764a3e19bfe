"""A partition of your own: few clients hold most of the samples, as hospitals and villages do.

cd examples && covey run ifca-digits --set partition=own_partition:Skewed --set partition.power=1.5
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from covey import CoveyError, Dataset, Experiment, Federation, run
from covey.randomness import generator


@dataclass(frozen=True)
class Skewed:
    name: ClassVar[str] = "skewed"
    label: ClassVar[str] = "Skewed sizes"
    title: ClassVar[str] = "labels mixed, sizes falling with a power of the client's rank"

    power: float = 1.0

    def __post_init__(self) -> None:
        if not self.power >= 0:
            raise CoveyError(f"partition.power is {self.power}: it must not be negative")

    def make(self, dataset: Dataset, clients: int, clusters: int, seed: int) -> Federation:
        """A pure function of its arguments: the same seed cuts the same way."""
        rows = generator(seed, "skewed").permutation(len(dataset.y_train))
        if len(rows) < clients:
            raise CoveyError(f"{len(rows)} samples for {clients} clients: every client needs one")
        shares = np.arange(1, clients + 1) ** -self.power
        sizes = 1 + np.floor((len(rows) - clients) * shares / shares.sum()).astype(np.int64)  # nobody has none
        parts = np.split(rows[: sizes.sum()], np.cumsum(sizes)[:-1])
        return Federation.by_label(
            dataset, tuple(np.sort(part) for part in parts), np.zeros(0, np.int64)
        )  # no public rows


if __name__ == "__main__":
    experiment = Experiment.of(
        dataset="digits", clients=10, clusters=1, partition=Skewed(power=1.5), algorithm="fedavg"
    )
    print(run(experiment).metrics["accuracy"])
