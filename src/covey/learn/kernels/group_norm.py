"""GroupNorm of images whose channels lie last, as Triton kernels: torch's turns them around. Imported only where there is a GPU,
and Triton.

One program normalises one sample, in float32 whatever the sample is in. Mean and variance are taken in two passes, as exactly as
torch does; the second and the third find the sample in the cache.
"""

# mypy: ignore-errors

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

TILE = 4096  # numbers of a sample that a program holds at a time
MOST_CHANNELS = 1024


@triton.jit
def _over_groups(of_channels, C: tl.constexpr, GROUPS: tl.constexpr):
    """[C] -> the sum over its group, for each channel."""
    sums = tl.sum(tl.reshape(of_channels, (GROUPS, C // GROUPS)), axis=1)
    return tl.reshape(tl.broadcast_to(sums[:, None], (GROUPS, C // GROUPS)), (C,))


@triton.jit
def _forward(
    x, weight, bias, y, means, scales, eps, pixels: tl.constexpr, C: tl.constexpr, GROUPS: tl.constexpr, P: tl.constexpr
):
    sample = tl.program_id(0).to(tl.int64)
    c = tl.arange(0, C)
    p = tl.arange(0, P)
    x += sample * pixels * C
    y += sample * pixels * C
    count = pixels * (C // GROUPS)
    total = tl.zeros((C,), dtype=tl.float32)
    for first in range(0, pixels, P):
        inside = (first + p < pixels)[:, None] & (c < C)[None, :]
        total += tl.sum(
            tl.load(x + (first + p)[:, None] * C + c[None, :], mask=inside, other=0.0).to(tl.float32), axis=0
        )
    mean = _over_groups(total, C, GROUPS) / count
    total = tl.zeros((C,), dtype=tl.float32)
    for first in range(0, pixels, P):
        inside = (first + p < pixels)[:, None] & (c < C)[None, :]
        centred = (
            tl.load(x + (first + p)[:, None] * C + c[None, :], mask=inside, other=0.0).to(tl.float32) - mean[None, :]
        )
        total += tl.sum(tl.where(inside, centred * centred, 0.0), axis=0)
    scale = 1.0 / tl.sqrt(_over_groups(total, C, GROUPS) / count + eps)
    tl.store(means + sample * C + c, mean)
    tl.store(scales + sample * C + c, scale)
    w, b = tl.load(weight + c), tl.load(bias + c)
    for first in range(0, pixels, P):
        inside = (first + p < pixels)[:, None] & (c < C)[None, :]
        at = (first + p)[:, None] * C + c[None, :]
        hat = (tl.load(x + at, mask=inside, other=0.0).to(tl.float32) - mean[None, :]) * scale[None, :]
        tl.store(y + at, hat * w[None, :] + b[None, :], mask=inside)


@triton.jit
def _backward(
    x,
    delta,
    weight,
    means,
    scales,
    dx,
    dw,
    db,
    pixels: tl.constexpr,
    C: tl.constexpr,
    GROUPS: tl.constexpr,
    P: tl.constexpr,
):
    sample = tl.program_id(0).to(tl.int64)
    c = tl.arange(0, C)
    p = tl.arange(0, P)
    x += sample * pixels * C
    delta += sample * pixels * C
    dx += sample * pixels * C
    count = pixels * (C // GROUPS)
    mean, scale, w = tl.load(means + sample * C + c), tl.load(scales + sample * C + c), tl.load(weight + c)
    of_bias = tl.zeros((C,), dtype=tl.float32)
    of_weight = tl.zeros((C,), dtype=tl.float32)
    for first in range(0, pixels, P):
        inside = (first + p < pixels)[:, None] & (c < C)[None, :]
        at = (first + p)[:, None] * C + c[None, :]
        d = tl.load(delta + at, mask=inside, other=0.0).to(tl.float32)
        hat = (tl.load(x + at, mask=inside, other=0.0).to(tl.float32) - mean[None, :]) * scale[None, :]
        of_bias += tl.sum(d, axis=0)
        of_weight += tl.sum(d * hat, axis=0)
    tl.store(db + sample * C + c, of_bias)
    tl.store(dw + sample * C + c, of_weight)
    along_mean = _over_groups(of_bias * w, C, GROUPS) / count
    along_scale = _over_groups(of_weight * w, C, GROUPS) / count
    for first in range(0, pixels, P):
        inside = (first + p < pixels)[:, None] & (c < C)[None, :]
        at = (first + p)[:, None] * C + c[None, :]
        d = tl.load(delta + at, mask=inside, other=0.0).to(tl.float32)
        hat = (tl.load(x + at, mask=inside, other=0.0).to(tl.float32) - mean[None, :]) * scale[None, :]
        change = scale[None, :] * (w[None, :] * d - along_mean[None, :] - hat * along_scale[None, :])
        tl.store(dx + at, change, mask=inside)


class GroupNorm(torch.autograd.Function):
    """Of x [n, C, H, W] for which `does` is true."""

    @staticmethod
    def forward(ctx, x: Tensor, weight: Tensor, bias: Tensor, groups: int, eps: float) -> Tensor:
        n, channels, height, width = x.shape
        y = torch.empty_like(x, memory_format=torch.channels_last)
        means, scales = (x.new_empty(n, channels, dtype=torch.float32) for _ in range(2))
        tile = max(1, TILE // channels)
        _forward[(n,)](x, weight, bias, y, means, scales, eps, height * width, channels, groups, tile, num_warps=8)
        ctx.save_for_backward(x, weight, means, scales)
        ctx.groups = groups
        return y

    @staticmethod
    def backward(ctx, delta: Tensor):
        x, weight, means, scales = ctx.saved_tensors
        n, channels, height, width = x.shape
        delta = delta.contiguous(memory_format=torch.channels_last)
        dx = torch.empty_like(x, memory_format=torch.channels_last)
        dw, db = (x.new_empty(n, channels, dtype=torch.float32) for _ in range(2))
        tile = max(1, TILE // channels)
        _backward[(n,)](
            x, delta, weight, means, scales, dx, dw, db, height * width, channels, ctx.groups, tile, num_warps=8
        )
        return dx, dw.sum(0), db.sum(0), None, None


def does(x: Tensor, groups: int, weight: Tensor | None, bias: Tensor | None) -> bool:
    """Whether these kernels normalise such samples."""
    if (
        weight is None
        or bias is None
        or x.dim() != 4
        or x.dtype not in (torch.float32, torch.bfloat16)
        or not x.is_cuda
    ):
        return False
    channels = x.shape[1]
    fits = channels <= MOST_CHANNELS and channels == triton.next_power_of_2(channels) and channels % groups == 0
    return fits and groups == triton.next_power_of_2(groups) and x.is_contiguous(memory_format=torch.channels_last)
