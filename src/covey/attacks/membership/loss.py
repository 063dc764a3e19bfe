"""Membership inference by loss: a sample that a model was trained on has a lower loss (Yeom et al. 2018).

Reads any trained model, under any algorithm: those sent in the clear, from whatever vantage sees them; and, from a client's
vantage, those that the client's own code gets out of a sealed message with the client's own keys. The latest round counts.
A model that went to each client alone (Sattler's nodes, PQFed's groups) is tried on the samples of those who got it, several
models at once on those of the clients that chose each.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from covey import roles
from covey.attacks.contract import Finding, Knowledge, Truth, View, parties, received
from covey.attacks.declaration import GOT, Reads
from covey.attacks.membership.received import models_in
from covey.attacks.membership.scores import Floats, area, power
from covey.attacks.membership.strangers import Rows, matched, samples_at, unused
from covey.data.federation import Federation
from covey.errors import CoveyError
from covey.leaks import CLIENT, MEMBERSHIP, Leak
from covey.learn.machine import Machine
from covey.learn.work import Job, SampleLosses
from covey.randomness import generator
from covey.statistics import normal_interval


@dataclass
class LossMembership:
    """Is the model's loss on this sample suspiciously low? Area under the ROC curve, over the models last sent."""

    name: ClassVar[str] = "loss_membership"
    label: ClassVar[str] = "Membership by loss"
    title: ClassVar[str] = "a model's loss tells whether a sample was trained on (Yeom et al. 2018)"
    row: ClassVar[Leak] = MEMBERSHIP
    seen_from: ClassVar[tuple[str, ...]] = (CLIENT,)
    reads: ClassVar[tuple[Reads, ...]] = (Reads((roles.Model, roles.Models), GOT, sealed=True),)
    means: ClassVar[str] = "0.5 tells nothing, 1 everything"
    controls: ClassVar[tuple[str, ...]] = ("the model before training",)
    own_rows: ClassVar[bool] = False

    vantage: str = "server"
    rate: float = 0.05  # false positives, of the power among the details
    cases: int = 2000  # samples per model at most
    memory: dict[str, Any] = field(default_factory=dict)

    def begin(self, knowledge: Knowledge) -> None:
        self.known = knowledge
        self.network = knowledge.network
        self.setting = knowledge.setting
        self.algorithm = knowledge.algorithm
        self.shown: list[Any] = []  # of this round: tensors are told apart by identity, so they must stay alive

    def observe(self, view: View) -> None:
        if not received(view, self.algorithm):
            return
        models = models_in(view, self.known, self.memory)
        if models and self.memory.get("round") != view.round:
            self.memory.update(round=view.round, models=[], receivers=[])
            self.shown.clear()
        for model in models:
            place = next((i for i, known in enumerate(self.shown) if known is model), len(self.shown))
            if place == len(self.shown):
                self.shown.append(model)
                self.memory["models"].append(model.detach().cpu().reshape(-1, self.network.d))
                self.memory["receivers"].append([])
            self.memory["receivers"][place].append(int(view.receiver.removeprefix("client:")))

    def end_round(self, round: int) -> None:
        pass

    def finding(self, truth: Truth) -> Finding:
        groups = self._groups(truth)
        if not groups:
            return Finding(
                self.name,
                self.vantage,
                "area under the ROC curve",
                0.5,
                0.5,
                0.0,
                1.0,
                used="no model was seen that it could read",
            )
        cases, controls = self._scores(truth.federation, groups)
        start = self.setting.one_start().cpu()
        before = self._scores(truth.federation, [(start, users) for _, users in groups])
        value = area(cases, controls)
        low, high = normal_interval(value, area_error(value, len(cases), len(controls)))
        return Finding(
            attack=self.name,
            vantage=self.vantage,
            metric="area under the ROC curve",
            value=value,
            chance=0.5,
            low=low,
            high=high,
            controls={self.controls[0]: area(*before)},
            used=f"{len(groups)} model{'s' * (len(groups) != 1)}, and candidates with their labels",
            details={"power at fixed false positives": power(cases, controls, self.rate), "cases": len(cases)},
        )

    def _groups(self, truth: Truth) -> list[tuple[Tensor, list[int]]]:
        """(model [d], the clients whose samples are tried on it): who trained it, which only the truth knows for sure."""
        if "round" not in self.memory:
            return []
        notes = truth.notes[self.memory["round"] - 1]
        groups: list[tuple[Tensor, list[int]]] = []
        for models, receivers in zip(self.memory["models"], self.memory["receivers"]):
            if len(models) > 1:
                chosen = {i: int(facts.get("cluster", 0)) for i, facts in notes.items()}
                groups += [(model, [i for i, c in chosen.items() if c == j]) for j, model in enumerate(models)]
            elif not all(party.startswith("client:") for party in parties(self.vantage)):  # it saw everybody's model
                groups.append((models[0], list(receivers)))
            else:
                own = notes.get(receivers[0], {}).get("cluster")
                groups.append((models[0], [i for i, facts in notes.items() if facts.get("cluster") == own]))
        return [(model, users) for model, users in groups if users]

    def _scores(self, federation: Federation, groups: list[tuple[Tensor, list[int]]]) -> tuple[Floats, Floats]:
        """Ranks of the losses of (members, strangers) under each model, pooled."""
        outside = unused(federation)
        cases, controls = [], []
        for j, (model, users) in enumerate(groups):
            rng = generator(self.setting.seed, j, "loss membership")
            members = np.unique(np.concatenate([federation.clients[i] for i in users]))
            members = members[np.sort(rng.permutation(len(members))[: self.cases])]
            strangers = matched(federation, members, outside, rng)
            if len(strangers) < 2 / self.rate:
                raise CoveyError("attack 'loss_membership' needs samples that no client holds: leave some out")
            losses = self._losses(federation, model, np.concatenate([members, strangers]))
            # Models differ in their level of loss: ranks among the strangers make their scores comparable.
            ordered = np.sort(losses[len(members) :])
            ranks = np.searchsorted(ordered, losses) / len(ordered)
            cases.append(ranks[: len(members)])
            controls.append(ranks[len(members) :])
        return np.concatenate(cases), np.concatenate(controls)

    def _losses(self, federation: Federation, model: Tensor, rows: Rows) -> Floats:
        machine = Machine(self.network, *samples_at(federation, rows))
        (losses,) = machine.compute([Job(torch.arange(len(rows)), 0, SampleLosses(model[None]))])
        return np.asarray(losses[0].cpu().double().numpy(), np.float64)


def area_error(area: float, cases: int, controls: int) -> float:
    """Standard error of an area under the ROC curve (Hanley and McNeil 1982)."""
    q1, q2 = area / (2 - area), 2 * area**2 / (1 + area)
    spread = area * (1 - area) + (cases - 1) * (q1 - area**2) + (controls - 1) * (q2 - area**2)
    return float(np.sqrt(max(spread, 0.0) / (cases * controls)))
