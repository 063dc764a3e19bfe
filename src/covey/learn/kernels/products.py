"""The three products of a stack of linear layers, for many clients side by side, each with what surrounds it.

    layer    h ← act(x Wᵀ + b)
    back     δ ← (δ W) · act′(h)
    update   W ← beta W + alpha δᵀ x,   b ← beta b + alpha Σ δ

`Plain` takes torch's batched products, one launch and one pass over memory for each operator. `Wide` is for AMD's CPUs with
AVX-512, where torch's products (MKL's) compute with half of a register: oneDNN, which torch has for convolutions, takes all of it
(one core, 6,000 samples of 784 × 200: 115 and 245 GFLOP/s). `Fused` (Triton, on a GPU) takes one
launch each: at a batch of fifty the weights are read once forwards, and read and written once backwards. On an H200 `layer` takes
56 µs and `update` 101 µs for 120 clients of 784 × 200, where memory alone would allow about 20 and 35.
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor, nn

from covey.learn.precision import of_products

LARGE = 256  # samples of a client from which on its products are worth a library's
# Operations from which on a product of one client is worth a call of oneDNN's, some 15 µs; an update is one pass over W more.
WORTH, WORTH_UPDATE = 4_000_000, 6_000_000


class Products(Protocol):
    """For x [c, B, in], W [c, out, in], b [c, out], δ [c, B, out]. `leak`: slope below zero; None: no activation."""

    def layer(self, x: Tensor, weight: Tensor, bias: Tensor, leak: float | None) -> Tensor: ...
    def back(self, delta: Tensor, weight: Tensor, outputs: Tensor, leak: float) -> Tensor: ...
    def update(self, weight: Tensor, bias: Tensor, delta: Tensor, x: Tensor, beta: float, alpha: float) -> None: ...


class Plain:
    """Also for one client alone (`one`): x [B, in], W [out, in], b [out]."""

    def layer(self, x: Tensor, weight: Tensor, bias: Tensor, leak: float | None) -> Tensor:
        return activated(torch.baddbmm(bias[:, None], x, weight.mT), leak)

    def one(self, x: Tensor, weight: Tensor, bias: Tensor, leak: float | None) -> Tensor:
        return activated(torch.addmm(bias, x, weight.t()), leak)

    def back(self, delta: Tensor, weight: Tensor, outputs: Tensor, leak: float) -> Tensor:
        return through_activation(delta @ weight, outputs, leak)

    def update(self, weight: Tensor, bias: Tensor, delta: Tensor, x: Tensor, beta: float, alpha: float) -> None:
        weight.baddbmm_(delta.mT, x, beta=beta, alpha=alpha)
        update_bias(bias, delta, beta, alpha)


class Wide(Plain):
    """Client by client, since oneDNN is not asked for products of a batch here. Small products are torch's."""

    def layer(self, x: Tensor, weight: Tensor, bias: Tensor, leak: float | None) -> Tensor:
        if not len(weight) or operations(weight[0], x.shape[1]) < WORTH:
            return super().layer(x, weight, bias, leak)
        return activated(torch.stack([linear(*client) for client in zip(x, weight, bias)]), leak)

    def one(self, x: Tensor, weight: Tensor, bias: Tensor, leak: float | None) -> Tensor:
        if operations(weight, len(x)) < WORTH:
            return super().one(x, weight, bias, leak)
        return activated(linear(x, weight, bias), leak)

    def update(self, weight: Tensor, bias: Tensor, delta: Tensor, x: Tensor, beta: float, alpha: float) -> None:
        if not len(weight) or operations(weight[0], x.shape[1]) < WORTH_UPDATE:
            super().update(weight, bias, delta, x, beta, alpha)
            return
        for w, step, h in zip(weight, delta.mT * alpha, x.mT):
            torch.add(linear(step, h, None), w, alpha=beta, out=w)
        update_bias(bias, delta, beta, alpha)


class Fused:
    """Exact float32 is three TF32 products for each, which lose no more than float32 sums do (`update`: float32 itself). Those of
    many samples are torch's, which are exact where bf16 is asked for.
    """

    def __init__(self) -> None:
        from covey.learn.kernels import fused

        self._kernels, self._plain = fused, Plain()

    def layer(self, x: Tensor, weight: Tensor, bias: Tensor, leak: float | None) -> Tensor:
        if x.shape[1] > LARGE:
            return self._plain.layer(x, weight, bias, leak)
        return self._kernels.layer(x, weight, bias, leak, of_products())

    def back(self, delta: Tensor, weight: Tensor, outputs: Tensor, leak: float) -> Tensor:
        if delta.shape[1] > LARGE:
            return self._plain.back(delta, weight, outputs, leak)
        return self._kernels.back(delta, weight, outputs, leak, of_products())

    def update(self, weight: Tensor, bias: Tensor, delta: Tensor, x: Tensor, beta: float, alpha: float) -> None:
        if x.shape[1] > LARGE:
            self._plain.update(weight, bias, delta, x, beta, alpha)
        else:
            self._kernels.update(weight, bias, delta, x, beta, alpha, of_products())


def takes_triton(device: torch.device) -> bool:
    """Whether covey's own GPU kernels are to be tried. COVEY_TRITON=0: not, where a driver or a GPU does not get on with them."""
    return device.type == "cuda" and not torch.version.hip and os.environ.get("COVEY_TRITON") != "0"


def products(device: torch.device) -> Products:
    """The fastest that this device and its torch have."""
    if not takes_triton(device):
        return library(device)
    try:
        return Fused()
    except ImportError:  # torch was installed without Triton
        return Plain()


def library(device: torch.device) -> Plain:
    """The fastest without kernels of covey's own. By what the processor is, not by a clock: all of a run's processes choose alike,
    and sum in the same order.
    """
    return Wide() if device.type == "cpu" and torch.backends.mkldnn.enabled and halves_its_registers() else Plain()


@cache
def halves_its_registers() -> bool:
    """Whether torch's products leave half of this processor's registers empty: MKL takes AVX-512 on Intel's only."""
    if torch.backends.cpu.get_cpu_capability() != "AVX512" or not hasattr(torch.ops.mkldnn, "_linear_pointwise"):
        return False
    try:
        return "AuthenticAMD" in Path("/proc/cpuinfo").read_text()
    except OSError:
        return False


def operations(weight: Tensor, samples: int) -> int:
    return 2 * weight.numel() * samples


def linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """x Wᵀ + b by oneDNN. x and W may lie in either order. Its own ReLU would make 0 of NaN, and hide that a model is lost."""
    out: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
    return out


def update_bias(bias: Tensor, delta: Tensor, beta: float, alpha: float) -> None:
    if beta != 1:
        bias.mul_(beta)
    bias.add_(delta.sum(1), alpha=alpha)


def activated(h: Tensor, leak: float | None) -> Tensor:
    if leak is None:
        return h
    return nn.functional.leaky_relu_(h, leak) if leak else h.relu_()


def through_activation(back: Tensor, outputs: Tensor, leak: float) -> Tensor:
    """The gradient before an activation, from the one behind it and what the activation gave."""
    if leak:
        out: Tensor = torch.ops.aten.leaky_relu_backward(back, outputs, leak, True)
    else:
        out = torch.ops.aten.threshold_backward(back, outputs, 0)
    return out
