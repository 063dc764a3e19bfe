"""The largest of each 2×2 on a CPU, by whole slices: torch's own pooling compares numbers one by one where channels come first.
Where they are last in memory it is fast, and left to do it.

Values and gradients are torch's to the bit: of equal numbers the first, row by row, has the gradient.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn


class Halving(nn.MaxPool2d):
    """`nn.MaxPool2d(2)`."""

    def forward(self, x: Tensor) -> Tensor:
        plain = (
            x.dim() == 4 and x.dtype == torch.float32 and not x.is_cuda and x.is_contiguous() and min(x.shape[2:]) > 1
        )
        if not plain or torch._C._are_functorch_transforms_active():
            pooled: Tensor = super().forward(x)
            return pooled
        largest: Tensor = Largest.apply(x)  # type: ignore[no-untyped-call]
        return largest


class Largest(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        height, width = (side // 2 * 2 for side in x.shape[2:])
        left, right = (x[:, :, :height, side:width:2] for side in (0, 1))
        rows = torch.maximum(left, right)  # [n, c, height, width / 2]
        upper, lower = rows[:, :, 0::2], rows[:, :, 1::2]
        largest = torch.maximum(upper, lower)
        ctx.save_for_backward(x, rows, largest)
        return largest

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        (x, rows, largest), (gradient,) = ctx.saved_tensors, gradients
        height, width = rows.shape[2], 2 * rows.shape[3]
        of_rows = torch.empty_like(rows)
        upper, lower = of_rows[:, :, 0::2], of_rows[:, :, 1::2]
        torch.mul(gradient, _is(rows[:, :, 0::2], largest), out=upper)
        torch.sub(gradient, upper, out=lower)
        left = of_rows * _is(x[:, :, :height, 0:width:2], rows)
        # Two numbers side by side, as a complex one has them: by far the fastest way to lay every second one.
        pairs = torch.view_as_real(torch.complex(left, of_rows.sub_(left))).flatten(3)
        if pairs.shape == x.shape:
            return pairs
        whole = torch.zeros_like(x)  # with a row or a column that no 2×2 has
        whole[:, :, :height, :width] = pairs
        return whole


def _is(one: Tensor, largest: Tensor) -> Tensor:
    """1 where a number is the largest, else 0: by arithmetic, which takes a third of the time of comparing."""
    return torch.sub(one, largest).sign_().add_(1)


def halve(net: nn.Module) -> None:
    """Puts `Halving` wherever it computes the same."""
    for module in net.modules():
        for name, child in module.named_children():
            if _halves(child):
                setattr(module, name, Halving(2))


def _halves(layer: nn.Module) -> bool:
    if type(layer) is not nn.MaxPool2d or layer.return_indices or layer.ceil_mode:
        return False
    watched = layer._forward_hooks or layer._forward_pre_hooks or layer._backward_hooks or layer._backward_pre_hooks
    sides = (layer.kernel_size, layer.stride, layer.padding, layer.dilation)
    return not watched and all(side in (usual, (usual, usual)) for side, usual in zip(sides, (2, 2, 0, 1)))
