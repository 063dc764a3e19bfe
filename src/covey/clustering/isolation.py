"""Whether sums over groups of clients give away what a single one of them added.

Who gets sums of several groups may add and subtract them, and take off what it added itself. A group of one is that client's
own vector, a group of two is either's to the other, and so is the difference of two groups that differ by one client.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Groups = NDArray[np.bool_]  # [g, n]: which client is in which sum


def smallest(groups: Groups) -> int:
    """The fewest clients in a sum, or in the difference of two; empty ones do not count. 0: there is nothing to read."""
    pairs = [a ^ b for i, a in enumerate(groups) for b in groups[:i]]
    return min((int(one.sum()) for one in [*groups, *pairs] if one.any()), default=0)


def isolating(groups: Groups) -> list[tuple[int, int]]:
    """(observer, other): clients whose own contribution and the sums determine another's contribution exactly."""
    n = groups.shape[1]
    pairs = []
    for observer in range(n):
        known = np.vstack([groups.astype(np.float64), np.eye(n)[observer]])  # what it can combine, [g + 1, n]
        # The diagonal of what projects on all that it can get: 1 where that holds somebody's own contribution.
        reach = np.einsum("ik,ki->i", np.linalg.pinv(known, rcond=1e-9), known)
        alone = np.isclose(reach, 1.0, atol=1e-6)
        pairs += [(observer, other) for other in np.flatnonzero(alone).tolist() if other != observer]
    return pairs


def keeps_apart(groups: Groups, least: int) -> bool:
    """Whether no sum, no difference of two, and no combination that a single client can make has fewer clients than agreed.

    Combinations of three and more sums are checked for one client's contribution only, as they are from `least = 2` on.
    """
    if not 0 < smallest(groups) < least:
        return least < 2 or not isolating(groups)
    return False
