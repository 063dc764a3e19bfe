"""Discrete Gaussians and discrete Laplace numbers on the integers, exactly, from random words.

    P(n) ∝ exp(−n² / 2 s²)   or   exp(−|n| / s),   n = …, −1, 0, 1, …,   s = 2^bits

Canonne, Kamath and Steinke (2020) show that they protect as the continuous ones do, and whole numbers have no lowest bits that
tell what was added (Mironov 2012). They sample by rejection from Laplace numbers; we do as Karney (2016), which for s = 2^bits
needs no division: |n| / s = y + x with y = i/16 the strip and 0 ≤ x < 1/16 within it, and

    exp(−(y + x)²/2) = exp(−y²/2) · exp(−x (2y + x)/2)        exp(−(y + x)) = exp(−y) · exp(−x)

So a strip is drawn from a table of its 128-bit cumulative probabilities, x uniformly, and the pair is kept with the probability
of the last factor: some 97 % of them. That coin is exact: a word's bits are compared with the probability in floating point
where the two are further apart than 2^-40, and else, once in 2^34 coins, in decimal arithmetic with as many bits as it takes.

The only deviation is the table's: 1,509 strips at most, each probability rounded to 2^-128, and cut where less than 2^-128 lies
beyond (13.7 s of the Gaussian, 94 s of Laplace). So a number is within `DISTANCE` of its distribution, and 2^40 numbers
together within 2^-76 of theirs.

Limits: how many words a draw takes, and so its time, depends on the numbers drawn. It is not constant-time code.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Decimal, localcontext
from functools import lru_cache
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from covey.crypto.noise.stream import Stream, Words

Integers = NDArray[np.int64]

STRIPS = 4  # strips are 2^-4 s wide
BITS = 32  # s = 2^32 unless told: fine enough that rounding to whole numbers costs nothing that shows
DISTANCE = 2.0**-116  # largest statistical distance of one number
_TABLE_BITS = 128
_GUIDE = 10  # leading bits of a word by which the search for its strip begins
_MARGIN = 2.0**-40  # far more than the error of a float64 exponential
_PART = 1 << 15  # numbers per piece: their words stay in the cache
_DIGITS = 80
_FURTHEST = 2.0**62  # steps


@dataclass(frozen=True)
class Table:
    """Strip i has the probability (T_i − T_{i−1}) / 2^128, T in two words each."""

    high: Words
    low: Words
    guide: Integers  # by leading bits of a word: the first strip that can be meant
    gaussian: bool


@dataclass(frozen=True)
class Coin:
    """A coin that floating point could not decide: whether a uniform number with these leading bits is below exp(−t)."""

    strip: int
    within: int
    bits: int  # of s
    known: int
    known_bits: int


def gaussians(count: int, stream: Stream, bits: int = BITS) -> Integers:
    """`count` independent discrete Gaussians with s = 2^bits."""
    return _drawn(_table(True), count, stream, bits)


def laplaces(count: int, stream: Stream, bits: int = BITS) -> Integers:
    """`count` independent discrete Laplace numbers with s = 2^bits."""
    return _drawn(_table(False), count, stream, bits)


def furthest(bits: int = BITS) -> int:
    """No Gaussian is larger: where the table was cut."""
    return len(_table(True).high) << (bits - STRIPS)


def _drawn(table: Table, count: int, stream: Stream, bits: int) -> Integers:
    out = np.empty(count, np.int64)
    for begin in range(0, count, _PART):
        _fill(table, out[begin : begin + _PART], stream, bits)
    return out


def _fill(table: Table, out: Integers, stream: Stream, bits: int) -> None:
    """Words that are left over are thrown away: they are nobody's."""
    done, undecided = 0, np.zeros(4, np.int64)
    while done < len(out):
        words = stream.words(int(2.1 * (len(out) - done)) + 16)
        used, waiting = 0, True
        while waiting:
            done, used, waiting = _numbers(
                out, done, words, used, table.high, table.low, table.guide, bits - STRIPS, table.gaussian, undecided
            )
            if waiting:
                strip, within, negative, known = (int(v) for v in undecided)
                if flips(Coin(strip, within, bits, known, 63 - bits + STRIPS), table.gaussian, stream):
                    done += _put(out, done, (strip << (bits - STRIPS)) + within, bool(negative))


def flips(coin: Coin, gaussian: bool, stream: Stream) -> bool:
    """The coin's outcome, by 128 more bits of the stream against 80 digits of the exponential."""
    more = stream.words(2)
    known = (coin.known << 128) + (int(more[0]) << 64) + int(more[1])
    scale = 1 << coin.bits
    inside, strip = coin.within, coin.strip << (coin.bits - STRIPS)
    numerator, denominator = (inside * (2 * strip + inside), 2 * scale**2) if gaussian else (inside, scale)
    with localcontext() as context:
        context.prec = _DIGITS
        limit = (-Decimal(numerator) / Decimal(denominator)).exp() * (1 << (coin.known_bits + 128))
        return Decimal(known) < limit


def _put(out: Integers, at: int, size: int, negative: bool) -> int:
    """How many numbers that makes: 0 has one sign only, else it would come twice as often."""
    if size == 0 and negative:
        return 0
    out[at] = -size if negative else size
    return 1


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _numbers(  # type: ignore[no-untyped-def]
    out, done, words, used, high, low, guide, shift, gaussian, undecided
):
    """Fills `out` from `done` on; (numbers done, words used, whether it waits for a coin that stands in `undecided`)."""
    last = len(high) - 1
    mask, one = np.uint64((1 << shift) - 1), np.uint64(1)
    to_x = 0.5 ** (shift + STRIPS)
    to_u = 0.5 ** (63 - shift)
    while done < len(out) and used + 3 <= len(words):
        a, b = words[used], words[used + 1]
        used += 2
        strip = guide[a >> np.uint64(64 - _GUIDE)]
        tie = np.uint64(0)
        drawn = False
        while strip < last and a >= high[strip]:
            if a == high[strip]:
                if not drawn:
                    tie, drawn = words[used], True
                    used += 1
                if tie < low[strip]:
                    break
            strip += 1
        within = b & mask
        negative = (b >> np.uint64(shift)) & one
        known = b >> np.uint64(shift + 1)
        x = np.float64(within) * to_x
        t = 0.5 * x * (strip * 0.5 ** (STRIPS - 1) + x) if gaussian else x
        below = np.float64(known) * to_u
        above = below + to_u
        if above >= 1.0 - t - _MARGIN:  # else below a bound of exp(−t)
            limit = math.exp(-t)
            if below >= limit + _MARGIN:
                continue
            if above >= limit - _MARGIN:
                undecided[0], undecided[1] = strip, np.int64(within)
                undecided[2], undecided[3] = np.int64(negative), np.int64(known)
                return done, used, True
        size = (np.int64(strip) << shift) + np.int64(within)
        if size == 0 and negative == one:
            continue
        out[done] = -size if negative == one else size
        done += 1
    return done, used, False


def add(values: NDArray[Any], step: NDArray[np.float64], noise: Integers) -> NDArray[Any]:
    """Values rounded to whole steps (one for all, or one per column), plus noise in steps, as floats again."""
    out = np.empty(values.shape, values.dtype)
    _add(np.ascontiguousarray(values).reshape(-1), step, noise, out.reshape(-1))
    return out


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _add(values, step, noise, out):  # type: ignore[no-untyped-def]
    """What is added is added in whole numbers: no rounding of a float depends on the value and the noise together."""
    width = len(step)
    for i in range(len(out)):
        s = step[0] if width == 1 else step[i % width]
        whole = min(max(np.rint(values[i] / s), -_FURTHEST), _FURTHEST)
        out[i] = np.float64(np.int64(whole) + noise[i]) * s


@lru_cache(maxsize=2)
def _table(gaussian: bool) -> Table:
    masses: list[Decimal] = []
    with localcontext() as context:
        context.prec = _DIGITS
        width, least = Decimal(2) ** -STRIPS, Decimal(2) ** -(_TABLE_BITS + 8)
        while not masses or masses[-1] > least:
            y = len(masses) * width
            masses.append((-y * y / 2 if gaussian else -y).exp())
        total = sum(masses)
        thresholds, passed = [], Decimal(0)
        for mass in masses:
            passed += mass
            thresholds.append(min(int(passed / total * 2**_TABLE_BITS), 2**_TABLE_BITS - 1))
    high = np.array([t >> 64 for t in thresholds], np.uint64)
    low = np.array([t & (2**64 - 1) for t in thresholds], np.uint64)
    leads = np.arange(2**_GUIDE, dtype=np.uint64) << np.uint64(64 - _GUIDE)
    guide = np.searchsorted(high, leads, side="left").astype(np.int64)
    return Table(high, low, np.minimum(guide, len(high) - 1), gaussian)
