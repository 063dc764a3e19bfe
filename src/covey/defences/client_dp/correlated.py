"""Noise that later rounds partly take back (DP-FTRL by matrix factorisation), for clients that answer in turns.

A model after t rounds is a prefix sum. With independent noise its error grows as √t. With noise C⁻¹ z, where C is the banded square
root of the prefix-sum matrix (Toeplitz, coefficients of (1 − x)^−½, cut after `band`), most of round s's noise is subtracted again
later, and each release still is a Gaussian one of C x (Kairouz et al. 2021; Denisov et al. 2022; Kalinin and Lampert 2024).

Its sensitivity is that of C x. A client that answers at most once in `band` rounds meets columns of C that do not overlap, so every
answer costs one column, of norm ‖c‖, and answers add up like independent releases of noise z / ‖c‖. Adaptive inputs (models that
depend on what was released before) are covered: C is lower triangular and z Gaussian (Denisov et al. 2022, Theorem 2.1).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from torch import Tensor


def coefficients(band: int) -> list[float]:
    """c_0 … c_{band−1} of (1 − x)^−½."""
    values = [1.0]
    for n in range(1, band):
        values.append(values[-1] * (2 * n - 1) / (2 * n))
    return values


def column_norm(band: int) -> float:
    """‖c‖: how much more one answer weighs than with independent noise."""
    return math.sqrt(sum(c * c for c in coefficients(band)))


def taken_back(past: Sequence[Tensor], band: int) -> Tensor | None:
    """Σ_s c_s ξ_{t−s}: what this round subtracts of the noises of the rounds before, the latest last; None: nothing yet."""
    weights = coefficients(band)[1:]
    terms = [c * noise for c, noise in zip(weights, reversed(past))]
    return sum(terms[1:], terms[0]) if terms else None
