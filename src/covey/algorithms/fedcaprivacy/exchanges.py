"""What passes between FedCAPrivacy's two servers in one round, from sealed rows to memberships and uncovered models.

`by_rows` is the paper's: the CSP opens every row, covered, in every round. Ours show it less. `by_sums` is for known
memberships: sums of whole clusters, each under a blind of its own, which the CSP merely passes on under the participants'
key; they divide by the size that comes with a sum. `by_sketches` asks for memberships and shows a few numbers of every row.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from covey.algorithms.contract import BadAnswer, Server, Setting
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

SPARE = 8  # clusterings out of turn, in a run
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
    reply = _answered(server, CoveredRound(covered, bs.clusters, labels, []), True)
    with server.phase("unblind"), _to_blame():
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
    question = CoveredRound(covered, bs.clusters, None, plan.kept.tolist())
    return _answered(server, question, False).memberships


def by_sums(
    server: Server, bs: BusinessServer, rows: list[bytes], phi: Matrix, random: np.random.Generator | None
) -> Averaged:
    """Memberships are known: the CSP needs to see no row."""
    inhabited = [int(k) for k in np.flatnonzero(phi.any(0))]
    with server.phase("blind"):
        covers = [blinded.draw_cover(bs.upload, bs.length, False, random) for _ in inhabited]
        sums = [bs.cover([one], cover)[0] for one, cover in zip(bs.upload.sums(phi.T[inhabited], rows), covers)]
    reply = server.ask(CSP, CoveredSums(sums))
    if not isinstance(reply, CoveredSums) or not _are_sealed(reply.sums, len(sums)):
        raise BadAnswer(f"the CSP was asked for {len(sums)} sums and answered with something else")
    models = [b""] * phi.shape[1]
    with server.phase("unblind"), _to_blame():
        for k, one, cover in zip(inhabited, reply.sums, covers, strict=True):
            models[k] = bs.uncover(one, cover)
    return Averaged(phi, models, [int(n) for n in phi.sum(0)])


def _answered(server: Server, question: CoveredRound, with_models: bool) -> CoveredMeans:
    """The CSP's answer, of the form that this question has one in; small clusters may have been dissolved."""
    reply, n = server.ask(CSP, question), len(question.rows)
    if not isinstance(reply, CoveredMeans):
        raise BadAnswer(f"the CSP answered with a {type(reply).__name__}")
    phi: Any = reply.memberships
    if not isinstance(phi, np.ndarray) or phi.dtype != np.uint8 or phi.ndim != 2 or len(phi) != n:
        raise BadAnswer(f"the CSP answered without the memberships of {n} rows")
    fewest = 1 if question.memberships is None else question.clusters
    if not fewest <= phi.shape[1] <= question.clusters or phi.max() > 1 or not bool(phi.any(1).all()):
        raise BadAnswer(
            f"the CSP answered with memberships that are none, in {phi.shape[1]} of {question.clusters} clusters"
        )
    if not _are_sealed(reply.models, phi.shape[1] * with_models):
        raise BadAnswer("the CSP answered without a mean for each cluster")
    return reply


def _are_sealed(vectors: Any, count: int) -> bool:
    return isinstance(vectors, list) and len(vectors) == count and all(isinstance(one, bytes) for one in vectors)


@contextmanager
def _to_blame() -> Iterator[None]:
    """What came from the CSP cannot be uncovered: that is its answer's fault, not of anybody's reply."""
    try:
        yield
    except (CoveyError, ValueError) as e:
        raise BadAnswer(f"what the CSP answered cannot be uncovered: {e}") from e


def check_question(
    request: CoveredRound | CoveredSums, scheduled: bool, least: int, past: Sequence[Mapping[str, int]]
) -> dict[str, int]:
    """What the CSP writes down of a question: whether its answer says where rows lie, and whether that is on schedule.

    Out of turn rows are clustered where BS was started again, or nobody who is there has been clustered: SPARE times in a run.
    """
    if isinstance(request, CoveredSums):
        return {}
    if request.memberships is None:
        if not scheduled and sum(one.get("out_of_turn", 0) for one in past) >= SPARE:
            raise CoveyError(
                f"rows are to be clustered out of turn, as {SPARE} times before in this run: every clustering tells something "
                "of what is opened, so there is one where the agreed schedule has it, and as many more as restarts need"
            )
        return {"clustered": 1, "out_of_turn": int(not scheduled)}
    sizes = request.memberships.sum(0)
    settled = bool(request.memberships.any(1).all()) and int(sizes[sizes > 0].min()) >= least
    return {} if settled else {"joined": 1}


def answers_tell(clusterings: int, questions: int, clients: int, clusters: int, refusals: int) -> float:
    """Bits of the CSP's key that its answers of a run say at most: memberships of n rows in k clusters where it clusters, the
    nearest cluster of each where rows join one, and which questions it could not open.
    """
    joins = max(0, questions - clusterings) * clients * math.log2(max(2, clusters))
    failures = math.log2(sum(math.comb(questions, i) for i in range(refusals + 1)))
    return clusterings * clients * clusters + joins + failures


def check_request(request: Any, setting: Setting, buckets: int, summed: bool) -> None:
    """Refuses what a BS that follows the protocol cannot ask, before anything is opened: every row's cluster is an answer.

    `buckets`: numbers of a sketch, 0 where rows are compared; `summed`: whether sums may come.
    """
    clusters = setting.clusters
    if isinstance(request, CoveredSums):
        if not isinstance(request.sums, list) or not all(isinstance(one, bytes) for one in request.sums):
            raise CoveyError("sums without sums were sent")
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
    kept = request.kept
    if not isinstance(kept, list) or not all(type(at) is int and 0 <= at < setting.start.shape[1] for at in kept):
        raise CoveyError("the kept numbers are no places in a row")
    if request.clusters != clusters or len(kept) > buckets or bool(kept) != bool(buckets):
        raise CoveyError(f"a round of {request.clusters} clusters and {len(kept)} kept numbers is not what was agreed")
    if known is not None and not (
        isinstance(known, np.ndarray) and known.dtype == np.uint8 and known.shape == (len(rows), clusters)
    ):
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
