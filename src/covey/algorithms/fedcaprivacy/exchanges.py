"""What passes between FedCAPrivacy's two servers in one round, from sealed rows to memberships and uncovered models.

`by_rows` is the paper's: the CSP opens every row, covered, in every round. Ours show it less. `by_sums` is for known
memberships: sums of whole clusters, each under a blind of its own, which the CSP merely passes on under the participants'
key; they divide by the size that comes with a sum. `by_sketches` asks for memberships and shows a few numbers of every row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from covey.algorithms.contract import Server, Setting
from covey.algorithms.fedcaprivacy.envelopes import CSP
from covey.algorithms.fedcaprivacy.two_servers import (
    BusinessServer,
    CloudProvider,
    CoveredMeans,
    CoveredRound,
    CoveredSums,
    Matrix,
)
from covey.crypto.blinded import blinded
from covey.crypto.blinded.integers import Points
from covey.errors import CoveyError

LARGEST_BLOCK = 1 << 14  # of all schemes, and more


@dataclass(frozen=True)
class Averaged:
    """A round's outcome at BS, in the order of the rows."""

    memberships: Matrix  # φ [n, clusters]
    models: list[bytes]  # [clusters] under the participants' key; empty where a cluster has no member
    sizes: list[int]  # what to divide a model by: 1 for a mean


def by_rows(
    server: Server,
    bs: BusinessServer,
    rows: list[bytes],
    labels: Matrix | None,
    rearranged: bool,
    random: np.random.Generator | None,
) -> Averaged:
    """Step II to VI of the paper. `labels`: old memberships, or None to cluster anew."""
    with server.phase("blind"):
        cover = blinded.draw_cover(bs.upload, bs.length, rearranged, random)
        covered = bs.cover(rows, cover)
    reply: CoveredMeans = server.ask(CSP, CoveredRound(covered, bs.clusters, labels, []))
    with server.phase("unblind"):
        models = [bs.uncover(model, cover) if model else b"" for model in reply.models]
    return Averaged(reply.memberships, models, [1] * len(models))


def by_sketches(
    server: Server,
    bs: BusinessServer,
    rows: list[bytes],
    buckets: int,
    noise: float,
    random: np.random.Generator | None,
) -> Matrix:
    """φ alone. `noise` is the distance that it puts between two equal rows, in expectation of its square."""
    with server.phase("blind"):
        plan = blinded.draw_sketch(bs.upload, bs.length, buckets, random)
        noises = blinded.draw_noise((len(rows), len(plan.kept)), noise / (2 * plan.width) ** 0.5, random)
        sketches = [bs.upload.sketch(row, plan, one) for row, one in zip(rows, noises)]
        covered = bs.cover(sketches, blinded.draw_cover(bs.upload, plan.width, False, random))
    reply: CoveredMeans = server.ask(CSP, CoveredRound(covered, bs.clusters, None, plan.kept.tolist()))
    return reply.memberships


def by_sums(
    server: Server, bs: BusinessServer, rows: list[bytes], phi: Matrix, random: np.random.Generator | None
) -> Averaged:
    """Memberships are known: the CSP needs to see no row."""
    inhabited = [int(k) for k in np.flatnonzero(phi.any(0))]
    with server.phase("blind"):
        covers = [blinded.draw_cover(bs.upload, bs.length, False, random) for _ in inhabited]
        sums = [bs.cover([one], cover)[0] for one, cover in zip(bs.upload.sums(phi.T[inhabited], rows), covers)]
    reply: CoveredSums = server.ask(CSP, CoveredSums(sums))
    models = [b""] * phi.shape[1]
    with server.phase("unblind"):
        for k, one, cover in zip(inhabited, reply.sums, covers, strict=True):
            models[k] = bs.uncover(one, cover)
    return Averaged(phi, models, [int(n) for n in phi.sum(0)])


def check_request(request: Any, setting: Setting, buckets: int, summed: bool) -> None:
    """Refuses what a BS that follows the protocol cannot ask, before anything is opened: every row's cluster is an answer.

    `buckets`: numbers of a sketch, 0 where rows are compared; `summed`: whether sums may come.
    """
    clusters = setting.clusters
    if isinstance(request, CoveredSums):
        if not summed or len(request.sums) > clusters:
            raise CoveyError(f"{len(request.sums)} sums were sent, {clusters if summed else 0} at most are agreed")
        return
    if not isinstance(request, CoveredRound):
        raise CoveyError(f"the CSP was asked with a {type(request).__name__}: it takes rounds and sums of covered rows")
    rows, known = request.rows, request.memberships
    if not (isinstance(rows, list) and all(isinstance(row, bytes) for row in rows)):
        raise CoveyError("a round without rows was sent")
    if not 1 <= len(rows) <= setting.clients or len({len(row) for row in rows}) > 1:
        raise CoveyError(f"{len(rows)} rows were sent, expected 1 to {setting.clients}, all equally long")
    if request.clusters != clusters or len(request.kept) > buckets or bool(request.kept) != bool(buckets):
        raise CoveyError(
            f"a round of {request.clusters} clusters and {len(request.kept)} kept numbers is not what was agreed"
        )
    if known is not None and not (isinstance(known, np.ndarray) and known.shape == (len(rows), clusters)):
        raise CoveyError(f"old memberships do not have the shape [{len(rows)}, {clusters}]")


def check_length(opened: blinded.CoveredRows | Points, length: int) -> None:
    """Rows are as long as the model, or longer by part of a block where blocks were moved."""
    if not isinstance(opened, np.ndarray) and not length <= opened.length < length + LARGEST_BLOCK:
        raise CoveyError(f"rows of {opened.length} numbers were sent, models have {length}")


def answer_request(
    server: Server, csp: CloudProvider, request: CoveredRound | CoveredSums
) -> CoveredMeans | CoveredSums:
    """The CSP's side of both."""
    if isinstance(request, CoveredSums):
        with server.phase("average"):
            return CoveredSums([csp.reseal(one) for one in request.sums])
    with server.phase("open"):
        opened = csp.open(request)
    check_length(opened, server.setting.start.shape[1])
    with server.phase("cluster"):
        phi, facts = csp.memberships(request, opened, server.random("cluster"))
    for name, value in facts.items():
        server.note(name, value)
    with server.phase("average"):
        return CoveredMeans(phi, [] if isinstance(opened, np.ndarray) else csp.average(opened, phi))
