"""The steps of many clients at once: what the linear and the stacked kernel share.

A kernel only adds the mean gradient of a batch to its target; drawing the batch, noise, the rest of the update rule and
holding clients that are done happen here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from covey import randomness
from covey.learn.keyed import slot_keys
from covey.learn.objective import keep_mask
from covey.learn.rule import Rule
from covey.learn.samples import Samples
from covey.learn.schedule.waves import Wave


@dataclass(frozen=True)
class Batch:
    """One step of c clients, B slots each."""

    x: Tensor  # [c, B, ...]
    y: Tensor  # [c, B], or [c, B, outputs]
    factor: Tensor  # [c, B] weight / divisor, 0 in empty slots
    divisors: Tensor  # [c]
    keep: Tensor | None  # [c, B, features] scaled dropout mask
    head_y: Tensor | None  # [c, B]
    head_classes: int
    head_share: float
    clip: float
    keys: Tensor | None = None  # [c, B] of the samples, where the network drops units itself

    @property
    def inputs(self) -> tuple[Tensor | None, ...]:
        """What an objective takes."""
        return self.x, self.y, self.keep, self.head_y, self.keys


# (target [c, D], model [c, D], batch, beta, alpha): target ← beta · target + alpha · gradient at model
Accumulate = Callable[[Tensor, Tensor, Batch, float, float], None]


def run(wave: Wave, samples: Samples, features: int, accumulate: Accumulate, model: Tensor) -> None:
    """Trains all clients of the wave side by side, step by step; what they arrive at is written to `model` [n, D], which may be
    the memory of the wave's `start`.
    """
    if model.data_ptr() != wave.start.data_ptr():
        model.copy_(wave.start)
    velocity = torch.zeros_like(model) if wave.plan.momentum else None
    widths = wave.counts.amax(dim=1).tolist() if wave.counts.numel() else []
    for t, width in enumerate(widths):
        active = sum(steps > t for steps in wave.steps)  # clients are sorted: those still training come first
        step = Tensors.at(wave, t, active, max(width, 1))  # a Poisson batch may be empty
        advance(
            wave,
            step,
            samples,
            features,
            accumulate,
            model[:active],
            None if velocity is None else velocity[:active],
            None if wave.constant is None else wave.constant[:active],
        )


def one_step(wave: Wave, samples: Samples, features: int, accumulate: Accumulate, model: Tensor) -> None:
    """The same of a wave in which everybody takes one step. Nothing here waits for the device."""
    model.copy_(wave.start)
    velocity = torch.zeros_like(model) if wave.plan.momentum else None
    step = Tensors.at(wave, 0, len(model), wave.rows.shape[2])
    constant = None if wave.constant is None else wave.constant[: len(model)]
    advance(wave, step, samples, features, accumulate, model, velocity, constant)


@dataclass(frozen=True)
class Tensors:
    """The tensors of a wave at one step."""

    rows: Tensor  # [c, B]
    factor: Tensor  # [c, B]
    divisors: Tensor  # [c]
    noise_keys: Tensor | None  # [c]
    dropout_keys: Tensor | None  # [c]
    head_labels: Tensor | None  # [c, B]

    @classmethod
    def at(cls, wave: Wave, t: int, active: int, width: int) -> Tensors:
        return cls(
            wave.rows[t, :active, :width],
            wave.factor[t, :active, :width],
            wave.divisors[t, :active],
            None if wave.noise_keys is None else wave.noise_keys[t, :active],
            None if wave.dropout_keys is None else wave.dropout_keys[t, :active],
            None if wave.head_labels is None else wave.head_labels[t, :active, :width],
        )

    @classmethod
    def at_counter(cls, wave: Wave, counter: Tensor) -> Tensors:
        """The step that a counter on the device points to: a CUDA graph can replay this."""

        def pick(tensor: Tensor) -> Tensor:
            return tensor.index_select(0, counter).squeeze(0)

        return cls(
            pick(wave.rows),
            pick(wave.factor),
            pick(wave.divisors),
            None if wave.noise_keys is None else pick(wave.noise_keys),
            None if wave.dropout_keys is None else pick(wave.dropout_keys),
            None if wave.head_labels is None else pick(wave.head_labels),
        )

    def first(self, clients: int) -> Tensors:
        """Of the first clients alone."""
        return Tensors(*(None if t is None else t[:clients] for t in vars(self).values()))  # type: ignore[arg-type]


def advance(
    wave: Wave,
    step: Tensors,
    samples: Samples,
    features: int,
    accumulate: Accumulate,
    model: Tensor,
    velocity: Tensor | None,
    constant: Tensor | None,
    hold: bool = False,
) -> None:
    """One step of all these clients, in place. `hold`: some may be done, and would move without a gradient."""
    plan, rule = wave.plan, Rule.of(wave.plan)
    keep = keys = None
    if step.dropout_keys is not None and plan.dropout:
        keep = keep_mask(step.dropout_keys, step.rows.shape[1], features, plan.dropout)
    if step.dropout_keys is not None and samples.network.facts.dropping:
        keys = slot_keys(step.dropout_keys, step.rows.shape[1])
    batch = Batch(
        samples.inputs(step.rows),
        samples.labels(step.rows),
        step.factor,
        step.divisors,
        keep,
        step.head_labels,
        wave.head_classes,
        wave.head_share,
        plan.clip,
        keys,
    )
    moves = None if wave.moves is None else wave.moves[: len(model)]
    before = model.clone() if hold or moves is not None else model
    target = model if velocity is None else velocity
    if wave.secret is not None:
        # A gradient whose bound is promised stands alone until its noise is on: summed up in a model that somebody else chose
        # it would be rounded as coarsely as that model's largest numbers are.
        gradient = torch.zeros_like(model)
        accumulate(gradient, model, batch, 1.0, 1.0)
        if plan.noise:
            for row, divisor in enumerate(step.divisors.tolist()):
                if divisor:
                    gradient[row] = wave.secret.gaussian(gradient[row], plan.noise * plan.clip / divisor)
        target.mul_(rule.beta).add_(gradient, alpha=rule.alpha)
    else:
        accumulate(target, model, batch, rule.beta, rule.alpha)
    if step.noise_keys is not None:
        noise = randomness.normals(step.noise_keys, model.shape[1], model.device)
        scale = (step.divisors > 0) * (plan.noise * plan.clip) / step.divisors.clamp(min=1)
        target.addcmul_(noise, scale.to(noise.dtype)[:, None], value=rule.alpha)
    rule.finish(model, velocity, constant)
    if hold:
        torch.where((step.divisors > 0)[:, None], model, before, out=model)
    if moves is not None:
        torch.where(moves, model, before, out=model)
