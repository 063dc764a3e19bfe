"""R-DPCFL: Malekmohammadi, Taik and Farnadi, Differentially Private Clustered Federated Learning, TMLR 2025 (arXiv 2405.19272).

Noise hides clusters less in a first round with full batches, and a mixture model says how sure it is of each client:

    round 1:       every client trains the common start with full batches (under the experiment's defence) and sends its update
    server:        a Gaussian mixture on the two main components of the updates, scaled to [0, 1]; π_i its posterior,
                   o the largest overlap of two of its components
    rounds 2 … E:  client i trains cluster k with probability π_ik;   E = ⌊(1 − o) T / 2⌋ of the T rounds
    then c T more: clients choose the cluster with the lowest loss, as in IFCA; a defence may hide the choice
    from then on:  everybody keeps its last choice
    server:        the mean of each cluster
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar

import torch
from torch import Tensor

from covey import roles
from covey.algorithms.averaging import weight_of
from covey.algorithms.contract import Client, Coroutine, Messages, Predictor, Server, Setting
from covey.algorithms.refusals import refuse_shared_layers
from covey.algorithms.robust.averages import averages, check_average
from covey.clustering.mixtures import fitted_mixture
from covey.errors import CoveyError
from covey.leaks import IDENTITY, SERVER, Given
from covey.learn.work import Losses, Train
from covey.measures import Measure
from covey.messages import message

FIRST, DRAWN, CHOSEN, KEPT = "first", "drawn", "chosen", "kept"


@message
@dataclass(frozen=True)
class FirstModel:
    """Round 1."""

    model: Annotated[Tensor, roles.Model]  # [d]


@message
@dataclass(frozen=True)
class DrawnModel:
    """A cluster that the server drew, or that a client chose before."""

    model: Annotated[Tensor, roles.Model]  # [d]
    cluster: Annotated[int, roles.Identity]


@message
@dataclass(frozen=True)
class EveryModel:
    """To choose from."""

    models: Annotated[Tensor, roles.Models]  # [k, d]


@message
@dataclass(frozen=True)
class PlacedUpdate:
    model: Annotated[Tensor, roles.Model]  # [d]
    cluster: Annotated[int, roles.Identity]
    samples: Annotated[int, roles.Count]


@message
@dataclass(frozen=True)
class Mixture:
    phase: str
    first: FirstModel
    models: Tensor  # [k, d]
    shares: dict[int, Tensor]  # client -> π_i [k]; one 1 of who chose
    drawn: dict[int, int]  # client -> the cluster it trains next
    until: int = 0  # E: the last round whose clusters are drawn


@dataclass(frozen=True)
class RDPCFL:
    name: ClassVar[str] = "rdpcfl"
    label: ClassVar[str] = "R-DPCFL"
    title: ClassVar[str] = (
        "clusters from a mixture model of first updates, then from losses (Malekmohammadi et al. 2025)"
    )
    family: ClassVar[str] = "private"
    sends: ClassVar[Messages] = (FirstModel, DrawnModel, EveryModel)
    replies: ClassVar[Messages] = (PlacedUpdate,)
    chooses: ClassVar[bool] = True
    numbered: ClassVar[bool] = False  # all clusters begin at the common start, and the mixture numbers them
    gives: ClassVar[tuple[Given, ...]] = (
        Given(IDENTITY, (SERVER,), "it draws the clusters itself, and is told those that clients choose"),
    )
    measures: ClassVar[Mapping[str, Measure]] = {
        "overlap": Measure(
            "Overlap", words="Largest overlap of two components of the mixture of first updates, 0 to 1."
        )
    }

    choosing: float = 0.1  # c: share of the rounds in which clients choose
    weighting: str = "clients"  # or "samples"
    aggregation: str = "mean"  # or a rule that bears liars, per cluster: see `robust.rules`
    min_group: int = 1  # fewest clients of a cluster whose average clients get; with fewer the model stays as it is

    def __post_init__(self) -> None:
        check_average(self.weighting, self.aggregation, self.min_group)
        if not 0 <= self.choosing <= 1:
            raise CoveyError(f"algorithm.choosing is {self.choosing}: it is a share of the rounds, from 0 to 1")

    def start(self, setting: Setting) -> Mixture:
        refuse_shared_layers("R-DPCFL", setting)
        first = setting.one_start()
        return Mixture(FIRST, FirstModel(first), first.expand(setting.clusters, -1).clone(), {}, {})

    def broadcast(self, state: Mixture, client: int) -> FirstModel | DrawnModel | EveryModel:
        if state.phase == FIRST or (state.phase != CHOSEN and client not in state.drawn):
            return state.first
        if state.phase == CHOSEN:
            return EveryModel(state.models)
        return DrawnModel(state.models[state.drawn[client]], state.drawn[client])

    def client(self, me: Client, message: FirstModel | DrawnModel | EveryModel) -> Coroutine:
        if isinstance(message, FirstModel):
            me.note("cluster", 0)
            model = yield Train(message.model, me.plan.but(batch_size=0))
            return PlacedUpdate(model, 0, me.samples)
        if isinstance(message, DrawnModel):
            me.note("cluster", message.cluster)
            model = yield Train(message.model, me.plan)
            return PlacedUpdate(model, message.cluster, me.samples)
        losses = yield Losses(message.models)
        choice = me.choose(losses)
        me.note("cluster", int(losses.argmin()))
        model = yield Train(message.models[choice], me.plan)
        return PlacedUpdate(model, choice, me.samples)

    def aggregate(self, server: Server, state: Mixture, replies: Iterator[tuple[int, Any]]) -> Mixture:
        came = list(replies)
        if not came:
            return state
        if state.phase == FIRST:
            return self._mixed(server, state, came)
        new = [
            (i, r) for i, r in came if state.phase != CHOSEN and i not in state.drawn
        ]  # they trained the first model
        counted = [(i, r) for i, r in came if state.phase == CHOSEN or i in state.drawn]
        average = averages(self.aggregation, state.models, self.min_group)
        for _, reply in counted:
            average.add(reply.cluster, reply.model, weight_of(reply, self.weighting))
        models = average.means(state.models)
        shares = dict(state.shares)
        if state.phase == CHOSEN:
            shares |= {i: torch.eye(len(models))[reply.cluster] for i, reply in counted}
        for i, reply in new:  # who was not there in round 1: with the cluster whose model its own is nearest to
            shares[i] = torch.eye(len(models))[int((models - reply.model).norm(dim=1).argmin())]
        return self._drawn(server, replace(state, models=models, shares=shares))

    def _mixed(self, server: Server, state: Mixture, came: list[tuple[int, Any]]) -> Mixture:
        """After round 1. The cluster models stay at the start: updates under noise are for telling clusters, not to go on from."""
        with server.phase("cluster"):
            updates = torch.stack([reply.model for _, reply in came]) - state.first.model
            posterior, overlap = fitted_mixture(updates, len(state.models), server.random("mixture"))
        server.note("overlap", overlap)
        shares = {i: torch.from_numpy(row).float() for (i, _), row in zip(came, posterior)}
        until = max(1, int((1 - overlap) * server.setting.rounds / 2))
        return self._drawn(server, replace(state, shares=shares, until=until))

    def _drawn(self, server: Server, state: Mixture) -> Mixture:
        """What the next round is, and which cluster everybody trains in it."""
        following, choosing = server.round + 1, math.ceil(self.choosing * server.setting.rounds)
        late = following > state.until + 1
        phase = KEPT if late and following > state.until + 1 + choosing else CHOSEN if late and choosing else DRAWN
        random = server.random("draw")
        drawn = {
            i: int(random.choice(len(share), p=(p := share.double().numpy()) / p.sum()))
            for i, share in sorted(state.shares.items())
        }
        return replace(state, phase=phase, drawn=drawn)

    def use(self, me: Client, message: FirstModel | DrawnModel | EveryModel) -> Coroutine:
        if isinstance(message, EveryModel):
            losses = yield Losses(message.models)
            return Predictor(message.models, index=int(losses.argmin()))
        return Predictor(message.model[None])
