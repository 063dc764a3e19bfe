"""Clients that take one step from one and the same model, in one pass: the GPU's way for large convolutional networks.

One client's batch does not fill a GPU, and most of a step is many small kernels. Where clients begin alike, all their samples go
through the model as one batch, and the gradient comes back as one as far as what the layers gave. Only at the weights each client
has a gradient of its own, from the factors of its samples (`factors.py`), and so it is with clipping, for which each sample has a
norm of its own.
"""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor, nn

from covey.learn.flat import Network
from covey.learn.kernels.batched import Batch
from covey.learn.kernels.factors import bounded, known, layers_of, sums
from covey.learn.kernels.loop import Loop
from covey.learn.objective import activations, clipped


def does(network: Network) -> bool:
    """Whether the factors of its layers are known for certain, as of covey's own, and a convolution's gradient for one sample is no
    longer than what all layers give for it. ResNet's are, whose last layers have many channels at few places.
    """
    convolutions = [layer for layer in network.architecture.modules() if isinstance(layer, nn.Conv2d)]
    short = all(layer.weight.numel() <= activations(network) for layer in convolutions)
    return network.plain and short and known(network)


class OneStart:
    """Gradients of many clients' batches at the model that all of them begin at. Does what `does` says."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop

    def accumulate(self, target: Tensor, model: Tensor, batch: Batch, beta: float, alpha: float) -> None:
        """target ← beta · target + alpha · (mean gradient of the batch at model), whose rows are all the same."""
        trainee = self._loop.trainee(batch.head_classes, batch.head_share)
        trainee.begin(model[0], training=True)
        x, *more = (None if part is None else part.flatten(0, 1) for part in batch.inputs)
        assert x is not None
        shares, pass_over = batch.factor, partial(layers_of, trainee.objective, trainee.parameters, x, *more)
        if batch.clip:

            def shared(norms: Tensor) -> Tensor:
                return clipped(shares, norms.view_as(shares), batch.divisors, batch.clip)

            gradients = dict(bounded(pass_over(), shared))
        else:
            gradients = dict(sums(pass_over(shares=shares.reshape(-1)), len(shares)))
        if beta != 1:
            target.mul_(beta)
        parts = [gradients[p].flatten(1) for p in trainee.parameters if p in gradients]
        if sum(part.shape[1] for part in parts) == target.shape[1]:  # one after another they are the model
            target.add_(torch.cat(parts, 1), alpha=alpha)
            return
        for parameter, view in zip(trainee.parameters, trainee.trained_views(target)):
            if parameter in gradients:
                view.add_(gradients[parameter], alpha=alpha)
