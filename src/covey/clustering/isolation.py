"""Whether sums over groups of clients give away what a single one of them added.

Who gets sums of several groups may add and subtract them, and take off what it added itself. A group of one is that client's
own vector, a group of two is either's to the other, and so is the difference of two groups that differ by one client.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Groups = NDArray[np.bool_]  # [g, n]: which client is in which sum
LOOKS = 20_000
NODES = (
    100  # of a search in whole numbers: 10 s for 100 clients in the same 10 sums every round, .1 s where sums change
)


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


def is_held_by_few(groups: Groups, few: int) -> bool:
    """Whether some combination of the sums, with whatever factors, holds contributions of at most `few` clients.

    A combination is one number for all clients that are in the same sums. With P the projection on all combinations, one is
    held by the clients U alone if P, cut to U, has the eigenvalue 1; so its trace there is 1 at least, which few U reach. Where
    more than LOOKS remain to be looked at the answer is the careful one: yes.
    """
    kinds, sizes = np.unique(groups[:, groups.any(0)].T, axis=0, return_counts=True)
    scaled = kinds.T * np.sqrt(sizes)  # [g, kinds]
    reach = np.linalg.pinv(scaled, rcond=1e-9) @ scaled
    each = reach.diagonal() / sizes  # what one client of a kind adds to the trace
    order = [k for k in np.argsort(-each).tolist() if sizes[k] <= few]
    looks = 0
    open_sets: list[tuple[list[int], int, int, float]] = [([], 0, 0, 0.0)]  # kinds, where to go on, clients, trace
    while open_sets:
        chosen, start, clients, trace = open_sets.pop()
        if trace > 1 - 1e-6 and np.linalg.eigvalsh(reach[np.ix_(chosen, chosen)])[-1] > 1 - 1e-6:
            return True
        for place, kind in enumerate(order[start:], start + 1):
            if trace + (few - clients) * each[kind] < 1 - 1e-6:
                break
            if clients + sizes[kind] <= few:
                looks += 1
                open_sets.append(([*chosen, kind], place, clients + sizes[kind], trace + reach[kind, kind]))
        if looks > LOOKS:
            return True
    return False


def keeps_apart(groups: Groups, least: int) -> bool:
    """Whether no combination of the sums has fewer clients than agreed, nor gives a single client another's contribution."""
    if not 0 < smallest(groups) < least:
        return least < 2 or not (isolating(groups) or (least > 3 and is_held_by_few(groups, least - 1)))
    return False


def clusters_by_counts(groups: Sequence[Groups], counts: Sequence[NDArray[np.float64]]) -> NDArray[np.int64] | None:
    """The cluster of each client, as who is in which sum and the sums' counts of clusters let find it, rounds together.

    Each client has one cluster, and in each round the members of a sum have those that its counts say: a linear system in whole
    numbers, of which one solution is taken, whichever. Where sums stay the same every round says the same; where they change
    (clients are sampled or lost, or sets are drawn anew) a few rounds determine everybody. None: no assignment was found that
    explains all rounds, since clients have changed their clusters, or since the search ended after NODES.

    Args:
        groups: of each round, [g, n].
        counts: of each round, [g, k].
    """
    from scipy.optimize import Bounds, LinearConstraint, milp

    n, k = groups[0].shape[1], counts[0].shape[1]
    asked = np.concatenate([np.kron(np.eye(n), np.ones(k)), *(np.kron(one, np.eye(k)) for one in groups)])
    answer = np.concatenate([np.ones(n), *(one.ravel() for one in counts)])
    preferred = np.random.default_rng(0).normal(size=n * k)
    exactly, limit = LinearConstraint(asked, answer, answer), {"node_limit": NODES}
    solved = milp(preferred, constraints=exactly, integrality=1, bounds=Bounds(0, 1), options=limit)
    if solved.x is None:
        return None
    clusters: NDArray[np.int64] = solved.x.reshape(n, k).argmax(1)
    return clusters
