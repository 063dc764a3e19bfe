"""A client's contribution, bounded as one vector; and a bound that follows a quantile of norms (Andrew et al., NeurIPS 2021)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from covey.algorithms.sums.contributions import Contribution
from covey.errors import CoveyError

MARGIN = 1 - 2.0**-20  # keeps the norm below the bound when every number is rounded to float32
LEAST, MOST = (
    1e-20,
    1e20,
)  # of a bound: float32 has its full precision there, so that scaling to it is exact up to MARGIN
HALF = 0.5  # of the bit "below the bound", shifted so that one client more or less moves the sum by this


@dataclass(frozen=True)
class Clipped:
    """What a client adds, and never more than this: the parts together are not longer than `clip`, the shares than 1."""

    parts: Mapping[int, Tensor]  # block -> [d]
    shares: Mapping[int, float]  # block -> how much of the client counts there
    within: float  # +.5 or −.5: whether the contribution was below the bound by itself
    clip: float  # C


def clipped(contribution: Contribution, clip: float) -> Clipped:
    """Scaled down to the bound where it is longer. What is no number adds nothing: refusing it would tell."""
    norm = length(contribution.parts)
    if not math.isfinite(norm):
        zeros = {block: torch.zeros_like(part) for block, part in contribution.parts.items()}
        return Clipped(zeros, _bounded(contribution.shares), -HALF, clip)
    if norm <= clip * MARGIN:
        return Clipped(contribution.parts, _bounded(contribution.shares), HALF, clip)
    scale = clip * MARGIN / norm
    parts = {block: part * scale for block, part in contribution.parts.items()}
    return Clipped(parts, _bounded(contribution.shares), -HALF, clip)


def length(parts: Mapping[int, Tensor]) -> float:
    """L2 norm of all parts as one vector."""
    return math.sqrt(sum(float(part.double().square().sum()) for part in parts.values()))


def check_clip(clip: float, whose: str) -> None:
    """Refuses a bound that contributions cannot be scaled to. A server may send any: near the smallest float32 a vector that was
    scaled to it is up to twice as long.
    """
    if type(clip) is not float or not LEAST <= clip <= MOST:
        raise CoveyError(
            f"{whose} is {clip}: the bound on what a client adds is a finite number, from {LEAST:g} to {MOST:g}"
        )


def next_clip(clip: float, within: float, expected: float, quantile: float, rate: float) -> float:
    """C exp(−η (b̄ − γ)): b̄ from the noised sum of bits, divided by a number of clients that everybody knows."""
    below = min(1.0, max(0.0, within / expected + HALF))
    return min(MOST, max(LEAST, clip * math.exp(-rate * (below - quantile))))


def _bounded(shares: Mapping[int, float]) -> Mapping[int, float]:
    norm = math.sqrt(sum(share * share for share in shares.values()))
    if not math.isfinite(norm):
        return {}
    return shares if norm <= 1 + 1e-6 else {block: share / norm for block, share in shares.items()}
