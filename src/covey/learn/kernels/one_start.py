"""Clients that take one step from one and the same model, in one pass: the GPU's way for large convolutional networks.

One client's batch does not fill a GPU, and most of a step is many small kernels. Where clients begin alike, all their samples go
through the model as one batch, and the gradient comes back as one as far as what the layers gave. Only at the weights each client
has a gradient of its own: of what a layer read of its samples, and of the gradient at what it gave for them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.func import functional_call

from covey.learn.flat import Network
from covey.learn.kernels.batched import Batch
from covey.learn.kernels.stacked import Stacked
from covey.learn.objective import Objective
from covey.learn.precision import of_steps

LAYERS = (nn.Conv2d, nn.Linear)
Passed = list[tuple[str, nn.Module, Tensor, Tensor]]  # (name, layer, what it read, what it gave)


def does(network: Network) -> bool:
    """Whether all its parameters are those of layers whose gradients are written out here."""
    if not network.plain:
        return False
    owners = [layer for layer in network.architecture.modules() if list(layer.parameters(recurse=False))]
    return all(isinstance(layer, LAYERS) and _is_plain(layer) for layer in owners)


def _is_plain(layer: nn.Module) -> bool:
    return not isinstance(layer, nn.Conv2d) or (layer.padding_mode == "zeros" and not isinstance(layer.padding, str))


class OneStart:
    """Gradients of many clients' batches at one model. Does what `does` says, without clipping."""

    def __init__(self, stacked: Stacked, device: torch.device) -> None:
        self._stacked, self._device = stacked, device

    def accumulate(self, target: Tensor, model: Tensor, batch: Batch, beta: float, alpha: float) -> None:
        """target ← beta · target + alpha · (mean gradient of the batch at model), whose rows are all the same."""
        objective = self._stacked.objective(batch.head_classes, batch.head_share)
        parameters = {name: view.detach() for name, view in objective.parameters_of(model[0]).items()}
        inputs = tuple(None if part is None else part.flatten(0, 1) for part in batch.inputs)
        with _watched(objective) as passed, of_steps(self._device):
            losses: Tensor = functional_call(objective, parameters, inputs)
        loss = (losses * batch.factor.flatten()).sum()
        deltas = torch.autograd.grad(loss, [given for *_, given in passed])
        if beta != 1:
            target.mul_(beta)
        targets = objective.parameters_of(target)  # [c, ...] each
        for (name, layer, read, _), delta in zip(passed, deltas):
            weight = parameters[f"{name}.weight"].to(delta.dtype)
            at_weights, at_biases = _by_client(layer, weight, read.to(delta.dtype), delta, len(target))
            targets[f"{name}.weight"].add_(at_weights, alpha=alpha)
            if layer.bias is not None:
                targets[f"{name}.bias"].add_(at_biases, alpha=alpha)


@contextmanager
def _watched(objective: Objective) -> Iterator[Passed]:
    """What passes through its layers meanwhile. The first ones give what begins a graph, since no parameter does."""
    passed: Passed = []

    def watch(name: str) -> object:
        def note(layer: nn.Module, inputs: tuple[Tensor, ...], given: Tensor) -> None:
            passed.append((name, layer, inputs[0].detach(), given if given.requires_grad else given.requires_grad_()))

        return note

    layers = [(name, layer) for name, layer in objective.named_modules() if isinstance(layer, LAYERS)]
    hooks = [layer.register_forward_hook(watch(name)) for name, layer in layers]  # type: ignore[arg-type]
    try:
        yield passed
    finally:
        for hook in hooks:
            hook.remove()


def _by_client(layer: nn.Module, weight: Tensor, read: Tensor, delta: Tensor, clients: int) -> tuple[Tensor, Tensor]:
    """Gradients [c, ...] at weight and bias, from the clients' samples one after another."""
    if isinstance(layer, nn.Linear):
        delta, read = (part.reshape(clients, -1, part.shape[-1]) for part in (delta, read))
        return torch.bmm(delta.transpose(1, 2), read), delta.sum(1)
    assert isinstance(layer, nn.Conv2d)
    how = (None, layer.stride, layer.padding, layer.dilation, False, (0, 0), layer.groups, (False, True, False))
    backward = (
        torch.ops.aten.convolution_backward
    )  # what autograd calls; a grouped one for all clients is slower on a GPU
    at_weights = [backward(d, x, weight, *how)[1] for x, d in zip(read.chunk(clients), delta.chunk(clients))]
    return torch.stack(at_weights), delta.view(clients, -1, *delta.shape[1:]).sum((1, 3, 4))
