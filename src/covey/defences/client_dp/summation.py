"""How clients' bounded contributions become one noised sum: who adds the noise, and so against whom it protects.

    Central   the server is trusted: it sees every contribution, adds the noise, and keeps what it saw to itself
    Local     every client adds all of it to its own contribution: against everybody, and √n times as much in the sum

Between the two stands noise that clients add a share of each inside a sealed sum.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Protocol

import torch
from torch import Tensor

from covey.algorithms.averaging import Averages
from covey.algorithms.contract import Client, Coroutine, Messages, Server
from covey.algorithms.sums.contributions import Contribution
from covey.defences.client_dp.amounts import Amounts
from covey.defences.client_dp.clipping import HALF, Clipped
from covey.defences.client_dp.clipping import clipped as cut
from covey.defences.client_dp.correlated import column_norm, taken_back
from covey.defences.client_dp.messages import ClippedChange, ClippedChanges, ClippedUpdate, PrivateState
from covey.ledger.events import ClientRelease

STREAM = "client_dp"  # of keyed noise
FLOAT64 = 2.0**-53


@dataclass(frozen=True)
class Total:
    """The noised sum of one round."""

    changes: Tensor  # [b, d] float64
    sizes: Tensor  # [b] Σ shares; zeros where sizes are not released
    within: float = 0.0  # Σ (bit − ½)
    noise: Tensor | None = (
        None  # [b·d + b + 1] what was added, in units of each part's deviation: where later rounds take it back
    )


class Summation(Protocol):
    """`reply` runs at a client, `total` at the server; either books what it spends."""

    @property
    def replies(self) -> Messages: ...
    def reply(self, me: Client, clipped: Clipped, blocks: int) -> Coroutine: ...
    def total(self, server: Server, state: PrivateState, replies: Iterator[tuple[int, Any]]) -> Total | None:
        """None: the round comes to nothing."""
        ...


@dataclass(frozen=True)
class Central:
    """Noise by the server, on the sum."""

    against: ClassVar[str] = "everybody but the server, which is trusted: it sees what each client adds"
    clear: ClassVar[bool] = True

    amounts: Amounts
    blocks: int
    counted: bool
    single: bool  # a contribution is one part: then only that part is sent
    delta: float
    clients: int
    sampling: float = 1.0  # the rate where clients are drawn by secret coins; 1: nothing is amplified
    band: int = 1
    turns: bool = False  # clients answer in turns, so that each spends for its own rounds only

    @property
    def replies(self) -> Messages:
        if not self.single:
            return (ClippedChanges,)
        return (ClippedUpdate,) if self.counted else (ClippedChange,)

    def reply(self, me: Client, clipped: Clipped, blocks: int) -> Coroutine:
        if not self.single:
            return dense(clipped, blocks, me.setting.start.shape[-1])
        [(block, part)] = clipped.parts.items()
        within = clipped.within if self.amounts.within else 0.0
        return ClippedUpdate(part, block, within) if self.counted else ClippedChange(part, within)
        yield  # a coroutine that asks for no work

    def total(self, server: Server, state: PrivateState, replies: Iterator[tuple[int, Any]]) -> Total | None:
        start = server.setting.start
        sums = Averages(self.blocks, start.new_zeros(1, start.shape[-1]))
        sizes, within, came = torch.zeros(self.blocks, dtype=torch.float64), 0.0, []
        for client, sent in replies:
            reply = sent if server.secret is None else rebounded(sent, state.clip)
            came.append(client)
            within += reply.within
            if isinstance(reply, ClippedChanges):
                for block, (change, share) in enumerate(zip(reply.changes, reply.shares.tolist())):
                    sums.add(block, change)
                    sizes[block] += share
            else:
                block = reply.cluster if isinstance(reply, ClippedUpdate) else 0
                sums.add(block, reply.change)
                sizes[block] += 1.0
        self._spend(server, came)
        return self.noised(server, state, sums.sums, sizes, within)

    def noised(self, server: Server, state: PrivateState, sums: Tensor, sizes: Tensor, within: float) -> Total:
        """One vector of all parts, each in units of its deviation; noise of deviation 1 on it."""
        amounts, clip, device = self.amounts, state.clip, sums.device
        if amounts.changes == 0:
            return Total(sums, sizes, within)
        units = [(sums.reshape(-1), amounts.changes * clip)]
        if amounts.sizes:
            units.append((sizes.to(device), amounts.sizes))
        if amounts.within:
            units.append((torch.tensor([within], dtype=torch.float64, device=device), amounts.within * HALF))
        values = torch.cat([part / deviation for part, deviation in units])
        back = taken_back(state.past or [], self.band) if self.band > 1 else None
        shown = server.noise.gaussian(values if back is None else values - back.to(device), 1.0, STREAM)
        parts = [part * unit for part, (_, unit) in zip(torch.split(shown, [len(p) for p, _ in units]), units)]
        return Total(
            parts[0].view_as(sums),
            parts[1].cpu() if amounts.sizes else torch.zeros_like(sizes),
            float(parts[-1]) if amounts.within else 0.0,
            shown - values if self.band > 1 else None,
        )

    def _spend(self, server: Server, came: list[int]) -> None:
        release = ClientRelease(
            noise=self.amounts.joint / column_norm(self.band),
            delta=self.delta,
            sampling=self.sampling,
            against=self.against,
            clients=self.clients,
            rounding=self._rounding(server),
            secret=server.noise.secret,
        )
        if not self.turns:
            server.spend(release)
            return
        for client in came:
            server.spend(release, client)

    def _rounding(self, server: Server) -> float:
        """What the noise's grid, and adding up n floats in some order in either world, add to 1 / noise."""
        if not (server.noise.secret and self.amounts.changes):
            return 0.0
        size = self.blocks * server.setting.start.shape[-1] + self.blocks + 1
        return server.noise.gaussian_rounding(size) + 2 * self.clients**2 * FLOAT64 / self.amounts.changes


@dataclass(frozen=True)
class Local:
    """Noise by every client, on all that it sends."""

    against: ClassVar[str] = "everybody"
    replies: ClassVar[Messages] = (ClippedChanges,)

    amounts: Amounts
    blocks: int
    delta: float
    clients: int

    def absent(self, me: Client, blocks: int) -> Coroutine:
        """What a client sends that adds nothing: noise on zeros, so that it cannot be told from another."""
        zeros = {0: me.setting.start.new_zeros(me.setting.start.shape[-1])}
        return (yield from self.reply(me, Clipped(zeros, {}, 0.0, 1.0), blocks))

    def reply(self, me: Client, clipped: Clipped, blocks: int) -> Coroutine:
        whole = yield from _asked_nothing(dense(clipped, blocks, me.setting.start.shape[-1]))
        noise, amounts = me.noise, self.amounts
        rounding = 0.0
        if amounts.changes and noise.secret:
            rounding = noise.gaussian_rounding(whole.changes.numel() + blocks + 1)
        me.spend(
            ClientRelease(
                noise=amounts.joint,
                delta=self.delta,
                against=self.against,
                clients=self.clients,
                zeroed=True,
                rounding=rounding,
                secret=noise.secret,
            )
        )
        changes, shares, within = whole.changes, whole.shares, torch.tensor([whole.within])
        if amounts.changes:
            changes = noise.gaussian(changes.reshape(-1), amounts.changes * clipped.clip, STREAM).view_as(changes)
        if amounts.sizes:
            shares = noise.gaussian(shares, amounts.sizes, STREAM, "sizes")
        if amounts.within:
            within = noise.gaussian(within, amounts.within * HALF, STREAM, "within")
        nothing = amounts.changes > 0  # what is not released must not be sent
        return ClippedChanges(
            changes,
            shares if amounts.sizes or not nothing else torch.zeros_like(shares),
            float(within) if amounts.within or not nothing else 0.0,
        )

    def total(self, server: Server, state: PrivateState, replies: Iterator[tuple[int, Any]]) -> Total | None:
        start = server.setting.start
        sums = Averages(self.blocks, start.new_zeros(1, start.shape[-1]))
        sizes, within = torch.zeros(self.blocks, dtype=torch.float64), 0.0
        for _, reply in replies:
            for block, change in enumerate(reply.changes):
                sums.add(block, change)
            sizes += reply.shares.double().cpu()
            within += reply.within
        return Total(sums.sums, sizes, within)


def rebounded(reply: Any, clip: float) -> Any:
    """A silo may lie, and a server that is trusted sees it: no reply counts for more than an honest one can."""
    within = min(HALF, max(-HALF, reply.within))
    if not isinstance(reply, ClippedChanges):
        (change,) = cut(Contribution({0: reply.change}), clip).parts.values()
        return replace(reply, change=change, within=within)
    sent = Contribution(dict(enumerate(reply.changes)), dict(enumerate(reply.shares.tolist())))
    bounded = cut(sent, clip)
    shares = reply.shares.new_tensor([bounded.shares.get(block, 0.0) for block in range(len(reply.shares))])
    return ClippedChanges(torch.stack(list(bounded.parts.values())), shares, within)


def dense(clipped: Clipped, blocks: int, weights: int) -> ClippedChanges:
    """All blocks, those without a part as zeros: so what is sent does not tell which they are."""
    first = next(iter(clipped.parts.values()))
    changes = first.new_zeros(blocks, weights)
    for block, part in clipped.parts.items():
        changes[block] = part
    shares = torch.zeros(blocks)
    for block, share in clipped.shares.items():
        shares[block] = share
    return ClippedChanges(changes, shares, clipped.within)


def _asked_nothing(value: Any) -> Coroutine:
    return value
    yield


def expected_size(clients: int, share: float) -> float:
    """Clients that a round expects, of which everybody knows: what sums are divided by, never how many came."""
    return max(1.0, clients * share)
