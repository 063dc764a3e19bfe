"""Model updates as short feature rows, after Melis et al. 2019: magnitudes, pooled, biases dropped, rows of unit length."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor
from torch.nn import functional as F

from covey.learn.flat import Network

LIMIT = 1024  # features of a layer with fewer outputs than that
PIECE = {"cpu": 500_000, "cuda": 50_000_000}  # floats of updates in hand at a time: what a cache holds, or a GPU fills


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
    rows = torch.cat(
        [_pooled(piece(low, high).view(n, *shape), b) for low, high, shape, b in _cut(network, width, limit)], 1
    )
    normed: Tensor = rows / rows.norm(dim=1, keepdim=True).clamp(min=1e-30)
    return normed


def _cut(network: Network, width: int, limit: int) -> Iterator[tuple[int, int, tuple[int, ...], int]]:
    """(first, end, shape, blocks): weights of some outputs of a layer, about `width` of them, and features of each output."""
    low = 0
    for whole in network.shapes.values():
        if len(whole) > 1:  # no bias
            outputs, blocks = whole[0], max(1, limit // whole[0])
            of_each = whole[1:].numel()
            at_once = min(outputs, max(1, width // of_each))
            for first in range(0, outputs, at_once):
                end = min(first + at_once, outputs)
                yield low + first * of_each, low + end * of_each, (end - first, *whole[1:]), blocks
        low += whole.numel()


def _pooled(part: Tensor, blocks: int) -> Tensor:
    """[n, features] of weights [n, outputs, inputs, ...]."""
    size = part.abs()
    size = size.flatten(3).amax(3) if size.dim() > 3 else size  # [n, outputs, inputs]
    return (F.adaptive_max_pool1d(size, blocks) if blocks < size.shape[2] else size).flatten(1)


def consecutive_cosines(updates: Tensor, previous: Tensor) -> Tensor:
    """[k] cosine similarity of each cluster's update with the one a round before; 0 where a cluster stood still."""
    return F.cosine_similarity(updates, previous, dim=1, eps=1e-30)
