"""Stacks of linear layers: everything that `learn/kernels/linear.py` can compute in closed form."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise

from torch import nn

from covey.models.classifier import Classifier
from covey.models.spec import Spec

LEAK = 0.01  # slope of LeakyReLU below zero, torch's default


def dense(input_shape: tuple[int, ...], hidden: tuple[int, ...], classes: int, leak: float = 0.0) -> Classifier:
    """Linear layers with ReLU (or LeakyReLU) between them; no hidden layer gives softmax regression."""
    sizes = (math.prod(input_shape), *hidden)
    body: list[nn.Module] = [nn.Flatten()]
    for fan_in, fan_out in pairwise(sizes):
        body += [nn.Linear(fan_in, fan_out), nn.LeakyReLU(leak) if leak else nn.ReLU()]
    return Classifier(nn.Sequential(*body), sizes[-1], classes)


def _of(hidden: tuple[int, ...], leak: float = 0.0) -> Callable[[tuple[int, ...], int, int], Classifier]:
    return lambda shape, classes, _: dense(shape, hidden, classes, leak)


SOFTMAX = Spec(
    name="softmax",
    title="softmax regression: one linear layer",
    layout="flat",
    make=_of(()),
    parameters=7_850,
)
FCNN = Spec(
    name="fcnn",
    title="fully connected, one hidden layer of 200",
    layout="flat",
    make=_of((200,)),
    parameters=159_010,
)
FCNN_LEAKY = Spec(
    name="fcnn_leaky",
    title="fully connected, one hidden layer of 200, LeakyReLU",
    layout="flat",
    make=_of((200,), LEAK),
    parameters=159_010,
)
MLP = Spec(
    name="mlp",
    title="fully connected, hidden layers of 200 and 100",
    layout="flat",
    make=_of((200, 100)),
    parameters=178_110,
)
MLP_WIDE = Spec(
    name="mlp_wide",
    title="fully connected, hidden layers of 1024, 512 and 256 (Texas100, Purchase100)",
    layout="flat",
    make=_of((1024, 512, 256)),
    parameters=1_462_538,
)
