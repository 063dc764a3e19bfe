"""How far one sample can move a model that is trained by clipped steps: what noise has to hide."""

from __future__ import annotations

import math

from covey.algorithms.contract import Client
from covey.errors import CoveyError
from covey.learn.work import Plan, Train

SENSITIVITIES = ("step", "round")


def check_clip(clip: float) -> None:
    if not clip > 0:
        raise CoveyError(f"defence.clip is {clip}: the bound on a sample's gradient norm must be above 0 (inf: none)")


def plan_clip(clip: float) -> float:
    """The bound as a plan writes it: 0 is none."""
    return 0.0 if math.isinf(clip) else clip


def samples_of(me: Client, work: Train) -> int:
    """How many samples this training draws its batches from."""
    samples = me.samples if work.on is None else len(work.on)
    if samples == 0:
        raise CoveyError(f"client {me.id} has no samples to train on: give every client at least one, or leave it out")
    return samples


def batch_of(plan: Plan, samples: int) -> int:
    """|b|: the batch actually used, which a small client cannot fill."""
    return min(plan.batch_size or samples, samples)


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
