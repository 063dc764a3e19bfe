"""A multi-label classifier in plain torch: logistic regression or one hidden layer, on standardised features.

Small on purpose: it is trained once per cluster and attacked round, with nothing but torch. L-BFGS takes thousands of small steps
one after another, for each of which a shared GPU lets it wait: few rows are fitted on the CPU, wherever they come from.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor
from torch.nn import functional as F

from covey.randomness import normals

STEPS = 40  # of L-BFGS
DECAY = 1e-3  # weight decay where the rows are clean
DECAYS = (1e-3, 1e-1, 1.0)  # what noisy rows are tried with
FEW = 4_000_000  # numbers in rows that a CPU core goes through as fast as a GPU is asked to


class _LBFGS(torch.optim.LBFGS):  # type: ignore[misc]
    """torch's, whose first use would import torch's compiler only to be left out of it: a second of the processor."""

    add_param_group = inspect.unwrap(torch.optim.Optimizer.add_param_group)
    zero_grad = inspect.unwrap(torch.optim.Optimizer.zero_grad)


@dataclass(frozen=True)
class MultiLabel:
    """A trained model: the layers, and how to standardise what it reads."""

    mean: Tensor  # [features]
    scale: Tensor  # [features]
    layers: tuple[tuple[Tensor, Tensor], ...]  # (weights [out, in], biases [out]); ReLU between them

    def to(self, device: torch.device) -> MultiLabel:
        layers = tuple((weight.to(device), bias.to(device)) for weight, bias in self.layers)
        return MultiLabel(self.mean.to(device), self.scale.to(device), layers)

    def probabilities(self, x: Tensor) -> Tensor:
        """[n, features] -> [n, labels]."""
        return _forward(self.layers, (x - self.mean) / self.scale).sigmoid()


def fit(
    x: Tensor, labels: Tensor, hidden: int, key: int, decay: float = DECAY, averaged: Tensor | None = None
) -> MultiLabel:
    """Minimises the mean binary cross-entropy with a little weight decay; `hidden` 0: logistic regression.

    A feature that never varies is left out by an infinite scale: it carries nothing, and one that is off at query time must
    not decide. `averaged` [m, features]: rows that every row of x is an average of. Where they are fewer than the features, the
    logistic regression is fitted in their span, in which all its steps lie: the same weights at a fraction of the work.
    """
    device = x.device
    if x.numel() <= FEW:
        x, labels, averaged = x.cpu(), labels.cpu(), None if averaged is None else averaged.cpu()
    mean, scale = x.mean(0), x.std(0, unbiased=False)
    scale = torch.where(scale > 1e-12 * scale.max(), scale, torch.inf)
    z = (x - mean) / scale
    if averaged is not None and not hidden and len(averaged) < x.shape[1]:
        basis = torch.linalg.qr(((averaged - mean) / scale).T).Q  # [features, m]
        inside = z @ basis
        ((weight, bias),) = _trained(inside, labels, hidden, key, decay, _reach(z, labels) / _reach(inside, labels))
        return MultiLabel(mean, scale, ((weight @ basis.T, bias),)).to(device)
    return MultiLabel(mean, scale, _trained(z, labels, hidden, key, decay)).to(device)


def _reach(z: Tensor, labels: Tensor) -> float:
    """How far the first step of L-BFGS goes, in gradients: the one thing in it that depends on the coordinates."""
    errors = (0.5 - labels) / labels.numel()  # the gradient of zero logits
    return min(1.0, 1.0 / float((errors.T @ z).abs().sum() + errors.sum(0).abs().sum()))


def _trained(
    z: Tensor, labels: Tensor, hidden: int, key: int, decay: float, first: float = 1.0
) -> tuple[tuple[Tensor, Tensor], ...]:
    """The layers, on standardised rows; `first`: how much longer than usual the first step is."""
    sizes = [z.shape[1], *([hidden] if hidden else []), labels.shape[1]]
    layers = []
    for n, (fan_in, fan_out) in enumerate(pairwise(sizes)):
        # The last layer starts at zero: for logistic regression that makes the fit independent of the key.
        last = n == len(sizes) - 2
        weight = normals([key + n], fan_in * fan_out, z.device).view(fan_out, fan_in) * (0.0 if last else fan_in**-0.5)
        layers.append((weight.requires_grad_(), torch.zeros(fan_out, device=z.device, requires_grad=True)))
    optimiser = _LBFGS([t for layer in layers for t in layer], max_iter=STEPS, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimiser.zero_grad()
        total = F.binary_cross_entropy_with_logits(_forward(layers, z), labels)
        for weight, _ in layers:
            total = total + decay * weight.square().sum()
        total.backward()  # type: ignore[no-untyped-call]
        return total

    if first != 1.0:
        (group,) = optimiser.param_groups
        most, group["lr"], group["max_iter"] = group["max_eval"], first, 1
        optimiser.step(loss)  # type: ignore[no-untyped-call]
        (state,) = optimiser.state.values()
        group["lr"], group["max_iter"], group["max_eval"] = 1.0, STEPS - 1, most - state["func_evals"] + 1
    optimiser.step(loss)  # type: ignore[no-untyped-call]
    return tuple((weight.detach(), bias.detach()) for weight, bias in layers)


def fit_noisy(x: Tensor, labels: Tensor, hidden: int, key: int) -> MultiLabel:
    """As `fit`, with the weight decay that does best on a fifth of the rows kept apart: thousands of noisy features overfit."""
    kept = len(x) - len(x) // 5
    tried = [fit(x[:kept], labels[:kept], hidden, key, decay) for decay in DECAYS]
    losses = [float(F.binary_cross_entropy(model.probabilities(x[kept:]), labels[kept:])) for model in tried]
    return tried[losses.index(min(losses))]


def _forward(layers: list[tuple[Tensor, Tensor]] | tuple[tuple[Tensor, Tensor], ...], x: Tensor) -> Tensor:
    for n, (weight, bias) in enumerate(layers):
        x = torch.addmm(bias, x, weight.t())
        x = x if n == len(layers) - 1 else x.relu()
    return x
