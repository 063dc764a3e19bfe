"""Shamir's shares of whole polynomials, coefficient by coefficient, modulo a small prime.

Client j's share is the value at j + 1 of a random polynomial of degree t − 1 whose value at 0 is the secret. Any t shares give
the secret, fewer tell nothing of it, and the sum of shares is a share of the sum. Products are exact in float64, since
p² t stays below 2^53 (checked).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from covey.crypto.draws import Integers, uniform
from covey.crypto.noise.stream import Stream
from covey.errors import CoveyError


def check_field(prime: int, holders: int, quorum: int) -> None:
    if not 1 <= quorum <= holders < prime:
        raise CoveyError(f"shares for {holders} holders of which {quorum} are enough: expected 1 <= quorum <= holders")
    if prime * prime * quorum >= 2**53:
        raise CoveyError(
            f"shares modulo {prime} of which {quorum} are enough are not exact here: take fewer clients or a smaller quorum"
        )


def split(secret: Integers, holders: int, quorum: int, prime: int, stream: Stream) -> Integers:
    """[holders, N]: the share of each."""
    check_field(prime, holders, quorum)
    drawn = uniform(stream, (quorum - 1) * secret.size, prime).astype(np.float64).reshape(quorum - 1, secret.size)
    powers = _powers(holders, quorum, prime)
    shares: Integers = (powers @ np.vstack([secret % prime, drawn])).astype(np.int64) % prime
    return shares


@lru_cache(maxsize=4)
def _powers(holders: int, quorum: int, prime: int) -> NDArray[np.float64]:
    """[holders, quorum] of their points; hundreds of clients share a circle, and would each compute the same table."""
    powers = np.ones((holders, quorum), np.int64)
    for k in range(1, quorum):
        powers[:, k] = powers[:, k - 1] * np.arange(1, holders + 1) % prime
    return powers.astype(np.float64)


def weights(holders: Sequence[int], prime: int) -> list[int]:
    """What the shares of these holders are multiplied by to give the value at 0."""
    return list(_weights(tuple(holders), prime))


@lru_cache(maxsize=16)
def _weights(holders: tuple[int, ...], prime: int) -> tuple[int, ...]:
    """The same for all clients of a round."""
    points = [holder + 1 for holder in holders]
    if len(set(points)) != len(points):
        raise CoveyError(f"shares of the holders {list(holders)}: expected different ones")
    weights = []
    for x in points:
        above = below = 1
        for other in points:
            if other != x:
                above, below = above * other % prime, below * (other - x) % prime
        weights.append(above * pow(below, -1, prime) % prime)
    return tuple(weights)


def combine(shares: NDArray[np.int64], holders: Sequence[int], prime: int) -> Integers:
    """The secret's residues [N] from shares [t, N]; of more than t shares every one is used."""
    total = np.zeros(shares.shape[1], np.int64)
    for weight, share in zip(weights(holders, prime), shares, strict=True):
        total = (total + weight * share) % prime
    return total


def centred(residues: Integers, prime: int) -> Integers:
    """Residues as the smallest whole numbers that they can be."""
    return residues - prime * (residues > prime // 2)
