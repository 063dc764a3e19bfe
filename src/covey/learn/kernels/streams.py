"""Clients side by side on parallel streams: the GPU's way for large convolutional networks.

vmap turns the convolutions of many clients into grouped ones, which cuDNN computes slowly. Here every client keeps its
ordinary convolutions, and the kernels of several clients overlap, since one client's alone would not fill a GPU. All of it
is captured in one CUDA graph (`graph.py`), in which the streams become parallel branches. On a CPU the clients
follow each other.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor
from torch.func import functional_call

from covey.learn.kernels.batched import Batch
from covey.learn.kernels.stacked import Stacked
from covey.learn.objective import Objective
from covey.learn.precision import of_steps

STREAMS = 8  # clients that overlap
CHANNELS_LAST = False  # torch's GroupNorm turns its input back: ResNet-18 on an H200 704 ms, channels last 815
SEARCH = (
    False  # whether cuDNN times its algorithms in the warm-up: then each process may choose, and round, differently
)


class Streams:
    """Gradients of models one by one, on several streams. Does every network; clipping is left to the stacked kernel."""

    def __init__(
        self,
        stacked: Stacked,
        device: torch.device,
        streams: int = STREAMS,
        channels_last: bool = CHANNELS_LAST,
        search: bool = SEARCH,
    ) -> None:
        self._stacked, self._device = stacked, device
        self._channels_last, self._search = channels_last, search
        # The same streams in every call: libraries keep a workspace for each, made while the graph's step warms up.
        self._streams: list[torch.cuda.Stream] = []
        if device.type == "cuda":
            self._streams = [torch.cuda.Stream(device) for _ in range(streams)]  # type: ignore[no-untyped-call]

    def accumulate(self, target: Tensor, model: Tensor, batch: Batch, beta: float, alpha: float) -> None:
        """target ← beta · target + alpha · (mean gradient of the batch at model)."""
        if batch.clip:  # per-sample gradients
            self._stacked.accumulate(target, model, batch, beta, alpha)
            return
        objective = self._stacked.objective(batch.head_classes, batch.head_share)
        parts = batch.inputs
        with _search(self._search), self._forked(len(model)) as streams:
            for client in range(len(model)):
                with torch.cuda.stream(streams[client % len(streams)]):
                    inputs = tuple(None if part is None else self._ordered(part[client]) for part in parts)
                    parameters = self._leaves(objective, model[client])
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
        for stream in used:
            stream.wait_stream(current)  # under capture this draws the stream into the graph
        yield list(used)
        for stream in used:
            current.wait_stream(stream)

    def _leaves(self, objective: Objective, model: Tensor) -> dict[str, Tensor]:
        """Parameters of one client to differentiate by."""
        cut = objective.parameters_of(model).items()
        return {name: self._ordered(view.detach()).requires_grad_() for name, view in cut}

    def _ordered(self, tensor: Tensor) -> Tensor:
        """Images and the weights of convolutions in the order in memory that the convolutions want."""
        if tensor.dim() != 4 or not self._channels_last:
            return tensor
        return tensor.contiguous(memory_format=torch.channels_last)


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
