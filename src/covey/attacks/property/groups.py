"""Which simulated updates a property attack averages: what a cluster of clients would make of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from covey.attacks.property.score import OTHER

Shares = NDArray[np.float32]


@dataclass(frozen=True)
class Groups:
    """Random groups of simulated updates: one of a kind among others, or others alone."""

    kind: int
    size: int  # updates in a group
    shares: Shares  # [groups, others] of each of the others in a group's mean
    chosen: NDArray[np.int64] | None  # [groups] which of its kind is in it; None: others alone

    @classmethod
    def drawn(cls, kind: int, size: int, count: int, others: int, own: int, random: np.random.Generator) -> Groups:
        """So many groups, of so many others and updates of the kind."""
        shares = np.zeros((count, others), np.float32)
        for row in shares:
            row[random.permutation(others)[: size if kind == OTHER else size - 1]] = 1 / size
        chosen = None if kind == OTHER else random.integers(0, own, count)
        return cls(kind, size, shares, chosen)

    def weights(self, columns: Mapping[int, slice]) -> Shares:
        """[groups, updates] of each update in the groups' means, where each kind has columns of its own."""
        weights = np.zeros((len(self.shares), max(of.stop for of in columns.values())), np.float32)
        weights[:, columns[OTHER]] = self.shares
        if self.chosen is not None:
            weights[np.arange(len(weights)), columns[self.kind].start + self.chosen] = 1 / self.size
        return weights
