"""Whole trainings of networks with one hidden layer on a GPU, where nothing but plain steps is asked for: see `two_layers.py`.

What is not plain (clipping, noise, momentum, dropout, a head, parameters that stay) takes the captured steps of `graph.py`.
"""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import Tensor

from covey.learn.kernels.linear import Linear
from covey.learn.kernels.products import takes_triton
from covey.learn.kernels.vectors.pending import difference, settled
from covey.learn.losses import softmax_delta
from covey.learn.precision import of_products
from covey.learn.rule import Rule
from covey.learn.schedule.waves import Wave

MOST_SLOTS, MOST_UNITS, MOST_CLASSES = 64, 256, 64  # of what one program holds at a time


class Whole:
    """Trains waves for which `does` is true."""

    def __init__(self, linear: Linear) -> None:
        self._linear = linear
        self.kernels: Any = None
        self._subtracts: bool | None = None  # None: not yet tried
        if takes_triton(linear.samples.x.device):
            try:
                from covey.learn.kernels import two_layers
            except ImportError:  # torch was installed without Triton
                return
            self.kernels = two_layers

    def does(self, wave: Wave) -> bool:
        plan, linear = wave.plan, self._linear
        plain = not (plan.clip or plan.noise or plan.dropout or plan.momentum)
        given = (wave.secret, wave.moves, wave.noise_keys, wave.dropout_keys, wave.head_labels)
        sizes = (wave.rows.shape[2], *linear.sizes[1:])
        return (
            self.kernels is not None
            and plain
            and all(one is None for one in given)
            and linear.hidden == 1
            and all(size <= most for size, most in zip(sizes, (MOST_SLOTS, MOST_UNITS, MOST_CLASSES)))
            and linear.delta is softmax_delta
            and linear.samples.x.dtype in (torch.uint8, torch.float32)
        )

    def train(self, wave: Wave, model: Tensor) -> bool:
        """What the clients of the wave arrive at is written to `model` [n, D]; False: this GPU or its Triton cannot."""
        try:
            self._train(wave, model)
        except Exception as error:  # Triton has many of its own
            warnings.warn(f"no kernels for whole steps here, training runs slower without: {error}", stacklevel=2)
            self.kernels = None
        return self.kernels is not None

    def _train(self, wave: Wave, model: Tensor) -> None:
        """A correction that is the difference of two vectors is subtracted as it is read, where that is seen to give the same."""
        if wave.constant is None:
            self._launch(wave, None, None, model)
            return
        constant, less = (settled(wave.constant), None) if self._subtracts is False else difference(wave.constant)
        if less is None or self._subtracts:
            self._launch(wave, constant, less, model)
            return
        whole = torch.empty_like(model)
        self._launch(wave, settled(wave.constant), None, whole)
        try:
            self._launch(wave, constant, less, model)
            self._subtracts = torch.allclose(model, whole, rtol=1e-5, atol=1e-7, equal_nan=True)
        except Exception as error:
            warnings.warn(f"no kernel that subtracts corrections as it reads them: {error}", stacklevel=2)
            self._subtracts = False
        if not self._subtracts:
            model.copy_(whole)

    def _launch(self, wave: Wave, constant: Tensor | None, less: Tensor | None, model: Tensor) -> None:
        linear, rule, data = self._linear, Rule.of(wave.plan), self._linear.samples
        self.kernels.train(
            data.x, data.y, wave.rows.contiguous(), wave.factor.contiguous(), wave.divisors.contiguous(), wave.start,
            constant, less, model, linear.sizes, linear.leak, data.scale, rule.beta, rule.alpha, of_products(),
        )  # fmt: skip
