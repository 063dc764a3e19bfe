"""PQFed without a threshold (its Algorithm 2): the target trains with one client at a time, the nearest first, and stops at
the first drop of its accuracy on samples that it held back. Here: those samples, the judgement, and who is asked when.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Annotated, Any

import torch
from torch import Tensor

from covey import roles
from covey.algorithms.contract import Client, Coroutine, declaration
from covey.algorithms.coroutines import with_work
from covey.errors import CoveyError
from covey.learn.work import Compute, Logits, Work
from covey.messages import message
from covey.randomness import key, permutations


@message
@dataclass(frozen=True)
class Search:
    """How far the server has come."""

    step: int = 0  # clients tried and kept
    partner: int = -1  # who trains with the target now
    best: float = 0.0  # the target's accuracy after the last kept step
    dropped: bool = False


@message
@dataclass(frozen=True)
class Check:
    """To the target alone: the model after a step."""

    model: Annotated[Tensor, roles.Model]  # [d]


@message
@dataclass(frozen=True)
class Judgement:
    accuracy: Annotated[float, roles.Share]  # on the samples that the target held back


def check(under: Any, target: int, reselect: int) -> None:
    """What the incremental strategy cannot be combined with."""
    if target < 0 or reselect:
        raise CoveyError(
            "strategy 'incremental' serves one target and selects once: set algorithm.target and reselect = 0"
        )
    if declaration(under).trains != "one":
        raise CoveyError(
            f"strategy 'incremental' hands one model from step to step, {under.name} has several: choose an algorithm.under "
            "that trains a single model"
        )


def wants(search: Search, phase: str, target: int, client: int) -> bool:
    if phase == "train":
        return client in (target, search.partner)
    return phase == "check" and client == target


def held_back(me: Client, share: float) -> tuple[Tensor, Tensor]:
    """Positions of the target's samples: (to train on, to judge by); the same in every round."""
    if me.samples < 2:
        raise CoveyError(f"the target has {me.samples} sample, and needs one to train on and one to judge by")
    order = permutations([key(me.seed, me.id, "held back")], [me.samples])[0]
    aside = min(max(1, round(share * me.samples)), me.samples - 1)
    return order[aside:], order[:aside]


def judge(me: Client, message: Check, share: float) -> Coroutine:
    """The target's own verdict on a model; the last one before the first drop stays with it."""
    _, aside = held_back(me, share)
    logits = yield Logits(message.model[None], on=aside)
    labels = me.data()[1].cpu()[aside]
    if labels.dim() != 1:
        raise CoveyError(
            "PQFed's incremental search judges models by accuracy, and this data has no one class per sample: "
            "choose another algorithm.strategy"
        )
    right = logits[0].argmax(1).cpu() == labels
    accuracy = float(right.double().mean())
    me.memory["dropped"] = me.memory.get("dropped", False) or accuracy < me.memory.get("accuracy", 0.0)
    if not me.memory["dropped"]:
        me.memory.update(kept=message.model, accuracy=accuracy)
    me.memory.pop(f"for {me.id}", None)  # each step is a new run of the algorithm underneath
    return Judgement(accuracy)


def without_held_back(me: Client, share: float, work: Callable[..., Coroutine], *arguments: Any) -> Coroutine:
    """The target's usual turn on the samples that it did not hold back."""
    training, _ = held_back(me, share)
    turn = work(replace(me, samples=len(training)), *arguments)
    return with_work(turn, lambda one: _limit(one, training))


def _limit(work: Work, on: Tensor) -> Work:
    if isinstance(work, Compute):
        return work
    return replace(work, on=on if work.on is None else on[torch.as_tensor(work.on)])
