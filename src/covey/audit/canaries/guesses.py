"""One run: many canaries, each there or absent by a coin of its own, and guesses on the coins that look decided."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from covey.audit.canaries.verdict import CERTAIN, SHOWN
from covey.ledger.lower_bounds import epsilon_of_guesses, guesses_p_value

SHARES = (
    1.0,
    0.5,
    0.25,
    0.125,
)  # of the canaries that are guessed on; all are tried, so each may err a quarter as often


@dataclass(frozen=True)
class Guesses:
    shown: float
    most: float
    refuted: bool
    refutation: str
    refutable: bool
    guesses: str


def judge(
    scores: Sequence[NDArray[np.float64]], coins: Sequence[NDArray[np.bool_]], claimed: float, delta: float
) -> Guesses:
    """Scores of the canaries of each client, higher for those that look there: as many highest as lowest are guessed on.

    Clients draw their noise by themselves, so their canaries count as those of one run.
    """
    every = sum(map(len, coins))
    tried = [_tried(scores, coins, share) for share in SHARES]
    alpha, sure = SHOWN / len(SHARES), CERTAIN / len(SHARES)
    bounds = [epsilon_of_guesses(every, guessed, right, delta, alpha) for guessed, right in tried]
    best = int(np.argmax(bounds))

    def odds_of(guessed: int, right: int) -> float:
        return guesses_p_value(every, guessed, right, claimed, delta) if np.isfinite(claimed) else 1.0

    odds = [odds_of(*one) for one in tried]
    guessed, right = tried[best]
    refuted = min(odds) <= sure
    worst_made, worst_right = tried[int(np.argmin(odds))]
    return Guesses(
        bounds[best],
        epsilon_of_guesses(every, every, every, delta, alpha),
        refuted,
        f"{worst_right} of {worst_made} guesses right has a probability of {min(odds):.1g} at most" if refuted else "",
        odds_of(every, every) <= sure,
        f"{right} of {guessed} guesses right on {every} canaries",
    )


def _tried(scores: Sequence[NDArray[np.float64]], coins: Sequence[NDArray[np.bool_]], share: float) -> tuple[int, int]:
    """(guesses, right ones)"""
    guessed = right = 0
    for score, there in zip(scores, coins):
        half = int(share * len(score)) // 2
        order = np.argsort(score)
        low, high = order[:half], order[len(order) - half :]
        guessed += 2 * half
        right += int((~there[low]).sum() + there[high].sum())
    return guessed, right
