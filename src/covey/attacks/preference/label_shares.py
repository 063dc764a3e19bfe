"""How a client's labels are distributed, from the output biases of its upload (Wainakh et al., User-Level Label Leakage from
Gradients in Federated Learning, PoPETs 2022).

A step on a batch moves the bias of label c by η (share of c in the batch − mean predicted probability of c): bias changes are
label counts, less what the model said already. What it says of each label, P [c', c], is measured on public samples, under the
model that the client got and the one that it sent back, and taken off: Δb = η T (I − Pᵀ) h, solved for shares h ≥ 0 that add up
to 1. Where a reply does not say from how many samples it is, the number of steps T is unknown, and with it one direction of h (what
the model itself says most): then any solution is taken. Without public samples Δb itself is the guess. What several rounds say
is added up.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from covey import roles
from covey.attacks.contract import Finding, Knowledge, Thinking, Truth, View
from covey.attacks.declaration import Reads
from covey.attacks.uploads import PLAIN, Upload, upload
from covey.errors import CoveyError
from covey.leaks import LABELS, WIRE, Leak
from covey.learn.work import Logits, Work
from covey.statistics import normal_interval, standard_error, wilson

Floats = NDArray[np.float64]
COARSE = "Of two labels a correlation is 1 or -1: it says which is the commoner, not their shares."
METRIC, PRIOR = "correlation with the true shares", "population prior"
SURE = 10.0  # weight of the equation that shares add up to 1
PER_LABEL = 50  # public samples of each label at most


@dataclass
class LabelShares:
    name: ClassVar[str] = "label_shares"
    label: ClassVar[str] = "Label distribution"
    title: ClassVar[str] = "a client's shares of labels, from the output biases of its upload (Wainakh et al. 2022)"
    row: ClassVar[Leak] = LABELS
    seen_from: ClassVar[tuple[str, ...]] = WIRE
    reads: ClassVar[tuple[Reads, ...]] = PLAIN
    means: ClassVar[str] = "how well a client's labels are told, by their shares or by the commonest one; 1 is exactly"
    controls: ClassVar[tuple[str, ...]] = (PRIOR,)
    own_rows: ClassVar[bool] = False

    vantage: str = "server"
    rounds: int = 10  # uploads of a client that it looks at, its first ones
    memory: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.rounds < 1:
            raise CoveyError(f"the rounds of attack '{self.name}' are {self.rounds}: it looks at one upload at least")

    def begin(self, knowledge: Knowledge) -> None:
        self.network, self.plan = knowledge.network, knowledge.setting.plan
        labels = range(self.network.classes)
        own = [np.flatnonzero(knowledge.y == c)[:PER_LABEL] for c in labels] if len(knowledge.y) else []
        self.public = own if own and all(map(len, own)) else []  # of every label, or it cannot tell them apart
        self.got: dict[str, Any] = {}
        self.memory.setdefault(
            "seen", {}
        )  # client -> (bias change [c], predicted [c, c] or nothing, η T or 0) of each upload

    def observe(self, view: View) -> Thinking:
        if view.receiver.startswith("client:"):
            self.got[view.receiver] = view.message
            return None
        client = view.sender.removeprefix("client:")
        if self.network.task != "classes":
            return None
        seen = upload(self.got.get(view.sender), view.message, self.network.d)
        if seen is None or len(self.memory["seen"].get(client, ())) >= self.rounds:
            return None
        samples = roles.first(view.message, roles.Count)
        way = 0.0 if samples is None else self.plan.lr * self.plan.steps_for(samples) / (1 - self.plan.momentum)
        return self._read(client, seen, way)

    def _read(self, client: str, seen: Upload, way: float) -> Generator[Work, Any, None]:
        moved = seen.change[-self.network.classes :].cpu().double().numpy()
        predicted = np.zeros((0, 0))
        if self.public:
            models = torch.cat([seen.start, seen.end])
            logits = yield Logits(models, on=torch.from_numpy(np.concatenate(self.public)))
            said = logits.softmax(2).mean(0).cpu().double().numpy()
            ends = np.cumsum([len(rows) for rows in self.public])
            predicted = np.stack([part.mean(0) for part in np.split(said, ends[:-1])])  # [true label, said]
        self.memory["seen"].setdefault(client, []).append((moved, predicted, way))

    def end_round(self, round: int) -> None:
        self.got.clear()

    def finding(self, truth: Truth) -> Finding:
        if not self.memory["seen"]:
            return self._nothing("no plain upload with the output biases of a classifier")
        counts = truth.federation.histogram().astype(np.float64)
        seen = {int(i): uploads for i, uploads in self.memory["seen"].items()}
        informative = {i: uploads for i, uploads in seen.items() if np.ptp(counts[i]) > 0}  # all alike: nothing to tell
        if not informative:
            return self._nothing("no upload of a client whose labels are not all alike")
        guesses = {i: np.sum([shares(*one) for one in uploads], axis=0) for i, uploads in informative.items()}
        first = {i: shares(*uploads[0]) for i, uploads in informative.items()}
        values = [correlation(guess, counts[i]) for i, guess in guesses.items()]
        value = float(np.mean(values))
        low, high = correlation_interval(values, counts.shape[1])
        prior = float(np.mean([correlation(counts.sum(0), counts[i]) for i in informative]))
        looked = max(map(len, informative.values()))
        public = f", and public samples of {len(self.public)} labels" if self.public else ""
        used = f"output biases of {len(informative)} clients in up to {looked} round{'s' * (looked > 1)}{public}"
        details = {
            "one upload": float(np.mean([correlation(guess, counts[i]) for i, guess in first.items()])),
            "dominant label, one upload": dominant(first, counts),
        }
        numbers = (value, 0.0, low, high, {PRIOR: prior})
        others = [self._dominant(guesses, counts, used)]
        note = COARSE if counts.shape[1] == 2 else ""
        return Finding(self.name, self.vantage, METRIC, *numbers, used, details, variants=others, note=note)

    def _nothing(self, used: str) -> Finding:
        return Finding(self.name, self.vantage, METRIC, 0.0, 0.0, 0.0, 1.0, used=used)

    def _dominant(self, guesses: Mapping[int, Floats], counts: Floats, used: str) -> Finding:
        value, n = dominant(guesses, counts), len(guesses)
        commonest = float(np.bincount(counts[list(guesses)].argmax(1)).max() / n)  # the best one answer for everybody
        name, metric = f"{self.name}_dominant", "clients whose commonest label is named"
        interval = wilson(value, n)
        return Finding(name, self.vantage, metric, value, 1 / counts.shape[1], *interval, {PRIOR: commonest}, used)


def shares(moved: Floats, predicted: Floats, way: float = 0.0) -> Floats:
    """Label shares from a bias change [c], given what the model says of each label [c, c] and η T (0: unknown).

    Without what it says: the change itself, which is the shares up to scale and shift if the model says the same of all samples.
    """
    if not predicted.size:
        return moved / max(float(np.abs(moved).sum()), 1e-12)
    from scipy.optimize import nnls

    system = np.eye(len(moved)) - predicted.T  # singular: what the model itself says most is not seen
    if way:
        system, moved = np.vstack([system, np.full(len(moved), SURE)]), np.append(moved / way, SURE)
    solution, _ = nnls(system, moved)
    return np.asarray(solution / max(float(solution.sum()), 1e-12))


def correlation_interval(values: Sequence[float], labels: int) -> tuple[float, float]:
    """Of the mean over clients. Of two labels every correlation is 1 or -1, right or wrong by a coin: Wilson's, since a few that
    are all right have no spread, and prove little."""
    if len(values) < 2:
        return 0.0, 1.0
    value = float(np.mean(values))
    if labels > 2:
        return normal_interval(value, standard_error(values))
    low, high = wilson((1 + value) / 2, len(values))
    return 2 * low - 1, 2 * high - 1


def correlation(guess: Floats, true: Floats) -> float:
    """Pearson's; 0 of a guess that says the same of every label."""
    return float(np.corrcoef(guess, true)[0, 1]) if np.ptp(guess) > 0 else 0.0


def dominant(guesses: Mapping[int, Floats], counts: Floats) -> float:
    """Share of clients whose commonest label (one of them, where several are) is the guess's."""
    return float(np.mean([counts[i][guess.argmax()] == counts[i].max() for i, guess in guesses.items()]))
