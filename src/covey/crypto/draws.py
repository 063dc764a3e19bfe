"""What lattices draw: uniform residues, discrete Gaussians, centred binomials, from ChaCha20 words (`crypto/noise/stream.py`).

The Gaussian is P(x) proportional to exp(−x²/2σ²) on the whole numbers within ±TAIL. A number is found by comparing 31 random
bits with *every* threshold of the cumulative table, so neither time nor memory access depends on what is drawn. Where they
equal the leading bits of a threshold (once in some 10^7 numbers) 95 more bits decide, and only that takes longer. Thresholds are
rounded to 2^-126 and the tail beyond 12 σ has less than 2^-107, so one number is within 2^-106 of its distribution and 2^40
numbers together within 2^-66.
"""

from __future__ import annotations

from decimal import Decimal, localcontext
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from covey.crypto.noise.stream import Stream, Words

Integers = NDArray[np.int64]
SIGMA = 20
TAIL = 12 * SIGMA  # no secret and no error is larger
_LEADING, _REST = 31, 95  # bits of a threshold
_TWENTY_ONE = np.uint64((1 << 21) - 1)


def uniform(stream: Stream, count: int, modulus: int) -> Words:
    """`count` residues: words cut to the modulus's length, those that are too large left out."""
    mask = np.uint64((1 << modulus.bit_length()) - 1)
    kept: list[Words] = []
    missing = count
    while missing > 0:
        drawn = stream.words(missing + 64) & mask
        good = drawn[:missing]
        if int(good.max()) >= modulus:  # never, where the modulus is just below a power of 2
            good = drawn[drawn < np.uint64(modulus)][:missing]
        kept.append(good)
        missing -= len(good)
    return np.concatenate(kept) if kept else np.zeros(0, np.uint64)


def gaussians(stream: Stream, count: int) -> Integers:
    """`count` independent numbers of the distribution above."""
    thresholds, leading = _thresholds()
    words = stream.words(-(-count // 2)).view("<u4")[:count]
    magnitudes, ties = np.zeros(count, np.int32), np.zeros(count, np.int32)
    bits = (words & np.uint32((1 << _LEADING) - 1)).view(np.int32)
    from covey.crypto.passing import count_passed  # brings numba, 55 MB that other keys do not need

    count_passed(magnitudes, ties, bits, leading)
    for n in np.flatnonzero(ties):
        more = stream.words(2)
        whole = (int(bits[n]) << _REST) | (((int(more[0]) << 64) | int(more[1])) >> (128 - _REST))
        magnitudes[n] = sum(whole >= threshold for threshold in thresholds)
    signs = 1 - 2 * (words >> np.uint32(_LEADING)).astype(np.int64)
    return magnitudes * signs


def binomials(stream: Stream, count: int) -> Integers:
    """`count` centred binomials: 21 bits less 21 bits, within ±21, σ = 3.24. As SEAL draws its errors."""
    words = stream.words(count)
    ones, others = (np.bitwise_count(words >> np.uint64(shift) & _TWENTY_ONE) for shift in (0, 21))
    drawn: Integers = ones.astype(np.int64) - others
    return drawn


@lru_cache(maxsize=1)
def _thresholds() -> tuple[list[int], NDArray[np.int32]]:
    """P(|x| <= i) for i below TAIL in units of 2^-126, and the leading bits of each."""
    with localcontext() as context:
        context.prec = 60
        masses = [(Decimal(-x * x) / (2 * SIGMA * SIGMA)).exp() * (2 if x else 1) for x in range(TAIL + 1)]
        total, passed, thresholds = sum(masses), Decimal(0), []
        for mass in masses[:-1]:
            passed += mass
            thresholds.append(int(passed / total * 2 ** (_LEADING + _REST)))
    return thresholds, np.array([threshold >> _REST for threshold in thresholds], np.int32)
