"""Noise by all clients, a share each, inside a sealed sum: nobody sees a sum with less, and no server is trusted.

A client's whole contribution is one vector: a block for every model, each with how much of the client counts there and whether
it was clipped, all but its own of zeros. So k blocks are exact oblivious routing, and the sum of all of them is one release. In
units of each part's deviation it is never longer than 1/z; `crypto/noise/shares.py` puts it on a grid and adds this client's
share of the noise, and it is sealed. The sum is opened to the server by `quorum` clients, once a round, if at least `least` are
in it: noise makes it fit to be seen by everybody. Whoever holds back its share is one of the `corrupted`; a sum has noise
enough without any of them.

**Drop-outs.** Who is gone before its vector arrives is not in the sum, neither with data nor with noise; the sum is opened if
`least` others are. Who is gone between its vector and the opening has left both: its one-round key is in shares with the
others. So no noise is ever missing that would have to be made up for, and the ε is never restated: a sum of fewer clients stays
closed. A client books a round when it seals, whether or not it is opened: what it can know.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Annotated, Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from covey import roles
from covey.algorithms.contract import Client, Coroutine, Messages, Server, Setting
from covey.algorithms.sums import openings
from covey.algorithms.sums.openings import Seals
from covey.crypto.key_kinds import Describe
from covey.crypto.noise.shares import SharedNoise, Shares
from covey.crypto.noise.stream import Stream
from covey.crypto.openings import of_family
from covey.crypto.openings.circle import read_circle
from covey.crypto.openings.threshold import OpeningAdvice, OpeningQuestion, default_quorum, open_unpadded
from covey.crypto.openings.threshold import key_kind as own_key_kind
from covey.crypto.sealing import sealing
from covey.crypto.sealing.sealing import key_kind
from covey.defences.client_dp.amounts import Amounts
from covey.defences.client_dp.clipping import HALF, Clipped
from covey.defences.client_dp.messages import PrivateState
from covey.defences.client_dp.summation import STREAM, Total
from covey.defences.contract import Terms
from covey.errors import CoveyError
from covey.learn.work import Compute
from covey.ledger.events import ClientRelease
from covey.measures import Measure
from covey.messages import message

BOUND = 1.0  # of the sealed fixed-point numbers: they carry whole numbers here, and only how many bits they have counts
BESIDE = 2  # numbers of a block behind the change: how much of the client counts there, and whether it was clipped


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


@message
@dataclass(frozen=True)
class SealedContribution:
    blocks: Annotated[list[bytes], SealedRows((Moves, roles.Count, Clip))]  # b, each seals [d + 2]
    boxes: Annotated[list[bytes] | None, roles.Boxes]  # this client's one-round key, in shares


@dataclass(frozen=True)
class Circle:
    """Who opens a sum, who must be in it, and who may be false."""

    clients: int  # n: all that hold keys
    quorum: int  # t: so many open a sum
    least: int  # so many are in it
    corrupted: int  # c: so many of them may side with the server

    @classmethod
    def of(cls, terms: Terms, quorum: int, corrupted: int, survivors: float) -> Circle:
        """As the options say, for the clients that a round expects; refuses what protects nobody."""
        if terms.encryption not in of_family(Sealed.sealing):
            raise CoveyError(
                f"encryption is '{terms.encryption}', under which a single client opens what another one has sealed, with no noise "
                "but its own share: take encryption = 'threshold'"
            )
        if not 0 < survivors <= 1:
            raise CoveyError(f"defence.survivors is {survivors}: expected a share of a round's clients, up to 1")
        openings.check_quorum(quorum, "defence.quorum")
        expected = max(1, math.floor(terms.clients * terms.share + 1e-9))
        helpers = quorum or max(2, default_quorum(expected))
        least, false = math.ceil(expected * survivors - 1e-9), helpers - 1 if corrupted < 0 else corrupted
        if false >= helpers:
            raise CoveyError(
                f"defence.corrupted is {false}, and {helpers} clients open every upload: noise is no help against them; set "
                f"defence.corrupted to {helpers - 1} at most, or raise defence.quorum"
            )
        if helpers > expected or false >= least:
            raise CoveyError(
                f"a round has {expected} clients, {helpers} must open its sum (defence.quorum), {least} be in it "
                f"(defence.survivors) and more than {false} of these (defence.corrupted): take more clients, or fewer corrupted"
            )
        return cls(terms.clients, helpers, least, false)

    @property
    def against(self) -> str:
        """Whom it protects against. Two sums that differ by one client, opened by two halves, show it with no noise but its own."""
        said = f"the server and up to {self.corrupted} clients together"
        bridging = 2 * self.quorum - self.clients - 1
        if bridging >= self.corrupted:
            return f"{said}, whatever the server asks"
        if bridging < 0:
            return f"{said}, if the server asks all clients for the same sum"
        return f"{said}, if the server asks all clients for the same sum; up to {bridging} if it does not"


@dataclass(frozen=True)
class Sealed:
    """See the module's docstring."""

    sealing: ClassVar[str] = "sums"
    sealed_with: ClassVar[str] = "sealing"
    replies: ClassVar[Messages] = (SealedContribution,)
    consults: ClassVar[Messages] = (OpeningQuestion,)
    advises: ClassVar[Messages] = (OpeningAdvice,)
    key_kinds: ClassVar[Mapping[str, Describe]] = {"sealing": key_kind, openings.OWN: own_key_kind}
    measures: ClassVar[Mapping[str, Measure]] = {"unopened": openings.UNOPENED}

    amounts: Amounts
    blocks: int
    delta: float
    circle: Circle

    @property
    def agreed(self) -> SharedNoise:
        """Of the vector whose parts are in units of their deviations: one client moves it by 1/z, honest shares have 1."""
        return SharedNoise(1 / self.amounts.joint, self.amounts.joint, self.circle.least, self.circle.corrupted)

    def keys(self, setting: Setting, publics: Mapping[int, bytes] | None = None) -> dict[str, dict[str, Any]]:
        held, server = openings.issue(setting, BOUND, self.circle.quorum, publics)
        return {"clients": held, "server": {"sealing": server}}

    def check_keys(self, keys: Mapping[str, Any], client: int, encryption: str) -> None:
        openings.check_held(keys, client, encryption, BOUND, self.circle.quorum)

    def reply(self, me: Client, clipped: Clipped, blocks: int) -> Coroutine:
        rows = self._rows(clipped, blocks, me.setting.start.shape[-1])
        shares = shares_of(me.keys["sealing"], self.agreed)
        sealed, boxes = yield Compute("encrypt", _sealed, (Seals.of(me), rows, shares, me.noise.stream(STREAM)))
        me.spend(
            ClientRelease(
                noise=self.amounts.joint,
                delta=self.delta,
                against=self.circle.against,
                clients=self.circle.clients,
                grid=shares.grid(rows.size) + shares.excess(rows.size),
                secret=me.noise.secret,
                zeroed=True,
            )
        )
        return SealedContribution(sealed, boxes)

    @property
    def members(self) -> int:
        return self.circle.clients

    @property
    def false_clients(self) -> range:
        """Those that a test has on the server's side: the last ones."""
        return range(self.circle.clients - self.circle.corrupted, self.circle.clients)

    def smaller(self) -> Sealed:
        """The same among four clients, of whom half are corrupted: for tests that seal and open many sums."""
        return replace(self, circle=Circle(4, 3, 4, 2))

    def absent(self, me: Client, blocks: int) -> Coroutine:
        """What a client sends that contributes nothing: zeros, with its share of the noise."""
        return self.reply(me, Clipped({}, {}, 0.0, 1.0), blocks)

    def silent(self, me: Client, blocks: int) -> SealedContribution:
        """What a corrupted client may send: zeros, and no noise. For attackers and tests: no honest client does this."""
        nothing = np.zeros(me.setting.start.shape[-1] + BESIDE)
        return SealedContribution(*Seals.of(me).seal([nothing] * blocks))

    def total(self, server: Server, state: PrivateState, replies: Iterator[tuple[int, Any]]) -> Total | None:
        public, width = server.keys["sealing"], server.setting.start.shape[-1] + BESIDE
        mixer = sealing.mixer(public, self.blocks, width)
        boxes: dict[int, Sequence[bytes]] = {}
        for i, reply in replies:
            if len(reply.blocks) != self.blocks or not openings.keep_boxes(server, boxes, i, reply.boxes):
                continue
            for b, block in enumerate(reply.blocks):
                mixer.add(block, [b])
        server.note("unopened", 1.0)
        if len(boxes) < self.circle.least:
            return None
        everyone = np.ones((self.blocks, len(boxes)), dtype=bool)
        opening = openings.open_together(server, everyone, boxes, range(self.blocks), padded=False)
        if opening is None:
            return None
        try:
            opened = np.stack(open_unpadded(public, mixer.sums(), opening))
        except CoveyError:  # somebody's shares, or answers, were wrong: which, nobody can say
            server.note("unopened", 1.0)
            return None
        return self._total(opened, public, state.clip)

    def advise(self, me: Client, question: OpeningQuestion) -> Coroutine:
        """This client's part of the opening, of one set that is large enough."""
        return (yield from openings.help_open(me, question, self.circle.least, for_all=True))

    def _rows(self, clipped: Clipped, blocks: int, weights: int) -> NDArray[np.float64]:
        """[b, d + 2], every part in units of its deviation; what is not released stays zero, and gets noise all the same."""
        rows, amounts = np.zeros((blocks, weights + BESIDE)), self.amounts
        for block, part in clipped.parts.items():
            rows[block, :weights] = part.detach().cpu().numpy().astype(np.float64) / (amounts.changes * clipped.clip)
        if amounts.sizes:
            for block, share in clipped.shares.items():
                rows[block, weights] = share / amounts.sizes
        if amounts.within:
            rows[0, weights + 1] = clipped.within / (amounts.within * HALF)
        return rows

    def _total(self, opened: NDArray[np.float64], public: bytes, clip: float) -> Total:
        amounts = self.amounts
        rows = read_circle(public).numbers(opened) * shares_of(public, self.agreed).step  # [b, d + 2]
        changes = torch.from_numpy(rows[:, :-BESIDE] * (amounts.changes * clip))
        sizes = torch.from_numpy(rows[:, -BESIDE] * amounts.sizes)
        return Total(changes, sizes, float(rows[0, -1]) * amounts.within * HALF)


@lru_cache(maxsize=8)
def shares_of(public: bytes, agreed: SharedNoise) -> Shares:
    """The finest shares that these keys can carry."""
    return agreed.fitting(read_circle(public).capacity)


def _sealed(
    seals: Seals, rows: NDArray[np.float64], shares: Shares, stream: Stream
) -> tuple[list[bytes], list[bytes] | None]:
    numbers = shares.seal(rows.reshape(-1), stream).reshape(rows.shape)
    return seals.seal(list(read_circle(seals.key).values(numbers)))
