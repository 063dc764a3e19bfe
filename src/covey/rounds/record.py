"""What a round leaves in the record, beside accuracies: traffic, the clients' clusters, means of what they noted."""

from __future__ import annotations

import itertools
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from covey.data.federation import Federation
from covey.data.fingerprint import federation_parts, fingerprint
from covey.engines.listing import places
from covey.experiment.participation import Participation
from covey.messages import size


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


def chosen_clusters(facts: dict[int, Any]) -> dict[int, int]:
    """Client -> the cluster that it chose in this round."""
    return {i: int(f["cluster"]) for i, f in facts.items() if "cluster" in f}


def clusters_of(chosen: dict[int, int], before: list[int] | None, listed: NDArray[np.int64]) -> list[int] | None:
    """The cluster of every listed client as of its last turn; -1: it had none yet; None: the algorithm has no clusters."""
    if not chosen and before is None:
        return None
    now = list(before) if before is not None else [-1] * len(listed)
    for place, cluster in zip(places(listed, np.fromiter(chosen, np.int64)).tolist(), chosen.values()):
        if place >= 0:
            now[place] = cluster
    return now


def memberships_of(facts: dict[int, Any], listed: NDArray[np.int64]) -> dict[str, Any]:
    """The soft memberships of the listed clients that noted some in this round."""
    noted = {i: f["membership"] for i, f in facts.items() if "membership" in f}
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


def _more_than_clusters(facts: dict[int, Any]) -> list[dict[str, Any]]:
    """The notes of clients that noted more than a cluster: of thousands that did not nothing is looked at."""
    return [f for f in facts.values() if len(f) > 1 or "cluster" not in f]


def means_of(facts: dict[int, Any]) -> dict[str, float]:
    """Means over the clients of the plain numbers that they noted."""
    values: dict[str, list[float]] = defaultdict(list)
    for name, value in itertools.chain.from_iterable(f.items() for f in _more_than_clusters(facts)):
        if name not in ("cluster", "membership") and isinstance(value, int | float):
            values[name].append(float(value))
    return {name: float(np.mean(v)) for name, v in values.items()}


def pictures_of(facts: dict[int, Any]) -> dict[str, Any]:
    """Notes named "picture:…", such as a matrix that all clients of a round share: the first client's."""
    pictures: dict[str, Any] = {}
    for name, value in itertools.chain.from_iterable(f.items() for f in _more_than_clusters(facts)):
        if name.startswith("picture:"):
            pictures.setdefault(name.removeprefix("picture:"), value)
    return pictures


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
