"""The loops of `narrow.py`, each over long rows: [channels, rows, columns · samples], flat. In a column lie `lanes` times 16
samples, as many as a register holds, so that no row has a rest.
"""

from __future__ import annotations

import numpy as np
from numba import njit, uint64
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Codes = NDArray[np.uint8]
SIDE, TAPS = uint64(5), uint64(25)  # of kernels: constants, by which the compiler keeps a kernel in registers
# Indices with a sign would be tried for being negative, and their loops not be vectors.
ONE, TWO, THREE, FOUR, EIGHT, LANE = (uint64(i) for i in (1, 2, 3, 4, 8, 16))
NOTHING = 4  # the code of a place whose four are all negative, or of no sample
ORDER = {"cache": True, "nogil": True, "error_model": "numpy", "fastmath": {"contract"}}
ANY_ORDER = {**ORDER, "fastmath": {"contract", "reassoc"}}  # of sums
F, B, U = "f4[::1]", "u1[::1]", "u8"


@njit(f"void({F}, {F}, {F}, {F}, {F}, {B}, {U}, {U}, {U}, {U}, {U}, {U}, {U}, {U})", **ORDER)  # type: ignore[untyped-decorator]
def forward(
    x: Floats, weight: Floats, bias: Floats, both: Floats, y: Floats, code: Codes,
    c: int, h: int, w: int, o: int, pairs: int, columns: int, lanes: int, samples: int,
) -> None:  # fmt: skip
    """y [o, pairs, columns], and which of four it was, of x [c, h, w]. Two rows at a time: they share most of what they read, and
    are halved while they lie in the cache.
    """
    step = LANE * lanes
    length, row = TWO * columns * step, w * step
    upper, lower = both[:length], both[length : TWO * length]
    for pair in range(pairs):
        for output in range(o):
            start = bias[output]
            for j in range(length):
                upper[j] = start
                lower[j] = start
            for channel in range(c):
                taps = weight[(output * c + channel) * TAPS : (output * c + channel + ONE) * TAPS]
                read = x[(channel * h + TWO * pair) * row : (channel * h + TWO * pair + SIDE + ONE) * row]
                for j in range(length):
                    one, two = upper[j], lower[j]
                    for down in range(SIDE):
                        for across in range(SIDE):
                            one += taps[down * SIDE + across] * read[down * row + across * step + j]
                            two += taps[down * SIDE + across] * read[(down + ONE) * row + across * step + j]
                    upper[j] = one
                    lower[j] = two
            for column in range(columns):
                at, to = TWO * column * step, ((output * pairs + pair) * columns + column) * step
                a, b = upper[at : at + step], upper[at + step : at + TWO * step]
                c_, d = lower[at : at + step], lower[at + step : at + TWO * step]
                out, which = y[to : to + step], code[to : to + step]
                for j in range(step):
                    most, place = a[j], np.uint8(0)
                    if b[j] > most or b[j] != b[j]:
                        most, place = b[j], np.uint8(1)
                    if c_[j] > most or c_[j] != c_[j]:
                        most, place = c_[j], np.uint8(2)
                    if d[j] > most or d[j] != d[j]:
                        most, place = d[j], np.uint8(3)
                    if most <= 0:
                        most, place = np.float32(0), np.uint8(NOTHING)
                    out[j] = most
                    which[j] = place
                for j in range(samples, step):
                    out[j] = 0
                    which[j] = NOTHING


@njit(f"void({F}, {B}, {F}, {F}, {U}, {U}, {U}, {U})", **ANY_ORDER)  # type: ignore[untyped-decorator]
def spread(delta: Floats, code: Codes, whole: Floats, db: Floats, o: int, pairs: int, columns: int, lanes: int) -> None:
    """Back to the one of four that was the largest: whole [o, 2 · pairs, 2 · columns], and its sums db [o]."""
    step = LANE * lanes
    length, nothing = TWO * columns * step, np.float32(0)
    for output in range(o):
        total = nothing
        for pair in range(pairs):
            for column in range(columns):
                line = output * pairs + pair
                at, of = TWO * line * length + TWO * column * step, (line * columns + column) * step
                a, b = whole[at : at + step], whole[at + step : at + TWO * step]
                c, d = whole[at + length : at + length + step], whole[at + length + step : at + length + TWO * step]
                given, which = delta[of : of + step], code[of : of + step]
                for j in range(step):
                    a[j] = given[j] if which[j] == 0 else nothing
                    b[j] = given[j] if which[j] == 1 else nothing
                    c[j] = given[j] if which[j] == 2 else nothing
                    d[j] = given[j] if which[j] == 3 else nothing
                    total += nothing if which[j] == NOTHING else given[j]
        db[output] = total


@njit(f"void({F}, {F}, {F}, {U}, {U}, {U}, {U}, {U}, {U}, {U})", **ANY_ORDER)  # type: ignore[untyped-decorator]
def correlate(
    x: Floats, whole: Floats, dw: Floats, c: int, h: int, w: int, o: int, rows: int, columns: int, lanes: int
) -> None:
    """dw [o, c, 5, 5]: two outputs at a time share what they read; the last of an odd number goes twice."""
    step = LANE * lanes
    length, row = columns * step, w * step
    for pair in range((o + ONE) // TWO):
        first = min(TWO * pair, o - ONE)
        second = min(first + ONE, o - ONE)
        for channel in range(c):
            for down in range(SIDE):
                a0 = a1 = a2 = a3 = a4 = np.float32(0)
                b0 = b1 = b2 = b3 = b4 = np.float32(0)
                for line in range(rows):
                    p = whole[(first * rows + line) * length : (first * rows + line + ONE) * length]
                    q = whole[(second * rows + line) * length : (second * rows + line + ONE) * length]
                    read = x[(channel * h + line + down) * row : (channel * h + line + down + ONE) * row]
                    for j in range(length):
                        a0 += p[j] * read[j]
                        a1 += p[j] * read[j + step]
                        a2 += p[j] * read[j + TWO * step]
                        a3 += p[j] * read[j + THREE * step]
                        a4 += p[j] * read[j + FOUR * step]
                        b0 += q[j] * read[j]
                        b1 += q[j] * read[j + step]
                        b2 += q[j] * read[j + TWO * step]
                        b3 += q[j] * read[j + THREE * step]
                        b4 += q[j] * read[j + FOUR * step]
                at = ((first * c + channel) * SIDE + down) * SIDE
                dw[at], dw[at + ONE], dw[at + TWO], dw[at + THREE], dw[at + FOUR] = a0, a1, a2, a3, a4
                at = ((second * c + channel) * SIDE + down) * SIDE
                dw[at], dw[at + ONE], dw[at + TWO], dw[at + THREE], dw[at + FOUR] = b0, b1, b2, b3, b4


@njit(f"void({F}, {F}, {F}, {U}, {U}, {U}, {U}, {U}, {U}, {U})", **ORDER)  # type: ignore[untyped-decorator]
def scatter(
    whole: Floats, weight: Floats, dx: Floats, c: int, h: int, w: int, blocks: int, rows: int, columns: int, lanes: int
) -> None:
    """Adds to dx [c, h, w], a tap of a block of outputs at a time."""
    step = LANE * lanes
    length, row = columns * step, w * step
    taps = np.empty(EIGHT, np.float32)
    for channel in range(c):
        for block in range(blocks):
            for line in range(rows):
                given = whole[(block * EIGHT * rows + line) * length : (block + ONE) * EIGHT * rows * length]
                for down in range(SIDE):
                    for across in range(SIDE):
                        for output in range(EIGHT):
                            at = (block * EIGHT + output) * c + channel
                            taps[output] = weight[at * TAPS + down * SIDE + across]
                        at = channel * h * row + (line + down) * row + across * step
                        out = dx[at : at + length]
                        for j in range(length):
                            total = out[j]
                            for output in range(EIGHT):
                                total += taps[output] * given[output * rows * length + j]
                            out[j] = total
