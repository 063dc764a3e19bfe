"""Many clients side by side with vmap over their stacked parameters: the GPU's way for small networks.

Everything that concerns one model at a time (evaluation, gradients at a point) is the loop kernel's, which is as fast there.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.func import functional_call, grad, vmap

from covey.learn.flat import Network, views
from covey.learn.kernels.batched import Batch
from covey.learn.objective import Objective, clipped


class Stacked:
    """Gradients of stacked models by vmap. Does every network."""

    def __init__(self, network: Network, device: torch.device) -> None:
        self._network, self._device = network, device
        self._objectives: dict[tuple[int, float], Objective] = {}

    def accumulate(self, target: Tensor, model: Tensor, batch: Batch, beta: float, alpha: float) -> None:
        """target ← beta · target + alpha · (mean gradient of the batch at model)."""
        objective = self.objective(batch.head_classes, batch.head_share)
        shapes = {name: p.shape for name, p in objective.named_parameters()}

        def losses(vector: Tensor, *inputs: Tensor | None) -> Tensor:
            out: Tensor = functional_call(objective, views(vector, shapes), inputs)
            return out

        def loss(vector: Tensor, factor: Tensor, *inputs: Tensor | None) -> Tensor:
            return (losses(vector, *inputs) * factor).sum()

        def sample_loss(vector: Tensor, *sample: Tensor | None) -> Tensor:
            return losses(vector, *(None if t is None else t.unsqueeze(0) for t in sample)).squeeze(0)

        inputs = (batch.x, batch.y, batch.keep, batch.head_y)
        given = tuple(None if t is None else 0 for t in inputs)
        if batch.clip:
            per_sample = vmap(vmap(grad(sample_loss), in_dims=(None, *given)), in_dims=(0, *given))(model, *inputs)
            scale = clipped(batch.factor, per_sample.norm(dim=2), batch.divisors, batch.clip)
            gradient = torch.bmm(scale[:, None], per_sample)[:, 0]
        else:
            gradient = vmap(grad(loss), in_dims=(0, 0, *given))(model, batch.factor, *inputs)
        if beta != 1:
            target.mul_(beta)
        target.add_(gradient, alpha=alpha)

    def objective(self, head_classes: int, share: float) -> Objective:
        """The module of the loss, kept for the next call."""
        known = (head_classes, share)
        if known not in self._objectives:
            self._objectives[known] = Objective(self._network, head_classes, share, self._device)
        return self._objectives[known]
