"""FedCAPrivacy's business server (BS) and cloud provider (CSP). Participants and key centre: `envelopes.py`.

Each is a few functions of its own keys and of what it was sent; nobody here touches another's. BS and CSP must not collude.

    participant   holds the participants' common opening key and a signing key of its own
    BS            holds both sealing keys and a signing key; relays, covers, shuffles, remembers memberships; reads nothing
    CSP           holds its opening key and the participants' sealing key; sees covered rows without names; remembers nothing

*Alignment.* Between two clusterings rows are averaged by old memberships, although they are shuffled anew and others may be
present. BS keeps memberships by participant and sends them along with the rows in such rounds (and only then), so a
membership always stays with its participant and the CSP sees no pseudonym that lives longer than a round. A newcomer joins
the nearest cluster. When rows are clustered anew, a new cluster takes the number of the old one that it shares most members
with: the memberships of absent participants go on meaning what comes closest.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any

import numpy as np
import torch
from numpy.typing import NDArray

from covey import roles
from covey.algorithms.fedcaprivacy.envelopes import BS, UPLOAD, Package, accept, purpose_of, sign, verifier_of
from covey.clustering.spectral import exposed, soft_spectral
from covey.crypto.blinded import blinded
from covey.crypto.blinded.integers import Cover, ModularRows, Points
from covey.crypto.signatures import Envelope
from covey.errors import CoveyError
from covey.messages import message

Matrix = NDArray[np.uint8]


@message
@dataclass(frozen=True)
class CoveredRound:
    """From BS to CSP: rows without names in secret order, and their old memberships unless they are to be clustered."""

    rows: Annotated[list[bytes], roles.ShuffledRows]
    clusters: Annotated[int, roles.Plain(int)]
    memberships: Annotated[Matrix | None, roles.RowMemberships]  # [n, clusters]; an empty row is a newcomer's
    # where the numbers of sketches stand, of which only memberships are asked; empty: these are rows
    kept: Annotated[list[int], roles.Plain(list)]


@message
@dataclass(frozen=True)
class CoveredMeans:
    """From CSP to BS."""

    memberships: Annotated[Matrix, roles.RowMemberships]  # φ [n, clusters]
    # [clusters] means, covered, under the participants' key; empty where a cluster has no member
    models: Annotated[list[bytes], roles.Covered]


@message
@dataclass(frozen=True)
class CoveredSums:
    """Sums of whole clusters, each under a blind of its own: to the CSP under its key, back under the participants'."""

    sums: Annotated[list[bytes], roles.Covered]


@message(also=("Desk",))
@dataclass(frozen=True)
class BusinessState:
    """All that BS keeps between rounds."""

    memberships: dict[int, list[int]]  # participant -> its clusters
    models: list[bytes]  # [clusters] as last averaged, under the participants' key; empty: never yet
    sizes: list[int]  # [clusters] what to divide each by
    packages: list[Package]
    package_of: dict[int, int]
    accepted: dict[str, Any]  # what the verifier of uploads has seen


@dataclass(frozen=True)
class BusinessServer:
    keys: Mapping[str, Any]
    clusters: int
    length: int
    max_age: float

    @property
    def upload(self) -> blinded.RowSealer:
        """What it can do with rows on their way to the CSP."""
        return blinded.sealer(self.keys["csp"])

    def begin(self) -> BusinessState:
        return BusinessState({}, [b""] * self.clusters, [1] * self.clusters, [Package(-1, [], [], [])], {}, {})

    def receive(
        self, state: BusinessState, uploads: Iterable[tuple[int, Envelope]], round: int
    ) -> tuple[dict[int, bytes], dict[str, Any], int]:
        """(sealed row of every participant whose upload is in order, the verifier's memory, how many were refused)."""
        verifier = verifier_of(self.keys.get("known", {}), self.max_age)
        if verifier is not None and state.accepted:
            verifier.restore(state.accepted)
        rows: dict[int, bytes] = {}
        refused = 0
        for participant, envelope in uploads:
            try:
                if envelope.sender != f"client:{participant}" or participant in rows:
                    raise CoveyError(f"an upload of '{envelope.sender}' came from participant {participant}")
                payload = accept(verifier, envelope, UPLOAD, round)
                self.upload.check(payload, self.length)
                rows[participant] = payload
            except CoveyError:
                refused += 1
        return rows, verifier.state() if verifier is not None else {}, refused

    def labels(self, state: BusinessState, order: list[int]) -> Matrix:
        """Memberships [n, clusters] of these participants; an empty row: not known yet."""
        known = np.zeros((len(order), self.clusters), np.uint8)
        for row, participant in zip(known, order):
            row[state.memberships.get(participant, [])] = 1
        return known

    def cover(self, rows: list[bytes], cover: Cover) -> list[bytes]:
        return self.upload.cover(rows, cover)

    def uncover(self, model: bytes, cover: Cover) -> bytes:
        return blinded.sealer(self.keys["participants"]).uncover(model, cover, self.length)

    def adopt(
        self,
        state: BusinessState,
        order: list[int],
        phi: Matrix,
        models: list[bytes],
        sizes: list[int],
        clustered: bool,
    ) -> tuple[BusinessState, dict[int, list[int]]]:
        """The state with new models and memberships, and which clusters serve each present participant this round."""
        numbers = renumber_clusters(phi, self.labels(state, order)) if clustered else np.arange(phi.shape[1])
        served = {i: sorted(int(numbers[k]) for k in np.flatnonzero(row)) for i, row in zip(order, phi)}
        kept = dict(state.memberships)
        kept |= {i: own for i, own in served.items() if clustered or i not in kept}
        now, behind = list(state.models), list(state.sizes)
        for k, model in enumerate(models):
            if model:
                now[int(numbers[k])], behind[int(numbers[k])] = model, sizes[k]
        return replace(state, memberships=kept, models=now, sizes=behind), served

    def forward(
        self, state: BusinessState, served: dict[int, list[int]], round: int, accepted: dict[str, Any]
    ) -> BusinessState:
        """Every cluster model signed for this round, and the package of every participant that has clusters."""
        envelopes = {
            k: sign(self.keys, BS, purpose_of(k, state.sizes[k]), round, model)
            for k, model in enumerate(state.models)
            if model
        }
        wanted = {i: tuple(served.get(i, own)) for i, own in state.memberships.items()}
        sets = {own: n for n, own in enumerate(sorted(set(wanted.values())), start=1)}
        packages = [Package(-1, [], [], [])]
        packages += [
            Package(n - 1, list(own), [envelopes[k] for k in own], [state.sizes[k] for k in own])
            for own, n in sets.items()
        ]
        package_of = {i: sets[own] for i, own in wanted.items()}
        return replace(state, packages=packages, package_of=package_of, accepted=accepted)


def renumber_clusters(phi: Matrix, before: Matrix) -> NDArray[np.int64]:
    """For each new cluster the number of the old one that it shares most members with; largest overlaps first."""
    overlap = phi.T.astype(np.int64) @ before  # [new, old]
    numbers = np.full(len(overlap), -1, np.int64)
    free = np.ones(overlap.shape[1], bool)
    for flat in np.argsort(-overlap, axis=None, kind="stable"):
        new, old = divmod(int(flat), overlap.shape[1])
        if numbers[new] < 0 and free[old]:
            numbers[new], free[old] = old, False
    return numbers


@dataclass(frozen=True)
class CloudProvider:
    keys: Mapping[str, Any]
    gamma: float
    median: bool
    min_size: int
    workers: int = 1
    device: str | torch.device = "cpu"  # where it compares and averages rows

    def open(self, request: CoveredRound) -> blinded.CoveredRows | Points:
        """Rows, or the points that sketches are."""
        opener = blinded.opener(self.keys["opening"], self.workers)
        if request.kept:
            return blinded.sketch_points(opener, request.rows, np.array(request.kept))
        opened = opener.open_covered(request.rows)
        return opened.on(torch.device(self.device)) if isinstance(opened, ModularRows) else opened

    def memberships(
        self, request: CoveredRound, opened: blinded.CoveredRows | Points, random: np.random.Generator
    ) -> tuple[Matrix, dict[str, Any]]:
        """(φ, what to note): clustered anew, or the memberships that came with the rows."""
        if request.memberships is not None:
            return continue_memberships(opened, request.memberships, self.min_size), {}
        points = blinded.points(opened)
        clustering = soft_spectral(
            points, request.clusters, self.gamma, random, median=self.median, min_size=self.min_size
        )
        facts = {
            "affinity_quantiles": [float(q) for q in clustering.affinity_quantiles],
            "eigengap": clustering.eigengap,
            "gamma": clustering.gamma,
            "dissolved": clustering.dissolved,
            "exposed": int(exposed(clustering.memberships).any(0).sum()),
        }
        return clustering.memberships.astype(np.uint8), facts

    def average(self, rows: blinded.CoveredRows, phi: Matrix) -> list[bytes]:
        """The mean of every cluster, sealed for the participants; one that has no member gives nothing."""
        inhabited = np.flatnonzero(phi.any(0))
        under = blinded.sealer(self.keys["participants"])
        models = [b""] * phi.shape[1]
        for k, mean in zip(inhabited, rows.means(phi.T[inhabited])):
            models[k] = under.seal_mean(mean, rows.length)
        return models

    def reseal(self, covered: bytes) -> bytes:
        """One covered sum, under the participants' key; its blind is its own, so that it says nothing here."""
        opened = blinded.opener(self.keys["opening"], self.workers).open_covered([covered])
        return blinded.sealer(self.keys["participants"]).seal_mean(opened.means([[1.0]])[0], opened.length)


def settle_memberships(memberships: Matrix, min_size: int) -> Matrix:
    """Old memberships where nobody may compare rows: newcomers and those whose clusters have too few present members
    belong to every cluster that is left, until rows are clustered anew.
    """
    phi = np.array(memberships, np.uint8)
    while True:
        sizes, homeless = phi.sum(0), ~phi.any(1)
        alive = sizes > 0
        phi[np.ix_(homeless, alive)] = 1
        sizes = phi.sum(0)
        small = np.flatnonzero(alive & (sizes < min_size))
        if not len(small) or alive.sum() == 1:
            return phi
        phi[:, small[sizes[small].argmin()]] = 0


def continue_memberships(rows: blinded.CoveredRows | Points, memberships: Matrix, min_size: int) -> Matrix:
    """Old memberships for the rows that are here: newcomers join the nearest cluster, and a cluster with fewer than
    `min_size` present members gives no model this round: who has no other joins the nearest.
    """
    phi = np.array(memberships, np.uint8)
    sizes = phi.sum(0)
    if phi.any(1).all() and sizes[sizes > 0].min() >= min_size:
        return phi
    points, known = blinded.points(rows), np.flatnonzero(sizes)
    apart = np.full(phi.shape, np.inf)
    for k in known:
        apart[:, k] = np.linalg.norm(points - points[phi[:, k] > 0].mean(0), axis=1)
    while True:
        homeless = np.flatnonzero(~phi.any(1))
        phi[homeless, apart[homeless].argmin(1)] = 1
        sizes = phi.sum(0)
        small = np.flatnonzero((sizes > 0) & (sizes < min_size))
        if not len(small) or (sizes > 0).sum() == 1:
            return phi
        least = small[sizes[small].argmin()]
        phi[:, least], apart[:, least] = 0, np.inf
