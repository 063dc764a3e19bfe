"""Membership inference on the noisy features that PQFed's clients send: was this sample among a client's?

The adversary holds the exact features of a candidate and looks at the noisy rows, by one of the scores of
`scores.py`. It calibrates on samples that nobody trained on, drawn in the client's own proportions
(`strangers.py`), so that recognising a *kind* of sample does not count as recognising a sample; half of those are
kept apart as a placebo.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from covey import roles
from covey.attacks.contract import Finding, Knowledge, Truth, View
from covey.attacks.declaration import Reads, lacks_public
from covey.attacks.membership.scores import power, scored, unit_of_noise
from covey.attacks.membership.strangers import Rows, matched, samples_at, unused
from covey.data.federation import Federation
from covey.errors import CoveyError
from covey.leaks import MEMBERSHIP, WIRE, Leak
from covey.learn.samples import Samples
from covey.randomness import generator
from covey.statistics import normal_interval, standard_error, wilson


@dataclass
class FeatureMembership:
    """Is the nearest noisy row suspiciously near? Power at a fixed share of false positives, per client and on average."""

    name: ClassVar[str] = "membership"
    label: ClassVar[str] = "Membership by features"
    title: ClassVar[str] = "PQFed's noisy features tell whether a sample was among a client's (Euclidean)"
    row: ClassVar[Leak] = MEMBERSHIP
    seen_from: ClassVar[tuple[str, ...]] = WIRE
    reads: ClassVar[tuple[Reads, ...]] = (Reads((roles.NoisedFeatures,)),)
    means: ClassVar[str] = "share of a client's samples recognised at this rate of false alarms; 1 is all"
    controls: ClassVar[tuple[str, ...]] = ("samples that were never there",)
    own_rows: ClassVar[bool] = False
    score: ClassVar[str] = "euclidean"

    vantage: str = "server"
    rate: float = 0.05  # false positives
    memory: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not 0 < self.rate < 1:
            raise CoveyError(f"the rate of attack '{self.name}' is {self.rate}: a share strictly between 0 and 1")

    def begin(self, knowledge: Knowledge) -> None:
        self.network = knowledge.network
        self.seed = knowledge.setting.seed
        self.public = None if knowledge.setting.public is None else knowledge.setting.public[0]
        self.epsilon = float(getattr(knowledge.algorithm, "epsilon", np.inf))
        self.memory.setdefault("rows", {})

    def observe(self, view: View) -> None:
        features = roles.carrier(view.message, roles.FeatureMap)
        if features is not None:
            self.memory["features"] = features
        rows = roles.first(view.message, roles.NoisedFeatures)
        if rows is not None and view.sender.startswith("client:"):
            self.memory["rows"][int(view.sender.removeprefix("client:"))] = rows.cpu()

    def end_round(self, round: int) -> None:
        pass

    def finding(self, truth: Truth) -> Finding:
        federation, seen = truth.federation, self.memory["rows"]
        if not seen or "features" not in self.memory:
            return Finding(
                self.name, self.vantage, "power", self.rate, self.rate, 0.0, 1.0, used="no noisy features were seen"
            )
        outside = unused(federation)
        crowd = None if self.public is None else self.memory["features"].project(self.public.cpu())
        powers: dict[int, tuple[float, float]] = {}
        for i, noisy in sorted(seen.items()):
            rng = generator(self.seed, i, "membership")
            others = matched(federation, federation.clients[i], outside, rng)
            if len(others) < 2 / self.rate:
                continue
            cases, aside = self._exact(federation, federation.clients[i]), self._exact(federation, others)
            scale = unit_of_noise(self._width(torch.cat([cases, aside])), self.epsilon)
            members, controls, placebo = scored(self.score, [cases, aside[::2], aside[1::2]], noisy, scale, crowd)
            powers[i] = (power(members, controls, self.rate), power(placebo, controls, self.rate))
        if not powers:
            raise CoveyError(f"attack '{self.name}' needs samples that no client holds to calibrate on: leave some out")
        return self._summary(powers, {i: len(federation.clients[i]) for i in powers})

    def _exact(self, federation: Federation, rows: Rows) -> Tensor:
        samples = Samples(self.network, *samples_at(federation, rows), torch.device("cpu"))
        features: Tensor = self.memory["features"].project(samples.inputs(torch.arange(len(rows))))
        return features

    def _width(self, known: Tensor) -> Tensor:
        """Δ: public, or guessed from the exact features that the adversary has."""
        public: Tensor | None = self.memory["features"].width()
        return known.amax(0) - known.amin(0) if public is None else public

    def _summary(self, powers: dict[int, tuple[float, float]], sizes: dict[int, int]) -> Finding:
        values = np.array([p for p, _ in powers.values()])
        mean = float(values.mean())
        if len(values) > 1:
            low, high = normal_interval(mean, standard_error(values.tolist()))
        else:
            low, high = wilson(mean, sum(sizes.values()))
        placebo = float(np.mean([p for _, p in powers.values()]))
        return Finding(
            attack=self.name,
            vantage=self.vantage,
            metric=f"power at {100 * self.rate:g} % false positives",
            value=mean,
            chance=self.rate,
            low=low,
            high=high,
            controls={self.controls[0]: placebo},
            used=f"noisy features of {len(powers)} clients, {self.score.replace('_', ' ')} score, exact features of candidates",
            details={"per client": {str(i): p for i, (p, _) in powers.items()}},
        )


@dataclass
class ScaledMembership(FeatureMembership):
    """The same with the score that fits Laplace noise, which the paper leaves out."""

    name: ClassVar[str] = "membership_l1"
    label: ClassVar[str] = "Membership by features, L1"
    title: ClassVar[str] = "the same by the L1 score that fits Laplace noise: stronger"
    score: ClassVar[str] = "scaled_l1"


@dataclass
class RatioMembership(FeatureMembership):
    """The same by likelihood ratio: what a row says of everybody is taken off first."""

    name: ClassVar[str] = "membership_ratio"
    label: ClassVar[str] = "Membership by features, likelihood ratio"
    title: ClassVar[str] = "the same by likelihood ratio, with public samples as the crowd: the strongest"
    score: ClassVar[str] = "likelihood_ratio"

    @classmethod
    def lacks(cls, experiment: Any) -> str:
        return lacks_public(experiment)
