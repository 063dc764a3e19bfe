"""Model poisoning by one participant: from some round on it sends the opposite of what it learned, scaled up (after Fang et al.,
Local Model Poisoning Attacks to Byzantine-Robust Federated Learning, USENIX Security 2020, and the boosting of Bagdasaryan et
al., How To Backdoor Federated Learning, AISTATS 2020).

It runs the algorithm's own client and bends every training that this asks for, so it fits every algorithm, sealed uploads
included: what is encrypted cannot be looked at. Where clients choose their cluster by losses, it may also choose freely
(`cluster`): then the victims are a cluster that it does not belong to. Nothing is learned here; the score is what the others
lose.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from covey.algorithms.contract import Client, Coroutine
from covey.attacks.contract import Finding, Truth, View
from covey.attacks.declaration import lacks_rounds
from covey.attacks.integrity.harm import sharing
from covey.attacks.integrity.sabotage import LEAST_ROUNDS, check_saboteur, departing, scaled
from covey.attacks.membership.loss import LossMembership
from covey.leaks import INTEGRITY, Leak
from covey.learn.machine import Machine
from covey.learn.work import Job, Losses, SampleLosses, Train, Work
from covey.statistics import student_interval

BEFORE = "before the attack"


@dataclass
class ModelPoisoning(LossMembership):
    name: ClassVar[str] = "model_poisoning"
    label: ClassVar[str] = "Model poisoning"
    title: ClassVar[str] = "one participant sends the opposite of what it learned, scaled up (Fang et al. 2020)"
    row: ClassVar[Leak] = INTEGRITY
    means: ClassVar[str] = (
        "how much less likely the best model at hand finds the samples of those who share a model with it: 0 as before, 1 ruin"
    )
    controls: ClassVar[tuple[str, ...]] = (BEFORE,)
    active: ClassVar[bool] = True
    own_rows: ClassVar[bool] = True

    vantage: str = "client:0"
    after: int = 0  # honest rounds; 0: half of them
    boost: float = 0.0  # times its own change, turned round; 0: twice as many as share a model with it
    cluster: int = -1  # that it claims to be of; -1: the one it would choose

    def __post_init__(self) -> None:
        check_saboteur(self.name, self.vantage, self.after, self.boost)

    @classmethod
    def lacks(cls, experiment: Any) -> str:
        return lacks_rounds(experiment, LEAST_ROUNDS)

    @property
    def replaces(self) -> int:
        return int(self.vantage.removeprefix("client:"))

    def client(self, me: Client, message: Any) -> Coroutine:
        """The algorithm's own client, each training of it bent, and each choice of a cluster."""
        turn: Coroutine = self.algorithm.client(me, message)
        if me.round <= self.honest:
            return (yield from turn)
        return (yield from departing(turn, lambda work: work, self._bent, lambda reply: reply))

    @property
    def honest(self) -> int:
        return self.after or self.setting.rounds // 2

    def _bent(self, work: Work, answer: Any) -> Any:
        if isinstance(work, Losses | SampleLosses) and 0 <= self.cluster < len(answer):
            answer = answer.clone()
            answer[self.cluster] = answer.min() - 1
        if not isinstance(work, Train):
            return answer
        boost = self.boost or 2.0 * self.setting.clients / max(self.setting.clusters, 1)
        return scaled(work.start, answer, -boost, self.algorithm)

    def observe(self, view: View) -> None:
        super().observe(view)
        if view.receiver == self.vantage and view.round == self.honest + 1 and "models" in self.memory:
            self.memory["before"] = list(self.memory["models"])  # no poison is in these yet

    def finding(self, truth: Truth) -> Finding:
        metric = "fall of the likelihood of victims' samples"
        if "before" not in self.memory or self.memory["round"] <= self.honest + 1:
            used = "no model from after the first poison was seen"
            return Finding(self.name, self.vantage, metric, 0.0, None, 0.0, 1.0, {BEFORE: 0.0}, used)
        others = sharing(truth, self.replaces, self.honest + 1)  # of its first dishonest round
        models = {when: torch.cat(self.memory[key]) for when, key in ((BEFORE, "before"), ("after", "models"))}
        fits = {when: [self._likelihood(truth, stack, i) for i in others] for when, stack in models.items()}
        fall = [1 - now / max(then, 1e-12) for then, now in zip(fits[BEFORE], fits["after"])]
        low, high = student_interval(fall)
        rounds = self.memory["round"] - self.honest - 1
        used = f"{len(others)} victims, its own uploads of {rounds} round{'s' * (rounds != 1)}, and the models that it is given"
        details = {
            "likelihood of victims' samples before": float(np.mean(fits[BEFORE])),
            "and after": float(np.mean(fits["after"])),
        }
        value = float(np.mean(fall))
        return Finding(
            self.name, self.vantage, metric, value, 0.0, max(low, -1.0), min(high, 1.0), {BEFORE: 0.0}, used, details
        )

    def _likelihood(self, truth: Truth, models: Tensor, client: int) -> float:
        """exp(−loss) of the client's samples under the model that fits them best: its geometric mean likelihood."""
        rows = truth.federation.clients[client][: self.cases]
        dataset = truth.federation.dataset
        machine = Machine(self.network, dataset.x_train[rows], dataset.y_train[rows])
        (losses,) = machine.compute([Job(torch.arange(len(rows)), 0, Losses(models))])
        return float(torch.exp(-losses.min()))
