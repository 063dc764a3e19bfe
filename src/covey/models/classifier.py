"""The one shape all networks share: a body that gives features, and a last linear layer on them."""

from __future__ import annotations

from torch import Tensor, nn


class Classifier(nn.Module):
    """`last(body(x))`. The seam is there for dropout on the last layer's inputs and for a second head on them."""

    def __init__(self, body: nn.Module, features: int, classes: int) -> None:
        super().__init__()
        self.body = body
        self.last = nn.Linear(features, classes)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.last(self.body(x))
        return logits
