"""One client after another on one reused module: the fastest way on a CPU for everything that is not a linear stack.

The module's parameters are views of one flat buffer, so that starting a client is one copy
and a step is a few vector operations.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.func import functional_call, grad, vmap

from covey import randomness
from covey.learn.flat import Network, views
from covey.learn.objective import Objective, clipped, keep_mask
from covey.learn.rule import Rule
from covey.learn.samples import Samples
from covey.learn.schedule import Wave

SAMPLE_GRADIENTS = {"cpu": 16_000_000, "cuda": 128_000_000}  # floats of per-sample gradients held at a time


class Loop:
    """The loop kernel. Does every network."""

    name = "loop"

    def __init__(self, network: Network, samples: Samples, device: torch.device) -> None:
        self.network, self.samples, self.device = network, samples, device
        self._trainees: dict[tuple[int, float], Trainee] = {}

    @property
    def points(self) -> Loop:
        return self

    def train(self, wave: Wave) -> Tensor:
        """Trained models [n, D] in the wave's order."""
        trainee = self._trainee(wave.head_classes, wave.head_share)
        result = wave.start.new_empty(wave.start.shape)
        for client, steps in enumerate(wave.steps):
            result[client] = self._train_one(trainee, wave.clients(client, client + 1), steps)
        return result

    def _train_one(self, trainee: Trainee, wave: Wave, steps: int) -> Tensor:
        plan, rule = wave.plan, Rule.of(wave.plan)
        model = trainee.model
        model.copy_(wave.start[0])
        velocity = torch.zeros_like(model) if plan.momentum else None
        target = model if velocity is None else velocity
        target_views = list(trainee.cut(target).values())
        constant = None if wave.constant is None else wave.constant[0]
        # An empty Poisson batch is one slot without weight.
        sizes = zip(wave.counts[:steps, 0].clamp(min=1).tolist(), wave.divisors[:steps, 0].tolist())
        for step, (count, divisor) in enumerate(sizes):
            batch = self._batch(wave, step, count)
            if plan.clip:
                gradient = trainee.clipped_gradient(batch, wave.factor[step, 0, :count], divisor, plan.clip)
                if wave.noise_keys is not None:
                    noise = randomness.normals(wave.noise_keys[step], len(model), self.device)[0]
                    gradient.add_(noise, alpha=plan.noise * plan.clip / divisor)
                elif wave.secret is not None and plan.noise:
                    gradient = wave.secret.gaussian(gradient, plan.noise * plan.clip / divisor)
                target.mul_(rule.beta).add_(gradient, alpha=rule.alpha)
            else:
                gradients = trainee.gradients(batch, wave.factor[step, 0, :count])
                if rule.beta != 1:
                    target.mul_(rule.beta)
                torch._foreach_add_(target_views, gradients, alpha=rule.alpha)
            rule.finish(model, velocity, constant)
        return model

    def _batch(self, wave: Wave, step: int, count: int) -> tuple[Tensor | None, ...]:
        rows = wave.rows[step, 0, :count]
        keep = None
        if wave.dropout_keys is not None:
            keep = keep_mask(wave.dropout_keys[step], count, self.network.features, wave.plan.dropout)[0]
        head_y = None if wave.head_labels is None else wave.head_labels[step, 0, :count]
        return self.samples.inputs(rows), self.samples.labels(rows), keep, head_y

    def logits(self, model: Tensor, x: Tensor) -> Tensor:
        """Outputs [b, classes] of one model [d]."""
        trainee = self._trainee(0, 1.0)
        trainee.model.copy_(model)
        with torch.no_grad():
            out: Tensor = trainee.objective.net(x)
        return out

    def gradient(self, at: Tensor, rows: Tensor) -> Tensor:
        """Mean gradient [d]."""
        trainee = self._trainee(0, 1.0)
        trainee.model.copy_(at)
        total = torch.zeros_like(at)
        for part in torch.split(rows, self.samples.at_once):
            factor = torch.full((len(part),), 1 / len(rows), device=self.device)
            batch = (self.samples.inputs(part), self.samples.labels(part), None, None)
            total += torch.cat([g.reshape(-1) for g in trainee.gradients(batch, factor)])
        return total

    def sample_norms(self, at: Tensor, rows: Tensor) -> Tensor:
        """Norm of every sample's gradient [n]."""
        return torch.cat([g.norm(dim=1) for g in self._sample_gradients(at, rows)])

    def fisher(self, at: Tensor, rows: Tensor) -> Tensor:
        """Mean squared per-sample gradient [d]."""
        total = torch.zeros_like(at)
        for gradients in self._sample_gradients(at, rows):
            total += gradients.square_().sum(dim=0)
        return total / len(rows)

    def _sample_gradients(self, at: Tensor, rows: Tensor) -> Iterator[Tensor]:
        trainee = self._trainee(0, 1.0)
        trainee.model.copy_(at)
        for part in torch.split(rows, _at_once(at)):
            yield trainee.sample_gradients((self.samples.inputs(part), self.samples.labels(part), None, None))

    def _trainee(self, head_classes: int, share: float) -> Trainee:
        known = (head_classes, share)
        if known not in self._trainees:
            self._trainees[known] = Trainee(Objective(self.network, head_classes, share, self.device))
        return self._trainees[known]


class Trainee:
    """A module whose parameters are views of `model` [D]."""

    def __init__(self, objective: Objective) -> None:
        self.objective = objective
        self.parameters = list(objective.parameters())
        self.shapes = {name: p.shape for name, p in objective.named_parameters()}
        self.model = torch.cat([p.detach().reshape(-1) for p in self.parameters])
        for parameter, view in zip(self.parameters, self.cut(self.model).values()):
            parameter.data = view

    def cut(self, vector: Tensor) -> dict[str, Tensor]:
        return views(vector, self.shapes)

    def gradients(self, batch: tuple[Tensor | None, ...], factor: Tensor) -> tuple[Tensor, ...]:
        """Gradient of Σ factor · loss, one tensor per parameter."""
        return torch.autograd.grad(torch.dot(self.objective(*batch), factor), self.parameters)

    def clipped_gradient(self, batch: tuple[Tensor | None, ...], factor: Tensor, divisor: int, clip: float) -> Tensor:
        """Σ factor · clipped per-sample gradient [D], in microbatches so that memory stays bounded."""
        total = torch.zeros_like(self.model)
        width = _at_once(self.model)
        divisors = torch.tensor(divisor, device=factor.device)
        for low in range(0, len(factor), width):
            part = tuple(None if t is None else t[low : low + width] for t in batch)
            gradients = self.sample_gradients(part)
            scale = clipped(factor[low : low + width], gradients.norm(dim=1), divisors, clip)
            total.addmv_(gradients.t(), scale)
        return total

    def sample_gradients(self, batch: tuple[Tensor | None, ...]) -> Tensor:
        """[b, D]"""

        def loss(model: Tensor, *sample: Tensor | None) -> Tensor:
            one = tuple(None if t is None else t.unsqueeze(0) for t in sample)
            out: Tensor = functional_call(self.objective, self.cut(model), one)
            return out.squeeze(0)

        given = tuple(None if t is None else 0 for t in batch)
        gradients: Tensor = vmap(grad(loss), in_dims=(None, *given))(self.model, *batch)
        return gradients


def _at_once(model: Tensor) -> int:
    """Samples whose gradients are held side by side."""
    return max(1, SAMPLE_GRADIENTS.get(model.device.type, SAMPLE_GRADIENTS["cpu"]) // len(model))
