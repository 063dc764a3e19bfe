"""An attack of your own: a server ranks clients by wealth, reading sample counts off their replies.

python examples/own_attack.py

What it declares (row, seen_from, reads, means, controls) lets `covey audit` run it beside covey's own, under every algorithm
whose replies carry a count; the attack itself runs without.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from covey import Experiment, roles, run
from covey.attacks.contract import Finding, Knowledge, Truth, View
from covey.attacks.declaration import Reads
from covey.leaks import WIRE, Leak
from covey.statistics import wilson


@dataclass
class WhoIsRich:
    """Guesses for pairs of clients which one holds more samples. Chance is one half."""

    name: ClassVar[str] = "who_is_rich"
    title: ClassVar[str] = "which of two clients holds more samples?"
    row: ClassVar[Leak] = Leak("wealth", "who holds many samples")
    seen_from: ClassVar[tuple[str, ...]] = WIRE  # the server, and who listens on the line
    reads: ClassVar[tuple[Reads, ...]] = (Reads((roles.Count,)),)  # in what clients return
    means: ClassVar[str] = "share of pairs of clients ordered rightly; 1 is all"
    controls: ClassVar[tuple[str, ...]] = ("another client's count",)

    vantage: str = "server"
    memory: dict[str, Any] = field(default_factory=dict)

    def begin(self, knowledge: Knowledge) -> None:
        self.clients = knowledge.setting.clients

    def observe(self, view: View) -> None:
        samples = roles.first(view.message, roles.Count)
        if samples is not None:
            self.memory[view.sender] = samples

    def end_round(self, round: int) -> None:
        return None

    def finding(self, truth: Truth) -> Finding:
        sizes = np.array([len(rows) for rows in truth.federation.clients])
        counts = np.array([self.memory.get(f"client:{i}", 0) for i in range(self.clients)])
        pairs = [(i, j) for i in range(self.clients) for j in range(i) if sizes[i] != sizes[j]]

        def ordered(guess: Any) -> float:
            return float(np.mean([(guess[i] > guess[j]) == (sizes[i] > sizes[j]) for i, j in pairs]))

        value = ordered(counts)
        placebo = float(np.mean([ordered(np.roll(counts, n)) for n in range(1, self.clients)]))
        low, high = wilson(value, self.clients)  # pairs share clients: they are no independent trials
        controls = {self.controls[0]: placebo}
        return Finding(self.name, self.vantage, "pairs ordered", value, 0.5, low, high, controls, "counts in replies")


if __name__ == "__main__":
    experiment = Experiment.of(
        dataset="digits",
        algorithm="ifca",
        clients=20,
        partition={"name": "dirichlet", "beta": 0.5, "equal": False},
        start={"common": False},
        training={"rounds": 5, "batch_size": 10, "lr": 0.1},
    )
    print(run(experiment, attacks=[WhoIsRich()]).attacks)
