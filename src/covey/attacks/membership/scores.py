"""Scores of membership inference on noisy features, and their calibration: arrays in, shares out.

The adversary holds a candidate's exact features x and looks at every noisy row n. The lowest score over the rows counts:

    euclidean          ‖x − n‖, as the paper has it
    scaled_l1          Σ_c |x_c − n_c| / (Δ_c / ε): minus the logarithm of how likely Laplace noise leads from x to n
    likelihood_ratio   that, less what anybody would score: plus log p(n), where p is estimated from public samples. A row in
                       a crowd is near many candidates and tells little; the same distance to a lonely row tells much
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from covey.clustering.collaborators import laplace_noised
from covey.errors import CoveyError

Floats = NDArray[np.float64]
SCORES = ("euclidean", "scaled_l1", "likelihood_ratio")


def nearest(points: Tensor, noisy: Tensor, scale: Tensor | None = None, handicap: Tensor | None = None) -> Floats:
    """Lowest score of each point [m, c] over noisy rows [n, c]: Euclidean, or L1 in units of `scale` [c], plus a row's
    `handicap` [n].
    """
    if scale is None:
        distance = torch.cdist(points, noisy)
    else:
        distance = torch.cdist(points / scale, noisy / scale, p=1)
    if handicap is not None:
        distance = distance + handicap
    return np.asarray(distance.amin(1).cpu().numpy(), np.float64)


def crowding(noisy: Tensor, public: Tensor, scale: Tensor) -> Tensor:
    """How likely anybody's noise leads to each noisy row, as a logarithm up to a constant, [n]: a sum over public samples."""
    return torch.logsumexp(-torch.cdist(noisy / scale, public / scale, p=1), 1)


def scored(score: str, groups: list[Tensor], noisy: Tensor, scale: Tensor, public: Tensor | None) -> list[Floats]:
    """The scores of groups of candidates; `scale` is the unit of the noise, [c]."""
    if score not in SCORES:
        raise CoveyError(f"the score is {score!r}: choose 'euclidean', 'scaled_l1' or 'likelihood_ratio'")
    if score == "likelihood_ratio" and public is None:
        raise CoveyError("the likelihood ratio needs public samples to know a crowd by, and there are none")
    handicap = crowding(noisy, public, scale) if score == "likelihood_ratio" and public is not None else None
    return [nearest(group, noisy, None if score == "euclidean" else scale, handicap) for group in groups]


def unit_of_noise(width: Tensor, epsilon: float) -> Tensor:
    """Δ / ε of each coordinate; without noise every unit does, so the range itself."""
    return (width / epsilon if np.isfinite(epsilon) else width).clamp_min(1e-12)


def power(cases: Floats, controls: Floats, rate: float = 0.05) -> float:
    """Share of cases below the threshold that lets a share `rate` of such controls pass.

    The threshold is the ⌊rate (n + 1)⌋-th smallest control: a fresh control falls below it with at most that probability,
    however few there are. (The usual interpolated quantile lets too many pass among few controls.)
    """
    rank = int(rate * (len(controls) + 1))
    if rank < 1:
        raise CoveyError(
            f"{len(controls)} controls cannot calibrate a false-positive rate of {rate}: give more of them"
        )
    return float((cases < np.sort(controls)[rank - 1]).mean())


def area(cases: Floats, controls: Floats) -> float:
    """Probability that a case scores below a control, ties half: the area under the ROC curve."""
    ordered = np.sort(controls)
    below, upto = np.searchsorted(ordered, cases, "left"), np.searchsorted(ordered, cases, "right")
    return float((len(ordered) - (below + upto) / 2).mean() / len(ordered))


def simulated_power(
    features: NDArray[np.float32],
    epsilon: float,
    rng: np.random.Generator,
    rows: int = 1200,
    score: str = "euclidean",
    bounds: tuple[Floats, Floats] | None = None,
    rate: float = 0.05,
    public: NDArray[np.float32] | None = None,
) -> float:
    """One repetition of the paper's experiment: `rows` of the exact features [m, c] are cut in half at random, one half is
    the reference, noised, whose rows are the cases, the other is held out and gives the controls.

    `bounds` is a public range of each coordinate; without it the reference's own is taken, as in the paper. `public` are
    features of samples that are in neither half, for the likelihood ratio.
    """
    half = rows // 2
    if len(features) < 2 * half or half < 1:
        raise CoveyError(f"{len(features)} features cannot give a reference and a held-out set of {half} each")
    picked = features[rng.permutation(len(features))[: 2 * half]]
    if bounds is not None:
        picked = np.clip(picked, *bounds).astype(np.float32)
    reference, held_out = picked[:half], picked[half:]
    width = np.asarray(reference.max(0) - reference.min(0) if bounds is None else bounds[1] - bounds[0], np.float64)
    noisy = torch.from_numpy(laplace_noised(reference, epsilon, width, rng))
    scale = unit_of_noise(torch.from_numpy(width.astype(np.float32)), epsilon)
    groups = [torch.from_numpy(reference), torch.from_numpy(held_out)]
    cases, controls = scored(score, groups, noisy, scale, None if public is None else torch.from_numpy(public))
    return power(cases, controls, rate)
