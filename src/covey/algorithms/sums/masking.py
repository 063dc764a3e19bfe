"""Averages of what the server cannot read: replies under masks that cancel in the sums of groups, for algorithms that average.

An algorithm hands its reply to `hidden` before it leaves the client, and gets at the server, from `terms`, either every
client's model or, of replies under masks, one mean for each group (the clusters that replies show, or all clients together).
Without an encryption both do nothing.

A client helps to unmask (`help_unmask`) disjoint groups of at least LEAST clients (or `min_group`), `quorum` or more together;
once a round. Of such groups no combination holds fewer clients. Groups that are too small stay masked, and their clients count
as gone.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from covey import roles
from covey.algorithms import averaging
from covey.algorithms.averaging import GlobalModel, Term, group_of, weight_of
from covey.algorithms.contract import MASKS, Client, Coroutine, Messages, Server, Setting
from covey.algorithms.robust.averages import UNDER_SEALS, mean_of
from covey.algorithms.sums import openings
from covey.crypto.key_kinds import Describe
from covey.crypto.openings import of_family
from covey.crypto.openings.secagg import (
    Member,
    UnmaskingAdvice,
    Upload,
    check_advice,
    check_upload,
    key_kind,
    member,
    unmask,
)
from covey.crypto.openings.threshold import OpeningQuestion
from covey.crypto.sealing import sealing
from covey.errors import CoveyError
from covey.learn.work import Compute
from covey.measures import Measure
from covey.messages import encode, message

Opened = Mapping[int, tuple[NDArray[np.float64], int]]  # group -> sum of models times weights, sum of weights
CONSULTS, ADVISES = (OpeningQuestion,), (UnmaskingAdvice,)
KEY_KINDS: Mapping[str, Describe] = {"sealing": sealing.key_kind, openings.OWN: key_kind}
MEASURES: Mapping[str, Measure] = {"unopened": openings.UNOPENED, "cut": openings.CUT}
LEAST = 3  # clients in a sum that is unmasked: of two either knows the other's part, and so does the server with one of them
MOST_SAMPLES = 1 << 20  # of one client, where models are weighted by them


@message
@dataclass(frozen=True)
class MaskedModel:
    """A model times its weight, and the weight; nobody opens it, sums of it come out at the server."""

    masked: Annotated[bytes, roles.Sealed((roles.Model, roles.Count), opened_by="nobody")]
    boxes: Annotated[list[bytes], roles.Boxes]
    tags: Annotated[bytes, roles.Plain(bytes)]  # of the shares in the boxes


@message
@dataclass(frozen=True)
class MaskedClusterModel(MaskedModel):
    """The same with the cluster in the clear: into whose sum it goes."""

    cluster: Annotated[int, roles.Identity]


class Masked:
    """What an algorithm is, beside its own text, that runs under `encryption = "secagg"`; these of its fields are read. It says
    itself what a client returns then (`masked`).
    """

    sealing: ClassVar[str] = MASKS
    consults: ClassVar[Messages] = CONSULTS
    advises: ClassVar[Messages] = ADVISES
    key_kinds: ClassVar[Mapping[str, Describe]] = KEY_KINDS
    measures: ClassVar[Mapping[str, Measure]] = MEASURES

    weighting: str
    aggregation: str
    min_group: int
    bound: float
    quorum: int

    def keys(self, setting: Setting, publics: Mapping[int, bytes] | None = None) -> dict[str, dict[str, Any]]:
        return issue(setting, self.bound, self.quorum, self.weighting, self.aggregation, publics)

    def check_keys(self, keys: Mapping[str, Any], client: int, encryption: str) -> None:
        openings.check_held(keys, client, encryption, self.bound, self.quorum)

    def reticent(self, setting: Setting) -> bool:
        return is_masked(setting)

    def advise(self, me: Client, question: Any) -> Coroutine:
        """Where replies are masked: this client's part in unmasking their sum."""
        return (yield from help_unmask(me, question, self.min_group))


def is_masked(setting: Setting) -> bool:
    """Whether replies leave clients under masks."""
    return setting.encryption in of_family(MASKS)


def issue(
    setting: Setting,
    bound: float,
    quorum: int,
    weighting: str,
    aggregation: str,
    publics: Mapping[int, bytes] | None = None,
) -> dict[str, dict[str, Any]]:
    """Key material by party; none where nothing is masked."""
    if not is_masked(setting):
        openings.refuse_needless(setting.encryption, quorum, publics, "models come in the clear")
        return {}
    if aggregation != "mean":
        raise CoveyError(
            f"algorithm.aggregation is {aggregation!r} and encryption '{setting.encryption}': {UNDER_SEALS['aggregation']}"
        )
    if setting.clients < LEAST:
        raise CoveyError(
            f"encryption = '{setting.encryption}' with {setting.clients} clients: of two either knows the other's part, so "
            f"sums of at least {LEAST} are unmasked; take more clients"
        )
    weight = MOST_SAMPLES if weighting == "samples" else 1
    held, server = openings.issue_together(setting, bound, quorum, publics, weight=weight)
    return {"clients": held, "server": {"sealing": server}}


# ---------------------------------------------------------------- at the client


def hidden(me: Client, received: Any, reply: Any, weighting: str) -> Coroutine:
    """The reply as it leaves a client that received this message."""
    if not is_masked(me.setting):
        return reply
    weight = weight_of(reply, weighting)
    cluster = roles.first(reply, roles.Identity)
    start = roles.first(received, roles.Model) if cluster is None else roles.first(received, roles.Models)[cluster]
    model = openings.sealable(me, roles.first(reply, roles.Model), lambda: start)
    upload: Upload = yield Compute("mask", _mask, (me, received, model, weight), on_cpu=True)
    sent = (upload.masked, upload.boxes, upload.tags)
    return MaskedModel(*sent) if cluster is None else MaskedClusterModel(*sent, cluster)


def _mask(me: Client, received: Any, model: Tensor, weight: float) -> Upload:
    """Masks cancel among those who were sent the same: of a server that shows clients different models nothing adds up."""
    alike = hashlib.sha256(encode(received)).hexdigest()
    return _member(me).mask(model.cpu().numpy(), int(weight), openings.occasion(me.run, me.round), alike)


def _member(me: Client) -> Member:
    return member(me.keys["sealing"], me.id, me.keys[openings.OWN])


def help_unmask(me: Client, question: Any, min_group: int) -> Coroutine:
    """A client's answer to the server's question; see the module's docstring for what it refuses."""
    if not is_masked(me.setting):
        raise CoveyError("a further question of the round came, and nothing is masked here that clients could open")
    openings.check_question(me, question)
    together = [i for group in question.groups for i in group]
    if len(set(together)) < len(together):
        raise CoveyError("a client is asked for in two sums: its masks cancel in one")
    quorum, least = openings.quorum_of(me.keys["sealing"]), least_unmasked(min_group)
    if len(together) < quorum:
        raise CoveyError(f"the masks of {len(together)} clients are asked for, of at least {quorum} they are taken off")
    if (fewest := min(map(len, question.groups))) < least:
        raise CoveyError(f"the sum of {fewest} clients is asked for: sums of at least {least} are unmasked")
    openings.agree_once(me, tuple(tuple(group) for group in question.groups))
    advice = yield Compute("unmask", _member(me).advise, (question, openings.occasion(me.run, me.round)))
    return advice


def least_unmasked(min_group: int) -> int:
    """Fewest clients of a group whose sum is unmasked."""
    return max(min_group, LEAST)


# ---------------------------------------------------------------- at the server


def terms(server: Server, replies: Iterator[tuple[int, Any]], weighting: str, min_group: int) -> Iterator[Term]:
    """What replies bring to the averages: each its model, or each group of masked ones its mean."""
    if is_masked(server.setting):
        return _means(server, replies, least_unmasked(min_group))
    return averaging.terms(replies, weighting)


def mean_model(
    server: Server, state: GlobalModel, replies: Iterator[tuple[int, Any]], weighting: str, aggregation: str, least: int
) -> GlobalModel:
    """The replies' average; the state itself where nothing came of them."""
    model = mean_of(state.model, terms(server, replies, weighting, least), aggregation, least)
    return state if model is state.model else GlobalModel(model)


def _means(server: Server, replies: Iterator[tuple[int, Any]], least: int) -> Iterator[Term]:
    public, numbers = server.keys["sealing"], server.setting.start.shape[1] + 1
    mixers: dict[int, sealing.Mixer] = {}  # by group
    groups: dict[int, list[int]] = {}
    kept: dict[int, Kept] = {}
    for i, reply in replies:
        if not _is_whole(public, reply):
            server.blamed.add(i)
            continue
        j = group_of(reply)
        mixers.setdefault(j, sealing.mixer(public, 1, numbers)).add(reply.masked, [0])
        groups.setdefault(j, []).append(i)
        kept[i] = Kept(reply.boxes, reply.tags)
    groups = {j: group for j, group in sorted(groups.items()) if len(group) >= least}
    answers = _ask(server, groups, kept)
    opened: Opened = {}
    if answers:
        with server.phase("unmask"):
            sums = {j: mixers[j].sums()[0] for j in groups}
            opened = _opened(server, sums, groups, kept, answers)
    server.note("unopened", float(not opened))
    for j, (total, weight) in opened.items():
        mean = torch.from_numpy(total / weight).to(server.setting.start.device)
        yield Term(j, mean, float(weight), len(groups[j]))


def unmasked_sum(
    server: Server, replies: Iterator[tuple[int, Any]], numbers: int, least: int
) -> NDArray[np.float64] | None:
    """The sum over all clients whose replies are whole; None: they are fewer than `least`, or too few help."""
    public = server.keys["sealing"]
    mixer = sealing.mixer(public, 1, numbers)
    kept: dict[int, Kept] = {}
    for i, reply in replies:
        try:
            check_upload(public, reply.boxes, reply.tags)
            mixer.add(reply.masked, [0])  # refused before anything is added, where it is of another length
        except CoveyError:
            server.blamed.add(i)
            continue
        kept[i] = Kept(reply.boxes, reply.tags)
    groups = {0: sorted(kept)}
    answers = _ask(server, groups, kept) if len(kept) >= least else {}
    if not answers:
        return None
    opened = _opened(server, {0: mixer.sums()[0]}, groups, kept, answers)
    return opened[0][0] if opened else None


@dataclass(frozen=True)
class Kept:
    """What the server keeps of a reply until its round is unmasked: the vector is in a sum already."""

    boxes: list[bytes]
    tags: bytes


def _ask(
    server: Server, groups: Mapping[int, Sequence[int]], replies: Mapping[int, Kept]
) -> dict[int, UnmaskingAdvice]:
    """The usable answers of those who have replied; none where too few can be in the sums, or answer."""
    public = server.keys["sealing"]
    quorum, sets = openings.quorum_of(public), [list(group) for group in groups.values()]
    senders = sorted(i for group in sets for i in group)
    if len(senders) < quorum:
        return {}
    questions = {j: OpeningQuestion(sets, {i: replies[i].boxes[j] for i in senders}) for j in replies}
    answers = server.consult(questions, quorum)
    usable = {j: advice for j, advice in answers.items() if _is_usable(public, advice, sets)}
    return usable if len(usable) >= quorum else {}


def _opened(
    server: Server,
    sums: Mapping[int, bytes],
    groups: Mapping[int, Sequence[int]],
    replies: Mapping[int, Kept],
    answers: Mapping[int, UnmaskingAdvice],
) -> Opened:
    """The sums by group; none where they are spoilt: then those who may have done it are suspects, or one is known to have."""
    senders = [i for group in groups.values() for i in group]
    try:
        result = unmask(server.keys["sealing"], sums, groups, {i: replies[i].tags for i in senders}, answers)
    except CoveyError:
        server.suspected.update(senders)
        return {}
    server.blamed.update(result.blamed)
    server.cleared.update(senders if result.sums else ())
    return result.sums


def _is_whole(public: bytes, reply: Any) -> bool:
    try:
        check_upload(public, reply.boxes, reply.tags)
    except CoveyError:
        return False
    return True


def _is_usable(public: bytes, advice: Any, groups: Sequence[Sequence[int]]) -> bool:
    if not isinstance(advice, UnmaskingAdvice):
        return False
    try:
        check_advice(public, advice, groups)
    except CoveyError:
        return False
    return True
