"""Isolation: which other clients' exact models follow from the averages that a party gets, where groups are small.

A client that gets the average of itself and one other takes its own part off and has the other's model; an average of one is that
client's; and of several sums combinations count as well (`clustering.isolation`). What was averaged is read off what the party
really got: an average that the server kept back (`algorithm.min_group`) changes nothing and gives nothing away. A server that
gets clients' models in the clear needs no such thing: an audit says so by what replies carry.

Limits: it says what can be solved for, with the groups as they really were. Where averages are weighted by sample counts that the
party does not know, the other's model is known up to that one ratio. Who has any weight in a soft cluster counts as its member,
although a cluster may be nearly one client's. Averages of different rounds are not combined.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from torch import Tensor

from covey import roles
from covey.attacks.contract import Finding, Knowledge, Truth, View, parties
from covey.attacks.declaration import GOT, Reads
from covey.clustering.isolation import Groups, isolating
from covey.leaks import CLIENT, ISOLATION, Leak
from covey.messages import encode
from covey.statistics import wilson

ALL, OWN = "all", "own"  # of whose averages a party gets: every group's, or those that its client is in


@dataclass
class Isolation:
    """Share of rounds in which some other client's model follows exactly from what this party got."""

    name: ClassVar[str] = "isolation"
    label: ClassVar[str] = "Isolation"
    title: ClassVar[str] = "whose exact model averages of small groups give away"
    row: ClassVar[Leak] = ISOLATION
    seen_from: ClassVar[tuple[str, ...]] = (CLIENT,)
    reads: ClassVar[tuple[Reads, ...]] = (Reads((roles.Model, roles.Models, roles.SharedLayers), GOT, sealed=True),)
    means: ClassVar[str] = "share of rounds in which another client's model is known exactly: 0 tells nothing"
    controls: ClassVar[tuple[str, ...]] = ("its own model alone",)
    own_rows: ClassVar[bool] = False

    vantage: str = "client:0"
    memory: dict[str, Any] = field(default_factory=dict)

    def begin(self, knowledge: Knowledge) -> None:
        members = parties(self.vantage)
        self.own = next((int(p.removeprefix("client:")) for p in sorted(members) if p.startswith("client:")), -1)

    def observe(self, view: View) -> None:
        if view.sender.startswith("client:") and view.sender != f"client:{self.own}":
            if any(roles.carried(view.message, roles.Model, roles.Models, roles.Change, roles.SharedLayers)):
                self.memory.setdefault("shown", {}).setdefault(view.round, []).append(view.sender)
        elif view.receiver == f"client:{self.own}":
            digests = self.memory.setdefault("got", {})
            digests[view.round] = {"reach": _reach(view.message), "rows": _digests(view.message)}

    def end_round(self, round: int) -> None:
        pass

    def finding(self, truth: Truth) -> Finding:
        isolated = {r: self._isolated(truth, r) for r in self._rounds(len(truth.notes))}
        hits, n = sum(bool(others) for others in isolated.values()), len(isolated)
        low, high = wilson(hits / max(n, 1), n)
        clients = {other for others in isolated.values() for other in others}
        return Finding(
            attack=self.name,
            vantage=self.vantage,
            metric="share of rounds",
            value=hits / n if n else 0.0,
            chance=0.0,
            low=low if hits else 0.0,
            high=high,
            controls={self.controls[0]: 0.0},
            used="the averages that it got, and what it put into them" if n else "nothing that it could read",
            details={
                "rounds": n,
                "rounds with somebody isolated": hits,
                "clients ever isolated": len(clients),
                "of clients": len(truth.federation.clients),
            },
        )

    def _rounds(self, count: int) -> list[int]:
        """Rounds of which it can tell: their replies have passed it, or what was made of them has come back."""
        got = self.memory.get("got", {})
        answered = [r for r in range(1, count + 1) if r in got and r + 1 in got and self.own >= 0]
        return answered or (list(range(1, count + 1)) if self.own < 0 and count else [])

    def _isolated(self, truth: Truth, round: int) -> set[int]:
        """The others whose model of this round it has."""
        named = {int(s.removeprefix("client:")) for s in self.memory.get("shown", {}).get(round, [])}
        got = self.memory.get("got", {})
        if self.own < 0 or round not in got or round + 1 not in got:
            return named
        facts = truth.notes[round - 1]
        clients = sorted({*facts, self.own})
        groups = _published(facts, clients, self.own, got[round], got[round + 1])
        pairs = isolating(groups) if len(groups) else []
        return named | {clients[other] for observer, other in pairs if clients[observer] == self.own}


def _published(
    facts: Mapping[int, Mapping[str, Any]],
    clients: list[int],
    own: int,
    before: Mapping[str, Any],
    after: Mapping[str, Any],
) -> Groups:
    """[g, n]: who is in each average of a round that this client was handed in the next one."""
    of = {i: _groups_of(facts[i]) if i in facts else set() for i in clients}
    existing = sorted(set().union(*of.values()))
    if after["rows"] == before["rows"]:
        existing = []  # nothing new has come: too few were there, or the round was lost
    elif after["reach"] == OWN:
        existing = [j for j in existing if j in of[own]]
    elif len(after["rows"]) == len(before["rows"]) > 1:
        existing = [j for j in existing if j >= len(after["rows"]) or after["rows"][j] != before["rows"][j]]
    return np.array([[j in of[i] for i in clients] for j in existing], np.bool_).reshape(len(existing), len(clients))


def _groups_of(facts: Mapping[str, Any]) -> set[int]:
    """The averages that a client's model went into, as it noted them: shown sets, soft memberships, or its cluster."""
    if "groups" in facts:
        return {int(j) for j in facts["groups"]}
    if "membership" in facts:
        return {j for j, weight in enumerate(facts["membership"]) if weight > 0}
    return {int(facts.get("cluster", 0))}


def _reach(message: Any) -> str:
    every = any(roles.carried(message, roles.Models, roles.SealedSums, roles.SealedBlocks))
    return ALL if every else OWN


def _digests(message: Any) -> list[str]:
    """One for every cluster's model where they come apart, else one for all."""
    models = roles.first(message, roles.Models)
    rows = list(models) if isinstance(models, Tensor) and models.dim() == 2 else [message]
    return [hashlib.sha256(encode(row)).hexdigest() for row in rows]
