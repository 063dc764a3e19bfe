"""Linear stacks in closed form, many clients side by side: forward, backward and the SGD step as batched products.

With h the inputs of a layer and δ the gradient at its outputs, the gradient of its weights is δᵀh, so the step
`W ← beta W + alpha δᵀh` is one product, and a sample's squared gradient norm is Σ ‖δ‖² (‖h‖² + 1) over the layers:
clipping needs no per-sample gradients.
"""

from __future__ import annotations

from bisect import bisect_left
from functools import partial
from itertools import accumulate, pairwise

import torch
from torch import Tensor, nn

from covey.errors import CoveyError
from covey.learn.flat import Network
from covey.learn.kernels.batched import Accumulate, Batch
from covey.learn.kernels.products import Products, library, products, through_activation
from covey.learn.losses import softmax_delta as head_delta
from covey.learn.objective import clipped
from covey.learn.samples import Samples

Layers = list[tuple[Tensor, Tensor]]  # (weights [c, out, in], biases [c, out]) of the hidden layers, the last, the head


class Linear:
    """Gradients of stacked linear networks. Does those that `is_stack` accepts."""

    def __init__(self, network: Network, samples: Samples, own_kernels: bool = True) -> None:
        self.samples = samples
        self.sizes, self.leak = stack_of(network)
        assert network.loss.delta is not None
        self.delta = network.loss.delta
        self.hidden = len(self.sizes) - 2
        self.library = library(samples.x.device)
        self.products: Products = products(samples.x.device) if own_kernels else self.library

    def only(self, moves: Tensor) -> Accumulate | None:
        """`accumulate` that leaves all layers alone but those of which `moves` [D] is true, and goes back no further than the
        first of them; None: it cuts through a layer. Not for clipped gradients: their bound is on all layers together.
        """
        masks = [torch.cat([weight.reshape(-1), bias.reshape(-1)]) for weight, bias in self._cut(moves[None], 0)]
        trained = tuple(bool(mask.any()) for mask in masks)
        if not all(mask.all() for mask, moving in zip(masks, trained) if moving):
            return None
        return partial(self.accumulate, trained=trained)

    def accumulate(
        self,
        target: Tensor,
        model: Tensor,
        batch: Batch,
        beta: float,
        alpha: float,
        trained: tuple[bool, ...] | None = None,
    ) -> None:
        """target ← beta · target + alpha · (mean gradient of the batch at model). `trained`: in which layers; None: in all."""
        layers = self._cut(model, batch.head_classes)
        lowest = 0 if trained is None else next((i for i, moving in enumerate(trained) if moving), len(layers))
        inputs, deltas = self._backward(layers, batch, lowest)
        if batch.clip:
            scale = clipped(batch.factor, _norms(inputs, deltas), batch.divisors, batch.clip)
        else:
            scale = batch.factor
        targets = layers if target is model else self._cut(target, batch.head_classes)
        held = len(layers) - len(deltas)  # layers from below of which there is no δ
        for i, ((weight, bias), h, delta) in enumerate(zip(targets[held:], inputs[held:], deltas), held):
            if trained is None or trained[i]:
                self.products.update(weight, bias, delta.mul_(scale[..., None]), h, beta, alpha)

    def _backward(self, layers: Layers, batch: Batch, lowest: int = 0) -> tuple[list[Tensor], list[Tensor]]:
        """Per layer its inputs [c, B, in] and its unscaled δ [c, B, out]; the head is a last layer beside the last. There
        is no δ of layers below the `lowest`, but always the last one's.
        """
        inputs = self._forward(layers, batch.x, batch.keep)
        features = inputs[-1]
        deltas = [self.delta(self.products.layer(features, *layers[self.hidden], None), batch.y)]
        if batch.head_y is not None:
            deltas[0].mul_(batch.head_share)
            second = self.products.layer(features, *layers[-1], None)
            deltas.append(head_delta(second, batch.head_y).mul_(1 - batch.head_share))
            inputs.append(features)
        for layer in range(self.hidden, lowest, -1):
            outputs, weight = inputs[layer], layers[layer][0]
            if layer == self.hidden and (batch.head_y is not None or batch.keep is not None):
                back = deltas[0] @ weight
                if batch.head_y is not None:
                    back.baddbmm_(deltas[1], layers[-1][0])
                if batch.keep is not None:
                    back.mul_(batch.keep)  # a dropped unit has output 0 and mask 0, so the next line cannot err on it
                deltas.insert(0, through_activation(back, outputs, self.leak))
            else:
                deltas.insert(0, self.products.back(deltas[0], weight, outputs, self.leak))
        return inputs, deltas

    def _forward(self, layers: Layers, x: Tensor, keep: Tensor | None = None) -> list[Tensor]:
        """The inputs of every layer of the network; the last of them are the features."""
        inputs = [x]
        for weight, bias in layers[: self.hidden]:
            inputs.append(self.products.layer(inputs[-1], weight, bias, self.leak))
        if keep is not None:
            inputs[-1] = inputs[-1] * keep
        return inputs

    def logits(self, model: Tensor, x: Tensor) -> Tensor:
        """Outputs [b, classes] of one model [d]."""
        layers = [(weight[0], bias[0]) for weight, bias in self._cut(model[None], 0)]
        for weight, bias in layers[:-1]:
            x = self.library.one(x, weight, bias, self.leak)
        return self.library.one(x, *layers[-1], None)

    def logits_of_all(self, models: Tensor, x: Tensor) -> Tensor:
        """Outputs [k, b, classes] of models [k, d]: the first layers of all are one product."""
        layers = self._cut(models, 0)
        weight, bias = layers[0]
        h = self.library.one(x, weight.reshape(-1, weight.shape[2]), bias.reshape(-1), None)
        h = h.view(len(x), len(models), -1).transpose(0, 1)  # [k, b, units]
        for weight, bias in layers[1:]:
            h = nn.functional.leaky_relu_(h, self.leak) if self.leak else h.relu_()
            h = torch.baddbmm(bias[:, None], h, weight.mT)
        return h

    def gradient(self, at: Tensor, rows: Tensor) -> Tensor:
        """Mean gradient [d]."""
        total = torch.zeros_like(at)
        for part in torch.split(rows, self.samples.at_once):
            self.accumulate(total[None], at[None], self._batch(part, 1 / len(rows)), 1.0, 1.0)
        return total

    def sample_norms(self, at: Tensor, rows: Tensor) -> Tensor:
        """Norm of every sample's gradient [n]."""
        layers, norms = self._cut(at[None], 0), []
        for part in torch.split(rows, self.samples.at_once):
            norms.append(_norms(*self._backward(layers, self._batch(part)))[0])
        return torch.cat(norms)

    def sample_gradients(self, at: Tensor, rows: Tensor, last: int) -> Tensor:
        """Every sample's gradient of the last parameters [n, last]: δ hᵀ for weights, δ for biases."""
        layers, parts = self._cut(at[None], 0), []
        ends = list(accumulate(weight[0].numel() + bias[0].numel() for weight, bias in reversed(layers)))
        lowest = self.hidden - bisect_left(ends, last)
        for part in torch.split(rows, self.samples.at_once):
            inputs, deltas = self._backward(layers, self._batch(part), lowest)
            pairs = [(delta[0], h[0]) for delta, h in zip(deltas, inputs[lowest:])]
            each = [g for delta, h in pairs for g in (torch.einsum("bo,bi->boi", delta, h).flatten(1), delta)]
            parts.append(torch.cat(each, dim=1)[:, -last:])
        return torch.cat(parts)

    def fisher(self, at: Tensor, rows: Tensor) -> Tensor:
        """Mean squared per-sample gradient [d]: (δ²)ᵀ h² for weights, Σ δ² for biases."""
        total = torch.zeros_like(at)
        layers, sums = self._cut(at[None], 0), self._cut(total[None], 0)
        for part in torch.split(rows, self.samples.at_once):
            for (weight, bias), h, delta in zip(sums, *self._backward(layers, self._batch(part))):
                self.library.update(weight, bias, delta.square_(), h.square(), 1.0, 1 / len(rows))
        return total

    def _batch(self, rows: Tensor, factor: float = 1.0) -> Batch:
        x, y = self.samples.inputs(rows)[None], self.samples.labels(rows)[None]
        every = torch.full(y.shape[:2], factor, device=y.device)
        return Batch(x, y, every, torch.tensor([len(rows)], device=y.device), None, None, 0, 1.0, 0.0)

    def _cut(self, vector: Tensor, head_classes: int) -> Layers:
        """Views of [c, D], layer by layer; a head reads what the last layer reads."""
        shapes = [(fan_out, fan_in) for fan_in, fan_out in pairwise(self.sizes)]
        if head_classes:
            shapes.append((head_classes, self.sizes[-2]))
        parts = torch.split(vector, [size for out, into in shapes for size in (out * into, out)], dim=1)
        return [(w.view(len(w), *shape), b) for shape, w, b in zip(shapes, parts[::2], parts[1::2])]


def is_stack(network: Network) -> bool:
    """Whether a network is linear layers with a ReLU or LeakyReLU between any two, under a loss whose gradient is known."""
    if not network.plain or network.loss.delta is None or type(network.architecture.body) is not nn.Sequential:
        return False
    layers = [layer for layer in network.architecture.body if type(layer) is not nn.Flatten]
    linear, between = [*layers[::2], network.architecture.last], layers[1::2]
    slopes = {layer.negative_slope if type(layer) is nn.LeakyReLU else 0.0 for layer in between}
    return (
        len(linear) == len(between) + 1
        and all(type(layer) is nn.Linear and layer.bias is not None for layer in linear)
        and all(type(layer) in (nn.ReLU, nn.LeakyReLU) for layer in between)
        and len(slopes) <= 1
    )


def stack_of(network: Network) -> tuple[tuple[int, ...], float]:
    """(widths from input to classes, slope below zero) of a linear stack; anything else is refused."""
    if not is_stack(network):
        raise CoveyError(
            f"the linear kernel computes covey's stacks of linear layers and losses, '{network.title}' has others: "
            "use kernel 'auto', 'loop' or 'stacked'"
        )
    module = network.architecture
    body = list(module.body.children())
    linear = [layer for layer in body if isinstance(layer, nn.Linear)]
    slopes = [layer.negative_slope for layer in body if isinstance(layer, nn.LeakyReLU)]
    sizes = (*(layer.in_features for layer in linear), module.last.in_features, module.last.out_features)
    return sizes, slopes[0] if slopes else 0.0


def _norms(inputs: list[Tensor], deltas: list[Tensor]) -> Tensor:
    """Norms of the per-sample gradients [c, B]."""
    squares = [(h.square().sum(-1) + 1) * delta.square().sum(-1) for h, delta in zip(inputs, deltas)]
    return torch.stack(squares).sum(0).sqrt()
