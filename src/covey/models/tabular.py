"""Tables: every column gets an embedding of its own before a perceptron with shortcuts.

`tabular` reads numbers, as a table comes with standardised numbers and categories one-hot: a column's embedding is
ReLU(x · w + b), after Gorishniy et al. 2022 (On Embeddings for Numerical Features), so that a number can act otherwise when
small than when large. `tabular_ids` reads category ids (kind "tokens"), one column each; an id means one category in the whole
table, so number the categories of all columns through.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from covey.models.classifier import Classifier
from covey.models.spec import Spec

EMBEDDING = 8  # numbers for each column
WIDTH = 128


class Columns(nn.Module):
    """[b, columns] numbers to [b, columns · 8]."""

    def __init__(self, columns: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(columns, EMBEDDING).uniform_(-1, 1))
        self.bias = nn.Parameter(torch.empty(columns, EMBEDDING).uniform_(-1, 1))

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(x.flatten(1).unsqueeze(-1) * self.weight + self.bias).flatten(1)


class Ids(nn.Module):
    """[b, columns] category ids to [b, columns · 8]."""

    def __init__(self, vocabulary: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, EMBEDDING)

    def forward(self, ids: Tensor) -> Tensor:
        embedded: Tensor = self.embedding(ids).flatten(1)
        return embedded


class Layer(nn.Module):
    """A linear layer behind a norm and beside a shortcut."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.linear = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        return x + F.relu(self.linear(self.norm(x)))


def perceptron(embedding: nn.Module, columns: int, classes: int) -> Classifier:
    first = nn.Linear(columns * EMBEDDING, WIDTH)
    body = nn.Sequential(embedding, first, Layer(), Layer(), nn.LayerNorm(WIDTH))
    return Classifier(body, WIDTH, classes)


TABULAR = Spec(
    name="tabular",
    title="table of numbers: an embedding of each column, perceptron of width 128 with shortcuts",
    layout="flat",
    make=lambda shape, classes, _: perceptron(Columns(math.prod(shape)), math.prod(shape), classes),
    parameters=850_570,
)
TABULAR_IDS = Spec(
    name="tabular_ids",
    title="table of category ids: an embedding of each id, perceptron of width 128 with shortcuts",
    layout="tokens",
    make=lambda shape, classes, vocabulary: perceptron(Ids(vocabulary), math.prod(shape), classes),
    parameters=217_610,
)
