"""Preference profiling: which cluster a client belongs to, from what the server (or a coalition with it) receives.

A1 guesses from the identity sets: uniformly, as the MingledPie paper has it, and in the stronger ways that it leaves out
(weighted by cluster sizes, intersected over rounds, both). `model_sensitivity.py` has A2, which reads plain models, and
the coalition that holds a client's key. Scores are of each client's latest round: how often the guess is right, ties by lot.
The interval counts one trial per client, since a client's rounds are not independent.

A view that holds no identity at all leaves every cluster possible, so the guess is a lot among k.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

from covey import roles
from covey.attacks.contract import Finding, Knowledge, Truth, View, replied
from covey.attacks.declaration import Reads
from covey.attacks.preference.identity_sets import (
    CONTROLS,
    Weights,
    intersection,
    last_set,
    score,
    sizes_by_likelihood,
    sizes_by_moments,
)
from covey.crypto.identity_math import effective_rate, guess_accuracy
from covey.errors import CoveyError
from covey.leaks import IDENTITY, WIRE, Leak
from covey.statistics import wilson

GUESSED = "share of clients whose cluster is guessed right; 1 is all"
Shown = dict[int, dict[int, list[int]]]  # client -> round -> the set it showed


@dataclass
class A1:
    """Guess uniformly in the identity set that a client showed last."""

    name: ClassVar[str] = "a1"
    label: ClassVar[str] = "A1"
    title: ClassVar[str] = "guess uniformly in the identity set that a client showed last (MingledPie)"
    row: ClassVar[Leak] = IDENTITY
    seen_from: ClassVar[tuple[str, ...]] = WIRE
    reads: ClassVar[tuple[Reads, ...]] = (Reads((roles.Identity, roles.IdentitySet, roles.SealedBlocks)),)
    means: ClassVar[str] = GUESSED
    controls: ClassVar[tuple[str, ...]] = CONTROLS
    own_rows: ClassVar[bool] = False
    used: ClassVar[str] = "the set shown last"

    vantage: str = "server"
    target: str = "identity"  # the cluster that the client chose; or "preference": the one its data is from
    memory: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.target not in ("identity", "preference"):
            raise CoveyError(f"the target of {self.name} is {self.target!r}: choose 'identity' or 'preference'")

    def begin(self, knowledge: Knowledge) -> None:
        self.clusters, self.algorithm = knowledge.setting.clusters, knowledge.algorithm
        self.public: dict[str, Any] = next((k["identities"] for k in knowledge.keys.values() if "identities" in k), {})
        self.memory.setdefault("sets", {})

    def observe(self, view: View) -> None:
        if replied(view, self.algorithm):
            client = int(view.sender.removeprefix("client:"))
            self.memory["sets"].setdefault(client, {})[view.round] = identity_set(view.message, self.clusters)
            if roles.first(view.message, roles.IdentitySet, roles.Identity) is not None:
                self.memory["shown"] = True

    def end_round(self, round: int) -> None:
        pass

    def believe(self, sets: dict[int, list[list[int]]]) -> dict[int, Weights]:
        """What to believe of each client after the sets it has shown, by round."""
        return {i: last_set(shown, self.clusters) for i, shown in sets.items()}

    def finding(self, truth: Truth) -> Finding:
        shown: Shown = self.memory["sets"]
        rounds = sorted({r for by_round in shown.values() for r in by_round})
        if not rounds:
            raise CoveyError(f"{self.name} saw no reply of any client: at least one round with participants is needed")
        curve = {r: self._score(shown, truth, r)[0] for r in _every_tenth(rounds)}
        value, controls = self._score(shown, truth, rounds[-1])
        blind = "shown" not in self.memory  # sets that nobody showed hold every cluster: a lot, which measures nothing
        low, high = (0.0, 1.0) if blind else wilson(value, len(shown))
        details: dict[str, Any] = {"by round": {str(r): round(v, 4) for r, v in curve.items()}, "target": self.target}
        used = "nothing: no reply shows a cluster" if blind else self.used
        if self.public and type(self).believe is A1.believe:  # of other guesses there is no closed form
            expected = guess_accuracy(self.clusters, *_parameters(self.public))
            details["closed form"] = expected
            used += f"; the closed form expects {expected:.3f}"
        return Finding(
            self.name, self.vantage, "accuracy", value, 1 / self.clusters, low, high, controls, used, details
        )

    def _score(self, shown: Shown, truth: Truth, until: int) -> tuple[float, dict[str, float]]:
        seen = {i: {r: s for r, s in by_round.items() if r <= until} for i, by_round in shown.items()}
        seen = {i: by_round for i, by_round in seen.items() if by_round}
        beliefs = self.believe({i: [by_round[r] for r in sorted(by_round)] for i, by_round in seen.items()})
        return score(beliefs, true_clusters(truth, {i: max(by_round) for i, by_round in seen.items()}, self.target))


@dataclass
class A1Prior(A1):
    """Guess the likeliest member of the last set, by cluster sizes estimated from all sets or known beforehand."""

    name: ClassVar[str] = "a1_prior"
    label: ClassVar[str] = "A1 by cluster sizes"
    title: ClassVar[str] = "guess in the last set by cluster sizes, estimated from all sets or known beforehand"
    used: ClassVar[str] = "the set shown last, and how many clients showed each cluster"

    sizes: tuple[float, ...] = ()  # clients per cluster, where the adversary knows them

    def believe(self, sets: dict[int, list[list[int]]]) -> dict[int, Weights]:
        possible = {i: last_set(shown, self.clusters) for i, shown in sets.items()}
        prior: Any = self.sizes
        if not prior:
            groups = sum(possible.values()).tolist()  # type: ignore[union-attr]
            rate = effective_rate(self.clusters, *_parameters(self.public)) if self.public else 0.0
            prior = sizes_by_moments(groups, len(sets), rate)
        return {i: weights * prior for i, weights in possible.items()}


@dataclass
class A1Intersection(A1):
    """Guess uniformly among the clusters that every set of a client contains."""

    name: ClassVar[str] = "a1_intersection"
    label: ClassVar[str] = "A1 by intersection"
    title: ClassVar[str] = "guess uniformly among the clusters that every set of a client contains"
    used: ClassVar[str] = "all sets that a client ever showed"

    def believe(self, sets: dict[int, list[list[int]]]) -> dict[int, Weights]:
        return {i: intersection(shown, self.clusters) for i, shown in sets.items()}


@dataclass
class A1Bayes(A1):
    """Guess the likeliest cluster given all sets of all clients, their sizes estimated jointly."""

    name: ClassVar[str] = "a1_bayes"
    label: ClassVar[str] = "A1 by likelihood"
    title: ClassVar[str] = "guess by all sets of all clients, the sizes of clusters estimated jointly"
    used: ClassVar[str] = "all sets of all clients, jointly"

    def believe(self, sets: dict[int, list[list[int]]]) -> dict[int, Weights]:
        possible = {i: intersection(shown, self.clusters) for i, shown in sets.items()}
        prior = sizes_by_likelihood(list(possible.values()))
        return {i: weights * prior for i, weights in possible.items()}


def identity_set(message: Any, clusters: int) -> list[int]:
    """The clusters that a message leaves possible: a shown set, a plain identity, or all where it holds neither."""
    shown = roles.first(message, roles.IdentitySet)
    if shown is not None:
        return [int(j) for j in shown]
    plain = roles.first(message, roles.Identity)
    return [int(plain)] if isinstance(plain, int) and 0 <= plain < clusters else list(range(clusters))


def true_clusters(truth: Truth, rounds: dict[int, int], target: str) -> dict[int, int]:
    """The cluster that each client really chose in the round given for it; or the one its data is from."""
    noted = {i: truth.notes[r - 1].get(i, {}) for i, r in rounds.items()}
    if target == "identity" and all("cluster" in note for note in noted.values()):
        return {i: int(note["cluster"]) for i, note in noted.items()}
    if truth.federation.clusters is None:
        raise CoveyError(
            "there is no true cluster to score a profile against: the partition has none and nobody chose one"
        )
    return {i: int(truth.federation.clusters[i]) for i in rounds}


def _parameters(public: dict[str, Any]) -> tuple[float, int, Any]:
    return public["rate"], public["threshold"], public["reading"]


def _every_tenth(rounds: list[int]) -> list[int]:
    """The first ten rounds, then every tenth, and the last."""
    return [r for n, r in enumerate(rounds, start=1) if n <= 10 or n % 10 == 0 or r == rounds[-1]]
