"""Which simulated updates a property attack averages: what a cluster of clients would make of them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from covey.attacks.property.score import OTHER


@dataclass(frozen=True)
class Groups:
    """Random groups of simulated updates: one of a kind among others, or others alone."""

    kind: int
    size: int  # updates in a group
    shares: Tensor  # [groups, others] of each of the others in a group's mean
    chosen: Tensor | None  # [groups] which of its kind is in it; None: others alone

    @classmethod
    def drawn(cls, kind: int, size: int, count: int, others: int, own: int, random: np.random.Generator) -> Groups:
        """So many groups, of so many others and updates of the kind."""
        shares = np.zeros((count, others), np.float32)
        for row in shares:
            row[random.permutation(others)[: size if kind == OTHER else size - 1]] = 1 / size
        chosen = None if kind == OTHER else torch.from_numpy(random.integers(0, own, count))
        return cls(kind, size, torch.from_numpy(shares), chosen)

    def to(self, device: torch.device) -> Groups:
        chosen = None if self.chosen is None else self.chosen.to(device)
        return replace(self, shares=self.shares.to(device), chosen=chosen)

    def means(self, own: Tensor, others: Tensor) -> Tensor:
        """[k, groups, p] of the updates `own` [k, c, p] and `others`."""
        total = torch.bmm(self.shares.expand(len(others), -1, -1), others)
        return total if self.chosen is None else total.add_((own / self.size)[:, self.chosen])
