"""Shadow models: what a client's upload would look like with and without each candidate, and scores against those.

The game is that of Carlini et al. 2022. The candidates of a client are its own samples and as many that nobody trained on, of
the same kinds; a shadow trains, from the very model that the client got, on a random draw of them as large as the client's
data. So every candidate is in about half of the shadows. All shadows of a client train side by side, as one batch.

Scores are for one upload; of several rounds they add up, as logarithms of likelihood ratios do. Higher: more likely a member.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Floats = NDArray[np.float64]
FIXED = 64  # shadows below which candidates share one variance, as Carlini et al. do with few
OFFLINE = 0.3  # RMIA's a: how far the confidence of a model without the sample is from that of one with it


def draws(members: int, candidates: int, shadows: int, rng: np.random.Generator) -> NDArray[np.bool_]:
    """[shadows, candidates]: which candidates each shadow trains on, so many as there are members.

    Neighbours are complements as far as they can be, so that no candidate is in all shadows or in none.
    """
    inside = np.zeros((shadows, candidates), bool)
    for n in range(0, shadows, 2):
        order = rng.permutation(candidates)
        inside[n, order[:members]] = True
        inside[n + 1 : n + 2, order[-members:]] = True
    return inside


def confidence(logits: Tensor, labels: Tensor) -> Tensor:
    """log p − log(1 − p) of the true label: [models, n] from [models, n, classes]. Nearly normal over models."""
    place = labels.expand(len(logits), -1)[..., None]
    own = logits.gather(2, place)[..., 0]
    others = logits.scatter(2, place, float("-inf")).logsumexp(2)
    return own - others


@dataclass(frozen=True)
class Reference:
    """What one upload says of its candidates, beside what shadows of it say: scaled confidences."""

    seen: Floats  # [n] under the upload
    shadows: Floats  # [shadows, n]
    inside: NDArray[np.bool_]  # [shadows, n]
    population: Floats  # [z] under the upload, of samples that are no candidates
    population_shadows: Floats  # [shadows, z]

    def lira(self, online: bool = True) -> Floats:
        """Log likelihood ratio of two normals, in and out; offline: how many deviations above those without it."""
        mean_out, spread_out = _normal(self.shadows, ~self.inside)
        if not online:
            return np.asarray((self.seen - mean_out) / spread_out)
        mean_in, spread_in = _normal(self.shadows, self.inside)
        with_it = -0.5 * ((self.seen - mean_in) / spread_in) ** 2 - np.log(spread_in)
        return np.asarray(with_it + 0.5 * ((self.seen - mean_out) / spread_out) ** 2 + np.log(spread_out))

    def rmia(self, online: bool = True) -> Floats:
        """Share of the population whose likelihood the upload raised less than the candidate's (Zarifzadeh et al. 2024)."""
        p = _probability(self.shadows)
        if online:
            usual = (_mean(p, self.inside) + _mean(p, ~self.inside)) / 2
        else:
            usual = ((1 + OFFLINE) * _mean(p, ~self.inside) + 1 - OFFLINE) / 2
        others = _probability(self.population) / _probability(self.population_shadows).mean(0)
        raised = _probability(self.seen) / np.maximum(usual, 1e-12)
        return np.asarray(np.searchsorted(np.sort(others), raised, "right") / max(len(others), 1))


def _probability(scaled: Floats) -> Floats:
    return np.asarray(1 / (1 + np.exp(-np.clip(scaled, -50, 50))))


def _mean(values: Floats, chosen: NDArray[np.bool_]) -> Floats:
    """[n] over the chosen shadows of each candidate."""
    return np.asarray((values * chosen).sum(0) / np.maximum(chosen.sum(0), 1))


def _normal(values: Floats, chosen: NDArray[np.bool_]) -> tuple[Floats, Floats]:
    """(mean [n], deviation [n] or one for all where there are few shadows) over the chosen shadows of each candidate."""
    mean = _mean(values, chosen)
    squares = (values - mean) ** 2 * chosen
    if len(values) < FIXED:
        variance = np.full_like(mean, squares.sum() / max(int(chosen.sum()) - len(mean), 1))
    else:
        variance = squares.sum(0) / np.maximum(chosen.sum(0) - 1, 1)
    return mean, np.sqrt(np.maximum(variance, 1e-12))


def batches(models: int, d: int, device: torch.device) -> int:
    """How many models to hold at a time: a fair share of memory."""
    room = 4e9 if device.type == "cuda" else 256e6
    return int(max(2, min(models, room / (4 * d))))
