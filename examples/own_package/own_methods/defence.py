"""Rounding: clients send models on a grid. It promises nothing, so nothing stands in the ledger."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from covey import CoveyError
from covey.algorithms.contract import Client, Coroutine
from covey.learn.work import Train


@dataclass(frozen=True)
class Rounding:
    name: ClassVar[str] = "rounding"
    label: ClassVar[str] = "Rounding"
    title: ClassVar[str] = "every weight rounded to a multiple of a step before it leaves; no guarantee"

    step: float = 1e-3

    def __post_init__(self) -> None:
        if not self.step > 0:
            raise CoveyError(f"defence.step is {self.step}: it must be above 0")

    def train(self, me: Client, work: Train) -> Coroutine:
        model = yield work
        return (model / self.step).round() * self.step
