"""A trained model that leaves with noise on it: rounded no further than the noise hides, booked, and noted."""

from __future__ import annotations

from dataclasses import replace

from torch import Tensor

from covey.algorithms.contract import Client
from covey.defences.sensitivity import samples_of
from covey.errors import CoveyError
from covey.learn.work import Train
from covey.ledger.events import GaussianRelease

LARGEST_ROUNDING = (
    0.25  # how much further apart than agreed rounding may bring neighbours; the ledger prices what it does
)


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
