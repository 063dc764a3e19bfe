"""What a round leaves in the record, beside accuracies: traffic, the clients' clusters, means of what they noted."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from covey.data.federation import Federation
from covey.data.fingerprint import federation_parts, fingerprint
from covey.engines.calls import Alike, Call
from covey.engines.cohort import one_by_one
from covey.engines.listing import places
from covey.experiment.participation import Participation
from covey.messages import size

Spend = tuple[int, int, Any]  # round, client, event


@dataclass
class Traffic:
    """Bytes of one round, over all clients."""

    up: int = 0
    down: int = 0
    _sizes: dict[int, int] = field(default_factory=dict)

    def size(self, broadcast: Any) -> int:
        """A message that goes to many is measured once."""
        known = self._sizes.get(id(broadcast))
        if known is None:
            known = self._sizes[id(broadcast)] = size(broadcast)
        return known

    def send(self, calls: Sequence[Call]) -> None:
        """What every client that is called gets; mostly one and the same."""
        if isinstance(calls, Alike):
            self.down += self.size(calls.message) * len(calls)
        else:
            self.down += sum([self.size(one) for _, one, _ in calls])


@dataclass
class Facts:
    """What clients noted in a round: each its own, or in columns where they ran as one (see `engines.cohort`)."""

    of_each: dict[int, dict[str, Any]] = field(default_factory=dict)
    in_rows: list[tuple[NDArray[np.int64], dict[str, Any]]] = field(default_factory=list)

    def of(self, name: str) -> tuple[NDArray[np.int64], list[Any]]:
        """Who noted something under this name, and what each of them did."""
        own = {i: notes[name] for i, notes in self.of_each.items() if name in notes}
        clients, values = [np.fromiter(own, np.int64, len(own))], list(own.values())
        for ids, notes in self.in_rows:
            if name in notes:
                clients.append(ids)
                column = one_by_one(notes[name], len(ids))
                values += column if isinstance(column, list) else [value for value, _ in zip(column, ids)]
        return np.concatenate(clients), values

    def names(self) -> Iterator[str]:
        """Under which anything was noted, each once."""
        every = [*self.of_each.values(), *(notes for _, notes in self.in_rows)]
        yield from dict.fromkeys(name for notes in every for name in notes)


def chosen_clusters(facts: Facts) -> tuple[NDArray[np.int64], list[int]]:
    """Clients, and the cluster that each of them chose in this round."""
    clients, clusters = facts.of("cluster")
    return clients, [int(cluster) for cluster in clusters]


def clusters_of(
    chosen: tuple[NDArray[np.int64], list[int]], before: list[int] | None, listed: NDArray[np.int64]
) -> list[int] | None:
    """The cluster of every listed client as of its last turn; -1: it had none yet; None: the algorithm has no clusters."""
    clients, clusters = chosen
    if not len(clients) and before is None:
        return None
    now = np.full(len(listed), -1) if before is None else np.array(before, np.int64)
    at = places(listed, clients)
    now[at[at >= 0]] = np.array(clusters, np.int64)[at >= 0]
    as_list: list[int] = now.tolist()
    return as_list


def memberships_of(facts: Facts, listed: NDArray[np.int64]) -> dict[str, Any]:
    """The soft memberships of the listed clients that noted some in this round."""
    clients, memberships = facts.of("membership")
    noted = dict(zip(clients.tolist(), memberships))
    return {"memberships": [noted.get(i) for i in listed.tolist()]} if noted else {}


def by_age(own: Mapping[int, float], participation: Participation, round: int) -> dict[str, Any]:
    """Newcomers' mean accuracy on their own distribution, by the rounds since they came; nothing where there are none."""
    ages: dict[int, list[float]] = defaultdict(list)
    for client, value in own.items():
        if arrival := participation.arrival(client):
            ages[round - arrival + 1].append(value)
    if not ages:
        return {}
    return {
        "newcomers": {
            str(age): {"accuracy": float(np.mean(values)), "clients": len(values)}
            for age, values in sorted(ages.items())
        }
    }


def means_of(facts: Facts) -> dict[str, float]:
    """Means over the clients of the plain numbers that they noted."""
    means: dict[str, float] = {}
    for name in facts.names():
        if name in ("cluster", "membership"):
            continue
        numbers = [float(value) for value in facts.of(name)[1] if isinstance(value, int | float)]
        if numbers:
            means[name] = float(np.mean(numbers))
    return means


def pictures_of(facts: Facts) -> dict[str, Any]:
    """Notes named "picture:…", such as a matrix that all clients of a round share: the first client's."""
    named = [name for name in facts.names() if name.startswith("picture:")]
    return {name.removeprefix("picture:"): facts.of(name)[1][0] for name in named}


def data_summary(federation: Federation) -> dict[str, Any]:
    """Name and fingerprint of the data, with the parts by which a difference can be named."""
    parts = federation_parts(federation)
    return {"name": federation.dataset.name, "fingerprint": fingerprint(parts), "parts": parts}


def federation_summary(
    federation: Federation, data: dict[str, Any] | None = None, listed: NDArray[np.int64] | None = None
) -> dict[str, Any]:
    """Who holds what, as federation.json has it: of the clients that are listed, where those are not all."""
    sampled = listed is not None and len(listed) < len(federation.clients)
    of = listed.tolist() if listed is not None else range(len(federation.clients))
    return {
        **({"clients": len(federation.clients), "listed": of} if sampled else {}),
        "data": data_summary(federation) if data is None else data,
        "note": federation.dataset.note,
        "names": [federation.names[i] for i in of] if federation.names else [],
        "dataset": federation.dataset.name,
        "stand_in": federation.dataset.stand_in,
        "classes": list(federation.dataset.classes),
        "histogram": federation.histogram(of).tolist(),
        "sizes": federation.holdings.sizes[of].tolist(),
        "clusters": None if federation.clusters is None else federation.clusters[of].tolist(),
        "notes": {k: v for k, v in federation.notes.items() if isinstance(v, str | int | float | bool)},
    }


@contextmanager
def timed(seconds: dict[str, float], phase: str) -> Iterator[None]:
    """Adds the time of what is done within to a phase."""
    begin = time.perf_counter()
    try:
        yield
    finally:
        seconds[phase] += time.perf_counter() - begin
