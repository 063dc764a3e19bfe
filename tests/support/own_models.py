"""Small modules of somebody's own, as users write them."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Convolutional(nn.Module):
    """Convolutions, GroupNorm, a residual, dropout inside, outputs by a linear layer."""

    def __init__(self, input_shape: tuple[int, ...], outputs: int, width: int = 4) -> None:
        super().__init__()
        self.first = nn.Conv2d(input_shape[0], width, 3, padding=1)
        self.norm = nn.GroupNorm(2, width)
        self.second = nn.Conv2d(width, width, 3, padding=1)
        self.drop = nn.Dropout2d(0.25)
        self.out = nn.Linear(width, outputs)

    def forward(self, x: Tensor) -> Tensor:
        h = F.relu(self.norm(self.first(x)))
        h = h + self.drop(F.relu(self.second(h)))
        return self.out(h.mean((2, 3)))


class Attentive(nn.Module):
    """torch's own transformer layer with dropout, LayerNorm, tied weights, a frozen layer, a constant buffer."""

    def __init__(self, input_shape: tuple[int, ...], classes: int) -> None:
        super().__init__()
        side, width = input_shape[-1], 8
        self.embed = nn.Linear(side, width)
        self.again = nn.Linear(side, width)
        self.again.weight = self.embed.weight
        self.position = nn.Parameter(torch.randn(input_shape[-2], width) * 0.02)
        self.block = nn.TransformerEncoderLayer(width, 2, 16, dropout=0.2, batch_first=True)
        self.fixed = nn.Linear(width, width).requires_grad_(False)
        self.register_buffer("scale", torch.tensor(2.0))
        self.out = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        h = self.block(self.embed(x[:, 0]) + self.again(x[:, 0]) + self.position)
        return self.out(self.fixed(h.mean(1)) * self.scale)


class Normed(nn.Module):
    """BatchNorm: running statistics, and a counter that is a whole number."""

    def __init__(self, input_shape: tuple[int, ...], classes: int) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.BatchNorm1d(8), nn.ReLU())
        self.out = nn.Linear(8, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.body(x))


class Counting(Normed):
    def __init__(self, input_shape: tuple[int, ...], classes: int) -> None:
        super().__init__(input_shape, classes)
        self.body[2] = nn.BatchNorm1d(8, momentum=None)


class Recurrent(nn.Module):
    """torch.func has a rule for its gradient of a batch, and none for that of each sample."""

    def __init__(self) -> None:
        super().__init__()
        self.rows, self.out = nn.GRU(8, 5, batch_first=True), nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.out(self.rows(x[:, 0])[0][:, -1])
        return out


class Branching(nn.Module):
    """Decides by the values of samples, which torch.func cannot stack; and has a layer that it does not always use."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.low, self.high = nn.Linear(64, classes), nn.Linear(64, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = x.flatten(1)
        return self.high(x) if x.mean() > 2 else self.low(x)


class Noisy(Branching):
    """Draws from torch's generator while it trains."""

    def forward(self, x: Tensor) -> Tensor:
        x = x.flatten(1)
        return self.low(x + torch.randn_like(x) if self.training else x)


def smoothed(outputs: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(outputs, targets, reduction="none", label_smoothing=0.1)
