"""Model updates as short feature rows, after Melis et al. 2019: magnitudes, pooled, biases dropped, rows of unit length."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn import functional as F

from covey.learn.flat import Network

LIMIT = 1024  # features of a layer with fewer outputs than that
PIECE = {"cpu": 500_000, "cuda": 200_000_000}  # floats of updates in hand at a time: what a cache holds, or a GPU fills


@dataclass(frozen=True)
class Part:
    """Weights of some outputs of a layer, from a place of a piece on."""

    first: int
    shape: tuple[int, ...]  # [outputs, inputs, ...]
    blocks: int  # features of each output

    @property
    def end(self) -> int:
        return self.first + math.prod(self.shape)


def update_features(network: Network, updates: Tensor, limit: int = LIMIT) -> Tensor:
    """[n, f] of updates [n, d].

    Convolutions are max-pooled over space. What is then still above `limit` is max-pooled along its inputs, block by block;
    one feature for every output (for every word of an embedding) always remains.
    """
    return features_by_piece(network, lambda low, high: updates[:, low:high], len(updates), updates.device, limit)


def features_by_piece(
    network: Network, piece: Callable[[int, int], Tensor], n: int, device: torch.device, limit: int = LIMIT
) -> Tensor:
    """The same of updates that need never be there as a whole: `piece(low, high)` gives their parameters [n, high - low]."""
    width = max(1, PIECE.get(device.type, PIECE["cpu"]) // n)
    pooled = []
    for low, high, parts in _pieces(network, width, limit):
        sizes = piece(low, high).abs()
        pooled += [_pooled(sizes[:, part.first : part.end].view(n, *part.shape), part.blocks) for part in parts]
    rows = torch.cat(pooled, 1)
    normed: Tensor = rows / rows.norm(dim=1, keepdim=True).clamp(min=1e-30)
    return normed


def _pieces(network: Network, width: int, limit: int) -> Iterator[tuple[int, int, list[Part]]]:
    """(first, end, parts): as many parts as have room in `width`, with the biases between them; one at least."""
    low, parts = 0, list[Part]()
    for part in _parts(network, width, limit):
        if parts and part.end - low > width:
            yield low, low + parts[-1].end, parts
            parts = []
        low = low if parts else part.first
        parts.append(replace(part, first=part.first - low))
    if parts:
        yield low, low + parts[-1].end, parts


def _parts(network: Network, width: int, limit: int) -> Iterator[Part]:
    """Layers, or about `width` weights of one, where they are in a model."""
    low = 0
    for whole in network.shapes.values():
        if len(whole) > 1:  # no bias
            outputs, blocks = whole[0], max(1, limit // whole[0])
            of_each = whole[1:].numel()
            at_once = min(outputs, max(1, width // of_each))
            for first in range(0, outputs, at_once):
                here = min(at_once, outputs - first)
                yield Part(low + first * of_each, (here, *whole[1:]), blocks)
        low += whole.numel()


def _pooled(size: Tensor, blocks: int) -> Tensor:
    """[n, features] of magnitudes [n, outputs, inputs, ...]."""
    n, outputs, inputs = size.shape[:3]
    blocks = min(blocks, inputs)
    if inputs % blocks == 0:  # torch's pooling takes ten times as long for the same
        size = size.reshape(n, outputs * blocks, -1)
        return size.squeeze(2) if size.shape[2] == 1 else size.amax(2)
    size = size.flatten(3).amax(3) if size.dim() > 3 else size  # [n, outputs, inputs]
    return F.adaptive_max_pool1d(size, blocks).flatten(1)


def consecutive_cosines(updates: Tensor, previous: Tensor) -> Tensor:
    """[k] cosine similarity of each cluster's update with the one a round before; 0 where a cluster stood still."""
    return F.cosine_similarity(updates, previous, dim=1, eps=1e-30)
