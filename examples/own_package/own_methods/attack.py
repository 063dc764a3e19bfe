"""A server that ranks clients by wealth: it reads the sample counts in their replies."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from covey import CoveyError, roles
from covey.attacks.contract import Finding, Knowledge, Truth, View
from covey.attacks.declaration import Reads
from covey.leaks import WIRE, Leak
from covey.statistics import wilson

WEALTH = Leak("sample counts", "which of two clients holds more samples")


@dataclass
class WhoIsRich:
    """Guesses for pairs of clients which one holds more samples. Chance is one half."""

    name: ClassVar[str] = "who_is_rich"
    label: ClassVar[str] = "Who is rich"
    title: ClassVar[str] = "which of two clients holds more samples? from the counts in their replies"
    row: ClassVar[Leak] = WEALTH
    seen_from: ClassVar[tuple[str, ...]] = WIRE
    reads: ClassVar[tuple[Reads, ...]] = (Reads((roles.Count,)),)
    means: ClassVar[str] = "share of pairs that are ordered right; 1 is all"
    controls: ClassVar[tuple[str, ...]] = ("by number of client",)
    own_rows: ClassVar[bool] = False

    vantage: str = "server"
    memory: dict[str, Any] = field(default_factory=dict)

    def begin(self, knowledge: Knowledge) -> None:
        self.clients = knowledge.setting.clients

    def observe(self, view: View) -> None:
        if view.sender.startswith("client:") and (count := roles.first(view.message, roles.Count)) is not None:
            self.memory[view.sender] = count

    def end_round(self, round: int) -> None:
        pass

    def finding(self, truth: Truth) -> Finding:
        sizes = [len(rows) for rows in truth.federation.clients]
        pairs = [(i, j) for i in range(self.clients) for j in range(i) if sizes[i] != sizes[j]]
        if not pairs:
            raise CoveyError("all clients hold equally many samples: nobody is rich")
        counts = [self.memory.get(f"client:{i}", 0) for i in range(self.clients)]
        right = _share(pairs, sizes, counts)
        controls = {self.controls[0]: _share(pairs, sizes, list(range(self.clients)))}
        low, high = wilson(right, self.clients)  # a client is one trial: its pairs are not independent
        return Finding(self.name, self.vantage, "pairs ordered", right, 0.5, low, high, controls, "counts in replies")


def _share(pairs: list[tuple[int, int]], sizes: list[int], guess: list[int]) -> float:
    return float(np.mean([(guess[i] > guess[j]) == (sizes[i] > sizes[j]) for i, j in pairs]))
