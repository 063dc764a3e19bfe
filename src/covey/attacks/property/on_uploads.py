"""What share of a client's samples has a property, from its plain uploads.

After Melis et al., Exploiting Unintended Feature Leakage in Collaborative Learning, S&P 2019; shares of attributes as Zhang et
al., Leakage of Dataset Properties in Multi-Party Machine Learning, USENIX Security 2021.

The property is any attribute that the data name: a dataset's own, or a column of a table. Nothing is planted. From the model that
a client got, shadows are trained by the plan and the defence that everybody knows on auxiliary samples, which no client holds,
with shares of the property from 0 to 1 and random mixes of labels; a ridge regression learns the share from the direction of
an update, and reads the client's. What several rounds say is averaged, each by how well the shadows of that round are told.
Whoever knew each client's label counts could guess as well, where labels and property go together: that is a control.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from covey.attacks.contract import Finding, Truth
from covey.attacks.membership.on_uploads import UploadReader
from covey.attacks.membership.shadows import batches
from covey.attacks.membership.strangers import samples_at, unused
from covey.attacks.thinking import answered, defended
from covey.attacks.uploads import Upload
from covey.data.dataset import Dataset
from covey.data.federation import Federation
from covey.errors import CoveyError, nearest
from covey.leaks import PROPERTY, Leak
from covey.learn.machine import Machine
from covey.learn.work import Train
from covey.randomness import generator, key
from covey.statistics import Z

Floats = NDArray[np.float64]
Rows = NDArray[np.int64]
METRIC, PRIOR, BY_LABELS = "correlation with the true shares", "one guess for all", "label counts"
LEAST = 20  # auxiliary samples with the property, and without it
RIDGES = (1e-4, 1e-3, 1e-2, 1e-1, 1.0)  # tried, in units of the mean of the kernel's diagonal


@dataclass
class UploadProperty(UploadReader):
    """Reads the share of a property off single uploads."""

    name: ClassVar[str] = "upload_property"
    label: ClassVar[str] = "Property by uploads"
    title: ClassVar[str] = (
        "the share of a client's samples that have an attribute, from its upload (after Melis et al. 2019)"
    )
    row: ClassVar[Leak] = PROPERTY
    means: ClassVar[str] = "how well the clients' shares of the property are told: 0 tells nothing, 1 exactly"
    controls: ClassVar[tuple[str, ...]] = (PRIOR, BY_LABELS)

    vantage: str = "server"
    attribute: str = ""  # of the dataset, or a column of its table ("age", "sex = male"); empty: the first there is
    value: int = 1  # of a dataset's attribute; of a column of numbers, what is above the median has the property
    rounds: int = 3  # uploads of a client that count, its first
    clients: int = 40  # that are looked at, at most
    shadows: int = 48  # from each model that clients began from
    memory: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if min(self.rounds, self.clients) < 1 or self.shadows < 8:
            raise CoveyError(
                f"attack '{self.name}' looks at {self.rounds} rounds of {self.clients} clients with {self.shadows} shadows: "
                "expected 1, 1 and 8 at least"
            )

    @classmethod
    def audited(cls, experiment: Any) -> dict[str, Any]:
        return {"shadows": 32, "rounds": 2}

    def finding(self, truth: Truth) -> Finding:
        watched, federation = dict(self.uploads()), truth.federation
        if not watched:
            return self.nothing(METRIC, 0.0)
        marks = property_marks(federation.dataset, self.attribute, self.value)
        if marks is None:
            return self.nothing(METRIC, 0.0, "nothing: data that name no attribute, neither of samples nor of columns")
        true = np.array([marks.of(federation.clients[i]).mean() for i in watched])
        aux = marks.auxiliary(federation)
        held = marks.of(aux)
        if min(int(held.sum()), int((~held).sum())) < LEAST:
            words = f"{int(held.sum())} auxiliary samples with {marks.name}, {int((~held).sum())} without it"
            return self.nothing(METRIC, 0.0, f"nothing: {words}; it needs {LEAST} of each (partition.public)")
        if np.ptp(true) < 1e-9:
            return self.nothing(METRIC, 0.0, f"nothing: no client whose share of {marks.name} is another's")
        guesses, explained = self._guesses(watched, federation, aux, held)
        value = correlation(guesses, true)
        controls = {PRIOR: 0.0}
        if federation.dataset.task == "classes":
            controls[BY_LABELS] = correlation(by_labels(federation, list(watched), aux, held), true)
        used = f"uploads of {len(watched)} clients, {self.shadows} shadows of each model, {len(aux)} auxiliary samples"
        details = {
            "property": marks.name,
            "shares": {"least": float(true.min()), "most": float(true.max())},
            "shadows' shares told": explained,
        }
        note = (
            f"The property is {marks.name}; clients have it in {true.min():.2f} to {true.max():.2f} of their samples."
        )
        low, high = fisher_interval(value, len(true))
        return Finding(self.name, self.vantage, METRIC, value, 0.0, low, high, controls, used, details, note=note)

    def _guesses(
        self,
        watched: dict[int, list[tuple[int, Upload]]],
        federation: Federation,
        aux: Rows,
        held: NDArray[np.bool_],
    ) -> tuple[Floats, float]:
        """([clients] their shares as far as the shadows tell, how much of the variance of the shadows' own shares is told)."""
        machine = Machine(self.known.network, *samples_at(federation, aux), device=self.device())
        size = int(np.mean([len(rows) for rows in federation.clients]))
        readers: dict[bytes, Ridge] = {}
        sums, weights = np.zeros(len(watched)), np.zeros(len(watched))
        for n, uploads in enumerate(watched.values()):
            for round, seen in uploads:
                most = int((seen.end - seen.start).norm(dim=1).argmax())
                start = seen.start[most]
                name = hashlib.blake2b(start.cpu().numpy().tobytes(), digest_size=16).digest()
                if name not in readers:
                    rng = generator(self.known.setting.seed, round, len(readers), self.name)
                    readers[name] = self._reader(machine, start, round, size, held, rng)
                weight = max(readers[name].explained, 1e-6)
                sums[n] += weight * readers[name].read(seen.end[most] - start)
                weights[n] += weight
        return sums / weights, float(np.mean([reader.explained for reader in readers.values()]))

    def _reader(
        self, machine: Machine, start: Tensor, round: int, size: int, held: NDArray[np.bool_], rng: np.random.Generator
    ) -> Ridge:
        """What it learns from shadows of one model."""
        labels = machine.samples.y.cpu().numpy()
        kinds = labels if machine.network.task == "classes" else np.zeros(len(labels), np.int64)
        shares = rng.permutation(np.linspace(0.0, 1.0, self.shadows))
        drawn = [draw(held, kinds, share, size, rng) for share in shares]
        shares = np.array([held[rows].mean() for rows in drawn])
        start = start.to(machine.device)
        works = [Train(start, self.known.setting.plan, on=torch.from_numpy(rows)) for rows in drawn]
        at_once, updates = batches(len(works), self.known.network.d, machine.device), list[Tensor]()
        for first in range(0, len(works), at_once):
            thinking = defended(works[first : first + at_once], round, self.known)
            names = (self.known.setting.seed, round, self.name, first)
            updates += answered(thinking, machine, lambda step, i, names=names: key(*names, step, i))  # type: ignore[misc]
        return Ridge.fitted([trained - start for trained in updates], shares)


@dataclass(frozen=True)
class Marks:
    """Which samples have the property: of training rows and, where a column says it, of test samples, counting on."""

    name: str
    values: NDArray[np.bool_]
    train: int

    def of(self, rows: Rows) -> NDArray[np.bool_]:
        return np.asarray(self.values[rows])

    def auxiliary(self, federation: Federation) -> Rows:
        """Samples that no client holds and whose property is known."""
        public = np.concatenate([*federation.public, np.zeros(0, np.int64)]).astype(np.int64)
        free = unused(federation, least=0)
        tests = np.arange(self.train, len(self.values))
        enough = len(public) + len(free) >= 4 * LEAST
        return np.unique(np.concatenate([public, free] if enough else [public, free, tests]))


def property_marks(dataset: Dataset, attribute: str, value: int) -> Marks | None:
    """Of the attribute of this name, or the first there is; None where the data name none."""
    columns = dict(_columns(dataset))
    known = [*dataset.attributes, *columns]
    if attribute and attribute not in known:
        raise CoveyError(f"{dataset.name} has no attribute '{attribute}'{nearest(attribute, known)}")
    if not known:
        return None
    name, train = attribute or known[0], len(dataset.y_train)
    if name in dataset.attributes:
        return Marks(f"{name} = {value}", np.asarray(dataset.attributes[name]) == value, train)
    place, number = columns[name]
    values = np.concatenate([dataset.x_train[:, place], dataset.x_test[:, place]]).astype(np.float64)
    return Marks(f"{name} above its median" if number else name, values > (np.median(values) if number else 0.5), train)


def _columns(dataset: Dataset) -> Iterator[tuple[str, tuple[int, bool]]]:
    """(name, (place in a sample, whether it is a number)) of what the columns of a table became; not of marks of missing ones."""
    place = 0
    for feature in dataset.columns:
        for n, name in enumerate(feature.outputs):
            if n < (len(feature.values) or 1):
                yield name, (place + n, not feature.values)
        place += feature.width


def draw(held: NDArray[np.bool_], kinds: NDArray[np.int64], share: float, size: int, rng: np.random.Generator) -> Rows:
    """So many auxiliary samples, this share of them with the property, labels in a random mix."""
    mix = rng.dirichlet(np.ones(int(kinds.max()) + 1)) + 1e-9
    size = max(8, min(size, int(held.sum()), int((~held).sum())))
    counts = {True: round(share * size), False: size - round(share * size)}
    parts = []
    for has, count in counts.items():
        rows = np.flatnonzero(held == has)
        odds = mix[kinds[rows]]
        parts.append(rng.choice(rows, min(count, len(rows)), replace=False, p=odds / odds.sum()))
    return np.sort(np.concatenate(parts)).astype(np.int64)


@dataclass(frozen=True)
class Ridge:
    """Linear regression of a share on the direction of an update, in terms of the shadows' own: d may be any number."""

    directions: Tensor  # [s, d] of unit length, less their mean
    mean: Tensor  # [d]
    weights: Floats  # [s]
    level: float
    explained: float  # share of the variance of the shadows' shares, when each is left out

    @classmethod
    def fitted(cls, updates: Sequence[Tensor], shares: Floats) -> Ridge:
        rows = torch.stack([update / update.norm().clamp_min(1e-30) for update in updates])
        mean = rows.mean(0)
        rows = rows - mean
        kernel = (rows @ rows.T).double().cpu().numpy()
        level, unit = float(shares.mean()), max(float(np.trace(kernel)) / len(kernel), 1e-30)
        best: tuple[float, Floats] | None = None
        for ridge in RIDGES:
            inverse = np.linalg.inv(kernel + ridge * unit * np.eye(len(kernel)))
            weights = inverse @ (shares - level)
            left_out = weights / np.diag(inverse)  # errors of each shadow when it is left out
            explained = 1 - float((left_out**2).mean() / max(float(shares.var()), 1e-12))
            if best is None or explained > best[0]:
                best = explained, weights
        assert best is not None
        return cls(rows, mean, np.asarray(best[1]), level, best[0])

    def read(self, update: Tensor) -> float:
        own = update.to(self.mean.device) / update.norm().clamp_min(1e-30).to(self.mean.device) - self.mean
        return self.level + float((self.directions @ own).double().cpu().numpy() @ self.weights)


def by_labels(federation: Federation, clients: Sequence[int], aux: Rows, held: NDArray[np.bool_]) -> Floats:
    """The shares as who knows every client's label counts would guess them, and how often samples of each label have the
    property among the auxiliary ones.
    """
    labels = np.concatenate([federation.dataset.y_train, federation.dataset.y_test])[aux]
    counts = federation.histogram()[list(clients)].astype(np.float64)
    often = [held[labels == c].mean() if (labels == c).any() else held.mean() for c in range(counts.shape[1])]
    return np.asarray(counts @ np.array(often) / counts.sum(1))


def correlation(guess: Floats, true: Floats) -> float:
    """Pearson's; 0 of a guess that says the same of everybody."""
    return float(np.corrcoef(guess, true)[0, 1]) if np.ptp(guess) > 1e-12 and np.ptp(true) > 1e-12 else 0.0


def fisher_interval(value: float, n: int) -> tuple[float, float]:
    """Of a correlation over so many clients; everything where they are too few to say."""
    if n < 4:
        return 0.0, 1.0
    middle, half = np.arctanh(np.clip(value, -0.999999, 0.999999)), Z / np.sqrt(n - 3)
    return float(np.tanh(middle - half)), float(np.tanh(middle + half))
