"""Whether a GRU's recurrence goes to covey's own kernels (`recurrent.py`)."""

from __future__ import annotations

import warnings

import torch
from torch import Tensor

from covey.learn.kernels.products import takes_triton
from covey.learn.kernels.recurrences import recurrent
from covey.learn.precision import precision
from covey.models import by_token
from covey.models.recurrence import Kernels

NEAR = 1e-4  # of the largest number: the same sums in another order
_here: dict[torch.device, bool] = {}


def kernels_of(*tensors: Tensor) -> Kernels:
    """covey's own where the device has them and they take these tensors."""
    return recurrent if has_kernels(tensors[0].device) and recurrent.does(*tensors) else by_token


def has_kernels(device: torch.device) -> bool:
    """Whether there are some for this device which compute what torch does. Tried when first asked for."""
    if device in _here:
        return _here[device]
    if not takes_triton(device) or torch.cuda.is_current_stream_capturing():
        return False  # inside a captured step nothing can be tried
    _here[device] = _tried(device)
    return _here[device]


def _tried(device: torch.device) -> bool:
    try:
        return are_right(recurrent, device)
    except Exception as error:  # compilers have many of their own
        warnings.warn(f"no kernels of recurrences here, a GRU takes longer without: {error}", stacklevel=2)
        return False


def are_right(kernels: Kernels, device: torch.device) -> bool:
    """Whether they compute what torch does, for two models and some padding."""
    c, b, t, h = 2, 4, 3, 32
    x, weight, bias, grad = (
        torch.arange(1.0, count + 1, device=device).sin()
        for count in (c * b * t * 3 * h, c * 3 * h * h, c * 3 * h, c * b * h)
    )
    x, weight, bias, grad = x.view(c, b, t, 3 * h), weight.view(c, 3 * h, h), bias.view(c, 3 * h), grad.view(c, b, h)
    x[:, 1, 1:, h : 2 * h] = torch.inf
    with torch.no_grad(), precision("ieee", device), torch.autocast(device.type, enabled=False):
        wanted = by_token.unrolled(x, weight, bias)
        got = kernels.unrolled(x, weight, bias)
        pairs = [*zip(got, wanted), (kernels.last(x, weight, bias), wanted[0])]
        pairs += zip(kernels.derivative(grad, weight, *wanted[1:]), by_token.derivative(grad, weight, *wanted[1:]))
        return all(float((a - b).abs().max()) <= NEAR * float(b.abs().max()) for a, b in pairs)
