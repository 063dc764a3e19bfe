"""Preference profiling by a client that helps to open sums: it is told who is in which, and opens how many of each cluster are.

Each round is a linear system in whole numbers for all clients' clusters, by name (`clustering.isolation.clusters_by_counts`). That
everybody's own cluster is in the set it showed need not be added: the counts of each set's own cluster add up to all clients. Where
the same clients are in the same sums every round says the same; where clients are sampled or lost, a few rounds determine nearly
everybody. Counts of a round come with the next broadcast: the client must have taken part in the round and be sent its sums later.

The control that matters is the guess in the set that a client showed last, as A1 makes it: a score within it says that counts
add nothing, not that the sets do not tell. An audit carries what the server finds in these over to clients.

Limits: clients are taken to stay in their cluster over the rounds that are solved together, the longest stretch back from the
newest round that some assignment explains; changes in every round leave one round. Of several solutions one is taken, whichever.
Guesses of one solution depend on each other, and the interval counts one trial per client all the same: it is rather too narrow.
A deployed silo may be sent the sums of the last round, too, which a simulation hands to nobody.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from covey import roles
from covey.algorithms.contract import declaration
from covey.algorithms.sums.openings import OWN, Seals, round_of
from covey.attacks.contract import Finding, Knowledge, Truth, View
from covey.attacks.declaration import CONSULTED, GOT, Reads
from covey.attacks.preference.identity import GUESSED, true_clusters
from covey.attacks.preference.identity_sets import CONTROLS, Weights, last_set, score
from covey.attacks.sealed import places
from covey.clustering.isolation import Groups, clusters_by_counts
from covey.crypto.openings.threshold import Opening
from covey.crypto.sealing import sealing
from covey.leaks import CLIENT, IDENTITY, Leak
from covey.statistics import wilson

SETS = "the sets alone"
NOTE = f"It is told the sets that others showed, too: what counts add to “{SETS}” is scored."


@dataclass(frozen=True)
class Opened:
    """What such a client knows of one round: who is in each sum, [g, n], and how many of each cluster are, [g, k]."""

    groups: Groups
    counts: NDArray[np.float64]

    def sets(self) -> Groups:
        """[k, n]: who showed which cluster; a sum over all clients may come after those of the clusters."""
        return self.groups[: self.counts.shape[1]]


@dataclass
class CountsByName:
    """Solve for all clients' clusters, given who is in which sum and the counts that open with it."""

    name: ClassVar[str] = "counts_by_name"
    label: ClassVar[str] = "Counts by name"
    title: ClassVar[str] = (
        "clients' clusters, solved for from who is in which sum and the counts in it, rounds together"
    )
    row: ClassVar[Leak] = IDENTITY
    seen_from: ClassVar[tuple[str, ...]] = (CLIENT,)
    reads: ClassVar[tuple[Reads, ...]] = (
        Reads((roles.Groups,), CONSULTED),
        Reads((roles.Indicator,), GOT, sealed=True),
    )
    means: ClassVar[str] = GUESSED
    controls: ClassVar[tuple[str, ...]] = (*CONTROLS, SETS)
    own_rows: ClassVar[bool] = False

    vantage: str = "client:0"  # several pool what they see: client:0+client:1
    memory: dict[str, Any] = field(default_factory=dict)

    def begin(self, knowledge: Knowledge) -> None:
        self.setting = knowledge.setting
        key = declaration(knowledge.algorithm).sealed_with
        held = {party: keys for party, keys in knowledge.keys.items() if party.startswith("client:")}
        self.own = {int(party.removeprefix("client:")) for party in held}
        self.seals = {
            party: Seals(keys[key], int(party.removeprefix("client:")), keys[OWN])
            for party, keys in held.items()
            if key in keys and OWN in keys
        }
        for name in ("groups", "counts"):
            self.memory.setdefault(name, {})

    def observe(self, view: View) -> None:
        if view.receiver not in self.seals:
            return
        groups, counts = self.memory["groups"], self.memory["counts"]
        if (named := roles.first(view.message, roles.Groups)) is not None:
            groups[view.round] = named
        for role, sums, opening in _openings(view.message):
            round = round_of(opening.occasion)
            if round in groups and round not in counts:
                opened = self.seals[view.receiver].open(sums, opening)[:, places(role, self.setting)[roles.Indicator]]
                members = [groups[round][n] if n >= 0 else [] for n in opening.group]
                counts[round] = {"members": members, "counts": sealing.whole_counts(opened).tolist()}

    def end_round(self, round: int) -> None:
        pass

    def finding(self, truth: Truth) -> Finding:
        k, rounds = self.setting.clusters, self._rounds()
        if not rounds:
            used = "nothing: no counts came of a round in which it was told who is in which sum"
            return Finding(self.name, self.vantage, "accuracy", 1 / k, 1 / k, 0.0, 1.0, used=used)
        together, guesses = _newest_explained(list(rounds.values()))
        shown = {r: opened.sets() for r, opened in rounds.items()}
        others = [i for i in range(self.setting.clients) if i not in self.own]
        last = {i: max(there) for i in others if (there := [r for r, sets in shown.items() if sets[:, i].any()])}
        alone = {i: last_set([np.flatnonzero(shown[r][:, i]).tolist()], k) for i, r in last.items()}
        beliefs: dict[int, Weights] = {i: np.eye(k)[guesses[i]] if i in guesses else alone[i] for i in last}
        true = true_clusters(truth, last, "identity")
        value, controls = score(beliefs, true)
        low, high = wilson(value, len(last))
        return Finding(
            attack=self.name,
            vantage=self.vantage,
            metric="accuracy",
            value=value,
            chance=1 / k,
            low=low,
            high=high,
            controls={**controls, SETS: score(alone, true)[0]},
            used=f"who was in which sum and its counts; rounds seen: {len(rounds)}, solved together: {together}",
            note=NOTE,
            details={"rounds": len(rounds), "rounds together": together, "clients": len(last)},
        )

    def _rounds(self) -> dict[int, Opened]:
        """What it knows of each round, the oldest first."""
        return {int(r): self._opened(self.memory["counts"][r]) for r in sorted(self.memory["counts"])}

    def _opened(self, kept: dict[str, Any]) -> Opened:
        groups = np.zeros((len(kept["members"]), self.setting.clients), np.bool_)
        for row, members in zip(groups, kept["members"]):
            row[members] = True
        return Opened(groups, np.array(kept["counts"], np.float64))


def _openings(message: Any) -> Iterator[tuple[roles.SealedSums, list[bytes], Opening]]:
    """(what is in them, sums, what opens them), in a broadcast and the older ones inside it."""
    parts = [value for _, value in _fields(message, roles.Part)]
    inner = [one for value in parts for one in (value if isinstance(value, list) else [value])]
    opening = next((one for one in inner if isinstance(one, Opening)), None)
    for role, sums in _fields(message, roles.SealedSums):
        if opening is not None and roles.Indicator in role.inside:
            yield role, sums, opening
    for one in inner:
        yield from _openings(one)


def _fields(message: Any, kind: type[Any]) -> Iterator[tuple[Any, Any]]:
    """(role, value) of the message's own fields of a role, not of those inside it."""
    of: type = type(message)
    own = ((role, getattr(message, name)) for name, role in roles.of(of).items() if isinstance(role, kind))
    return ((role, value) for role, value in own if value is not None)


def _newest_explained(rounds: Sequence[Opened]) -> tuple[int, dict[int, int]]:
    """(how many of the newest rounds some assignment explains together, the cluster of each client that is in them).

    A round more is a condition more: where so many are not explained, no larger number is.
    """
    explained, refuted = 0, len(rounds) + 1
    guesses: dict[int, int] = {}
    number = len(rounds)
    while number > explained:
        solved = _solved(rounds[-number:])
        if solved is None:
            refuted = number
        else:
            explained, guesses = number, solved
        number = (explained + refuted) // 2
    return explained, guesses


def _solved(rounds: Sequence[Opened]) -> dict[int, int] | None:
    seen = np.flatnonzero(np.any([opened.sets().any(0) for opened in rounds], 0))
    solved = clusters_by_counts([one.groups[:, seen] for one in rounds], [one.counts for one in rounds])
    return None if solved is None else dict(zip(seen.tolist(), solved.tolist()))
