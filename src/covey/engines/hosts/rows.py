"""The rows of the dataset that clients hold, at hand for who takes part again."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from covey.data.federation import Federation
from covey.learn.schedule.transfer import there
from covey.learn.schedule.waves import WAVES

KNOWN = 4096  # clients of which something is kept at hand


class Rows:
    """Who holds what may change during a run: see `Federation.phase`."""

    def __init__(self, federation: Federation, device: torch.device) -> None:
        self._federation, self._device = federation, device
        self._of_one: dict[tuple[int, int], Tensor] = {}
        self._joined: dict[tuple[bytes, int], tuple[Tensor, NDArray[np.int64]]] = {}

    def of(self, client: int, round: int) -> Tensor:
        """One client's, on the CPU."""
        at = (client, self._federation.phase(round))
        rows = self._of_one.get(at)
        if rows is None:
            if len(self._of_one) > KNOWN:
                self._of_one.clear()
            rows = torch.from_numpy(np.ascontiguousarray(self._federation.at(round).clients[client]))
            self._of_one[at] = rows
        return rows

    def joined(self, clients: NDArray[np.int64], round: int) -> tuple[Tensor, NDArray[np.int64]]:
        """Those of these clients on the machine's device, one's after the other's, and how many each has."""
        at = (clients.tobytes(), self._federation.phase(round))
        if at not in self._joined:
            if len(self._joined) >= WAVES:
                self._joined.clear()
            rows, sizes = self._federation.at(round).holdings.joined(clients)
            self._joined[at] = (there(torch.from_numpy(rows), self._device), sizes)
        return self._joined[at]
