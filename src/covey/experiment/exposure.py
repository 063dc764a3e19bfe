"""What a client's work of a round is drawn from, where an experiment does not leave that to chance.

In the multi-party attack of Melis et al. (2019) the victim's batches alternate: property rows in every 5th round, other rows
in between. And in the property-inference paper a client compares the cluster models on the batch that it trains on next. Both
concern the experiment, not the algorithm, so a client's coroutine is wrapped: the same algorithm text serves both.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from covey.algorithms.contract import Client, Coroutine
from covey.algorithms.coroutines import with_work
from covey.data.federation import Federation
from covey.errors import CoveyError
from covey.learn.schedule.batches import first_batch
from covey.learn.work import Losses, Train, Work
from covey.randomness import key


@dataclass(frozen=True)
class Exposure:
    every: int = 0  # the victim of a `property` partition trains on property rows in every so many-th round; 0: on all
    choose_on: str = "data"  # clients compare models on all their "data", or on the "batch" that they train on next

    def __post_init__(self) -> None:
        if self.every < 0:
            raise CoveyError(f"exposure.every is {self.every}: it must not be negative (0: no schedule)")
        if self.choose_on not in ("data", "batch"):
            raise CoveyError(f"exposure.choose_on is {self.choose_on!r}: choose 'data' or 'batch'")

    def shows_property(self, round: int) -> bool:
        return self.every > 0 and round % self.every == 0


def expose(exposure: Exposure, federation: Federation, me: Client, coroutine: Coroutine) -> Coroutine:
    """The same client, its work restricted to what it is to see this round."""
    pool = _pool(exposure, federation, me)
    if pool is None and exposure.choose_on == "data":
        return coroutine
    return with_work(coroutine, lambda work: _restricted(exposure, me, pool, work))


def _pool(exposure: Exposure, federation: Federation, me: Client) -> Tensor | None:
    """Positions in this client's data; None: all of it. Notes the truth that a property attack is scored against."""
    if not exposure.every:
        return None
    if "victim_property" not in federation.notes:
        raise CoveyError(
            "exposure.every needs a partition with a victim: set partition = 'property', or exposure.every = 0"
        )
    if me.id != federation.notes["victim"]:
        return None
    shown = exposure.shows_property(me.round)
    me.note("property", int(shown))
    rows = federation.notes["victim_property" if shown else "victim_other"]
    positions = np.flatnonzero(np.isin(federation.clients[me.id], np.asarray(rows)))
    if len(positions) == 0:
        raise CoveyError(f"client {me.id}, the victim, holds no {'property' if shown else 'other'} rows to train on")
    return torch.from_numpy(positions)


def _restricted(exposure: Exposure, me: Client, pool: Tensor | None, work: Work) -> Work:
    if isinstance(work, Train) and work.on is None and pool is not None:
        return replace(work, on=pool)
    if isinstance(work, Losses) and work.on is None and exposure.choose_on == "batch":
        return replace(work, on=_next_batch(me, pool))
    return work


def _next_batch(me: Client, pool: Tensor | None) -> Tensor:
    """Positions of the batch that this client's training takes first: of the same key."""
    chosen = first_batch(me.plan, key(me.seed, me.round, me.id, 0), me.samples if pool is None else len(pool))
    return chosen if pool is None else pool[chosen]
