"""Tests of what an algorithm itself releases of single samples, with noise: rows of features, one per sample.

The canary is a sample far outside in one direction, or as far in the opposite one: within whatever range its features are kept,
these are opposite corners. Two more samples, one of each, span that range for everybody.
"""

from __future__ import annotations

import math
from dataclasses import asdict, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from covey import roles
from covey.audit.canaries import guesses, worlds
from covey.audit.canaries.claims import claims, worst_claim
from covey.audit.canaries.mechanism import Public, own_trials
from covey.audit.canaries.verdict import LedgerTest
from covey.data.dataset import Dataset
from covey.data.federation import Federation
from covey.experiment.experiment import Experiment
from covey.learn.flat import Network
from covey.randomness import generator

FAR = 1e4  # in units of a sample's values
Floats = NDArray[np.float64]


def tests(
    experiment: Experiment,
    network: Network,
    federation: Federation,
    public: Public,
    samples: int,
    trials: int,
    deployed: bool,
) -> list[LedgerTest]:
    """Two worlds, then one run; [] where the algorithm books nothing when it is first asked."""
    kinds = getattr(experiment.algorithm, "replies", ())
    if not any(roles.carries(kind, roles.NoisedFeatures) for kind in kinds):
        return []
    size = max(samples, 4)
    clients = -(-trials // (size - 2)) + 1
    rng = generator(experiment.seed, "records")
    coins = [rng.random(size - 2) < 0.5 for _ in range(clients)]
    dataset = _opposites(federation.dataset, rng)
    rows = [np.concatenate([[0, 1], there]).astype(np.int64) for there in coins]
    held = Federation(dataset, tuple(rows), None, np.zeros(1, np.int64), np.ones((clients, 1)))
    trial = own_trials(experiment, network, held, public, deployed)
    turns = [outcomes for group in trial.turns(range(clients), 1) for outcomes in group]
    if not claims(turns[0]):
        return []
    claim = worst_claim(turns)
    shown = [roles.first(outcomes[0].reply, roles.NoisedFeatures)[2:].double().numpy() for outcomes in turns]
    there = np.concatenate(coins[1:])
    known = np.concatenate(shown[1:])
    likelihood = _likelihood(known, there)
    two = worlds.compare(likelihood(known), there, claim.curve, claim.delta)
    one = guesses.judge([likelihood(shown[0])], coins[:1], claim.epsilon, 0.0)  # its ε holds without a δ
    common: dict[str, Any] = {
        "mechanism": claim.mechanism,
        "rounds": 1,
        "claimed": claim.epsilon if math.isfinite(claim.epsilon) else None,
        "delta": 0.0,
        "deployed": deployed,
    }
    return [
        LedgerTest(**common, method="two worlds", trials=len(there), **{**asdict(two), "as_gaussian": None}),
        LedgerTest(**common, method="one run", trials=size - 2, **asdict(one)),
    ]


def _opposites(template: Dataset, rng: np.random.Generator) -> Dataset:
    """Row 0 and row 1: as far out as one likes, in opposite directions."""
    shape = template.x_train.shape[1:]
    far = FAR * rng.choice([-1.0, 1.0], size=shape)
    x = np.stack([far, -far]).astype(np.float32)
    y = template.y_train[:2].copy()
    return replace(template, x_train=x, y_train=y, x_test=x[:1], y_test=y[:1], attributes={})


def _likelihood(known: Floats, there: NDArray[np.bool_]) -> Any:
    """Rows -> their log-likelihood ratio under Laplace noise, whose centres and widths the fitting rows tell."""
    fit, labels = worlds.fitting(known), worlds.fitting(there)
    centres = [np.median(fit[labels == world], axis=0) for world in (False, True)]
    width = np.mean(np.abs(fit - np.where(labels[:, None], centres[1], centres[0])), axis=0)
    scale = np.maximum(width, 1e-12 * np.abs(fit).max())

    def ratio(rows: Floats) -> Floats:
        away: Floats = ((np.abs(rows - centres[0]) - np.abs(rows - centres[1])) / scale).sum(1)
        return away

    return ratio
