"""DP-SGD: Abadi et al., Deep Learning with Differential Privacy, CCS 2016; as the property-inference paper puts it on clients.

Every step clips each sample's gradient to norm C and adds N(0, σ² C²) to the sum of the batch's clipped gradients. The
machine does both (Plan.clip, Plan.noise), so it costs one closed form for linear stacks.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from covey.algorithms.contract import Client, Coroutine
from covey.config import later
from covey.defences.contract import CLIPPING
from covey.defences.sensitivity import batch_of, check_clip, plan_clip, samples_of
from covey.errors import CoveyError, meant
from covey.learn.work import Train
from covey.ledger.calibration import check_delta
from covey.ledger.events import SubsampledGaussian
from covey.measures import Measure
from covey.strength import Strength

SAMPLINGS = ("shuffled", "poisson")


@dataclass(frozen=True)
class DPSGD:
    name: ClassVar[str] = "dp_sgd"
    label: ClassVar[str] = "DP-SGD"
    title: ClassVar[str] = "per-sample clipping and noise in every step (Abadi et al. 2016)"
    surveyed: ClassVar[bool] = True
    clips_samples: ClassVar[bool] = True  # in each step
    measures: ClassVar[Mapping[str, Measure]] = {"clip": CLIPPING}
    strengths: ClassVar[tuple[Strength, ...]] = (
        Strength("noise", (0.1, 0.5, 2.0, 8.0, 32.0), "σ", "noise of a step, in units of the clipping bound"),
    )

    clip: float = 1.0  # C; inf: no clipping, only without noise
    noise: float = 0.5  # σ, in units of C
    delta: float = 1e-5  # of the ledger's statement
    sampling: str = later("shuffled")  # epochs; "poisson": each step takes each sample with probability |b|/n

    def __post_init__(self) -> None:
        check_clip(self.clip)
        if not (math.isfinite(self.noise) and self.noise >= 0):
            raise CoveyError(f"defence.noise is {self.noise}: expected a finite number that is not negative")
        if math.isinf(self.clip) and self.noise > 0:
            raise CoveyError(
                "defence.clip is inf with noise: noise is measured in units of the bound, set a finite clip"
            )
        check_delta(self.delta)
        if self.sampling not in SAMPLINGS:
            raise CoveyError(
                f"defence.sampling is {self.sampling!r}: choose 'shuffled' or 'poisson'{meant(self.sampling, SAMPLINGS)}"
            )

    def train(self, me: Client, work: Train) -> Coroutine:
        samples, poisson = samples_of(me, work), self.sampling == "poisson"
        steps = work.plan.steps_for(samples)
        me.spend(
            SubsampledGaussian(
                mechanism=self.name,
                sampling=batch_of(work.plan, samples) / samples,
                noise=self.noise,
                steps=steps,
                # Batches of a shuffled epoch are disjoint: a sample is used once in each.
                uses=steps if poisson else -(-steps // work.plan.batches(samples)),
                clip=self.clip,
                delta=self.delta,
                poisson=poisson,
                rounding=me.noise.gaussian_rounding(len(work.start)),
                secret=me.noise.secret,
            )
        )
        me.note("clip", self.clip)
        plan = work.plan.but(clip=plan_clip(self.clip), noise=self.noise, poisson=poisson)
        return (yield replace(work, plan=plan))
