"""What many releases cost together. The divergences, conversions and exact bounds are dp-accounting's; nothing here adds
noise or knows a defence.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from covey.ledger.calibration import analytic_epsilon

Steps = Mapping[tuple[float, float], int]  # (sampling rate q, noise σ) -> steps taken with them

# Orders below 2 decide runs with little noise and many steps, large ones those with much noise.
_ORDERS = (1.02, 1.05, 1.1, 1.2, 1.35, 1.5, 1.7, 1.85, *range(2, 33), 2.25, 2.5, 2.75, 3.1, 3.25, 3.5, 4.5)
ORDERS: tuple[float, ...] = tuple(sorted((*_ORDERS, 40, 48, 64, 96, 128, 256, 512)))
MOMENTS = tuple(range(2, 34))  # α = λ + 1 of the moments accountant, λ = 1 … 32 (Abadi et al. 2016)
_TINY = 1e-300


def subsampled_gaussian_epsilon(steps: Steps, delta: float) -> float:
    """ε of Poisson-subsampled Gaussian steps by Rényi accounting (DP-SGD); adjacency: one sample added or removed."""
    if any(noise == 0 and count for (_, noise), count in steps.items()):
        return math.inf
    if not any(q and count for (q, _), count in steps.items()):
        return 0.0
    from dp_accounting.rdp import compute_epsilon

    total = np.sum([count * _divergences(q, noise, ORDERS) for (q, noise), count in steps.items()], axis=0)
    return float(compute_epsilon(ORDERS, total, delta)[0])


def moments_epsilon(sampling: float, noise: float, steps: int, delta: float) -> float:
    """ε as the moments accountant of 2016 printed it: whole orders only, and the looser conversion r + ln(1/δ)/(α − 1).

    Papers that cite it print this figure; `subsampled_gaussian_epsilon` is the tighter one for the same mechanism.
    """
    if noise == 0:
        return math.inf
    divergences = steps * _divergences(sampling, noise, MOMENTS)
    return float(np.min(divergences - math.log(delta) / (np.array(MOMENTS) - 1)))


def gaussian_epsilon(squares: float, delta: float) -> float:
    """ε of any number of Gaussian releases: `squares` is Σ 1/σ². Exact (they compose to one release with σ = 1/√Σ)."""
    return 0.0 if squares == 0 else _cached_analytic(1 / math.sqrt(squares), delta)


def laplace_epsilon(releases: Mapping[float, int], delta: float) -> float:
    """ε at δ of Laplace numbers, ε of one -> how many: at most their sum, less where δ buys something."""
    return _cached_laplace(frozenset(releases.items()), delta)


@lru_cache(maxsize=1024)
def _cached_laplace(releases: frozenset[tuple[float, int]], delta: float) -> float:
    total = sum(epsilon * count for epsilon, count in releases)
    if math.isinf(total):
        return math.inf
    from dp_accounting import LaplaceDpEvent
    from dp_accounting.rdp import RdpAccountant

    accountant = RdpAccountant()
    for epsilon, count in releases:
        accountant.compose(LaplaceDpEvent(1 / epsilon), count)
    return min(total, float(accountant.get_epsilon(delta)))


_cached_analytic = lru_cache(maxsize=4096)(analytic_epsilon)


@lru_cache(maxsize=4096)
def _divergences(sampling: float, noise: float, orders: tuple[float, ...]) -> NDArray[np.float64]:
    """Rényi divergence of one step at each order.

    The library shows ε, not divergences. At one order α it returns ε = r + ln(1 − 1/α) − ln(α δ)/(α − 1), so r is read off;
    a tiny δ keeps it from cutting ε at 0.
    """
    from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent
    from dp_accounting.rdp import RdpAccountant

    event = PoissonSampledDpEvent(sampling, GaussianDpEvent(noise))
    divergences = []
    with _without_warnings():
        for order in orders:
            epsilon = RdpAccountant([order]).compose(event).get_epsilon(_TINY)
            divergences.append(epsilon - math.log1p(-1 / order) + math.log(_TINY * order) / (order - 1))
    return np.maximum(divergences, 0.0)


@contextmanager
def _without_warnings() -> Iterator[None]:
    """Orders whose series does not converge count as infinite; the library says so once per order, we need not."""
    log = logging.getLogger("absl")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(level)
