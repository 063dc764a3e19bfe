"""Many clients side by side with vmap over their stacked parameters: the GPU's way for small networks.

Everything that concerns one model at a time (evaluation, gradients at a point) is the loop kernel's, which is as fast there.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel

from covey.learn.examine import example_inputs
from covey.learn.flat import Network, once
from covey.learn.kernels.batched import Batch
from covey.learn.kernels.convolutions.convolutions import own_convolutions
from covey.learn.kernels.convolutions.pooling import Pooled, has_kernels, join, own_pooling
from covey.learn.losses import example_targets
from covey.learn.objective import Objective, clipped
from covey.learn.precision import of_steps
from covey.models.own import first_line


class Stacked:
    """Gradients of stacked models by vmap. Does what `obstacle` finds nothing against."""

    def __init__(self, network: Network, device: torch.device) -> None:
        self._network, self._device = network, device
        self._objectives: dict[tuple[int, float], Objective] = {}
        self._has_convolutions = self.has(nn.Conv2d)

    def has(self, kind: type[nn.Module]) -> bool:
        """Whether the network has a layer of this kind."""
        return any(isinstance(layer, kind) for layer in self._network.architecture.modules())

    def accumulate(self, target: Tensor, model: Tensor, batch: Batch, beta: float, alpha: float) -> None:
        """target ← beta · target + alpha · (mean gradient of the batch at model)."""
        objective = self.objective(batch.head_classes, batch.head_share)

        def losses(vector: Tensor, *inputs: Tensor | None) -> Tensor:
            with of_steps(self._device):
                out: Tensor = functional_call(objective, objective.parameters_of(vector), inputs)
            return out

        def loss(vector: Tensor, factor: Tensor, *inputs: Tensor | None) -> Tensor:
            return (losses(vector, *inputs) * factor).sum()

        def sample_loss(vector: Tensor, *sample: Tensor | None) -> Tensor:
            return losses(vector, *(None if t is None else t.unsqueeze(0) for t in sample)).squeeze(0)

        inputs = batch.inputs
        given = tuple(None if t is None else 0 for t in inputs)
        with written_out(), self._own(not batch.clip):
            if batch.clip:
                per_sample = vmap(vmap(grad(sample_loss), in_dims=(None, *given)), in_dims=(0, *given))(model, *inputs)
                scale = clipped(batch.factor, per_sample.norm(dim=2), batch.divisors, batch.clip)
                gradient = torch.bmm(scale[:, None], per_sample)[:, 0]
            else:
                gradient = vmap(grad(loss), in_dims=(0, 0, *given))(model, batch.factor, *inputs)
        if beta != 1:
            target.mul_(beta)
        target.add_(gradient, alpha=alpha)

    def logits_of_all(self, models: Tensor, x: Tensor) -> Tensor:
        """Outputs [k, b, classes] of models [k, d] on the same samples."""
        objective = self.objective(0, 1.0)

        def logits(vector: Tensor) -> Tensor:
            parameters = objective.parameters_of(vector)
            named = {name.removeprefix("net."): parameter for name, parameter in parameters.items()}
            out: Tensor = functional_call(objective.net, named, (x,))
            return out

        with torch.no_grad(), written_out(), self._own(True):
            together: Tensor = vmap(logits)(models)
        return together

    def sample_gradients(self, at: Tensor, x: Tensor, y: Tensor) -> Tensor:
        """The gradient of each sample's loss [b, D] at one model [D]."""
        objective = self.objective(0, 1.0)

        def loss(vector: Tensor, *sample: Tensor) -> Tensor:
            losses: Tensor = functional_call(objective, objective.parameters_of(vector), tuple(t[None] for t in sample))
            return losses[0]

        with written_out(), self._own(True):
            gradients: Tensor = vmap(grad(loss), in_dims=(None, 0, 0))(at, x, y)
        return gradients

    def joins(self) -> bool:
        """Whether the network has layers with kernels of their own for many models at once, and the device has those."""
        return any(isinstance(layer, Pooled) for layer in self.objective(0, 1.0).modules()) and has_kernels(
            self._device
        )

    @contextmanager
    def _own(self, wanted: bool) -> Iterator[None]:
        """Convolutions by covey's own kernels, where they are wanted: what is differentiated sample by sample is torch's."""
        if not (wanted and self._has_convolutions):
            yield
            return
        with own_convolutions(self._device), own_pooling(self._device):
            yield

    def objective(self, head_classes: int, share: float) -> Objective:
        """The module of the loss, kept for the next call."""
        known = (head_classes, share)
        if known not in self._objectives:
            objective = Objective(self._network, head_classes, share, self._device)
            if self._network.plain:
                join(objective.net)
            self._objectives[known] = objective
        return self._objectives[known]


def written_out() -> AbstractContextManager[None]:
    """Attention as products and a softmax: torch's fused kernels have no rule for vmap, which then goes model by model."""
    context: AbstractContextManager[None] = sdpa_kernel(SDPBackend.MATH)
    return context


@once
def obstacle(network: Network) -> str:
    """Why clients cannot be trained side by side with this network; empty: they can. Found by trying two clients."""
    facts = network.facts
    if facts.running:
        return f"training changes its buffer '{facts.running[0]}'"
    if facts.mixes:
        return f"samples of a batch act on each other in {_layer(facts.mixes)}"
    if facts.drawing:
        return "it draws random numbers beyond dropout"
    return "" if network.plain else vmap_fails(network)


@once
def vmap_fails(network: Network) -> str:
    """What torch.func says where it cannot differentiate this network for many models, or many single samples, at once."""
    x, y = example_inputs(network, 2), example_targets(network.task, 2, network.classes)
    keys = torch.arange(4).view(2, 2) if network.facts.dropping else None
    factor = torch.full((2, 2), 0.5)
    together = (torch.stack([x, x]), torch.stack([y, y]), factor, torch.tensor([2, 2]), None, None, 0, 1.0)
    models, stacked = network.read(network.architecture).expand(2, -1).clone(), Stacked(network, torch.device("cpu"))
    try:
        for clip in (0.0, 1.0):  # of batches, and of each sample: nn.GRU has a rule for one of them
            stacked.accumulate(torch.zeros_like(models), models, Batch(*together, clip, keys), 1.0, 1.0)
    except Exception as e:
        if "data-dependent control flow" in str(e):
            return "its forward decides by the values of the samples, which torch.func cannot stack"
        return f"torch.func cannot stack it ({type(e).__name__}: {first_line(e)})"
    return ""


def _layer(name: str) -> str:
    return name if name == "the model" else f"layer '{name}'"
