"""Model updates as short feature rows, after Melis et al. 2019: magnitudes, pooled, biases dropped, rows of unit length."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from covey.learn.flat import Network

LIMIT = 1024  # features of a layer with fewer outputs than that


def update_features(network: Network, updates: Tensor, limit: int = LIMIT) -> Tensor:
    """[n, f] of updates [n, d].

    Convolutions are max-pooled over space. What is then still above `limit` is max-pooled along its inputs, block by block;
    one feature for every output (for every word of an embedding) always remains.
    """
    parts = []
    for part in network.unflatten(updates).values():
        if part.dim() < 3:
            continue  # a bias
        size = part.abs()
        size = size.flatten(3).amax(3) if size.dim() > 3 else size  # [n, outputs, inputs]
        blocks = max(1, limit // size.shape[1])
        parts.append((F.adaptive_max_pool1d(size, blocks) if blocks < size.shape[2] else size).flatten(1))
    rows = torch.cat(parts, 1)
    normed: Tensor = rows / rows.norm(dim=1, keepdim=True).clamp(min=1e-30)
    return normed


def consecutive_cosines(updates: Tensor, previous: Tensor) -> Tensor:
    """[k] cosine similarity of each cluster's update with the one a round before; 0 where a cluster stood still."""
    return F.cosine_similarity(updates, previous, dim=1, eps=1e-30)
