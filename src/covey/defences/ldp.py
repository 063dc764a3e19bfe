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
from covey.defences.dp_sgd import batch_of, check_clip, plan_clip, samples_of
from covey.errors import CoveyError
from covey.learn.work import Plan, Train
from covey.ledger.calibration import check_budget, classic_sigma
from covey.ledger.events import PUBLIC, GaussianRelease
from covey.measures import Measure
from covey.strength import Strength

SENSITIVITIES = ("step", "round")
LARGEST_ROUNDING = (
    0.25  # how much further apart than agreed rounding may bring neighbours; the ledger prices what it does
)


@dataclass(frozen=True)
class LDP:
    name: ClassVar[str] = "ldp"
    stream: ClassVar[str] = "ldp"  # of its keyed noise: a subclass of another name draws the same
    label: ClassVar[str] = "LDP"
    title: ClassVar[str] = "clipped steps, one Gaussian noise on the round's model (common local DP)"
    surveyed: ClassVar[bool] = True
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


def check_sensitivity(word: str) -> None:
    if word not in SENSITIVITIES:
        raise CoveyError(f"defence.sensitivity is {word!r}: choose 'step' (the paper's 2 η C/|b|) or 'round'")


def step_sensitivity(plan: Plan, clip: float, samples: int) -> float:
    """Δf = 2 η C / |b|: how far one replaced sample moves the model in one step."""
    return 2 * plan.lr * clip / batch_of(plan, samples)


def sensitivity_growth(plan: Plan, samples: int) -> float:
    """How many times Δf a replaced sample can move the model over all steps of a round.

    Once two neighbouring runs differ, every clipped gradient of a later step may differ, so each later step adds up to 2 η C
    (|b| times Δf), however small the first difference was; momentum m keeps each for 1/(1 − m) steps. Weight decay and the
    proximal pull only contract.
    """
    later = plan.steps_for(samples) - 1
    return 1.0 if later <= 0 else (1 + batch_of(plan, samples) * later) / (1 - plan.momentum)


def float_rounding(work: Train, samples: int, clip: float) -> float:
    """How much further apart float32 can bring neighbours' models before their noise, in the L2 norm.

    A step rounds each weight when the gradient is added, and once more for a decay and for a constant part, by 2^-24 of the
    weight at most, in either of the two runs. The weights are somebody else's choice, so this is no detail: in weights of 10^5 a
    step of 10^-3 is lost or becomes 10^-2.
    """
    plan = work.plan
    steps, reach = plan.steps_for(samples), plan.lr / (1 - plan.momentum)
    roundings = 1 + (plan.weight_decay + plan.proximal > 0) + (plan.proximal > 0 or work.correction is not None)
    start, anchor, correction = (
        0.0 if vector is None else float(vector.double().norm())
        for vector in (work.start, work.anchor, work.correction)
    )
    moved = clip + correction + plan.proximal * max(anchor, start) + plan.weight_decay * start
    return 2 * roundings * steps * 2.0**-24 * (start + steps * reach * moved)


def check_rounding(rounding: float, release: GaussianRelease) -> None:
    """Refuses a model in which rounding would show what the noise hides."""
    share = rounding * release.sigma / release.growth
    if share > LARGEST_ROUNDING:
        raise CoveyError(
            f"the model to train on is so large that rounding its weights can show {share:.2g} times what the noise is made to "
            f"hide, expected at most {LARGEST_ROUNDING:g}: the round is refused; ask the coordinator for a model of usual size, "
            "or raise training.lr or defence.clip"
        )


def add_noise(
    me: Client, work: Train, model: Tensor, scale: float | Tensor, release: GaussianRelease, clip: float, stream: str
) -> Tensor:
    """The model with its noise; the release is booked and noted, so that no noise goes unpriced.

    The number of spends so far is part of the purpose: two trainings of one round must never share their keyed noise.
    """
    rounding = 0.0
    if me.noise.secret and release.sigma:
        smallest = float(scale.min()) if isinstance(scale, Tensor) else scale
        rounding = me.noise.gaussian_rounding(len(model)) + float_rounding(work, samples_of(me, work), clip) / smallest
        check_rounding(rounding, release)
    noised = me.noise.gaussian(model, scale, work.purpose, stream, len(me.events))
    me.spend(replace(release, secret=me.noise.secret, rounding=rounding))
    me.note("clip", clip)
    me.note("noise", float((noised - model).norm()))
    return noised
