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
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from covey.algorithms.contract import Client, Coroutine, Messages, Server, Setting
from covey.algorithms.sums import openings
from covey.crypto.key_kinds import Describe
from covey.crypto.noise.shares import SharedNoise, Shares
from covey.crypto.noise.stream import Stream
from covey.crypto.openings import of_family
from covey.crypto.openings.threshold import OpeningQuestion
from covey.defences.client_dp.amounts import Amounts
from covey.defences.client_dp.carriers import BESIDE, BOUND, CARRIERS, Carrier, Integers
from covey.defences.client_dp.clipping import HALF, Clipped
from covey.defences.client_dp.messages import PrivateState
from covey.defences.client_dp.summation import STREAM, Total
from covey.defences.contract import Terms
from covey.errors import CoveyError
from covey.learn.work import Compute
from covey.ledger.events import ClientRelease
from covey.measures import Measure

FEWEST = 3  # clients in a sum, however much noise is in it: either scheme opens no smaller one


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
        carrier = carrier_of(terms.encryption)
        if not 0 < survivors <= 1:
            raise CoveyError(f"defence.survivors is {survivors}: expected a share of a round's clients, up to 1")
        openings.check_quorum(quorum, "defence.quorum")
        expected = max(1, math.floor(terms.clients * terms.share + 1e-9))
        helpers = quorum or max(2, carrier.default_quorum(expected))
        least, false = math.ceil(expected * survivors - 1e-9), helpers - 1 if corrupted < 0 else corrupted
        if least < FEWEST:
            raise CoveyError(
                f"{least} clients would be in a sum that is opened, expected {FEWEST} at least, since of two one knows the other's "
                "part: take more clients a round, or raise defence.survivors"
            )
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
        said = f"the server and up to {self.corrupted} client{'' if self.corrupted == 1 else 's'} together"
        bridging = 2 * self.quorum - self.clients - 1
        if bridging >= self.corrupted:
            return f"{said}, whatever the server asks"
        if bridging < 0:
            return f"{said}, if the server asks all clients for the same sum"
        return f"{said}, if the server asks all clients for the same sum; up to {bridging} if it does not"


@dataclass(frozen=True)
class Sealed:
    """See the module's docstring."""

    sealed_with: ClassVar[str] = "sealing"
    consults: ClassVar[Messages] = (OpeningQuestion,)
    measures: ClassVar[Mapping[str, Measure]] = {"unopened": openings.UNOPENED}

    amounts: Amounts
    blocks: int
    delta: float
    circle: Circle
    carrier: Carrier

    @property
    def sealing(self) -> str:
        return self.carrier.sealing

    @property
    def replies(self) -> Messages:
        return self.carrier.replies

    @property
    def masked(self) -> Messages:
        return self.carrier.replies

    @property
    def advises(self) -> Messages:
        return self.carrier.advises

    @property
    def key_kinds(self) -> Mapping[str, Describe]:
        return self.carrier.key_kinds

    @property
    def agreed(self) -> SharedNoise:
        """Of the vector whose parts are in units of their deviations: one client moves it by 1/z, honest shares have 1."""
        return SharedNoise(1 / self.amounts.joint, self.amounts.joint, self.circle.least, self.circle.corrupted)

    def keys(self, setting: Setting, publics: Mapping[int, bytes] | None = None) -> dict[str, dict[str, Any]]:
        held, server = self.carrier.issue(setting, self.circle.quorum, publics)
        return {"clients": held, "server": {"sealing": server}}

    def check_keys(self, keys: Mapping[str, Any], client: int, encryption: str) -> None:
        openings.check_held(keys, client, encryption, BOUND, self.circle.quorum)

    def reply(self, me: Client, clipped: Clipped, blocks: int) -> Coroutine:
        rows = self._rows(clipped, blocks, me.setting.start.shape[-1])
        shares = self.shares(me.keys["sealing"])
        reply = yield Compute("encrypt", self._sealed, (me, rows, shares, me.noise.stream(STREAM)))
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
        return reply

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

    def silent(self, me: Client, blocks: int) -> Any:
        """What a corrupted client may send: zeros, and no noise. For attackers and tests: no honest client does this."""
        return self.carrier.seal(me, np.zeros((blocks, me.setting.start.shape[-1] + BESIDE), np.int64))

    def total(self, server: Server, state: PrivateState, replies: Iterator[tuple[int, Any]]) -> Total | None:
        shape = (self.blocks, server.setting.start.shape[-1] + BESIDE)
        numbers = self.carrier.total(server, replies, shape, self.circle.least)
        server.note("unopened", float(numbers is None))
        return None if numbers is None else self._total(numbers, server.keys["sealing"], state.clip)

    def advise(self, me: Client, question: OpeningQuestion) -> Coroutine:
        """This client's part of the opening, of one set that is large enough."""
        return (yield from self.carrier.advise(me, question, self.circle.least))

    def shares(self, public: bytes) -> Shares:
        """The finest shares that these keys can carry."""
        return _fitting(self.agreed, self.carrier.capacity(public))

    def _sealed(self, me: Client, rows: NDArray[np.float64], shares: Shares, stream: Stream) -> Any:
        return self.carrier.seal(me, shares.seal(rows.reshape(-1), stream).reshape(rows.shape))

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

    def _total(self, numbers: Integers, public: bytes, clip: float) -> Total:
        amounts = self.amounts
        rows = numbers * self.shares(public).step  # [b, d + 2]
        changes = torch.from_numpy(rows[:, :-BESIDE] * (amounts.changes * clip))
        sizes = torch.from_numpy(rows[:, -BESIDE] * amounts.sizes)
        return Total(changes, sizes, float(rows[0, -1]) * amounts.within * HALF)


def carrier_of(encryption: str) -> Carrier:
    for carrier in CARRIERS:
        if encryption in of_family(carrier.sealing):
            return carrier
    able = " or ".join(repr(name) for carrier in CARRIERS for name in of_family(carrier.sealing))
    raise CoveyError(
        f"encryption is '{encryption}', under which a single client opens what another one has sealed, with no noise but its own "
        f"share: take encryption = {able}"
    )


@lru_cache(maxsize=8)
def _fitting(agreed: SharedNoise, capacity: int) -> Shares:
    return agreed.fitting(capacity)
