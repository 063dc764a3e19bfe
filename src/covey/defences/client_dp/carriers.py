"""What carries clients' whole numbers to a sum that the server reads, and nothing but the sum: by lattices or by masks.

A carrier takes a table [b, w] of whole numbers from each client and gives the server their sum, exactly, if enough clients are in
it and enough help. What a number may be at most, its keys say (`capacity`). Either is asked for one sum in a round, of one set.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from covey import roles
from covey.algorithms.contract import MASKS, Client, Coroutine, Messages, Server, Setting
from covey.algorithms.sums import masking, openings
from covey.algorithms.sums.openings import Seals
from covey.crypto.key_kinds import Describe
from covey.crypto.openings import secagg, threshold
from covey.crypto.openings.circle import read_circle
from covey.crypto.openings.cohort import read_cohort
from covey.crypto.openings.threshold import OpeningAdvice, OpeningQuestion, open_unpadded
from covey.crypto.sealing import sealing
from covey.crypto.sealing.sealing import Label, key_kind
from covey.errors import CoveyError
from covey.messages import message

Integers = NDArray[np.int64]
Held = tuple[dict[str, Any], bytes]  # what clients hold, the server's public parameters
BOUND = 1.0  # of sealed fixed-point numbers: they carry whole numbers here, and only how many bits they have counts
BESIDE = 2  # numbers of a block behind the change: how much of the client counts there, and whether it was clipped


class Carrier(Protocol):
    """See the module's docstring."""

    sealing: ClassVar[str]
    replies: ClassVar[Messages]
    advises: ClassVar[Messages]
    key_kinds: ClassVar[Mapping[str, Describe]]

    def default_quorum(self, clients: int) -> int: ...
    def issue(self, setting: Setting, quorum: int, publics: Mapping[int, bytes] | None) -> Held: ...
    def capacity(self, public: bytes) -> int: ...
    def seal(self, me: Client, numbers: Integers) -> Any: ...
    def advise(self, me: Client, question: Any, least: int) -> Coroutine: ...
    def total(
        self, server: Server, replies: Iterator[tuple[int, Any]], shape: tuple[int, int], least: int
    ) -> Integers | None: ...


# ---------------------------------------------------------------- what is sent


class Moves(roles.Change):
    """A change of a model in units of noise: only ever inside something sealed."""

    def numbers(self, bounds: roles.Bounds) -> int:
        return bounds.weights


class Clip(roles.Role):
    """Whether a client's change was longer than the bound, in units of noise: only ever inside something sealed."""

    words = "whether a change was clipped"

    def numbers(self, bounds: roles.Bounds) -> int:
        return 1


class SealedRows(roles.SealedBlocks):
    """A sealed vector for every model, all but one of zeros with noise."""

    words = "sealed vectors with noise"

    def check(self, value: Any, bounds: roles.Bounds) -> None:
        if not isinstance(value, list) or not 0 < len(value) <= max(bounds.clusters, BESIDE):
            raise CoveyError(f"is not a list of at most {max(bounds.clusters, BESIDE)} blocks")
        for one in value:
            roles.Sealed.check(self, one, bounds)


class MaskedRows(roles.Sealed):
    """The same vectors one after the other, under masks."""

    words = "masked vectors with noise"

    def check(self, value: Any, bounds: roles.Bounds) -> None:
        if not isinstance(value, bytes):
            raise CoveyError(f"is a {type(value).__name__}, expected masked bytes")
        blocks, rest = divmod(Label.read(value).length - 1, bounds.weights + BESIDE)
        if rest or not 0 < blocks <= max(bounds.clusters, BESIDE):
            raise CoveyError(f"is not of at most {max(bounds.clusters, BESIDE)} blocks")
        bounds.sealed(value, blocks * (bounds.weights + BESIDE) + 1)


@message
@dataclass(frozen=True)
class SealedContribution:
    blocks: Annotated[list[bytes], SealedRows((Moves, roles.Count, Clip))]  # b, each seals [d + 2]
    boxes: Annotated[list[bytes] | None, roles.Boxes]  # this client's one-round key, in shares


@message
@dataclass(frozen=True)
class MaskedContribution:
    masked: Annotated[bytes, MaskedRows((Moves, roles.Count, Clip), opened_by="nobody")]  # b (d + 2) numbers and a 1
    boxes: Annotated[list[bytes], roles.Boxes]  # seeds of its masks, in shares
    tags: Annotated[bytes, roles.Plain(bytes)]


# ---------------------------------------------------------------- carriers


@dataclass(frozen=True)
class Lattices:
    """Sealed under one-round keys, of whose sum t clients give shares (`crypto/openings/threshold.py`), without pads."""

    sealing: ClassVar[str] = "sums"
    replies: ClassVar[Messages] = (SealedContribution,)
    advises: ClassVar[Messages] = (OpeningAdvice,)
    key_kinds: ClassVar[Mapping[str, Describe]] = {"sealing": key_kind, openings.OWN: threshold.key_kind}

    def default_quorum(self, clients: int) -> int:
        return threshold.default_quorum(clients)

    def issue(self, setting: Setting, quorum: int, publics: Mapping[int, bytes] | None) -> Held:
        return openings.issue(setting, BOUND, quorum, publics)

    def capacity(self, public: bytes) -> int:
        return read_circle(public).capacity

    def seal(self, me: Client, numbers: Integers) -> SealedContribution:
        return SealedContribution(*Seals.of(me).seal(list(read_circle(me.keys["sealing"]).values(numbers))))

    def advise(self, me: Client, question: Any, least: int) -> Coroutine:
        return (yield from openings.help_open(me, question, least, for_all=True))

    def total(
        self, server: Server, replies: Iterator[tuple[int, Any]], shape: tuple[int, int], least: int
    ) -> Integers | None:
        public = server.keys["sealing"]
        mixer = sealing.mixer(public, *shape)
        boxes: dict[int, Sequence[bytes]] = {}
        for i, reply in replies:
            if len(reply.blocks) != shape[0] or not openings.keep_boxes(server, boxes, i, reply.boxes):
                continue
            for b, block in enumerate(reply.blocks):
                mixer.add(block, [b])
        if len(boxes) < least:
            return None
        everyone = np.ones((shape[0], len(boxes)), dtype=bool)
        opening = openings.open_together(server, everyone, boxes, range(shape[0]), padded=False)
        if opening is None:
            return None
        try:
            return read_circle(public).numbers(np.stack(open_unpadded(public, mixer.sums(), opening)))
        except CoveyError:  # somebody's shares, or answers, were wrong: which, nobody can say
            return None


@dataclass(frozen=True)
class Masks:
    """Under masks that cancel in the sum (`crypto/openings/secagg.py`): four bytes a number, and shorter numbers."""

    sealing: ClassVar[str] = MASKS
    replies: ClassVar[Messages] = (MaskedContribution,)
    advises: ClassVar[Messages] = masking.ADVISES
    key_kinds: ClassVar[Mapping[str, Describe]] = masking.KEY_KINDS

    def default_quorum(self, clients: int) -> int:
        return secagg.default_quorum(clients)

    def issue(self, setting: Setting, quorum: int, publics: Mapping[int, bytes] | None) -> Held:
        return openings.issue_together(setting, BOUND, quorum, publics, weight=1)

    def capacity(self, public: bytes) -> int:
        cohort = read_cohort(public)
        return int(cohort.bound * 2**cohort.unit_bits)

    def seal(self, me: Client, numbers: Integers) -> MaskedContribution:
        public = me.keys["sealing"]
        values = np.ldexp(numbers.reshape(-1).astype(np.float64), -read_cohort(public).unit_bits)
        member = secagg.member(public, me.id, me.keys[openings.OWN])
        upload = member.mask(values, 1, openings.occasion(me.run, me.round))
        return MaskedContribution(upload.masked, upload.boxes, upload.tags)

    def advise(self, me: Client, question: Any, least: int) -> Coroutine:
        if isinstance(question, OpeningQuestion) and len(question.groups) > 1:
            raise CoveyError(
                f"sums of {len(question.groups)} groups of clients are asked for: noise protects one sum in a round"
            )
        return (yield from masking.help_unmask(me, question, least))

    def total(
        self, server: Server, replies: Iterator[tuple[int, Any]], shape: tuple[int, int], least: int
    ) -> Integers | None:
        public = server.keys["sealing"]
        total = masking.unmasked_sum(server, replies, shape[0] * shape[1] + 1, least)
        if total is None:
            return None
        return np.rint(np.ldexp(total, read_cohort(public).unit_bits)).astype(np.int64).reshape(shape)


CARRIERS: Sequence[Carrier] = (Lattices(), Masks())
