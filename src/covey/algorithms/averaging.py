"""Streaming weighted averages of flat models: memory for k accumulators, whatever the number of clients."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def weight_of(reply: Any, weighting: str) -> float:
    """A reply's weight in its average: its sample count, or one per client."""
    return float(reply.samples) if weighting == "samples" else 1.0


class Averages:
    """k running sums in float64, so that the order of the clients does not show in the result."""

    def __init__(self, k: int, like: Tensor) -> None:
        self.sums = torch.zeros(k, like.shape[-1], dtype=torch.float64, device=like.device)
        self.weights = [0.0] * k

    def add(self, j: int, model: Tensor, weight: float = 1.0) -> None:
        self.sums[j].add_(model, alpha=weight)
        self.weights[j] += weight

    def means(self, previous: Tensor) -> Tensor:
        """The averages as float32 [k, d]; where nobody contributed, the row of `previous`."""
        rows = [s / w if w > 0 else p for s, w, p in zip(self.sums, self.weights, previous)]
        return torch.stack([row.to(torch.float32) for row in rows])

    def overall(self, previous: Tensor) -> Tensor:
        """The average over all k sums together, float32 [d]."""
        total = sum(self.weights)
        return (self.sums.sum(0) / total).to(torch.float32) if total > 0 else previous
