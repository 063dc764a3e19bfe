"""An attack of your own: IFCA's server ranks clients by wealth, reading sample counts off their replies.

python examples/own_attack.py
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from covey import Experiment, run
from covey.attacks.contract import Finding, Knowledge, Truth, View
from covey.statistics import wilson


@dataclass
class WhoIsRich:
    """Guesses for pairs of clients which one holds more samples. Chance is one half."""

    name: str = "who_is_rich"
    vantage: str = "server"
    memory: dict[str, Any] = field(default_factory=dict)

    def begin(self, knowledge: Knowledge) -> None:
        self.clients = knowledge.setting.clients

    def observe(self, view: View) -> None:
        samples = getattr(view.message, "samples", None)
        if samples is not None:
            self.memory[view.sender] = samples

    def end_round(self, round: int) -> None:
        return None

    def finding(self, truth: Truth) -> Finding:
        sizes = [len(rows) for rows in truth.federation.clients]
        guess = [self.memory.get(f"client:{i}", 0) for i in range(self.clients)]
        pairs = [(i, j) for i in range(self.clients) for j in range(i) if sizes[i] != sizes[j]]
        right = float(np.mean([(guess[i] > guess[j]) == (sizes[i] > sizes[j]) for i, j in pairs]))
        low, high = wilson(right, len(pairs))
        return Finding(self.name, self.vantage, "pairs ordered", right, 0.5, low, high, used="sample counts in replies")


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
