"""Clients side by side on parallel streams: the GPU's way for large convolutional networks.

vmap turns the convolutions of many clients into grouped ones, which cuDNN computes slowly. Here every client keeps its
ordinary convolutions, and the kernels of several clients overlap, since one client's alone would not fill a GPU. All of it
is captured in one CUDA graph (`graph.py`), in which the streams become parallel branches. On a CPU the clients
follow each other.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from covey.learn.kernels.batched import Batch
from covey.learn.kernels.graph import stream
from covey.learn.kernels.loop import Loop
from covey.learn.kernels.products import takes_triton
from covey.learn.kernels.stacked import Stacked
from covey.learn.objective import Objective
from covey.learn.precision import of_convolutions, of_steps

STREAMS = 8  # clients that overlap
# Whether networks with GroupNorm compute on images whose channels lie last, by covey's own (`group_norm.py`), where convolutions
# are rounded: ResNet-18 on an H200 took 472 ms so, 690 with channels first, and 815 with channels last and torch's, which turns its
# input around. Exact ones keep channels first, where training agrees with the loop kernel's to 1.6e-6 (channels last: 1.8e-3).
OWN_GROUP_NORM = True
SEARCH = (
    False  # whether cuDNN times its algorithms in the warm-up: then each process may choose, and round, differently
)


class Streams:
    """Gradients of models one by one, on several streams. Does every network; clipping is left to the stacked kernel."""

    def __init__(self, stacked: Stacked, device: torch.device, channels_last: bool | None = None) -> None:
        self._stacked, self._device = stacked, device
        self._search, self._channels_last = SEARCH, channels_last
        self._has_norms = OWN_GROUP_NORM and stacked.has(nn.GroupNorm)
        # The same streams in every call: the workspaces of libraries are made while the graph's step warms up.
        self._streams: list[torch.cuda.Stream] = []
        if device.type == "cuda":
            self._streams = [stream(device, number) for number in range(1, STREAMS + 1)]

    def accumulate(self, target: Tensor, model: Tensor, batch: Batch, beta: float, alpha: float) -> None:
        """target ← beta · target + alpha · (mean gradient of the batch at model)."""
        if batch.clip:  # per-sample gradients
            self._stacked.accumulate(target, model, batch, beta, alpha)
            return
        objective = self._stacked.objective(batch.head_classes, batch.head_share)
        parts = batch.inputs
        norms = _norms(self._device) if self._has_norms and of_convolutions() != "ieee" else None
        last = norms is not None if self._channels_last is None else self._channels_last
        own = nullcontext() if norms is None else ChannelsLast(norms)
        with _search(self._search), own, self._forked(len(model)) as streams:
            for client in range(len(model)):
                with torch.cuda.stream(streams[client % len(streams)]):
                    inputs = tuple(None if part is None else _ordered(part[client], last) for part in parts)
                    parameters = _leaves(objective, model[client], last)
                    with of_steps(self._device):
                        losses: Tensor = functional_call(objective, parameters, inputs)
                    loss = (losses * batch.factor[client]).sum()
                    gradients = torch.autograd.grad(
                        loss, list(parameters.values()), allow_unused=True, materialize_grads=True
                    )
                    if beta != 1:
                        target[client].mul_(beta)
                    _add(list(objective.parameters_of(target[client]).values()), gradients, alpha)

    @contextmanager
    def _forked(self, clients: int) -> Iterator[list[torch.cuda.Stream | None]]:
        """The streams to use, which wait for the current one to come here, and which it waits for at the end."""
        if not self._streams:
            yield [None]
            return
        current, used = torch.cuda.current_stream(self._device), self._streams[:clients]
        for one in used:
            one.wait_stream(current)  # under capture this draws the stream into the graph
        yield list(used)
        for one in used:
            current.wait_stream(one)


class Outputs(Loop):
    """The loop kernel's points, whose outputs are computed with channels last where convolutions are rounded to TF32."""

    def logits(self, model: Tensor, x: Tensor) -> Tensor:
        norms = _norms(self.device) if OWN_GROUP_NORM and of_convolutions() == "tf32" else None
        if norms is None:
            return super().logits(model, x)
        with ChannelsLast(norms):
            return super().logits(model, x)


def _leaves(objective: Objective, model: Tensor, channels_last: bool) -> dict[str, Tensor]:
    """Parameters of one client to differentiate by."""
    cut = objective.parameters_of(model).items()
    return {name: _ordered(view.detach(), channels_last).requires_grad_() for name, view in cut}


def _ordered(tensor: Tensor, channels_last: bool) -> Tensor:
    """Images and the weights of convolutions in the order in memory that the convolutions want."""
    if tensor.dim() != 4 or not channels_last:
        return tensor
    return tensor.contiguous(memory_format=torch.channels_last)


class ChannelsLast(TorchFunctionMode):
    """GroupNorm by covey's own kernels, where they do it, and convolutions of images in the order that these want."""

    def __init__(self, kernels: Any) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._kernels = kernels

    def __torch_function__(self, function: Any, types: Any, given: Any = (), named: Any = None) -> Any:
        named = named or {}
        if function is F.group_norm:
            return self._norm(*given, **named)
        if function is F.conv2d and given:  # a network of one's own may name them all
            x, *others = given
            return function(_ordered(x, True), *others, **named)
        return function(*given, **named)

    def _norm(self, input: Tensor, num_groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> Tensor:
        if self._kernels.does(input, num_groups, weight, bias):
            normed: Tensor = self._kernels.GroupNorm.apply(input, weight, bias, num_groups, eps)
            return normed
        return F.group_norm(input, num_groups, weight, bias, eps)


@functools.cache
def _norms(device: torch.device) -> Any:
    """The kernels' module, tried once; None: there is none here."""
    if not takes_triton(device):
        return None
    try:
        from covey.learn.kernels import group_norm

        x = torch.arange(2 * 32 * 9, dtype=torch.float32, device=device).view(2, 32, 3, 3).sin()
        x = x.contiguous(memory_format=torch.channels_last).requires_grad_()
        weight, bias = torch.full((2, 32), 0.5, device=device)
        own: Any = group_norm.GroupNorm
        pairs = (F.group_norm(x, 8, weight, bias), own.apply(x, weight, bias, 8, 1e-5))
        one, other = (torch.cat([y, torch.autograd.grad(y.square().sum(), x)[0]]) for y in pairs)
        return group_norm if torch.allclose(one, other, rtol=1e-3, atol=1e-4) else None
    except Exception as error:  # Triton has many of its own
        warnings.warn(f"no kernel for GroupNorm here, training takes longer without: {error}", stacklevel=2)
        return None


def _add(targets: list[Tensor], gradients: tuple[Tensor, ...], alpha: float) -> None:
    """target ← target + alpha · gradient: in one launch for all that lie alike in memory, else one by one."""
    pairs = list(zip(targets, gradients))
    alike = [(target, gradient) for target, gradient in pairs if target.stride() == gradient.stride()]
    if alike:
        torch._foreach_add_([target for target, _ in alike], [gradient for _, gradient in alike], alpha=alpha)
    for target, gradient in pairs:
        if target.stride() != gradient.stride():
            target.add_(gradient, alpha=alpha)


@contextmanager
def _search(wanted: bool) -> Iterator[None]:
    before = torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = wanted or before
    try:
        yield
    finally:
        torch.backends.cudnn.benchmark = before
