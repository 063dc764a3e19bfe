"""What FedCAPrivacy's cloud provider can tell about the rows it clusters: who sent them, and which of two rounds belong together.

`naming` takes the order of the rows for the order of the participants: right without the shuffle, a guess with it.
`naming_histogram` knows how many samples of each label every participant has, and reads the rows' output biases.
`linkage` follows rows from round to round by optimal assignment on squared distances: a common blind adds to a distance a part
that depends on one row and a part that depends on the other, and neither changes which assignment is best.

Moving and turning blocks of coordinates takes the coordinates of two rounds apart, but not what a rotation keeps:
`linkage_profile` compares each row's sorted distances to the others, `linkage_graph` starts there and refines the assignment
on the whole matrix of distances, `linkage_blocks` compares each row's sorted block norms, which no general rotation keeps but
moved blocks do.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from covey.algorithms.two_servers import CoveredRound
from covey.attacks.contract import Finding, Knowledge, Truth, View, wilson
from covey.clustering.spectral import distances
from covey.crypto import blinded
from covey.errors import CoveyError
from covey.randomness import generator

Floats = NDArray[np.float64]
Matches = NDArray[np.int64]  # for each row now the row before that it is taken for; -1: none
_GRID = np.linspace(0.0, 1.0, 33)


def assignment(cost: Floats) -> Matches:
    """The one-to-one matching of columns to rows of least total cost: for each column its row, -1 if it has none."""
    from scipy.optimize import linear_sum_assignment

    rows, columns = linear_sum_assignment(cost)
    matched = np.full(cost.shape[1], -1, np.int64)
    matched[columns] = rows
    return matched


def between(before: Floats, now: Floats) -> Floats:
    """Squared distances [n, m] of rows of two rounds, each round relative to its mean: the blinds drop out."""
    return _squared(before - before.mean(0), now - now.mean(0))


def profiles(apart: Floats) -> Floats:
    """Each row's distances to the others, sorted, on a grid of quantiles, in units of their median: [n, grid]."""
    n = len(apart)
    others = np.sort(apart[~np.eye(n, dtype=bool)].reshape(n, n - 1), axis=1)
    return np.asarray(np.quantile(others, _GRID, axis=1).T / max(float(np.median(others)), 1e-30))


def block_profiles(rows: Floats, block: int) -> Floats:
    """Each row's squared norms by block, relative to the round's mean row, sorted, in units of their mean: [n, blocks]."""
    off = rows - rows.mean(0)
    off = np.pad(off, ((0, 0), (0, -off.shape[1] % block)))
    norms = (off.reshape(len(off), -1, block) ** 2).sum(2)
    return np.asarray(np.sqrt(np.sort(norms, axis=1)[:, ::-1] / max(float(norms.mean()), 1e-30)))


def refined(before: Floats, now: Floats, matched: Matches, steps: int = 50) -> Matches:
    """A better matching of two distance matrices: rows that are matched lend the others their coordinates.

    Given a matching, each row's distances to the matched rows of its own round can be compared one by one, without
    sorting; that gives a new assignment, and so on until it repeats itself.
    """
    a, b = (apart / max(float(np.median(apart)), 1e-30) for apart in (before, now))
    for _ in range(steps):
        better = assignment(_disagreement(a, b, matched))
        if np.array_equal(better, matched):
            break
        matched = better
    return matched


def _disagreement(a: Floats, b: Floats, matched: Matches) -> Floats:
    """[n, m]: mean squared difference of a's and b's distances to matched rows other than the two themselves, since a row
    is always at distance 0 of itself and would vote for the match that it has.
    """
    have = np.flatnonzero(matched >= 0)
    at = matched[have]
    total = _squared(a[:, at], b[:, have])
    left, right = np.zeros((len(a), len(b))), np.zeros((len(a), len(b)))
    left[:, have], right[at] = a[:, at] ** 2, b[:, have].T ** 2
    terms = np.full((len(a), len(b)), len(have), np.float64)
    terms[:, have] -= 1
    terms[at] -= 1
    terms[at, have] += 1
    return np.asarray((total - left - right) / np.maximum(terms, 1))


class _Cloud(ABC):
    """What all attacks here share: the rows that the cloud provider opened, and the scoring against their true order."""

    name: ClassVar[str]
    vantage: str
    memory: dict[str, Any]

    def begin(self, knowledge: Knowledge) -> None:
        if getattr(knowledge.algorithm, "name", "") != "fedcaprivacy" or "csp" not in knowledge.keys:
            raise CoveyError(f"attack '{self.name}' is the cloud provider's: run fedcaprivacy, with vantage 'csp'")
        self._opening = knowledge.keys["csp"]["opening"]
        self._block = blinded.sealer(knowledge.keys["csp"]["participants"]).block
        self._classes = knowledge.network.classes
        self.memory.setdefault("rounds", [])  # one entry per round: what `read` kept
        self.memory.setdefault("last", None)

    def observe(self, view: View) -> None:
        if isinstance(view.message, CoveredRound):
            opener, sealed, kept = blinded.opener(self._opening), view.message.rows, view.message.kept
            if kept:
                rows = blinded.sketch_points(opener, sealed, np.array(kept))
            else:
                rows = blinded.differences(opener.open_covered(sealed))
            self.memory["rounds"].append({"round": view.round, "found": self.read(rows)})

    def end_round(self, round: int) -> None:
        return None

    @abstractmethod
    def read(self, rows: Floats) -> Any:
        """What an attack keeps of a round's opened rows."""

    def orders(self, truth: Truth) -> list[tuple[Any, list[int]]]:
        """(what was kept, the participants in the order of the rows) of every round that was seen."""
        seen = [(entry["found"], truth.servers[entry["round"] - 1]["order"]) for entry in self.memory["rounds"]]
        if not seen:
            raise CoveyError(f"attack '{self.name}' saw no rows: at least one round with enough participants is needed")
        return seen


@dataclass
class Naming(_Cloud):
    """Row j is taken for the j-th participant."""

    name: ClassVar[str] = "naming"
    title: ClassVar[str] = "the CSP takes the order of blinded rows for the order of the participants"

    vantage: str = "csp"
    memory: dict[str, Any] = field(default_factory=dict)

    def read(self, rows: Floats) -> Any:
        return len(rows)

    def finding(self, truth: Truth) -> Finding:
        seen = self.orders(truth)
        right = [np.mean([i == j for i, j in zip(order, self.names(found, order, truth))]) for found, order in seen]
        sizes = [len(order) for _, order in seen]
        placebo = [np.mean([i == j for i, j in zip(order, np.roll(sorted(order), 1))]) for _, order in seen]
        value = float(np.mean(right))
        low, high = wilson(value, int(np.mean(sizes)))
        return Finding(
            attack=self.name,
            vantage=self.vantage,
            metric="rows named rightly in one round",
            value=value,
            chance=float(np.mean([1 / n for n in sizes])),
            low=low,
            high=high,
            controls={"participants in another order": float(np.mean(placebo))},
            used=self.used,
            details={"per_round": [float(r) for r in right]},
        )

    used: ClassVar[str] = "the order of the rows; it is told who took part"

    def names(self, found: Any, order: list[int], truth: Truth) -> list[int]:
        return sorted(order)


@dataclass
class NamingByHistogram(Naming):
    """Participants with many samples of a label push the output bias of that label up."""

    name: ClassVar[str] = "naming_histogram"
    title: ClassVar[str] = "the CSP knows the participants' label counts and reads the rows' output biases"
    used: ClassVar[str] = "output biases of the rows; it is told who took part, with how many samples of each label"

    def read(self, rows: Floats) -> Any:
        last = rows[:, -self._classes :]
        return np.pad(last, ((0, 0), (self._classes - last.shape[1], 0)))  # a sketch may be shorter

    def names(self, found: Any, order: list[int], truth: Truth) -> list[int]:
        names = sorted(order)
        counts = truth.federation.histogram()[names].astype(np.float64)
        shares = _standard(counts / counts.sum(1, keepdims=True))
        matched = assignment(-shares @ _standard(found).T)  # [participants, rows]
        return [names[j] for j in matched]


@dataclass
class Linkage(_Cloud):
    """Rows of two consecutive rounds that the CSP saw, matched by their squared distances."""

    name: ClassVar[str] = "linkage"
    title: ClassVar[str] = "the CSP follows blinded rows from round to round by their distances"
    metric: ClassVar[str] = "rows linked rightly to the last round with rows"
    used: ClassVar[str] = "opened rows of two rounds, each relative to its mean"

    vantage: str = "csp"
    memory: dict[str, Any] = field(default_factory=dict)

    def read(self, rows: Floats) -> Any:
        now = self.features(rows)
        before, self.memory["last"] = self.memory["last"], now
        return [] if before is None else self.match(before, now).tolist()

    def features(self, rows: Floats) -> Any:
        return (rows - rows.mean(0)).astype(np.float32)

    def match(self, before: Any, now: Any) -> Matches:
        return assignment(between(before, now))

    def finding(self, truth: Truth) -> Finding:
        seen = self.orders(truth)
        right, guessed, placebo, chance = (list[float]() for _ in range(4))
        both = list[int]()
        for (_, before), (matched, now) in pairwise(seen):
            there = [j for j, i in enumerate(now) if i in before]  # only these could be linked
            if not there:
                continue
            taken = np.array(matched)[there]
            true = np.array([before.index(now[j]) for j in there])
            random = generator("linkage control", len(right)).permutation(max(len(before), len(now)))[: len(now)]
            right.append(float(np.mean(taken == true)))
            guessed.append(float(np.mean(random[there] == true)))
            placebo.append(float(np.mean(taken == np.roll(true, 1))))
            both.append(len(there))
            chance.append(1 / len(before))
        if not right:  # one round with rows, or nobody in two: there is nothing to link
            unknown = 1 / len(seen[0][1])
            return Finding(self.name, self.vantage, self.metric, unknown, unknown, 0.0, 1.0, used=self.used)
        value = float(np.mean(right))
        low, high = wilson(value, int(np.mean(both)))  # rows of one participant are no independent trials
        return Finding(
            attack=self.name,
            vantage=self.vantage,
            metric=self.metric,
            value=value,
            chance=float(np.mean(chance)),
            low=low,
            high=high,
            controls={"random matching": float(np.mean(guessed)), "another's row": float(np.mean(placebo))},
            used=self.used,
            details={"per_round": right, "in both rounds": float(np.mean(both)), "links": len(right)},
        )


@dataclass
class ProfileLinkage(Linkage):
    name: ClassVar[str] = "linkage_profile"
    title: ClassVar[str] = "the same by each row's sorted distances to the others, which a rotation keeps"
    used: ClassVar[str] = "distances between the rows of a round, sorted"

    def features(self, rows: Floats) -> Any:
        return distances(rows)

    def match(self, before: Any, now: Any) -> Matches:
        return assignment(_squared(profiles(before), profiles(now)))


@dataclass
class GraphLinkage(ProfileLinkage):
    name: ClassVar[str] = "linkage_graph"
    title: ClassVar[str] = "the same on the whole matrix of distances, refined from the sorted ones"
    used: ClassVar[str] = "all distances between the rows of a round"

    def match(self, before: Any, now: Any) -> Matches:
        return refined(before, now, super().match(before, now))


@dataclass
class BlockLinkage(Linkage):
    name: ClassVar[str] = "linkage_blocks"
    title: ClassVar[str] = "the same by each row's sorted block norms, which moving and turning blocks keeps"
    used: ClassVar[str] = "norms of the blocks of each row, sorted"

    def features(self, rows: Floats) -> Any:
        return block_profiles(rows, self._block)

    def match(self, before: Any, now: Any) -> Matches:
        return assignment(_squared(before, now))


def _squared(a: Floats, b: Floats) -> Floats:
    return np.asarray((a**2).sum(1)[:, None] + (b**2).sum(1) - 2 * a @ b.T)


def _standard(values: Any) -> Floats:
    """Columns with mean 0 and standard deviation 1."""
    known = np.asarray(values, np.float64)
    return np.asarray((known - known.mean(0)) / np.maximum(known.std(0), 1e-12))
