"""AFC: Gu et al., Adaptive Privacy Defense Against Category Inference Attack in Clustered Federated Learning, WASA 2025.

Common local DP (see `ldp.py`) with two changes, in the order of its Algorithm 2:

    G^t = mean over the batch b of ‖∇F(w, x)‖                 C^t = p-th percentile of G^0 … G^t
    Î_k = min-max normalised Fisher information               α_k = β − Î_k,   ε_k = ε / α_k,   σ_k = √(2 ln(1.25/δ)) / ε_k

and noise N(0, (Δf σ_k)²) on parameter k. Our reading where it is silent: G and Fisher are taken at the cluster model that the
round starts from (lines 6 to 10 stand before the update); Fisher is over the client's data (Eq. 1), G over the batch; with
one step per round that batch is the one trained on. Constant Fisher information gives Î = 0 everywhere: the most noise.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from covey.algorithms.contract import Client, Coroutine
from covey.defences.contract import CLIPPING, NOISE_NORM
from covey.defences.release import add_noise
from covey.defences.sensitivity import batch_of, check_sensitivity, samples_of, sensitivity_growth, step_sensitivity
from covey.errors import CoveyError, nearest
from covey.learn.work import Fisher, GradientNorms, Train
from covey.ledger.calibration import check_budget, classic_sigma
from covey.ledger.events import PRIVATE, GaussianRelease
from covey.measures import Measure
from covey.randomness import key, permutations
from covey.strength import Strength

SHAPES = ("fisher", "equal")
SMALLEST_CLIP = 1e-12  # a client whose gradients are all 0 still needs a bound above 0


@dataclass(frozen=True)
class AFC:
    name: ClassVar[str] = "afc"
    stream: ClassVar[str] = "afc"  # of its keyed noise
    label: ClassVar[str] = "AFC-CFL"
    title: ClassVar[str] = "noise by Fisher information, clipping by percentile of past gradients (AFC-CFL)"
    surveyed: ClassVar[bool] = True
    measures: ClassVar[Mapping[str, Measure]] = {"clip": CLIPPING, "noise": NOISE_NORM}
    strengths: ClassVar[tuple[Strength, ...]] = (
        Strength("epsilon", (100.0, 10.0, 3.0, 1.0, 0.3, 0.1), "ε", "budget of one round, before α"),
    )

    epsilon: float = 1.0  # per round, before α; inf: no noise
    delta: float = 1e-5
    beta: float = 1.3  # β
    percentile: float = 70.0  # p
    sensitivity: str = "step"  # or "round", see ldp.py
    shape: str = "fisher"  # or "equal": as much noise in all, spread evenly; to see what the shape is worth

    def __post_init__(self) -> None:
        check_budget(self.epsilon, self.delta)
        check_sensitivity(self.sensitivity)
        if not (self.beta > 1 and np.isfinite(self.beta)):
            raise CoveyError(
                f"defence.beta is {self.beta}: it must be above 1, or parameters with the most Fisher information get no noise"
            )
        if not 0 <= self.percentile <= 100:
            raise CoveyError(f"defence.percentile is {self.percentile}: expected 0 to 100")
        if self.shape not in SHAPES:
            raise CoveyError(f"unknown defence.shape '{self.shape}'{nearest(self.shape, SHAPES)}")

    def train(self, me: Client, work: Train) -> Coroutine:
        samples = samples_of(me, work)
        at = work.start[: me.setting.start.shape[-1]]  # without a second head, which is never sent
        batch = _batch(me, work, samples)
        norms, fisher = yield [GradientNorms(at, batch), Fisher(at, work.on)]
        clip = self._clip(me, work, float(norms.mean()))
        plan = work.plan.but(clip=0.0, noise=0.0)
        if plan.steps_for(samples) == 1 and work.head is None:
            # The step's gradients are the measured ones: clipping them is weighting them. So all clients keep one plan, which
            # a machine computes as one batch (and a GPU captures once), although each has its own bound.
            weights = clipping_weights(norms, batch, clip, me.samples, work.weights)
            work = replace(work, plan=plan.but(batch_size=0, steps=1), on=batch, weights=weights)
        else:
            work = replace(work, plan=plan.but(clip=clip))
        model: Tensor = yield work
        step, growth = step_sensitivity(plan, clip, len(batch)), sensitivity_growth(plan, samples)
        scaled_to = step * (growth if self.sensitivity == "round" else 1.0)
        sigmas = self.sigmas(fisher.to(model.device), len(model))
        release = GaussianRelease(
            mechanism=self.name,
            epsilon=self.epsilon,
            delta=self.delta,
            sigma=float(sigmas.min()),
            sensitivity=scaled_to,
            growth=1.0 if self.sensitivity == "round" else growth,
            sensitivity_from=PRIVATE,
        )
        return add_noise(me, work, model, scaled_to * sigmas, release, clip, self.stream)

    def sigmas(self, fisher: Tensor, size: int) -> Tensor:
        """σ_k [size] of every parameter, float64; those beyond the Fisher information's are treated as carrying none."""
        alpha = torch.full((size,), self.beta, dtype=torch.float64, device=fisher.device)
        alpha[: len(fisher)] -= normalised(fisher)
        if self.shape == "equal":
            alpha = alpha.square().mean().sqrt().expand(size)  # the expected squared norm of the noise stays
        return alpha * classic_sigma(self.epsilon, self.delta)

    def _clip(self, me: Client, work: Train, norm: float) -> float:
        """C^t, with this round's G^t written to the history first."""
        place = f"{self.name}.{work.purpose}"
        history = [*me.memory.get(place, ()), norm]
        me.memory[place] = history
        return clipping_bound(history, self.percentile)


def clipping_bound(history: Sequence[float], percentile: float) -> float:
    """C^t: the percentile of G^0 … G^t, between neighbours by linear interpolation."""
    return max(float(np.percentile(history, percentile)), SMALLEST_CLIP)


def clipping_weights(norms: Tensor, batch: Tensor, clip: float, samples: int, given: Tensor | None) -> Tensor:
    """Weights [samples] that clip: min(1, C/‖g‖) on the batch, or less where the algorithm weighs a sample less."""
    device = norms.device
    weights = torch.ones(samples, device=device) if given is None else given.to(device, torch.float32).clone()
    at = batch.to(device)
    weights[at] = torch.minimum(weights[at], clip / norms.to(torch.float32).clamp(min=1e-30))
    return weights


def normalised(fisher: Tensor) -> Tensor:
    """Î: Fisher information from 0 (least) to 1 (most); all 0 where it is constant. float64, so that the most is exactly 1."""
    fisher = fisher.to(torch.float64)
    low, high = fisher.min(), fisher.max()
    return (fisher - low) / (high - low) if high > low else torch.zeros_like(fisher)


def _batch(me: Client, work: Train, samples: int) -> Tensor:
    """b: positions of one random batch among the client's own samples."""
    stream = key(me.seed, me.round, me.id, work.purpose, "afc batch")
    chosen = permutations([stream], [samples])[0, : batch_of(work.plan, samples)]
    on: Any = work.on
    return chosen if on is None else on[chosen.to(on.device)]
