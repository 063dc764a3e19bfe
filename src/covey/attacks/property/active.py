"""The active property attack: its own training pulls the model apart along the property, and is scaled up."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from covey.algorithms.contract import Client, Coroutine
from covey.attacks.contract import Knowledge
from covey.attacks.property.passive import PropertyInference
from covey.errors import CoveyError
from covey.learn.work import Head, Train, Work


@dataclass
class ActivePropertyInference(PropertyInference):
    """The passive attack from a client whose updates are made to tell more.

    Its loss is α · main + (1 − α) · property on a head of its own; it uploads w + γ (w_local − w), without the head.
    γ = 1 is the attack of Melis et al., γ = 5 and 10 are Kim et al.'s. The run's defence applies to what it trains.
    """

    name: ClassVar[str] = "property_active"
    stream: ClassVar[str] = "property_active"
    label: ClassVar[str] = "Active property inference"
    title: ClassVar[str] = "the same from a client whose own updates are made to tell more"
    active: ClassVar[bool] = True
    used: ClassVar[str] = "all cluster models of every round, its own rows, and its own manipulated updates"

    alpha: float = 0.9
    gamma: float = 5.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.alpha <= 1 or not self.gamma > 0:
            raise CoveyError(f"alpha is {self.alpha} and gamma {self.gamma}: alpha lies in 0 to 1, gamma is above 0")

    @property
    def replaces(self) -> int:
        return self.attacker

    def begin(self, knowledge: Knowledge) -> None:
        super().begin(knowledge)
        own = knowledge.where[f"own:{self.attacker}"]
        self.marks = torch.from_numpy(np.isin(own, knowledge.where["property"]).astype(np.int64))  # [n] of its own rows

    def client(self, me: Client, message: Any) -> Coroutine:
        """The algorithm's own client, each training of it bent: so the attack fits every algorithm."""
        turn, answer = self.knowledge.algorithm.client(me, message), None
        while True:
            try:
                request = turn.send(answer)
            except StopIteration as stop:
                return stop.value
            many = request if isinstance(request, list) else [request]
            asked = [self._with_head(me, work) for work in many]
            answers = yield asked
            bent = [self._bent(me, work, a) if isinstance(work, Train) else a for work, a in zip(many, answers)]
            answer = bent if isinstance(request, list) else bent[0]

    def _with_head(self, me: Client, work: Work) -> Work:
        if not isinstance(work, Train):
            return work
        size = self.knowledge.network.head_size(2)
        head = me.memory.get("head")
        head = (torch.zeros(size) if head is None else head).to(work.start.device)
        anchor, correction = (
            None if given is None else torch.cat([given, torch.zeros(size, device=given.device)])
            for given in (work.anchor, work.correction)
        )
        start = torch.cat([work.start, head])
        return replace(work, start=start, anchor=anchor, correction=correction, head=Head(self.marks, 2, self.alpha))

    def _bent(self, me: Client, work: Train, trained: Tensor) -> Tensor:
        d = self.knowledge.network.d
        me.memory["head"] = trained[d:].clone()
        start = work.start.to(trained.device)
        return start + self.gamma * (trained[:d] - start)
