"""Small modules of somebody's own, as users write them."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from covey.learn.flat import Network
from covey.models.classifier import Classifier
from covey.models.spec import Spec


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


class Doubled(nn.Linear):
    """A linear layer that gives something else."""

    def forward(self, x: Tensor) -> Tensor:
        return 2 * super().forward(x)


def _classifier(relu: nn.Module, linear: type[nn.Linear], channels: int, classes: int) -> Classifier:
    body = nn.Sequential(nn.Conv2d(channels, 4, 3), relu, nn.Flatten(), linear(4 * 6 * 6, 5), nn.ReLU())
    return Classifier(body, 5, classes)


# Of covey's own shape, so started and trained as its own networks are.
IN_PLACE = Spec(
    name="in_place",
    title="outputs of a layer are changed in place",
    layout="image",
    make=lambda shape, classes, _: _classifier(nn.ReLU(inplace=True), nn.Linear, shape[0], classes),
    parameters=1,
)
DOUBLED = Spec(
    name="doubled",
    title="a layer of its own",
    layout="image",
    make=lambda shape, classes, _: _classifier(nn.ReLU(), Doubled, shape[0], classes),
    parameters=1,
)


class Shortcut(nn.Module):
    """A linear layer and a ReLU that do not follow each other."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear, self.relu = nn.Linear(width, width), nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        x = x.flatten(1)
        return x + self.linear(self.relu(x))


def _tied() -> nn.Module:
    first, second = nn.Linear(64, 64), nn.Linear(64, 64)
    second.weight = first.weight
    return nn.Sequential(nn.Flatten(), first, nn.ReLU(), second, nn.ReLU())


def _twice(layer: nn.Module) -> list[nn.Module]:
    return [layer, nn.ReLU(), layer, nn.ReLU()]


BODIES = {  # of a network that reads 64 numbers and gives as many to its outputs; none is a stack with a ReLU after each layer
    "no ReLU": lambda: nn.Sequential(nn.Flatten(), nn.Linear(64, 64)),
    "two layers and a ReLU": lambda: nn.Sequential(nn.Flatten(), nn.Linear(64, 9), nn.Linear(9, 64), nn.ReLU()),
    "two slopes": lambda: nn.Sequential(nn.Flatten(), nn.Linear(64, 9), nn.LeakyReLU(0.5), nn.Linear(9, 64), nn.ReLU()),
    "no bias": lambda: nn.Sequential(nn.Flatten(), nn.Linear(64, 64, bias=False), nn.ReLU()),
    "a layer of its own": lambda: nn.Sequential(nn.Flatten(), Doubled(64, 64), nn.ReLU()),
    "one layer twice": lambda: nn.Sequential(nn.Flatten(), *_twice(nn.Linear(64, 64))),
    "tied": _tied,
    "a shortcut": lambda: Shortcut(64),
}


def gradients_by_sample(net: Network, at: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """Of a model of images' classes at `at`: each sample's gradient [n, trained], by autograd alone."""
    module = net.module().eval()
    net.write(at, module)
    trained = [p for p in module.parameters() if p.requires_grad]
    each = []
    for sample, label in zip(x, y):
        loss = F.cross_entropy(module(sample[None, None].float() / 255), label[None])
        parts = torch.autograd.grad(loss, trained, allow_unused=True, materialize_grads=True)
        each.append(torch.cat([part.reshape(-1) for part in parts]))
    return torch.stack(each)
