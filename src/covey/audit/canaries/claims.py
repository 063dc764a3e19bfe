"""What the ledger claims for the turns of one trial, at every δ."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from covey.engines.hosts.host import Outcome
from covey.ledger.events import Event, GaussianRelease, LaplaceRelease
from covey.ledger.pricing import price

FURTHER = (1e-4, 1e-3, *np.linspace(0.01, 0.5, 16).tolist())  # a claim is a curve: it may be refuted at any δ


Spends = tuple[tuple[int, int, Event], ...]


@dataclass(frozen=True)
class Claim:
    """One mechanism's."""

    mechanism: str
    epsilon: float  # at `delta`; inf: nothing is guaranteed
    delta: float
    spends: Spends

    @functools.cached_property
    def curve(self) -> Mapping[float, float]:
        """δ -> ε, wherever one is claimed."""
        priced = {delta: _epsilon(self.spends, delta, self.mechanism) for delta in (self.delta, *FURTHER)}
        return {delta: epsilon for delta, epsilon in priced.items() if math.isfinite(epsilon)}

    @property
    def replaced(self) -> bool:
        """Whether its neighbours differ in a replaced sample; else in one that is added or removed."""
        return any(isinstance(event, GaussianRelease | LaplaceRelease) for _, _, event in self.spends)


def claims(turns: Sequence[Outcome]) -> list[Claim]:
    """By mechanism, for one client's turns."""
    spends = [(round, 0, event) for round, outcome in enumerate(turns, 1) for event in outcome.events]
    booked = []
    for mechanism, entry in price(spends).items():
        delta = entry["delta"] or entry["total"]["per_record_by_rdp"]["delta"]
        own = tuple(spend for spend in spends if spend[2].mechanism == mechanism)
        booked.append(Claim(mechanism, _epsilon(own, delta, mechanism), delta, own))
    return booked


def worst_claim(trials: Sequence[Sequence[Outcome]]) -> Claim:
    """Of what was booked in a trial with and in one without its canary: they hardly differ."""
    return max((claim for turns in trials[:2] for claim in claims(turns)), key=lambda claim: claim.epsilon)


def _epsilon(spends: Spends, delta: float, mechanism: str) -> float:
    epsilon = price(spends, delta)[mechanism]["epsilon"]
    return math.inf if epsilon is None else float(epsilon)
