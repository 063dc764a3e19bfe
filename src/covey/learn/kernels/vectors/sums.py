"""Weighted sums of many models in float64, as a Triton kernel: each model is read once, as the float32 that it is. Imported only
where there is a GPU, and Triton.
"""

# mypy: ignore-errors

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

ROWS, COLUMNS = 8, 256  # as measured on an H200


@triton.jit
def _sums(models, order, weights, starts, sums, d, row, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    group = tl.program_id(1)
    columns = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    inside = columns < d
    begin, end = tl.load(starts + group), tl.load(starts + group + 1)
    total = tl.zeros((ROWS, COLUMNS), dtype=tl.float64)  # over rows only at the end: warps hold some each
    for first in range(begin, end, ROWS):
        at = first + tl.arange(0, ROWS)
        there = at < end
        which = tl.load(order + at, mask=there, other=0)
        weight = tl.load(weights + at, mask=there, other=0.0)
        model = tl.load(
            models + which[:, None] * row + columns[None, :], mask=there[:, None] & inside[None, :], other=0.0
        )
        total += model.to(tl.float64) * weight[:, None]
    place = sums + group.to(tl.int64) * d + columns
    tl.store(place, tl.load(place, mask=inside, other=0.0) + tl.sum(total, axis=0), mask=inside)


def add(sums: Tensor, models: Tensor, order: Tensor, weights: Tensor, starts: Tensor) -> None:
    """sums [k, d] float64 += of each group its models [n, d] times their weights: those at order[starts[j] : starts[j + 1]], int64,
    with weights float64 in that order.
    """
    k, d = sums.shape
    _sums[(triton.cdiv(d, COLUMNS), k)](
        models, order, weights, starts, sums, d, models.stride(0), ROWS, COLUMNS, num_warps=4
    )
