"""A defence of your own: no client moves a model further than a bound. It promises nothing, so nothing stands in the ledger.

cd examples && covey run ifca-digits --set defence=own_defence:ShortSteps --set defence.bound=0.5
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from covey import CoveyError, Experiment, run
from covey.algorithms.contract import Client, Coroutine
from covey.learn.work import Train


@dataclass(frozen=True)
class ShortSteps:
    name: ClassVar[str] = "short_steps"
    label: ClassVar[str] = "Short steps"
    title: ClassVar[str] = "a client's change of a model is cut to a norm; no guarantee"

    bound: float = 1.0

    def __post_init__(self) -> None:
        if not self.bound > 0:
            raise CoveyError(f"defence.bound is {self.bound}: it must be above 0")

    def train(self, me: Client, work: Train) -> Coroutine:
        """Sees every training of a client: may change what is asked, and what comes of it."""
        model = yield work
        change = model - work.start
        length = float(change.norm())
        me.note("moved", min(length, self.bound))  # for the record; no party sees it
        return work.start + change * min(1.0, self.bound / max(length, 1e-12))


if __name__ == "__main__":
    table = {"dataset": "digits", "algorithm": "fedavg", "clients": 10, "clusters": 1}
    print(run(Experiment.of(table, defence=ShortSteps(bound=0.5))).accuracy)
