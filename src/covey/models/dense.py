"""Stacks of linear layers: everything that `learn/linear.py` can compute in closed form."""

from __future__ import annotations

import math
from itertools import pairwise

from torch import nn

from covey.models.classifier import Classifier

LEAK = 0.01  # slope of LeakyReLU below zero, torch's default


def dense(input_shape: tuple[int, ...], hidden: tuple[int, ...], classes: int, leak: float = 0.0) -> Classifier:
    """Linear layers with ReLU (or LeakyReLU) between them; no hidden layer gives softmax regression."""
    sizes = (math.prod(input_shape), *hidden)
    body: list[nn.Module] = [nn.Flatten()]
    for fan_in, fan_out in pairwise(sizes):
        body += [nn.Linear(fan_in, fan_out), nn.LeakyReLU(leak) if leak else nn.ReLU()]
    return Classifier(nn.Sequential(*body), sizes[-1], classes)
