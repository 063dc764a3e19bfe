"""A model of your own: any torch module. See docs/own_model.md.

cd examples && covey run own_model.toml
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


class WardNet(nn.Module):
    """Convolutions with BatchNorm and dropout, as one writes it anywhere else.

    covey fills in what a constructor asks for by name: `input_shape` and `outputs`. `width` is an option of one's own.
    """

    def __init__(self, input_shape: tuple[int, int, int], outputs: int, width: int = 8) -> None:
        super().__init__()
        channels, height, _ = input_shape
        self.features = nn.Sequential(
            nn.Conv2d(channels, width, 3, padding=1),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Dropout(0.1),
        )
        self.out = nn.Linear(width * (height // 2) ** 2, outputs)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.features(x))


def patient(outputs: Tensor, targets: Tensor) -> Tensor:
    """A loss of one's own: one number for each sample. Mistakes on class 0 count twice."""
    losses = nn.functional.cross_entropy(outputs, targets, reduction="none")
    return losses * torch.where(targets == 0, 2.0, 1.0)
