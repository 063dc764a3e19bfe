"""How a client's labels are distributed, from what it tells of its samples so that a server can group it.

Singular vectors of raw samples (PACFL): the first one is nearly the direction of their mean, a mixture of the labels' means
by their shares; public samples give these means, and least squares the shares h ≥ 0. To this is added how much of each label's
public samples lies in the subspace, which noise blurs less. Moments by label (FLUX): a label that a client has not is zero there.
Both are read off one message; no model is looked at.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from covey import roles
from covey.attacks.contract import Finding, Knowledge, Truth, View
from covey.attacks.declaration import Reads, lacks_public
from covey.attacks.preference.label_shares import COARSE, METRIC, PRIOR, correlation, correlation_interval, dominant
from covey.leaks import LABELS, WIRE, Leak
from covey.statistics import wilson

Floats = NDArray[np.float64]


@dataclass
class DescribedLabels:
    name: ClassVar[str] = "described_labels"
    label: ClassVar[str] = "Labels from descriptions"
    title: ClassVar[str] = "a client's shares of labels, from singular vectors or moments that it sends to be grouped"
    row: ClassVar[Leak] = LABELS
    seen_from: ClassVar[tuple[str, ...]] = WIRE
    reads: ClassVar[tuple[Reads, ...]] = (Reads((roles.SingularVectors, roles.Moments)),)
    means: ClassVar[str] = "how well a client's labels are told, by their shares or by the commonest one; 1 is exactly"
    controls: ClassVar[tuple[str, ...]] = (PRIOR,)
    own_rows: ClassVar[bool] = False

    vantage: str = "server"
    memory: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def lacks(cls, experiment: Any) -> str:
        reads_pictures = any(roles.carries(kind, roles.SingularVectors) for kind in experiment.algorithm.replies)
        return lacks_public(experiment) if reads_pictures else ""

    def begin(self, knowledge: Knowledge) -> None:
        self.classes, self.task = knowledge.network.classes, knowledge.network.task
        public = [p for name, p in knowledge.where.items() if name.startswith("public")]
        rows = np.concatenate(public) if public else np.zeros(0, np.int64)
        self.x = _inputs(np.asarray(knowledge.x)[rows]) if len(rows) else np.zeros((0, 1))
        self.y = np.asarray(knowledge.y)[rows] if len(rows) else np.zeros(0, np.int64)
        self.memory.setdefault("guesses", {})  # client -> [classes] of the first description that it sent

    def observe(self, view: View) -> None:
        if not view.sender.startswith("client:") or self.task != "classes":
            return
        client = view.sender.removeprefix("client:")
        if client in self.memory["guesses"]:
            return
        vectors = roles.first(view.message, roles.SingularVectors)
        if vectors is not None and len(vectors) == self.x.shape[1] and len(self.x):
            self.memory["guesses"][client] = from_vectors(vectors.double().cpu().numpy(), self.x, self.y, self.classes)
            return
        for _, moments in roles.carried(view.message, roles.Moments):
            if moments.ndim == 3 and len(moments) == self.classes:
                self.memory["guesses"][client] = moments.flatten(1).abs().sum(1).double().cpu().numpy()

    def end_round(self, round: int) -> None:
        pass

    def finding(self, truth: Truth) -> Finding:
        counts = truth.federation.histogram().astype(np.float64) if self.task == "classes" else np.zeros((0, 0))
        guesses = {int(i): np.asarray(g) for i, g in self.memory["guesses"].items() if np.ptp(counts[int(i)]) > 0}
        if not guesses:
            used = "no description of a client whose labels are not all alike"
            return Finding(self.name, self.vantage, METRIC, 0.0, 0.0, 0.0, 1.0, used=used)
        values = [correlation(guess, counts[i]) for i, guess in guesses.items()]
        value = float(np.mean(values))
        low, high = correlation_interval(values, counts.shape[1])
        prior = float(np.mean([correlation(counts.sum(0), counts[i]) for i in guesses]))
        used = f"what {len(guesses)} clients told once of their samples" + (
            f", and {len(self.x)} public samples" if len(self.x) else ""
        )
        numbers = (value, 0.0, low, high, {PRIOR: prior})
        others, note = [self._dominant(guesses, counts, used)], COARSE if counts.shape[1] == 2 else ""
        return Finding(self.name, self.vantage, METRIC, *numbers, used, variants=others, note=note)

    def _dominant(self, guesses: dict[int, Floats], counts: Floats, used: str) -> Finding:
        value, n = dominant(guesses, counts), len(guesses)
        commonest = float(np.bincount(counts[list(guesses)].argmax(1)).max() / n)
        name, metric = f"{self.name}_dominant", "clients whose commonest label is named"
        return Finding(
            name, self.vantage, metric, value, 1 / counts.shape[1], *wilson(value, n), {PRIOR: commonest}, used
        )


def from_vectors(vectors: Floats, x: Floats, y: NDArray[np.int64], classes: int) -> Floats:
    """Shares [classes] from singular vectors [inputs, p] and public samples x [n, inputs] with labels y."""
    from scipy.optimize import nnls

    there = [c for c in range(classes) if (y == c).any()]
    averages = np.stack([x[y == c].mean(0) for c in there])
    first = vectors[:, 0] * np.sign(averages.mean(0) @ vectors[:, 0] or 1.0)
    mixture, _ = nnls(averages.T, first)
    units = x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-12)
    within = ((units @ vectors) ** 2).sum(1)
    inside = np.array([within[y == c].mean() for c in there])
    shares = np.zeros(classes)
    shares[there] = _scaled(mixture) + _scaled(inside - inside.min())
    return shares


def _scaled(shares: Floats) -> Floats:
    return shares / max(float(shares.sum()), 1e-12)


def _inputs(x: NDArray[np.generic]) -> Floats:
    flat = x.reshape(len(x), -1).astype(np.float64)
    return flat / 255.0 if x.dtype == np.uint8 else flat
