"""Convolution, pooling and ReLU as one layer, by kernels of its own: of clients side by side on a GPU (`pooled.py`), and of one
client on a CPU (`narrow.py`). On a GPU:

    outputs of a convolution    written once, read once, and never again
    torch and convolve.py       five passes over them forwards and backwards, three quarters of their gradient zeros

A network is rewritten where these three follow each other in the body of a `Classifier`, which computes one layer after another;
parameters keep their names and places.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from covey.learn.kernels.convolutions import narrow
from covey.learn.kernels.convolutions.convolutions import Once, Pair, applied, pair, rows_of, tried
from covey.learn.precision import of_convolutions
from covey.models.classifier import Classifier

MOST = 2**31  # numbers of a client's images: the kernels count them in 32 bits
_in_use: ContextVar[Any] = ContextVar("_in_use", default=None)


class Pooled(nn.Conv2d):
    """A convolution, the largest of each 2×2 of its outputs, and ReLU."""

    def forward(self, x: Tensor) -> Tensor:
        kernels, sides = _in_use.get(), pair(self.padding)  # type: ignore[arg-type]
        plain = x.dtype == torch.float32 and 0 < x.numel() < MOST
        if kernels is narrow and plain and narrow.does(x, self.weight, sides):
            return narrow.layer(x, self.weight, self.bias, sides)  # type: ignore[arg-type]
        if kernels in (None, narrow) or not (plain and kernels.Layer.of(x, self.weight, sides).fits):
            return F.relu(F.max_pool2d(super().forward(x), 2))
        done: Tensor
        if torch.is_grad_enabled():
            done, _ = applied(Layer)(x, self.weight, self.bias, sides, kernels)
        else:
            done = applied(Predicted)(x, self.weight, self.bias, sides, kernels)
        return done

    @classmethod
    def of(cls, layer: nn.Conv2d) -> Pooled:
        """With the parameters of this layer."""
        one = cls(
            layer.in_channels, layer.out_channels, pair(layer.kernel_size), padding=pair(layer.padding), device="meta"  # type: ignore[arg-type]
        )  # fmt: skip
        one.weight, one.bias = layer.weight, layer.bias
        return one


def join(net: nn.Module) -> bool:
    """Puts `Pooled` wherever it computes the same; whether there is any."""
    body, places = _places(net)
    for at in places:
        body[at], body[at + 1], body[at + 2] = Pooled.of(body[at]), nn.Identity(), nn.Identity()  # type: ignore[arg-type]
    return bool(places)


def _places(net: nn.Module) -> tuple[nn.Sequential, list[int]]:
    """Its body, and where in it such a layer begins."""
    if type(net) is not Classifier or type(net.body) is not nn.Sequential:
        return nn.Sequential(), []
    body = net.body
    return body, [at for at in range(len(body) - 2) if _fits(body[at], body[at + 1], body[at + 2])]


def _fits(layer: nn.Module, pooling: nn.Module, relu: nn.Module) -> bool:
    if type(layer) is not nn.Conv2d or type(pooling) is not nn.MaxPool2d or type(relu) is not nn.ReLU:
        return False
    if any(one._forward_hooks or one._forward_pre_hooks or one._backward_hooks for one in (layer, pooling, relu)):
        return False
    plain = layer.stride == layer.dilation == (1, 1) and layer.groups == 1 and layer.bias is not None
    plain = plain and layer.padding_mode == "zeros" and not isinstance(layer.padding, str)
    by_two = pair(pooling.kernel_size) == pair(pooling.stride) == (2, 2)
    rest = (pooling.padding, pooling.dilation, pooling.ceil_mode, pooling.return_indices)
    return plain and by_two and rest == (0, 1, False, False)


class Layer(torch.autograd.Function):
    """Of x [B, C, H, W] by weight [O, C, h, w] and bias [O]; under vmap each may have a row for each client in front."""

    @staticmethod
    def forward(x: Tensor, weight: Tensor, bias: Tensor, padding: Pair, kernels: Any) -> Any:
        y, code = kernels.outputs(x[None], weight[None], bias[None], padding)
        return y[0], code[0]

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        x, weight, _, ctx.padding, ctx.kernels = inputs
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(x, weight, output[1])

    @staticmethod
    def backward(ctx: Any, delta: Tensor, _: Any) -> Any:
        (x, weight, code), how = ctx.saved_tensors, (ctx.padding, ctx.kernels)
        at_x = None
        if ctx.needs_input_grad[0]:
            at_x = applied(AtInputs)(delta, code, weight, tuple(x.shape[-2:]), *how)
        return at_x, *applied(AtWeights)(delta, code, x, tuple(weight.shape[-2:]), *how), None, None

    @staticmethod
    def vmap(info: Any, dims: Any, x: Tensor, weight: Tensor, bias: Tensor, padding: Pair, kernels: Any) -> Any:
        return kernels.outputs(*rows_of(info, dims, (x, weight, bias)), padding), (0, 0)


class Predicted(Once):
    """The outputs alone."""

    @staticmethod
    def forward(x: Tensor, weight: Tensor, bias: Tensor, padding: Pair, kernels: Any) -> Any:
        return kernels.outputs(x[None], weight[None], bias[None], padding, keep=False)[0][0]

    @staticmethod
    def vmap(info: Any, dims: Any, x: Tensor, weight: Tensor, bias: Tensor, padding: Pair, kernels: Any) -> Any:
        return kernels.outputs(*rows_of(info, dims, (x, weight, bias)), padding, keep=False)[0], 0


class AtInputs(Once):
    @staticmethod
    def forward(delta: Tensor, code: Tensor, weight: Tensor, sides: Pair, padding: Pair, kernels: Any) -> Any:
        return kernels.at_inputs(delta[None], code[None], weight[None], sides, padding)[0]

    @staticmethod
    def vmap(
        info: Any, dims: Any, delta: Tensor, code: Tensor, weight: Tensor, sides: Pair, padding: Pair, kernels: Any
    ) -> Any:
        return kernels.at_inputs(*rows_of(info, dims, (delta, code, weight)), sides, padding), 0


class AtWeights(Once):
    @staticmethod
    def forward(delta: Tensor, code: Tensor, x: Tensor, shape: Pair, padding: Pair, kernels: Any) -> Any:
        dw, db = kernels.at_weights(delta[None], code[None], x[None], shape, padding)
        return dw[0], db[0]

    @staticmethod
    def vmap(
        info: Any, dims: Any, delta: Tensor, code: Tensor, x: Tensor, shape: Pair, padding: Pair, kernels: Any
    ) -> Any:
        return kernels.at_weights(*rows_of(info, dims, (delta, code, x)), shape, padding), (0, 0)


@contextmanager
def own_pooling(device: torch.device) -> Iterator[None]:
    """Around steps, or tests, of clients side by side: what `join` has put there goes to these kernels, where there are any."""
    with using(None if of_convolutions() == "bf16" else _kernels(device)):
        yield


@contextmanager
def using(kernels: Any) -> Iterator[None]:
    """These kernels; None: torch's."""
    token = _in_use.set(kernels)
    try:
        yield
    finally:
        _in_use.reset(token)


def has_kernels(device: torch.device) -> bool:
    return _kernels(device) is not None


@functools.cache
def _kernels(device: torch.device) -> Any:
    return tried("pooled", are_right, device)


def is_narrow(net: nn.Module) -> bool:
    """Whether such layers come first, no other convolution follows, and `narrow.py` gains by each of them: in turns with torch's,
    images would be laid out anew between them.
    """
    body, places = _places(net)
    layers = [body[at] for at in places]
    if not layers or places != list(range(0, 3 * len(layers), 3)):
        return False
    if layers != [layer for layer in net.modules() if isinstance(layer, nn.Conv2d)]:
        return False
    return all(narrow.gains(layer.weight, first=layer is body[0]) for layer in layers)  # type: ignore[arg-type]


def are_right(kernels: Any, device: torch.device) -> bool:
    """Whether they compute what torch does, for two clients."""
    x, weight = (torch.arange(count, device=device).sin() for count in (2 * 3 * 2 * 64, 2 * 5 * 2 * 9))
    x, weight = x.view(2, 3, 2, 8, 8).requires_grad_(), weight.view(2, 5, 2, 3, 3).requires_grad_()
    bias = torch.arange(10.0, device=device).cos().view(2, 5).requires_grad_()
    expected = torch.stack([F.relu(F.max_pool2d(F.conv2d(*one, padding=1), 2)) for one in zip(x, weight, bias)])
    delta = expected.detach().cos()
    wanted = (expected, *torch.autograd.grad(expected, (x, weight, bias), delta))
    with torch.no_grad():
        y, code = kernels.outputs(x, weight, bias, (1, 1))
        got = (
            y,
            kernels.at_inputs(delta, code, weight, (8, 8), (1, 1)),
            *kernels.at_weights(delta, code, x, (3, 3), (1, 1)),
        )
        return all(float((a - b).abs().max()) <= 0.01 * float(b.abs().max()) for a, b in zip(got, wanted))
