"""Transformers: a small Vision Transformer for images, and an encoder for token sequences.

Attention is written out in products and a softmax, which torch.func can stack for many clients. Norms come first in each block
(pre-norm), and no layer has statistics of a batch, so everything works under clipping and averaging.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from covey.errors import CoveyError
from covey.models.classifier import Classifier
from covey.models.spec import Spec

WIDTH = 64
HEADS = 4
BLOCKS = 4
SPREAD = 0.02  # standard deviation of positions and class tokens at the start, as in ViT and BERT
PATCHES = 8  # to the shorter side of the image, at most


class Block(nn.Module):
    """Self-attention and a two-layer perceptron, each behind a norm and beside a shortcut."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x: Tensor, hidden: Tensor | None = None) -> Tensor:
        """`hidden` [b, t]: true where a token is padding, which nobody looks at."""
        b, t, width = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        scores = (q / math.sqrt(width // self.heads)) @ k.mT  # [b, heads, t, t]; q is the smaller one to scale
        if hidden is not None:
            scores = scores.masked_fill(hidden[:, None, None], -1e9)
        seen = (scores.softmax(-1) @ v).transpose(1, 2).reshape(b, t, width)
        x = x + self.out(seen)
        both: Tensor = x + self.down(F.gelu(self.up(self.norm2(x))))
        return both


class Patches(nn.Module):
    """Images cut into patches, a class token before them; gives the class token's last state."""

    def __init__(self, channels: int, height: int, width: int) -> None:
        super().__init__()
        self.side = -(-min(height, width) // PATCHES)  # 4 for 28 and for 32 pixels: nothing is left over
        self.rows, self.columns = height // self.side, width // self.side  # what is left over at the edges is not seen
        self.embedding = nn.Linear(channels * self.side**2, WIDTH)
        self.token = nn.Parameter(torch.randn(1, 1, WIDTH) * SPREAD)
        self.position = nn.Parameter(torch.randn(1, 1 + self.rows * self.columns, WIDTH) * SPREAD)
        self.blocks = nn.ModuleList(Block(WIDTH, HEADS) for _ in range(BLOCKS))
        self.norm = nn.LayerNorm(WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        b, side = len(x), self.side
        x = x[:, :, : self.rows * side, : self.columns * side]
        x = x.reshape(b, x.shape[1], self.rows, side, self.columns, side).permute(0, 2, 4, 1, 3, 5)
        x = self.embedding(x.reshape(b, self.rows * self.columns, -1))
        x = torch.cat([self.token.expand(b, -1, -1), x], dim=1) + self.position
        for block in self.blocks:
            x = block(x)
        first: Tensor = self.norm(x)[:, 0]
        return first


class Words(nn.Module):
    """Embedded tokens with their positions; gives the mean state of those that are not padding (0)."""

    def __init__(self, length: int, vocabulary: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, WIDTH)
        self.position = nn.Parameter(torch.randn(1, length, WIDTH) * SPREAD)
        self.blocks = nn.ModuleList(Block(WIDTH, HEADS) for _ in range(BLOCKS // 2))
        self.norm = nn.LayerNorm(WIDTH)

    def forward(self, tokens: Tensor) -> Tensor:
        hidden = tokens == 0
        x = self.embedding(tokens) + self.position
        for block in self.blocks:
            x = block(x, hidden)
        real = (~hidden).unsqueeze(-1).to(x.dtype)
        mean: Tensor = (self.norm(x) * real).sum(1) / real.sum(1).clamp(min=1)
        return mean


def vit(channels: int, height: int, width: int, classes: int) -> Classifier:
    return Classifier(Patches(channels, height, width), WIDTH, classes)


def text_transformer(length: tuple[int, ...], vocabulary: int, classes: int) -> Classifier:
    if len(length) != 1:
        raise CoveyError(f"token samples have the shape {length}: the text transformer reads one sequence, (tokens,)")
    return Classifier(Words(length[0], vocabulary), WIDTH, classes)


VIT = Spec(
    name="vit",
    title="Vision Transformer: at most 8 patches to the shorter side, 4 blocks of width 64 with 4 heads",
    layout="image",
    make=lambda shape, classes, _: vit(shape[0], shape[1], shape[2], classes),
    parameters=142_026,
)
TEXT_TRANSFORMER = Spec(
    name="text_transformer",
    title="transformer encoder for tokens: 2 blocks of width 64 with 4 heads",
    layout="tokens",
    make=lambda shape, classes, vocabulary: text_transformer(shape, vocabulary, classes),
    parameters=714_122,
)
