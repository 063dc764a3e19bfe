"""Common local DP and its decaying variant ADP, the baselines of the AFC-CFL paper (Gu et al., WASA 2025).

Our reading of its Algorithm 2, lines 9, 13 and 14: per-sample gradients are clipped to C inside the step, the model takes the
step, and noise goes *once per round* on the updated weights,

    w̃ = w + N(0, (Δf σ)²),   σ = √(2 ln(1.25/δ)) / ε,   Δf = 2 η C / |b|.

Δf is the sensitivity of *one* step (`training.steps = 1`, as in the paper). Plans with more steps are allowed, since the
paper leaves them open; then `sensitivity = "step"` keeps the paper's Δf and the ledger prices what it is worth, while
"round" scales the noise to what a sample can do over all steps. |b| is the batch actually used.
ADP (Zhang et al., WACV 2021, as that paper runs it): σ · R^t in round t = 0, 1, …, R = .995.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from torch import Tensor

from covey.algorithms.contract import Client, Coroutine
from covey.defences.contract import CLIPPING, NOISE_NORM
from covey.defences.release import add_noise
from covey.defences.sensitivity import (
    check_clip,
    check_sensitivity,
    plan_clip,
    samples_of,
    sensitivity_growth,
    step_sensitivity,
)
from covey.errors import CoveyError
from covey.learn.work import Train
from covey.ledger.calibration import check_budget, classic_sigma
from covey.ledger.events import PUBLIC, GaussianRelease
from covey.measures import Measure
from covey.strength import Strength


@dataclass(frozen=True)
class LDP:
    name: ClassVar[str] = "ldp"
    stream: ClassVar[str] = "ldp"  # of its keyed noise: a subclass of another name draws the same
    label: ClassVar[str] = "LDP"
    title: ClassVar[str] = "clipped steps, one Gaussian noise on the round's model (common local DP)"
    surveyed: ClassVar[bool] = True
    clips_samples: ClassVar[bool] = True  # in each step
    measures: ClassVar[Mapping[str, Measure]] = {"clip": CLIPPING, "noise": NOISE_NORM}
    strengths: ClassVar[tuple[Strength, ...]] = (
        Strength("epsilon", (100.0, 10.0, 3.0, 1.0, 0.3, 0.1), "ε", "budget of one round"),
    )

    epsilon: float = 1.0  # per round; inf: no noise
    delta: float = 1e-5
    clip: float = 1.0  # C; the paper does not state its baseline's
    sensitivity: str = "step"  # or "round"

    def __post_init__(self) -> None:
        check_budget(self.epsilon, self.delta)
        check_clip(self.clip)
        check_sensitivity(self.sensitivity)
        if math.isinf(self.clip) and math.isfinite(self.epsilon):
            raise CoveyError("defence.clip is inf: without a bound on gradients no noise is enough, set a finite clip")

    def sigma(self, round: int) -> float:
        """Noise in units of Δf in this round (the first is 1)."""
        return classic_sigma(self.epsilon, self.delta)

    def train(self, me: Client, work: Train) -> Coroutine:
        samples = samples_of(me, work)
        model: Tensor = yield replace(work, plan=work.plan.but(clip=plan_clip(self.clip), noise=0.0))
        step, growth = step_sensitivity(work.plan, self.clip, samples), sensitivity_growth(work.plan, samples)
        scaled_to = step * (growth if self.sensitivity == "round" else 1.0)
        sigma = self.sigma(me.round)
        release = GaussianRelease(
            mechanism=self.name,
            epsilon=self.epsilon,
            delta=self.delta,
            sigma=sigma,
            sensitivity=scaled_to,
            growth=1.0 if self.sensitivity == "round" else growth,
            sensitivity_from=PUBLIC,
        )
        return add_noise(me, work, model, sigma and scaled_to * sigma, release, self.clip, self.stream)


@dataclass(frozen=True)
class ADP(LDP):
    name: ClassVar[str] = "adp"
    stream: ClassVar[str] = "adp"
    label: ClassVar[str] = "ADP"
    title: ClassVar[str] = "common local DP whose noise decays with the rounds (Zhang et al. 2021)"

    decay: float = 0.995  # R

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.decay <= 1:
            raise CoveyError(
                f"defence.decay is {self.decay}: noise shrinks by a factor above 0 and at most 1 per round"
            )

    def sigma(self, round: int) -> float:
        return super().sigma(round) * self.decay ** (round - 1)
