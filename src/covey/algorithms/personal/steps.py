"""Local training taken step by step, for methods whose step is not one of gradient descent on one model.

Every step is a training of one step on one batch, so that a defence clips and noises it like any other; its ledger counts every
step as if it took all samples, which is more than is spent.
"""

from __future__ import annotations

import torch
from torch import Tensor

from covey.algorithms.contract import Client, Setting
from covey.errors import CoveyError
from covey.learn.work import Plan


def refuse_momentum(name: str, setting: Setting) -> None:
    if setting.plan.momentum > 0:
        raise CoveyError(
            f"{name} takes its local steps one by one, and momentum would not survive them: set training.momentum = 0"
        )


def batches(me: Client, steps: int, purpose: str) -> list[Tensor]:
    """Positions of the samples of so many steps: reshuffled epochs, as a plan takes them."""
    size = min(me.plan.batch_size or me.samples, me.samples)
    random = me.random(purpose)
    taken: list[Tensor] = []
    while len(taken) < steps:
        taken += torch.split(torch.from_numpy(random.permutation(me.samples)), size)
    return taken[:steps]


def one_step(plan: Plan, lr: float | None = None) -> Plan:
    """One step on all samples that the request names."""
    return plan.but(lr=plan.lr if lr is None else lr, steps=1, batch_size=0)
