"""How alike a recovered picture and a true one are, and the pictures side by side for the report.

Every true sample is compared with the recovered picture that is nearest to it, and, as a control, with the nearest of as many
public ones: who picks the match knows the truth, so both are what an attacker could show at best.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
WINDOW = 7  # pixels: the side of a window of SSIM, Wang et al. 2004 with equal weights
_C1, _C2 = 0.01**2, 0.03**2
SHOWN = 12  # pictures in the report
SHARP = 20.0  # dB from which on a picture counts as recovered: an error of a tenth of the range


def pixels(x: NDArray[np.generic]) -> Floats:
    """Pictures [n, h, w, c] from 0 to 1."""
    out = np.asarray(x, np.float64) / (255.0 if x.dtype == np.uint8 else 1.0)
    return out[..., None] if out.ndim == 3 else out


def ssim(one: Floats, other: Floats) -> Floats:
    """Structural similarity of pairs of pictures [n, h, w, c]: 1 for equal ones, about 0 for unrelated ones."""
    side = min(WINDOW, *one.shape[1:3])
    a, b = (np.lib.stride_tricks.sliding_window_view(x, (side, side), axis=(1, 2)) for x in (one, other))
    mean_a, mean_b = a.mean((-1, -2)), b.mean((-1, -2))
    var_a, var_b = a.var((-1, -2)), b.var((-1, -2))
    both = (a * b).mean((-1, -2)) - mean_a * mean_b
    alike = (2 * mean_a * mean_b + _C1) * (2 * both + _C2)
    every = (mean_a**2 + mean_b**2 + _C1) * (var_a + var_b + _C2)
    similar: Floats = (alike / every).mean((1, 2, 3))
    return similar


def psnr(one: Floats, other: Floats) -> Floats:
    """Peak signal to noise of pairs, in dB; at most 100, for equal ones."""
    errors = ((one - other) ** 2).mean((1, 2, 3))
    decibels: Floats = np.minimum(100.0, -10 * np.log10(np.maximum(errors, 1e-10)))
    return decibels


def nearest(true: Floats, guesses: Floats) -> NDArray[np.int64]:
    """The guess [n] that is nearest to each true picture, by the sum of squares."""
    a, b = true.reshape(len(true), -1), guesses.reshape(len(guesses), -1)
    return np.asarray(((b**2).sum(1) - 2 * a @ b.T).argmin(1), np.int64)


@dataclass(frozen=True)
class Match:
    """True pictures beside the best guesses at them."""

    true: Floats
    guessed: Floats

    @classmethod
    def of(cls, true: Floats, guesses: Floats) -> Match:
        return cls(true, guesses[nearest(true, guesses)])

    @classmethod
    def joined(cls, parts: Sequence[Match]) -> Match:
        return cls(np.concatenate([p.true for p in parts]), np.concatenate([p.guessed for p in parts]))

    def similarities(self) -> Floats:
        return ssim(self.true, self.guessed)

    def sharpness(self) -> Floats:
        return psnr(self.true, self.guessed)

    def recovered(self) -> float:
        """The share of pictures that came back."""
        return float((self.sharpness() >= SHARP).mean())

    def picture(self, title: str) -> dict[str, Any]:
        """For the report: some of them, the best half and the worst half of those."""
        order = np.argsort(-self.similarities())
        count = min(SHOWN, len(order))
        chosen = np.concatenate([order[: math.ceil(count / 2)], order[len(order) - count // 2 :]])
        rows = [{"name": name, "pictures": _bytes(x[chosen])} for name, x in self._rows()]
        caption = "Each true sample above the recovered picture that is nearest to it: first the best, then the worst."
        return {"kind": "images", "title": title, "rows": rows, "caption": caption}

    def _rows(self) -> list[tuple[str, Floats]]:
        return [("true", self.true), ("recovered", self.guessed)]


def _bytes(x: Floats) -> list[list[list[list[int]]]]:
    """[n][h][w][c] from 0 to 255."""
    whole: list[list[list[list[int]]]] = np.rint(255 * x.clip(0, 1)).astype(int).tolist()
    return whole
