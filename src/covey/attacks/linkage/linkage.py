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

from covey.algorithms.fedcaprivacy.two_servers import CoveredRound
from covey.attacks.contract import Finding, Knowledge, Truth, View
from covey.attacks.declaration import ASKED, Reads, declaration, lacks_rounds
from covey.attacks.linkage.matchings import (
    Floats,
    Matches,
    assignment,
    between,
    block_profiles,
    disagreement,
    in_medians,
    profiles,
    refined,
    squared,
)
from covey.clustering.spectral import distances
from covey.crypto.blinded import blinded
from covey.errors import CoveyError
from covey.leaks import LINKAGE, SECOND, Leak
from covey.randomness import generator
from covey.statistics import wilson


class _Cloud(ABC):
    """What all attacks here share: the rows that the cloud provider opened, and the scoring against their true order."""

    name: ClassVar[str]
    row: ClassVar[Leak] = LINKAGE
    seen_from: ClassVar[tuple[str, ...]] = (SECOND,)
    reads: ClassVar[tuple[Reads, ...]] = (Reads((CoveredRound,), ASKED),)
    own_rows: ClassVar[bool] = False
    vantage: str
    memory: dict[str, Any]

    def begin(self, knowledge: Knowledge) -> None:
        own = next((keys for keys in knowledge.keys.values() if "opening" in keys), None)
        if own is None or declaration(self).unreadable(knowledge.algorithm):
            raise CoveyError(
                f"attack '{self.name}' is that of a cloud provider who opens shuffled rows, and '{self.vantage}' gets none "
                "here: set algorithm = 'fedcaprivacy' and the attack's vantage = 'csp'"
            )
        self._opening = own["opening"]
        self._block = blinded.sealer(own["participants"]).block
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
    label: ClassVar[str] = "Naming"
    title: ClassVar[str] = "the CSP takes the order of blinded rows for the order of the participants"
    means: ClassVar[str] = "share of rows whose sender is named rightly; 1 is all"
    controls: ClassVar[tuple[str, ...]] = ("participants in another order",)

    vantage: str = "csp"
    memory: dict[str, Any] = field(default_factory=dict)

    def read(self, rows: Floats) -> Any:
        return len(rows)

    def finding(self, truth: Truth) -> Finding:
        seen = self.orders(truth)
        right = [np.mean([i == j for i, j in zip(order, self.names(kept, order, truth))]) for kept, order in seen]
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
            controls={self.controls[0]: float(np.mean(placebo))},
            used=self.used,
            details={"per_round": [float(r) for r in right]},
        )

    used: ClassVar[str] = "the order of the rows; it is told who took part"

    def names(self, kept: Any, order: list[int], truth: Truth) -> list[int]:
        return sorted(order)


@dataclass
class NamingByHistogram(Naming):
    """Participants with many samples of a label push the output bias of that label up."""

    name: ClassVar[str] = "naming_histogram"
    label: ClassVar[str] = "Naming by labels"
    title: ClassVar[str] = "the CSP knows the participants' label counts and reads the rows' output biases"
    used: ClassVar[str] = "output biases of the rows; it is told who took part, with how many samples of each label"

    def read(self, rows: Floats) -> Any:
        last = rows[:, -self._classes :]
        return np.pad(last, ((0, 0), (self._classes - last.shape[1], 0)))  # a sketch may be shorter

    def names(self, kept: Any, order: list[int], truth: Truth) -> list[int]:
        names = sorted(order)
        counts = truth.federation.histogram()[names].astype(np.float64)
        shares = _standard(counts / counts.sum(1, keepdims=True))
        matched = assignment(-shares @ _standard(kept).T)  # [participants, rows]
        return [names[j] for j in matched]


@dataclass
class Linkage(_Cloud):
    """Rows of two consecutive rounds that the CSP saw, matched by their squared distances."""

    name: ClassVar[str] = "linkage"
    label: ClassVar[str] = "Linkage"
    title: ClassVar[str] = "the CSP follows blinded rows from round to round by their distances"
    means: ClassVar[str] = "share of rows matched to the same client's row of the round before; 1 is all"
    controls: ClassVar[tuple[str, ...]] = ("random matching", "another's row")
    metric: ClassVar[str] = "rows linked rightly to the last round with rows"
    used: ClassVar[str] = "opened rows of two rounds, each relative to its mean"

    vantage: str = "csp"
    memory: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def lacks(cls, experiment: Any) -> str:
        return lacks_rounds(experiment, 2)

    def read(self, rows: Floats) -> Any:
        now = self.features(rows)
        before, self.memory["last"] = self.memory["last"], now
        return {"matched": [] if before is None else self.match(before, now).tolist()}

    def features(self, rows: Floats) -> Any:
        return (rows - rows.mean(0)).astype(np.float32)

    def match(self, before: Any, now: Any) -> Matches:
        return assignment(between(before, now))

    def finding(self, truth: Truth) -> Finding:
        seen = self.orders(truth)
        right, guessed, placebo, chance = (list[float]() for _ in range(4))
        both = list[int]()
        for (_, before), (kept, now) in pairwise(seen):
            matched = kept["matched"]
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
            controls=dict(zip(self.controls, (float(np.mean(guessed)), float(np.mean(placebo))))),
            used=self.used,
            details={
                "per_round": right,
                "in both rounds": float(np.mean(both)),
                "links": len(right),
                **self.more(seen),
            },
        )

    def more(self, seen: list[tuple[Any, list[int]]]) -> dict[str, Any]:
        """Further details, of what was kept in the rounds that were seen."""
        return {}


@dataclass
class ProfileLinkage(Linkage):
    name: ClassVar[str] = "linkage_profile"
    label: ClassVar[str] = "Linkage by sorted distances"
    title: ClassVar[str] = "the same by each row's sorted distances to the others, which a rotation keeps"
    used: ClassVar[str] = "distances between the rows of a round, sorted"

    def features(self, rows: Floats) -> Any:
        return distances(rows)

    def match(self, before: Any, now: Any) -> Matches:
        return assignment(squared(profiles(before), profiles(now)))


@dataclass
class GraphLinkage(ProfileLinkage):
    name: ClassVar[str] = "linkage_graph"
    label: ClassVar[str] = "Linkage by all distances"
    title: ClassVar[str] = "the same on the whole matrix of distances, refined from the sorted ones"
    used: ClassVar[str] = "all distances between the rows of a round"

    def match(self, before: Any, now: Any) -> Matches:
        return refined(before, now, super().match(before, now))

    def read(self, rows: Floats) -> Any:
        matched = super().read(rows)
        return matched | {"apart": self.memory["last"].astype(np.float32)}

    def more(self, seen: list[tuple[Any, list[int]]]) -> dict[str, Any]:
        """How far one gets who is told, for each row, where all the others belong: what there is to gain by matching better."""
        right = list[float]()
        for (a, before), (b, now) in pairwise(seen):
            true = np.array([before.index(i) if i in before else -1 for i in now], np.int64)
            there = np.flatnonzero(true >= 0)
            if len(there) > 2:
                matched = assignment(disagreement(in_medians(a["apart"]), in_medians(b["apart"]), true))
                right.append(float(np.mean((matched == true)[there])))
        return {"told of all others": float(np.mean(right))} if right else {}


@dataclass
class BlockLinkage(Linkage):
    name: ClassVar[str] = "linkage_blocks"
    label: ClassVar[str] = "Linkage by block norms"
    title: ClassVar[str] = "the same by each row's sorted block norms, which moving and turning blocks keeps"
    used: ClassVar[str] = "norms of the blocks of each row, sorted"

    def features(self, rows: Floats) -> Any:
        return block_profiles(rows, self._block)

    def match(self, before: Any, now: Any) -> Matches:
        return assignment(squared(before, now))


def _standard(values: Any) -> Floats:
    """Columns with mean 0 and standard deviation 1."""
    known = np.asarray(values, np.float64)
    return np.asarray((known - known.mean(0)) / np.maximum(known.std(0), 1e-12))
