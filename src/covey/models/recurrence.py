"""The recurrence of a GRU with its derivative written out, for one model or many side by side.

Autograd records a dozen operations for each token and replays thirty; written out these are six and three (`by_token.py`), and the
gradient of the weights is one product over all tokens. `nn.GRU` has that too, but no rule for vmap. There is no second derivative.
"""

from __future__ import annotations

import math
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.autograd.function import Function

from covey.errors import CoveyError
from covey.models import by_token
from covey.models.by_token import Given


def last_state(from_input: Tensor, present: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """[b, h] after the last token that is `present` [b, t]: from_input [b, t, 3h] is what the tokens give to the reset gate, the
    update gate and the candidate; weight [3h, h] and bias [3h] are what the state gives to them.
    """
    h = weight.shape[-1]
    reset, update, candidate = torch.split(from_input, h, dim=-1)
    # An update gate of 1 leaves the state as it is.
    update = torch.where(present.unsqueeze(-1), update, math.inf)
    given = torch.cat([reset, update, candidate], dim=-1)
    if torch.is_grad_enabled():
        last: Tensor = _Unrolled.apply(given, weight, bias)[0]  # type: ignore[no-untyped-call]
    else:
        last = _Last.apply(given, weight, bias)  # type: ignore[no-untyped-call]
    return last


class Kernels(Protocol):
    """Functions as those of `by_token`."""

    def unrolled(self, x: Tensor, weight: Tensor, bias: Tensor) -> Given: ...
    def last(self, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor: ...
    def derivative(
        self, grad: Tensor, weight: Tensor, gates: Tensor, candidates: Tensor, given: Tensor, states: Tensor
    ) -> Given: ...


def kernels_of(*tensors: Tensor) -> Kernels:
    """Those that compute with these tensors (the second: the weights). `learn/` has some for GPUs, and puts its own answer in the
    place of this one: models know nothing of the rooms above. No context decides: autograd asks in threads of its own.
    """
    return by_token


class _Unrolled(Function):
    """(x [..., b, t, 3h], weight [..., 3h, h], bias [..., 3h]) → the last state [..., b, h], and what its derivative needs."""

    @staticmethod
    def forward(x: Tensor, weight: Tensor, bias: Tensor) -> Given:
        return kernels_of(x, weight, bias).unrolled(x, weight, bias)

    @staticmethod
    def setup_context(ctx: Any, inputs: Given, output: Given) -> None:
        ctx.mark_non_differentiable(*output[1:])
        ctx.save_for_backward(inputs[1], *output[1:])

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        return _Derivative.apply(grads[0], *ctx.saved_tensors)  # type: ignore[no-untyped-call]

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *inputs: Tensor) -> tuple[Any, tuple[int, ...]]:
        return _Unrolled.apply(*_leading(info.batch_size, in_dims, inputs)), (0,) * 5  # type: ignore[no-untyped-call]


class _Last(Function):
    """The last state alone, for predictions: nothing is kept."""

    @staticmethod
    def forward(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return kernels_of(x, weight, bias).last(x, weight, bias)

    @staticmethod
    def setup_context(ctx: Any, inputs: Given, output: Tensor) -> None:
        pass

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *inputs: Tensor) -> tuple[Any, int]:
        return _Last.apply(*_leading(info.batch_size, in_dims, inputs)), 0  # type: ignore[no-untyped-call]


class _Derivative(Function):
    """(gradient at the last state, weight, what was kept) → gradients at x, weight and bias."""

    @staticmethod
    def forward(
        grad: Tensor, weight: Tensor, gates: Tensor, candidates: Tensor, given: Tensor, states: Tensor
    ) -> Given:
        return kernels_of(grad, weight, gates, candidates, given, states).derivative(
            grad, weight, gates, candidates, given, states
        )

    @staticmethod
    def setup_context(ctx: Any, inputs: Given, output: Given) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        raise CoveyError("the GRU has no second derivative: take another model, or an attack that reads gradients once")

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *inputs: Tensor) -> tuple[Any, tuple[int, ...]]:
        return _Derivative.apply(*_leading(info.batch_size, in_dims, inputs)), (0,) * 3  # type: ignore[no-untyped-call]


def _leading(size: int, dims: tuple[int | None, ...], tensors: Given) -> list[Tensor]:
    """Each with the batch in front; what all share is not copied."""
    return [t.expand(size, *t.shape) if dim is None else t.movedim(dim, 0) for t, dim in zip(tensors, dims)]
