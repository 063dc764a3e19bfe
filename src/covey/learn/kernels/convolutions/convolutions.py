"""Convolutions of clients side by side, under vmap, by covey's own kernels (`convolve.py`) instead of grouped ones."""

from __future__ import annotations

import functools
import importlib
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from covey.learn.kernels.products import takes_triton
from covey.learn.precision import of_convolutions

Pair = tuple[int, int]


class Convolution(torch.autograd.Function):
    """Of x [B, C, H, W] by weight [O, C, h, w] and bias [O], step 1; under vmap all three have a row for each client in front."""

    @staticmethod
    def forward(x: Tensor, weight: Tensor, bias: Tensor, padding: Pair, kernels: Any) -> Any:
        return _alone(kernels.outputs, (x, weight, bias), padding)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        x, weight, _, *ctx.how = inputs
        ctx.save_for_backward(x, weight)

    @staticmethod
    def backward(ctx: Any, delta: Tensor) -> Any:
        x, weight = ctx.saved_tensors
        inputs, weights = (applied(kind) for kind in (AtInputs, AtWeights))
        at_inputs = inputs(delta, weight, *ctx.how) if ctx.needs_input_grad[0] else None
        return at_inputs, *weights(delta, x, tuple(weight.shape[-2:]), *ctx.how), None, None

    @staticmethod
    def vmap(info: Any, dims: Any, x: Tensor, weight: Tensor, bias: Tensor, padding: Pair, kernels: Any) -> Any:
        rows = rows_of(info, dims, (x, weight, bias))
        return kernels.outputs(*rows, padding, of_convolutions()), 0


class Once(torch.autograd.Function):
    """What nobody differentiates again."""

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        pass


class AtInputs(Once):
    @staticmethod
    def forward(delta: Tensor, weight: Tensor, padding: Pair, kernels: Any) -> Any:
        return _alone(kernels.at_inputs, (delta, weight), padding)

    @staticmethod
    def vmap(info: Any, dims: Any, delta: Tensor, weight: Tensor, padding: Pair, kernels: Any) -> Any:
        return kernels.at_inputs(*rows_of(info, dims, (delta, weight)), padding, of_convolutions()), 0


class AtWeights(Once):
    @staticmethod
    def forward(delta: Tensor, x: Tensor, shape: Pair, padding: Pair, kernels: Any) -> Any:
        return tuple(_alone(kernels.at_weights, (delta, x), shape, padding))

    @staticmethod
    def vmap(info: Any, dims: Any, delta: Tensor, x: Tensor, shape: Pair, padding: Pair, kernels: Any) -> Any:
        return kernels.at_weights(*rows_of(info, dims, (delta, x)), shape, padding, of_convolutions()), (0, 0)


def applied(kind: Any) -> Callable[..., Any]:
    """torch gives `apply` no types."""
    apply: Callable[..., Any] = kind.apply
    return apply


def rows_of(info: Any, dims: tuple[int | None, ...], tensors: tuple[Tensor, ...]) -> list[Tensor]:
    """Each with a row for each client in front, also where they share one."""
    return [
        tensor.expand(info.batch_size, *tensor.shape) if dim is None else tensor.movedim(dim, 0)
        for dim, tensor in zip(dims, tensors)
    ]


def _alone(kernel: Any, tensors: tuple[Tensor, ...], *how: Any) -> Any:
    results = kernel(*(tensor[None] for tensor in tensors), *how, of_convolutions())
    return results[0] if isinstance(results, Tensor) else [result[0] for result in results]


class OwnConvolutions(TorchFunctionMode):
    """Convolutions by these kernels, where they do them."""

    def __init__(self, kernels: Any) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._kernels = kernels

    def __torch_function__(self, function: Any, types: Any, given: Any = (), named: Any = None) -> Any:
        named = named or {}
        if function is not F.conv2d:
            return function(*given, **named)
        return self._convolved(*given, **named)

    def _convolved(
        self,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None = None,
        stride: int | Pair = 1,
        padding: str | int | Pair = 0,
        dilation: int | Pair = 1,
        groups: int = 1,
    ) -> Tensor:
        sides = (padding, padding) if isinstance(padding, int) else padding
        plain = pair(stride) == pair(dilation) == (1, 1) and groups == 1 and x.dim() == 4
        plain = plain and bias is not None and all(t.dtype == torch.float32 for t in (x, weight))
        if not plain or isinstance(sides, str) or any(pad >= size for pad, size in zip(sides, weight.shape[2:])):
            return F.conv2d(x, weight, bias, stride, padding, dilation, groups)  # type: ignore[arg-type]
        done: Tensor = applied(Convolution)(x, weight, bias, tuple(sides), self._kernels)
        return done


def pair(given: int | Pair) -> Pair:
    return (given, given) if isinstance(given, int) else (given[0], given[1])


def own_convolutions(device: torch.device) -> AbstractContextManager[object]:
    """Around the steps of clients side by side: their convolutions go to covey's own kernels, where there are any."""
    kernels = None if of_convolutions() == "bf16" else _kernels(device)
    return nullcontext() if kernels is None else OwnConvolutions(kernels)


def at_weights_of_many(
    device: torch.device, size: Pair, padding: Pair
) -> Callable[[Tensor, Tensor], tuple[Tensor, Tensor]] | None:
    """(δ [c, b, O, …], images [c, b, C, H, W]) -> gradients at weights and biases of each client, by covey's own kernel, which
    writes no patch to memory; None: there is none for such a convolution here. Exact ones are products of patches:
    of 20 clients' faces this kernel takes 7.5 ms for them on an H200, 1.5 ms in TF32.
    """
    kernels = _kernels(device) if of_convolutions() == "tf32" else None
    if kernels is None or any(pad >= side for pad, side in zip(padding, size)):
        return None

    def weighed(delta: Tensor, read: Tensor) -> tuple[Tensor, Tensor]:
        weights, biases = kernels.at_weights(delta, read, size, padding, "tf32")
        return weights, biases

    return weighed


@functools.cache
def _kernels(device: torch.device) -> Any:
    return tried("convolve", are_right, device)


def tried(name: str, are_right: Callable[[Any, torch.device], bool], device: torch.device) -> Any:
    """The module of kernels of this name; None: there is none here, or it computes something else."""
    if not takes_triton(device):
        return None
    try:
        kernels = importlib.import_module(f"covey.learn.kernels.convolutions.{name}")
        with torch.enable_grad():  # losses may be what they are first asked for
            return kernels if are_right(kernels, device) else None
    except Exception as error:  # compilers have many of their own
        warnings.warn(f"no kernels '{name}' here, training takes longer without: {error}", stacklevel=2)
        return None


def are_right(kernels: Any, device: torch.device) -> bool:
    """Whether they compute what torch does, for two clients."""
    x, weight = (torch.arange(count, device=device).sin() for count in (2 * 3 * 2 * 49, 2 * 5 * 2 * 9))
    x, weight = x.view(2, 3, 2, 7, 7).requires_grad_(), weight.view(2, 5, 2, 3, 3).requires_grad_()
    bias = torch.arange(10.0, device=device).view(2, 5).requires_grad_()
    expected = torch.stack([F.conv2d(*one, padding=1) for one in zip(x, weight, bias)])
    delta = expected.detach().cos()
    wanted = (expected, *torch.autograd.grad(expected, (x, weight, bias), delta))
    with torch.no_grad():
        mode = of_convolutions()
        got = (
            kernels.outputs(x, weight, bias, (1, 1), mode),
            kernels.at_inputs(delta, weight, (1, 1), mode),
            *kernels.at_weights(delta, x, (3, 3), (1, 1), mode),
        )
        return all(float((a - b).abs().max()) <= 0.01 * float(b.abs().max()) for a, b in zip(got, wanted))
