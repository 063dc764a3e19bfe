"""Whether a client that leaves and comes back under another name is recognised, wherever its uploads are seen in the clear.

A client's data stay, so its updates keep pulling the same way (after Orekondy et al., Gradient-Leaks: Understanding and
Controlling Deanonymization in Federated Learning, arXiv:1805.05838, who name the devices behind uploads with auxiliary data).
The run is cut in two: before, clients have names; after, those who come back have new ones. The attacker adds up what each name
sent in either part, relative to what all sent in the same round, and matches the names of the two parts one to one: by the
cosine of whole updates, by the output biases alone, and by the numbers of samples where replies carry these. In a simulation
nobody really changes its name: the matching gets the second part in a random order, and only the score knows whose is whose.

Clients that remember what they sent and correct for it (SCAFFOLD's variates, FedDyn's gradients) take it back later: their updates
point nowhere in particular, or are all noise, and yet who is opposite is the same (`rejoining_opposite`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
from torch import Tensor

from covey import roles
from covey.attacks.contract import Finding, Knowledge, Truth, View
from covey.attacks.declaration import Reads, lacks_rounds
from covey.attacks.linkage.matchings import Floats, assignment
from covey.attacks.uploads import LAYERS, upload
from covey.errors import CoveyError
from covey.leaks import LINKAGE, WIRE, Leak
from covey.messages import size
from covey.randomness import generator
from covey.statistics import wilson

RANDOM, BY_SIZE = "random matching", "size of uploads"
ORDERS = 10  # of the names after the cut, over which ties are averaged
BEFORE, AFTER = "before", "after"
LEFT_OUT = (0, 1, 2, 4, 6, 9, 13)  # strongest directions of what clients have in common


@dataclass
class Rejoining:
    """Matches the names before a cut with those after it."""

    name: ClassVar[str] = "rejoining"
    label: ClassVar[str] = "Linkage of clients that rejoin"
    title: ClassVar[str] = "a client that comes back under another name is recognised by where its updates point"
    row: ClassVar[Leak] = LINKAGE
    seen_from: ClassVar[tuple[str, ...]] = WIRE
    reads: ClassVar[tuple[Reads, ...]] = LAYERS
    means: ClassVar[str] = "share of clients that are recognised under their new names; 1 is all"
    controls: ClassVar[tuple[str, ...]] = (RANDOM, BY_SIZE)
    own_rows: ClassVar[bool] = False

    vantage: str = "server"
    away: int = 0  # rounds between the two parts in which nothing of them is seen
    clients: int = 200  # that are followed, at most
    memory: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.away < 0 or self.clients < 2:
            raise CoveyError(
                f"attack '{self.name}' follows {self.clients} clients that are {self.away} rounds away: expected 2 clients at "
                "least, and no negative number of rounds"
            )

    @classmethod
    def lacks(cls, experiment: Any) -> str:
        return lacks_rounds(experiment, 2)

    def begin(self, knowledge: Knowledge) -> None:
        self.known = knowledge
        self.got: dict[str, Any] = {}
        self.sent: dict[str, tuple[Tensor, float, float]] = {}  # of this round: update [d], bytes, samples
        for part in (BEFORE, AFTER):
            self.memory.setdefault(part, {})  # name -> sums: update [d], biases [c], bytes, samples, rounds

    def observe(self, view: View) -> None:
        if view.receiver.startswith("client:"):
            self.got[view.receiver] = view.message
            return
        if len(self.sent) < self.clients and self._part(view.round):
            seen = upload(self.got.get(view.sender), view.message, self.known.network.d, self.known.setting)
            if seen is not None:
                samples = float(roles.first(view.message, roles.Count) or 0)
                name = view.sender.removeprefix("client:")
                self.sent[name] = (seen.change.cpu(), float(size(view.message)), samples)

    def _part(self, round: int) -> str:
        """Which part a round is of; "": they are away."""
        half = (self.known.setting.rounds - self.away) // 2
        return BEFORE if round <= half else AFTER if round > half + self.away else ""

    def end_round(self, round: int) -> None:
        if len(self.sent) > 1:
            kept, outputs = self.memory[self._part(round)], self.known.network.classes
            common = _mean([change for change, _, _ in self.sent.values()])
            for name, (change, length, samples) in self.sent.items():
                own, biases = _unit(change - common), _unit((change - common)[-outputs:])
                sums = kept.get(name, (0.0, 0.0, 0.0, 0.0, 0))
                kept[name] = tuple(a + b for a, b in zip(sums, (own, biases, length, samples, 1)))
        self.got.clear()
        self.sent.clear()

    def finding(self, truth: Truth) -> Finding:
        both = sorted(set(self.memory[BEFORE]) & set(self.memory[AFTER]), key=int)
        metric, n = "clients recognised under another name", len(both)
        if n < 2:
            used = "nothing: no two clients whose plain uploads are seen in both parts of the run"
            return Finding(self.name, self.vantage, metric, 0.0, 0.0, 0.0, 1.0, used=used)
        parts = [[self.memory[part][name] for name in both] for part in (BEFORE, AFTER)]
        rng = generator(self.known.setting.seed, self.name)
        lot = float(np.mean([(rng.permutation(n) == np.arange(n)).mean() for _ in range(100)]))
        controls = {RANDOM: lot, BY_SIZE: right(apart(_rates(parts[0], 2), _rates(parts[1], 2)), rng)}
        rounds = [sums[-1] for part in parts for sums in part]
        used = f"uploads of {n} clients, in {min(rounds)} to {max(rounds)} rounds of each part"
        costs = {
            "": -_stacked(parts[0], 0) @ _stacked(parts[1], 0).T,
            "biases": -_stacked(parts[0], 1) @ _stacked(parts[1], 1).T,
            "opposite": opposite(_stacked(parts[0], 0), _stacked(parts[1], 0)),
        }
        if any(sums[3] for part in parts for sums in part):
            costs["samples"] = apart(_rates(parts[0], 3), _rates(parts[1], 3))
        findings = [self._scored(kind, right(cost, rng), n, controls, used, metric) for kind, cost in costs.items()]
        return replace(findings[0], variants=findings[1:])

    def _scored(
        self, kind: str, value: float, n: int, controls: Mapping[str, float], used: str, metric: str
    ) -> Finding:
        name = f"{self.name}_{kind}" if kind else self.name
        return Finding(name, self.vantage, metric, value, 1 / n, *wilson(value, n), dict(controls), used)


def right(cost: Floats, rng: np.random.Generator) -> float:
    """Share of rows that the best matching gives their own column; columns come in random orders, so that ties are by lot."""
    orders = [rng.permutation(len(cost)) for _ in range(ORDERS)]
    return float(np.mean([(assignment(cost[:, order]) == order).mean() for order in orders]))


def apart(before: Floats, after: Floats) -> Floats:
    """[n, n] how far numbers differ."""
    return np.asarray(np.abs(before[:, None] - after))


def opposite(before: Floats, after: Floats) -> Floats:
    """[n, n] how far rows point the same way, least where one takes the other back.

    Parameters count alike, and so, by the root of the Gram matrix, do directions: what many share, their labels, would drown what
    is a client's own, the batches that it happened to draw, and noise. As many of the strongest directions are left out as make
    the matching stand out most, which an attacker sees, too.
    """
    rows = np.concatenate([before, after])
    rows = rows / np.maximum(np.sqrt(before.var(0) + after.var(0)), 1e-30)
    rows /= np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-30)
    values, vectors = np.linalg.eigh(rows @ rows.T)  # ascending
    n, roots = len(before), np.sqrt(np.maximum(values, 0.0))
    weaker = [np.arange(2 * n) < 2 * n - strongest for strongest in LEFT_OUT if strongest < n]
    return max((((vectors * roots * kept) @ vectors.T)[:n, n:] for kept in weaker), key=_stands_out)


def _stands_out(cost: Floats) -> float:
    """How far the best matching's costs lie below all, in standard deviations of these."""
    matched = cost[assignment(cost), np.arange(len(cost))]
    return float((cost.mean() - matched.mean()) / max(cost.std(), 1e-30))


def _mean(changes: list[Tensor]) -> Tensor:
    total = changes[0].clone()
    for change in changes[1:]:
        total += change
    return total / len(changes)


def _unit(vector: Tensor) -> Tensor:
    unit: Tensor = vector / vector.norm().clamp_min(1e-30)
    return unit


def _stacked(part: list[Any], place: int) -> Floats:
    rows = np.stack([sums[place].double().numpy() for sums in part])
    return np.asarray(rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-30))


def _rates(part: list[Any], place: int) -> Floats:
    return np.array([sums[place] / sums[-1] for sums in part])
