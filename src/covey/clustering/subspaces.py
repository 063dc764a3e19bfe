"""Subspaces of clients' samples, and the angles between them: what PACFL groups clients by."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from covey.clustering.agglomerative import Floats
from covey.errors import CoveyError, meant

MEASURES = ("sum", "smallest")
BLOCK = 65_536  # pairs whose principal angles are found at a time


def check_measure(measure: str) -> None:
    if measure not in MEASURES:
        raise CoveyError(f"algorithm.measure is {measure!r}: choose 'sum' or 'smallest'{meant(measure, MEASURES)}")


def leading_vectors(x: Tensor, count: int) -> Tensor:
    """The leading left singular vectors of the samples [n, inputs] as columns, [inputs, count]; zeros beyond their rank.

    Signs are fixed by the largest entry, so that two machines send the same.
    """
    rows = x.reshape(len(x), -1).double()
    n, inputs = rows.shape
    rank = min(count, n, inputs)
    if n < inputs:
        values, vectors = torch.linalg.eigh(rows @ rows.T)
        columns = rows.T @ vectors.flip(1)[:, :rank]
    else:
        values, vectors = torch.linalg.eigh(rows.T @ rows)
        columns = vectors.flip(1)[:, :rank]
    there = values.flip(0)[:rank] > 1e-12 * values[-1].clamp(min=1e-300)
    columns = columns / columns.norm(dim=0, keepdim=True).clamp(min=1e-300) * there
    signs = torch.gather(columns, 0, columns.abs().argmax(0, keepdim=True)).sign()
    out = torch.zeros(inputs, count, dtype=torch.float32, device=x.device)
    out[:, :rank] = (columns * signs).float()
    return out


def angles(one: Tensor, other: Tensor, measure: str) -> Floats:
    """Degrees [n, m] between the subspaces [n, inputs, p] and [m, inputs, p].

    sum: of the p angles between vectors of the same rank, whatever their signs; smallest: the first principal angle.
    """
    if measure == "sum":
        total = torch.zeros(len(one), len(other), device=one.device)
        for r in range(one.shape[2]):
            cosines = (one[:, :, r] @ other[:, :, r].T).abs_().clamp_(max=1)
            total += torch.rad2deg(cosines.arccos_())
        return np.asarray(total.cpu().double().numpy(), np.float64)
    p = one.shape[2]
    left, right = one.permute(0, 2, 1).reshape(-1, one.shape[1]), other.permute(0, 2, 1).reshape(-1, one.shape[1])
    blocks = (left @ right.T).view(len(one), p, len(other), p).permute(0, 2, 1, 3).reshape(-1, p, p)
    largest = torch.cat([torch.linalg.matrix_norm(part, 2) for part in torch.split(blocks, BLOCK)])
    degrees = torch.rad2deg(largest.clamp(max=1).arccos()).view(len(one), len(other))
    return np.asarray(degrees.cpu().double().numpy(), np.float64)
