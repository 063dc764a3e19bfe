"""An algorithm under client-level DP: its clients train as ever, and add a bounded change to a sum that is noised before use.

    client i:   Δ_i = what the algorithm's client adds, all blocks as one vector, scaled down to ‖Δ_i‖ ≤ C
    server:     S = Σ Δ_i + N(0, (z C)²),  and with it noised sizes of clusters and the noised number of Δ_i below C
                mean_b = S_b / n_b: n_b is the number of clients that a round expects, or the noised size of cluster b
                state ← what the algorithm makes of the means

Nothing that depends on data leaves the server but through S. How many clients came, and how many of them in which cluster, is
never used as it is.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from covey.algorithms.contract import Client, Coroutine, Messages, Server, Setting, declaration
from covey.algorithms.sums.contributions import Summed
from covey.defences.client_dp.clipping import Clipped, check_clip, clipped, length, next_clip
from covey.defences.client_dp.messages import Bounded, PrivateState
from covey.defences.client_dp.summation import Summation, Total, expected_size
from covey.defences.contract import CLIPPING, Terms
from covey.leaks import Given
from covey.measures import Measure

SMOOTHING = 0.2  # of noised sizes over rounds: clusters change slowly, noise does not
SHARE = Measure("Clipped clients", "share", "Share of clients whose change was longer than the clipping bound.")
NONE = Measure(
    "Clients that added nothing",
    "share",
    "Share of clients whose training gave values that are not finite, so that they added zeros, and noise.",
    alarm=0.5,
    warning="local training gave values that are not finite, and zeros were added in their place, with the noise: lower "
    "training.lr, or ask what the coordinator sends",
)
LEAST_SHARE = 0.5  # of an equal share of the expected clients: no sum is divided by less


@dataclass(frozen=True)
class Steps:
    """What the server does with means: nothing here costs any privacy."""

    min_size: float = 0.0
    quantile: float = 0.0
    clip_rate: float = 0.2
    momentum: float = 0.0
    server_lr: float = 1.0


@dataclass(frozen=True)
class Protected:
    """See the module's docstring."""

    averages: ClassVar[bool] = False  # noised means of changes: running statistics do not survive them

    stands_for: Any  # the algorithm
    summation: Any
    terms: Terms
    clip: float
    steps: Steps

    def __getattr__(self, name: str) -> Any:
        """What it declares is the algorithm's, but for what is sent; what sealed sums need is the summation's."""
        if name.startswith("__") or name in ("stands_for", "summation"):
            raise AttributeError(name)
        if name in (
            "sealing",
            "sealed_with",
            "masked",
            "keys",
            "check_keys",
            "advise",
            "consults",
            "advises",
            "key_kinds",
            "parts",
        ):
            return getattr(self.summation, name)
        if name in ("answer", "aggregate", "carry_on", "awaits", "encryptions", "deployed", "models"):
            raise AttributeError(name)
        return getattr(self.stands_for, name)

    @property
    def _inner(self) -> Summed:
        inner: Summed = self.stands_for
        return inner

    @property
    def sends(self) -> Messages:
        return (Bounded,) if self.steps.quantile else declaration(self.stands_for).sends

    @property
    def replies(self) -> Messages:
        summation: Summation = self.summation
        return summation.replies

    @property
    def gives(self) -> tuple[Given, ...]:
        """What it hands out by design, it still does to a server that gets contributions in the clear; to no other."""
        return declaration(self.stands_for).gives if getattr(self.summation, "clear", False) else ()

    @property
    def measures(self) -> Mapping[str, Measure]:
        own = {"clip": CLIPPING, "clipped": SHARE, "none": NONE}
        return {**declaration(self.stands_for).measures, **getattr(self.summation, "measures", {}), **own}

    def reticent(self, setting: Setting) -> bool:
        """A server that is trusted may be told; to another one a refusal would be a release that no noise is on."""
        return not getattr(self.summation, "clear", False)

    def start(self, setting: Setting) -> PrivateState:
        return self._sending(PrivateState(self.stands_for.start(setting), self.clip))

    def broadcast(self, state: PrivateState, client: int) -> Any:
        return self.stands_for.broadcast(state.state, client) if state.sent is None else state.sent

    def client(self, me: Client, message: Any) -> Coroutine:
        inner, clip = self._opened(message)
        # The algorithm's own reply does not leave the client: it is not sealed, what is made of it may be.
        reply = yield from self.stands_for.client(replace(me, setting=replace(me.setting, encryption="none")), inner)
        contribution = self._inner.contribution(me, inner, reply)
        bounded: Clipped = clipped(contribution, clip)
        me.note("clipped", float(bounded.within < 0))
        if not math.isfinite(length(contribution.parts)):
            me.note("none", 1.0)
        summation: Summation = self.summation
        return (yield from summation.reply(me, bounded, self._inner.blocks(me.setting)))

    def aggregate(self, server: Server, state: PrivateState, replies: Iterator[tuple[int, Any]]) -> PrivateState:
        summation: Summation = self.summation
        total = summation.total(server, state, replies)
        if total is None:
            return state
        means, sizes = self._means(state, total)
        velocity = means if state.velocity is None else self.steps.momentum * state.velocity + means
        step = (self.steps.server_lr * velocity).float()
        after = self._inner.moved(server.setting, state.state, step, self.terms.share)
        server.note("clip", state.clip)
        past = [*(state.past or []), total.noise][-self._remembered :] if total.noise is not None else None
        return self._sending(
            PrivateState(
                after,
                self._next_clip(state, total),
                sizes,
                past,
                velocity if self.steps.momentum else None,
            )
        )

    def use(self, me: Client, message: Any) -> Coroutine:
        return (yield from self.stands_for.use(me, self._opened(message)[0]))

    def wants(self, state: PrivateState, client: int) -> bool:
        asked = getattr(self.stands_for, "wants", None)
        return True if asked is None else bool(asked(state.state, client))

    @property
    def _remembered(self) -> int:
        return max(1, int(getattr(self.summation, "band", 1)) - 1)

    @property
    def _expected(self) -> float:
        return expected_size(self.terms.clients, self.terms.share)

    def _means(self, state: PrivateState, total: Total) -> tuple[Tensor, Tensor | None]:
        """(mean change of each block [b, d], sizes to remember)."""
        sums, blocks = total.changes, len(total.changes)
        if not self._inner.counted:
            return sums / self._expected, None
        equal = self._expected / blocks
        if not self.summation.amounts.sizes:
            if self.summation.amounts.changes:
                return sums / equal, None
            sizes = total.sizes  # without any noise: as it is
        else:
            before = torch.full_like(total.sizes, equal) if state.sizes is None else state.sizes
            sizes = (1 - SMOOTHING) * before + SMOOTHING * total.sizes
        divisor = sizes.clamp(min=max(1.0, LEAST_SHARE * equal, self.steps.min_size))
        kept = (sizes >= self.steps.min_size).to(sums.dtype)
        return sums * (kept / divisor).to(sums.device)[:, None], sizes

    def _next_clip(self, state: PrivateState, total: Total) -> float:
        if not self.steps.quantile:
            return state.clip
        return next_clip(state.clip, total.within, self._expected, self.steps.quantile, self.steps.clip_rate)

    def _sending(self, state: PrivateState) -> PrivateState:
        """One broadcast for all, made once, so that everybody gets the same object."""
        if not self.steps.quantile:
            return state
        return replace(state, sent=Bounded(self.stands_for.broadcast(state.state, 0), state.clip))

    def _opened(self, message: Any) -> tuple[Any, float]:
        if not isinstance(message, Bounded):
            return message, self.clip
        check_clip(message.clip, "the clipping bound that was sent")
        return message.inner, message.clip
