"""Which worker computes for which client: for all of a run, since that is where the client's memory lies."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

WEIGHED = 100_000  # clients beyond which chance evens out what workers hold


def dealt(sizes: NDArray[np.int64], workers: int) -> list[int]:
    """The worker of each client with so many samples, such that workers have about as many.

    Of every `workers` clients in a row each worker gets one, the largest of them the worker that has least so far. So replies that
    are taken in the order of the clients come from all workers in turn, and what two of them have differs by the largest client at
    most.
    """
    n = len(sizes)
    if workers == 1 or n > WEIGHED or (n and bool((sizes == sizes[0]).all())):
        return (np.arange(n) % workers).tolist()
    owners = np.zeros(n, np.int64)
    loads = np.zeros(workers, np.int64)
    for begin in range(0, n, workers):
        row = sizes[begin : begin + workers]
        least_first = np.argsort(loads, kind="stable")[: len(row)]
        owners[begin + np.argsort(-row, kind="stable")] = least_first
        loads[least_first] += np.sort(row)[::-1]
    return owners.tolist()
