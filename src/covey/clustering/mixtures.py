"""A Gaussian mixture on the main components of updates, and how much its components overlap: what R-DPCFL groups clients by."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from covey.clustering.agglomerative import Floats

COMPONENTS = 2


def fitted_mixture(updates: Tensor, clusters: int, random: np.random.Generator) -> tuple[Floats, float]:
    """(posterior [n, k], the largest overlap of two components) of updates [n, d].

    Spherical components on the two main directions of the updates, each scaled to [0, 1].
    """
    from sklearn.mixture import GaussianMixture

    rows = main_components(updates)
    count = min(clusters, len(rows))
    model = GaussianMixture(
        count, covariance_type="spherical", n_init=4, random_state=int(random.integers(2**31)), reg_covar=1e-6
    ).fit(rows)
    model.weights_ = np.full(count, 1 / count)  # a small cluster is as likely as a large one
    posterior = np.zeros((len(rows), clusters))
    posterior[:, :count] = model.predict_proba(rows)
    return posterior, overlap(np.asarray(model.means_), np.sqrt(np.asarray(model.covariances_)))


def main_components(updates: Tensor) -> Floats:
    """[n, 2] of [n, d], by the Gram matrix of the centred updates, each column scaled to [0, 1]."""
    centred = (updates - updates.mean(0)).double()
    values, vectors = torch.linalg.eigh(centred @ centred.T)
    rows = (vectors * values.clamp(min=0).sqrt())[:, -COMPONENTS:].flip(1).cpu().numpy()
    low, high = rows.min(0), rows.max(0)
    return np.asarray((rows - low) / np.maximum(high - low, 1e-12))


def overlap(means: Floats, widths: Floats) -> float:
    """The largest overlap of two spherical components: 1 − erf(s / √2), s = distance / (2 · the wider); 1 where they coincide."""
    worst = 0.0
    for i in range(len(means)):
        for j in range(i):
            far = float(np.linalg.norm(means[i] - means[j])) / max(2 * float(max(widths[i], widths[j])), 1e-12)
            worst = max(worst, math.erfc(far / math.sqrt(2)))
    return worst
