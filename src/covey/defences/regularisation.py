"""Dropout and L2: regularisers that the property-inference paper tries as defences. Neither promises anything, so neither
appears in the ledger.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

from covey.algorithms.contract import Client, Coroutine
from covey.errors import CoveyError
from covey.learn.work import Train
from covey.strength import Strength


@dataclass(frozen=True)
class Dropout:
    name: ClassVar[str] = "dropout"
    label: ClassVar[str] = "Dropout"
    title: ClassVar[str] = "drops inputs of the last layer in training; no guarantee"

    strengths: ClassVar[tuple[Strength, ...]] = (
        Strength("rate", (0.1, 0.3, 0.5, 0.7, 0.9), "", "share of dropped inputs"),
    )

    rate: float = 0.1

    def __post_init__(self) -> None:
        if not 0 <= self.rate < 1:
            raise CoveyError(f"defence.rate is {self.rate}: the share of dropped inputs must be at least 0 and below 1")

    def train(self, me: Client, work: Train) -> Coroutine:
        return (yield replace(work, plan=work.plan.but(dropout=self.rate)))


@dataclass(frozen=True)
class L2:
    name: ClassVar[str] = "l2"
    label: ClassVar[str] = "L2"
    title: ClassVar[str] = "weight decay in training; no guarantee"

    strengths: ClassVar[tuple[Strength, ...]] = (Strength("weight_decay", (0.001, 0.01, 0.1, 1.0), "", "weight decay"),)

    weight_decay: float = 0.01

    def __post_init__(self) -> None:
        if not (math.isfinite(self.weight_decay) and self.weight_decay >= 0):
            raise CoveyError(
                f"defence.weight_decay is {self.weight_decay}: expected a finite number that is not negative"
            )

    def train(self, me: Client, work: Train) -> Coroutine:
        return (yield replace(work, plan=work.plan.but(weight_decay=self.weight_decay)))
