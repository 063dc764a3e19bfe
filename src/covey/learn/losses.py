"""Losses: what training makes small, one number for each sample. `training.loss` names one; without it the task chooses.

Several outputs of a sample (labels, numbers) are averaged. One of your own is `package.module:function`, a function of
(outputs [b, outputs], targets) that gives [b]: gradients are autograd's. A built-in loss also says its gradient at the outputs,
so that stacks of linear layers keep their closed form.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from covey.errors import CoveyError, nearest
from covey.models.own import first_line
from covey.names import Registry

LOSSES = Registry("loss", "covey.learn", "covey.losses")
TASKS = ("classes", "labels", "numbers")
HUBER = 1.0  # where the squared error becomes a linear one


@dataclass(frozen=True)
class Loss:
    name: str
    title: str
    each: Callable[[Tensor, Tensor], Tensor]  # (outputs [b, o], targets [b] or [b, o]) -> [b]
    tasks: tuple[str, ...] = TASKS
    delta: Callable[[Tensor, Tensor], Tensor] | None = None  # (outputs, targets) -> gradient of each at its outputs


def softmax_delta(outputs: Tensor, targets: Tensor) -> Tensor:
    """Gradient of each sample's cross entropy at its outputs: softmax − one-hot."""
    delta = outputs.softmax(-1)
    return delta.scatter_add_(-1, targets[..., None], torch.full_like(delta[..., :1], -1.0))


def _huber_delta(outputs: Tensor, targets: Tensor) -> Tensor:
    return (outputs - targets).clamp_(-HUBER, HUBER).div_(outputs.shape[-1])


CROSS_ENTROPY = Loss(
    name="cross_entropy",
    title="cross entropy of one class of several",
    each=lambda outputs, targets: F.cross_entropy(outputs, targets, reduction="none"),
    tasks=("classes",),
    delta=softmax_delta,
)
BINARY = Loss(
    name="binary_cross_entropy",
    title="binary cross entropy of each label, mean over labels; outputs are logits",
    each=lambda outputs, targets: F.binary_cross_entropy_with_logits(outputs, targets, reduction="none").mean(-1),
    tasks=("labels",),
    delta=lambda outputs, targets: (outputs.sigmoid() - targets).div_(outputs.shape[-1]),
)
MSE = Loss(
    name="mse",
    title="squared error, mean over outputs",
    each=lambda outputs, targets: (outputs - targets).square().mean(-1),
    tasks=("numbers",),
    delta=lambda outputs, targets: (outputs - targets).mul_(2 / outputs.shape[-1]),
)
MAE = Loss(
    name="mae",
    title="absolute error, mean over outputs",
    each=lambda outputs, targets: (outputs - targets).abs().mean(-1),
    tasks=("numbers",),
    delta=lambda outputs, targets: (outputs - targets).sign_().div_(outputs.shape[-1]),
)
SMOOTH = Loss(
    name="huber",
    title="squared error up to 1, linear beyond, mean over outputs",
    each=lambda outputs, targets: F.huber_loss(outputs, targets, reduction="none", delta=HUBER).mean(-1),
    tasks=("numbers",),
    delta=_huber_delta,
)
DEFAULT = {"classes": CROSS_ENTROPY, "labels": BINARY, "numbers": MSE}


@lru_cache(maxsize=64)
def loss_of(name: str, task: str, outputs: int) -> Loss:
    """The loss of this name or path for a task; without a name the task's own."""
    if task not in DEFAULT:
        raise CoveyError(f"the dataset's task is {task!r}: expected one of {', '.join(TASKS)}")
    if not name:
        return DEFAULT[task]
    thing = LOSSES.resolve(name)
    if isinstance(thing, Loss):
        if task not in thing.tasks:
            fits = [word for word in LOSSES if task in LOSSES[word].tasks]
            raise CoveyError(
                f"training.loss is '{name}', which is for {' or '.join(thing.tasks)}, and the data's task is '{task}': "
                f"choose {' or '.join(fits)}, or leave it out"
            )
        return thing
    if not callable(thing):
        raise CoveyError(
            f"training.loss '{name}' is a {type(thing).__name__}: expected a function of outputs and targets"
        )
    own = Loss(name, name, thing, (task,))
    _try(own, task, outputs)
    return own


def check_name(name: str) -> None:
    """Refuses a name that is none, before any data is there; a path is imported when the run begins."""
    if name and ":" not in name and name not in LOSSES:
        raise CoveyError(f"training.loss is '{name}'{nearest(name, list(LOSSES))}; your own is package.module:function")


def example_targets(task: str, count: int, outputs: int) -> Tensor:
    """Targets of a task, to try things on."""
    if task == "classes":
        return torch.arange(count) % outputs
    return (torch.arange(count * outputs).view(count, outputs) % 2).float()


def _try(loss: Loss, task: str, outputs: int) -> None:
    """One sentence now rather than a traceback in the first round."""
    given = torch.linspace(-1, 1, 3 * outputs).view(3, outputs).requires_grad_()
    try:
        each: Any = loss.each(given, example_targets(task, 3, outputs))
    except Exception as e:
        raise CoveyError(
            f"training.loss '{loss.name}' failed on outputs [3, {outputs}] and targets of the task '{task}': "
            f"{type(e).__name__}: {first_line(e)}"
        ) from e
    if not isinstance(each, Tensor) or each.shape != (3,):
        shape = list(each.shape) if isinstance(each, Tensor) else type(each).__name__
        raise CoveyError(
            f"training.loss '{loss.name}' gave {shape} for 3 samples: expected one number for each sample, [3] "
            "(reduction='none', then a mean over outputs)"
        )
    if not each.requires_grad:
        raise CoveyError(
            f"training.loss '{loss.name}' gives no gradient: compute it from the outputs with torch functions"
        )
    if not torch.isfinite(each).all():
        raise CoveyError(f"training.loss '{loss.name}' is not finite on outputs between -1 and 1: check its logarithms")
