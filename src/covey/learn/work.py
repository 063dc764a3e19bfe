"""Work: what a client asks its machine to compute. Plain data; `machine.py` decides how it is computed.

Models are flat float32 vectors `[d]`, stacks of them `[k, d]`. `on` restricts work to some of the asking client's
samples (positions in its own data, not rows of the dataset); weights and labels of samples are for all of its samples.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from covey.crypto.noise.source import SecretNoise
from covey.errors import CoveyError, meant
from covey.learn.kernels.vectors.doubts import Doubt
from covey.randomness import Streams

VECTORS = "vectors"  # the phase of arithmetic on clients' vectors
LAST_BATCHES = ("keep", "drop", "merge")


@dataclass(frozen=True)
class Plan:
    """How to train locally. One epoch visits the samples once in a keyed random order; the last batch may be smaller.

    The gradient of a step is the mean over its batch of (clipped) per-sample gradients, plus noise, weight decay, the
    proximal pull towards the anchor and the correction of the request; then momentum, then the step.
    """

    lr: float = 0.01
    epochs: int = 1
    steps: int = 0  # > 0: this many mini-batch steps (running through reshuffled epochs) instead of epochs
    batch_size: int = 50  # 0: the whole of the client's data
    momentum: float = 0.0
    weight_decay: float = 0.0
    proximal: float = 0.0  # μ of μ/2 ‖θ − anchor‖²
    clip: float = 0.0  # bound C on the norm of each sample's gradient; 0: no clipping
    noise: float = 0.0  # σ: N(0, (σ C)²) on the *sum* of a batch's clipped gradients
    dropout: float = 0.0  # on the inputs of the last layer, masks keyed per client and step
    # What is left of an epoch and makes no whole batch is a batch of its own ("keep"), is left out of this epoch ("drop"), or joins
    # the batch before it ("merge"). Fewer samples than one batch are one in any case; Poisson batches have no last one.
    last_batch: str = "keep"
    poisson: bool = False  # each step takes each sample with probability batch_size / n, and divides by batch_size

    def __post_init__(self) -> None:
        for name in ("lr", "momentum", "weight_decay", "proximal", "clip", "noise", "dropout"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0):
                raise CoveyError(f"training.{name} is {value}: it must be a finite number that is not negative")
        for name in ("epochs", "steps", "batch_size"):
            if getattr(self, name) < 0:
                raise CoveyError(f"training.{name} is {getattr(self, name)}: it must not be negative")
        if self.noise > 0 and self.clip == 0:
            raise CoveyError("training.noise needs training.clip > 0: noise is measured in units of the clipping bound")
        if self.poisson and self.clip == 0:
            raise CoveyError("Poisson-sampled batches are for clipped gradients: set a finite clip")
        if self.last_batch not in LAST_BATCHES:
            near = meant(self.last_batch, LAST_BATCHES)
            raise CoveyError(f"training.last_batch is {self.last_batch!r}: choose {', '.join(LAST_BATCHES)}{near}")
        if not self.dropout < 1:
            raise CoveyError(f"training.dropout is {self.dropout}: it must be below 1")

    def but(self, **changes: Any) -> Plan:
        """The same with some fields changed. Clients that change the same hold one and the same plan: that is how it is told, at no
        cost, that they can be trained together.
        """
        return _but(self, tuple(changes.items()))

    @overload
    def batches(self, samples: int) -> int: ...
    @overload
    def batches(self, samples: NDArray[np.int64]) -> NDArray[np.int64] | int: ...
    def batches(self, samples: Any) -> Any:
        """Steps in one epoch; of an array [n] of sample counts an array."""
        if self.batch_size == 0:
            return 1
        if self.last_batch == "keep":
            return -(-samples // self.batch_size)
        whole = samples // self.batch_size
        return np.maximum(1, whole) if isinstance(whole, np.ndarray) else max(1, whole)

    def span(self, step: int, samples: int) -> tuple[int, int]:
        """Where the batch of a step begins and ends in its epoch's order."""
        if self.batch_size == 0:
            return 0, samples
        batches = self.batches(samples)
        first = step % batches * self.batch_size
        rest = self.last_batch == "merge" and step % batches == batches - 1
        return first, samples if rest else min(first + self.batch_size, samples)

    @overload
    def steps_for(self, samples: int) -> int: ...
    @overload
    def steps_for(self, samples: NDArray[np.int64]) -> NDArray[np.int64] | int: ...
    def steps_for(self, samples: Any) -> Any:
        """Steps that a client with this many samples takes; of an array [n] an array, or one number where all take as many."""
        return self.steps or self.epochs * self.batches(samples)


@functools.lru_cache(maxsize=1024)
def _but(plan: Plan, changes: tuple[tuple[str, Any], ...]) -> Plan:
    return replace(plan, **dict(changes))


@dataclass(frozen=True)
class Train:
    """Local training from `start`; gives the trained model [d]."""

    start: Tensor  # [d]
    plan: Plan
    anchor: Tensor | None = None  # [d] centre of the proximal term; None: start
    correction: Tensor | None = None  # [d] added to the gradient of every step
    weights: Tensor | None = None  # [n] weight of each sample's loss; None: all 1
    on: Tensor | None = None
    head: Head | None = None
    moves: Tensor | None = None  # [d] bool: the parameters that are trained, the others stay as they are; None: all
    purpose: str = "train"  # part of the randomness key: two trainings in one round need two names


@dataclass(frozen=True)
class Head:
    """A second output beside the model's own, on its last hidden layer: loss = share · main + (1 − share) · head.

    With it `start`, `anchor`, `correction` and the result are `[d + head_size]`: the model, then the head's weight and
    bias.
    """

    labels: Tensor  # [n] of the asking client's samples
    classes: int = 2
    share: float = 0.5  # α


@dataclass(frozen=True)
class Losses:
    """Mean loss of each model on the client's samples, [k]."""

    models: Tensor  # [k, d]
    on: Tensor | None = None


@dataclass(frozen=True)
class SampleLosses:
    """Loss of each model on each sample, [k, n]."""

    models: Tensor  # [k, d]
    on: Tensor | None = None


@dataclass(frozen=True)
class Logits:
    """Outputs of each model on each sample, [k, n, classes]."""

    models: Tensor  # [k, d]
    on: Tensor | None = None


@dataclass(frozen=True)
class Gradient:
    """Mean gradient of the loss over the samples, [d]."""

    at: Tensor  # [d]
    on: Tensor | None = None


@dataclass(frozen=True)
class GradientNorms:
    """Norm of each sample's gradient, [n]."""

    at: Tensor  # [d]
    on: Tensor | None = None


@dataclass(frozen=True)
class SampleGradients:
    """Each sample's own gradient, of the last parameters of the model alone, [n, last]: the output layer's come last."""

    at: Tensor  # [d]
    last: int
    on: Tensor | None = None


@dataclass(frozen=True)
class Fisher:
    """Diagonal Fisher information: mean over samples of the squared gradient of the log-likelihood, [d]."""

    at: Tensor  # [d]
    on: Tensor | None = None


@dataclass(frozen=True)
class Compute:
    """Any other computation, timed under `phase`.

    `shared`: equal for all clients of a host, so done once a broadcast. `rowwise`: arithmetic on vectors [d] and numbers that
    reads the same for rows of [n, d] and [n, 1], and gives one or several vectors; a GPU computes it for many clients at once.
    `on_cpu`: it reads its vectors there; those of many clients leave a GPU in one copy. `may_wait`: rowwise, and nobody writes to
    its arguments afterwards, so a GPU may compute it when somebody looks at a result, or adds it up over clients. `alike`: mostly
    the same for all clients, who run as one only where it is.
    """

    phase: str
    function: Callable[..., Any]
    arguments: tuple[Any, ...] = ()
    shared: bool = False
    rowwise: bool = False
    on_cpu: bool = False
    may_wait: bool = False
    alike: bool = False


def rowwise(function: Callable[..., Any], *arguments: Tensor | float, may_wait: bool = False) -> Compute:
    """Arithmetic on a client's vectors, for all clients that ask for it at the same step."""
    return Compute(VECTORS, function, arguments, rowwise=True, may_wait=may_wait)


Work = Train | Losses | SampleLosses | Logits | Gradient | GradientNorms | SampleGradients | Fisher | Compute


@dataclass(frozen=True)
class Bundle:
    """The same training of many clients: vectors of the work are [d], one for all of them, or [n, d]. Neither `on` nor weights
    nor a head nor a mask of trained parameters.
    """

    work: Train
    streams: Streams  # [n]
    rows: Tensor  # of the machine's dataset and on its device, one client's after the other's
    sizes: NDArray[np.int64]  # [n]
    meanwhile: Callable[[], None] | None = None  # what the host may do while a device computes
    doubts: list[Doubt] | None = None  # takes the check of the result, which waits for the device; None: at once


@dataclass(frozen=True)
class Job:
    """One client's request as a machine gets it: whose samples, which stream of randomness, what to compute."""

    rows: Tensor  # [n] int64, rows of the machine's dataset
    key: int
    work: Work
    secret: SecretNoise | None = None  # draws noise and batches in place of the key: in a silo
    lenient: bool = False  # a result that is no number is the asker's to judge, not the machine's to refuse
