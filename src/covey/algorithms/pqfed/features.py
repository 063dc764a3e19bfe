"""What PQFed's clients tell about their data: public principal components, ranges, and Laplace noise on the client."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import torch
from torch import Tensor

from covey import roles
from covey.algorithms.contract import Client, Coroutine, Setting
from covey.clustering.collaborators import Floats, Rows
from covey.clustering.features import principal_components
from covey.errors import CoveyError
from covey.learn.work import Compute
from covey.ledger.events import PRIVATE, PUBLIC, LaplaceRelease
from covey.messages import message
from covey.randomness import generator

ROUNDING = 1e-3  # between two machines' principal components of the same samples


@message
@dataclass(frozen=True)
class Features:
    """Server to clients: how to describe a sample."""

    mean: Annotated[Tensor, roles.FeatureMap]  # [d]
    axes: Annotated[Tensor, roles.FeatureMap]  # [d, c]
    # [c] public range of each coordinate; None: each client takes that of its own features
    low: Annotated[Tensor | None, roles.FeatureMap]
    high: Annotated[Tensor | None, roles.FeatureMap]

    def project(self, x: Tensor) -> Tensor:
        """Samples [n, ...] as coordinates [n, c], within the public range where there is one."""
        coordinates = (x.reshape(len(x), -1).float() - self.mean.to(x.device)) @ self.axes.to(x.device)
        if self.low is None or self.high is None:
            return coordinates
        return coordinates.clamp(self.low.to(x.device), self.high.to(x.device))

    def width(self) -> Tensor | None:
        """[c] of the public range; None: there is none."""
        return None if self.low is None or self.high is None else self.high - self.low


@message
@dataclass(frozen=True)
class NoisyFeatures:
    """A client's reply: one row per sample."""

    rows: Annotated[Tensor, roles.NoisedFeatures]  # [n, c]


def public_features(setting: Setting, components: int, bounded: bool) -> Features:
    """Principal components of the public samples; `bounded`: with the range that those span."""
    if setting.public is None:
        raise CoveyError("PQFed's server needs public images and the partition sets none aside: set partition.public")
    x = setting.public[0].reshape(len(setting.public[0]), -1).cpu().numpy()
    if min(x.shape) < components:
        raise CoveyError(
            f"{len(x)} public samples of {x.shape[1]} values cannot give {components} principal components: raise "
            "partition.public or lower algorithm.components"
        )
    projection = principal_components(x, components, generator(setting.seed, "public features"))
    spanned = projection(x)
    bounds = (torch.from_numpy(spanned.min(0)), torch.from_numpy(spanned.max(0))) if bounded else (None, None)
    return Features(torch.from_numpy(projection.mean), torch.from_numpy(projection.axes), *bounds)


def check_agreed(sent: Features, agreed: Features) -> None:
    """Refuses a request that is not for what was agreed: a server that chose the projection could ask for whole samples.

    Two machines find the same components up to rounding.
    """
    for name in ("axes", "mean", "low", "high"):
        ours, theirs = getattr(agreed, name), getattr(sent, name)
        if (ours is None) != (theirs is None) or (ours is not None and not _same(ours, theirs)):
            width = "nothing" if theirs is None else f"{list(theirs.shape)} numbers"
            raise CoveyError(
                f"the server asks for features by other {name} ({width}) than those that follow from the agreed public samples, "
                "components and sensitivity: nothing was described; ask who changed the experiment"
            )


def _same(ours: Tensor, theirs: Any) -> bool:
    if not isinstance(theirs, Tensor) or theirs.shape != ours.shape or not theirs.is_floating_point():
        return False
    return bool(torch.allclose(theirs.to(ours), ours, rtol=0.0, atol=ROUNDING * max(1.0, float(ours.abs().max()))))


def describe(me: Client, features: Features, epsilon: float) -> Coroutine:
    """The client's samples as noisy coordinates, the spend booked."""
    return (yield Compute("describe", _noisy, (me, features, epsilon)))


def _noisy(me: Client, features: Features, epsilon: float) -> NoisyFeatures:
    exact: Rows = features.project(me.data()[0]).cpu().numpy()
    width = widths(features, exact)
    if math.isfinite(epsilon) and not width.min() > 0:
        raise CoveyError(
            f"client {me.id}'s {'one sample spans' if len(exact) == 1 else f'{len(exact)} samples span'} no range in some "
            "coordinate, so noise scaled to that range would hide nothing: set algorithm.sensitivity = 'public', or give it more "
            "samples"
        )
    source = PRIVATE if features.low is None else PUBLIC
    noise = me.noise
    rounding = noise.laplace_rounding(epsilon) if math.isfinite(epsilon) else 0.0
    me.spend(
        LaplaceRelease(epsilon, exact.shape[1], float(width.max()), source, rounding=rounding, secret=noise.secret)
    )
    noised = noise.laplace(exact, width / epsilon, "features") if math.isfinite(epsilon) else exact
    return NoisyFeatures(torch.from_numpy(noised))


def widths(features: Features, exact: Rows) -> Floats:
    """Δ of each coordinate, [c]: of the public range, or of the features themselves."""
    if features.low is None or features.high is None:
        return np.asarray(exact.max(0) - exact.min(0), np.float64)
    return np.asarray((features.high - features.low).cpu().numpy(), np.float64)
