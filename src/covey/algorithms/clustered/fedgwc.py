"""FedGWC: Licciardi et al., Interaction-Aware Gaussian Weighting for Clustered Federated Learning, ICML 2025 (arXiv 2502.03340).

Clients of a cluster should lose alike while they train. In every round and cluster, with l_is the loss of client i after part s of
its local training, m_s and σ_s² their mean and variance over the clients of the round:

    r_i = mean_s exp(−(l_is − m_s)² / 2σ_s²)                         the Gaussian reward
    P_ij ← (1 − α) P_ij + α r_i / Σ r,   α = share of the cluster that took part
    W_ij = exp(−γ ‖column i − column j of P‖²), rows i and j left out, P scaled to [0, 1]

When P has come to rest (its mean squared change stays below ε for as many rounds as it takes to see everybody), W is clustered by
its spectrum into 2 … `most` parts, and the cluster is split into those with the best Davies-Bouldin score, if that is below 1.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from covey import roles
from covey.algorithms.averaging import weight_of
from covey.algorithms.clustered.groups import GIVES, MEASURES, GroupModel, use_group
from covey.algorithms.contract import Client, Coroutine, Messages, Server, Setting
from covey.algorithms.refusals import refuse_shared_layers
from covey.algorithms.robust.averages import averages, check_average
from covey.clustering.rewards import affinities, best_split, rewarded
from covey.errors import CoveyError
from covey.leaks import Given
from covey.learn.work import Losses, Plan, Train
from covey.measures import Measure
from covey.messages import message


@message
@dataclass(frozen=True)
class TracedModel:
    model: Annotated[Tensor, roles.Model]  # [d]
    losses: Annotated[Tensor, roles.LossTrace]  # [S]
    samples: Annotated[int, roles.Count]


@message
@dataclass(frozen=True)
class Interacting:
    """A cluster, as the server knows it."""

    sent: GroupModel
    members: list[int]  # clients, in order of the rows of P; empty at first: all
    weights: Tensor  # P [n, n] float64
    change: float = 1.0  # mean squared change of P, smoothed
    calm: int = 0  # rounds that it has been below ε


@message
@dataclass(frozen=True)
class Interactions:
    clusters: dict[int, Interacting]
    place: dict[int, int]  # client -> cluster; who is not in it: 1


@dataclass(frozen=True)
class FedGWC:
    name: ClassVar[str] = "fedgwc"
    label: ClassVar[str] = "FedGWC"
    title: ClassVar[str] = "clusters split where clients do not lose alike (Licciardi et al. 2025)"
    sends: ClassVar[Messages] = (GroupModel,)
    replies: ClassVar[Messages] = (TracedModel,)
    gives: ClassVar[tuple[Given, ...]] = GIVES
    measures: ClassVar[Mapping[str, Measure]] = MEASURES

    looks: int = 4  # S: losses of one local training
    gamma: float = 4.0  # γ
    rest: float = 1e-5  # ε
    most: int = 4  # parts of one split
    weighting: str = "samples"  # or "clients"
    aggregation: str = "mean"  # or a rule that bears liars, per cluster: see `robust.rules`; rewards do not
    min_group: int = 1  # fewest clients of an average that clients get, and of a part of a split

    def __post_init__(self) -> None:
        check_average(self.weighting, self.aggregation, self.min_group)
        for name, least in {"looks": 1, "most": 2}.items():
            if getattr(self, name) < least:
                raise CoveyError(f"algorithm.{name} is {getattr(self, name)}: it must be at least {least}")
        for name in ("gamma", "rest"):
            if not 0 < getattr(self, name) < float("inf"):
                raise CoveyError(f"algorithm.{name} is {getattr(self, name)}: it must be a finite number above 0")

    def start(self, setting: Setting) -> Interactions:
        refuse_shared_layers("FedGWC", setting)
        if setting.plan.momentum > 0:
            raise CoveyError("FedGWC trains in parts, between which momentum is lost: set training.momentum = 0")
        n = setting.clients
        whole = torch.full((n, n), 1 / n**2, dtype=torch.float64)
        return Interactions({1: Interacting(GroupModel(setting.one_start(), 1), list(range(n)), whole)}, {})

    def models(self, state: Interactions) -> int:
        return len(state.clusters)

    def broadcast(self, state: Interactions, client: int) -> GroupModel:
        return state.clusters[state.place.get(client, min(state.clusters))].sent

    def client(self, me: Client, message: GroupModel) -> Coroutine:
        me.note("cluster", message.group)
        model, losses = message.model, []
        for part, plan in enumerate(parts_of(me.plan, me.samples, self.looks)):
            model = yield Train(model, plan, purpose=f"train {part}" if part else "train")
            loss = yield Losses(model[None])
            losses.append(loss[0])
        return TracedModel(model, torch.stack(losses).cpu(), me.samples)

    def aggregate(self, server: Server, state: Interactions, replies: Iterator[tuple[int, Any]]) -> Interactions:
        came: dict[int, dict[int, Any]] = defaultdict(dict)
        for i, reply in replies:
            cluster = state.place.get(i, min(state.clusters))
            if i in state.clusters[cluster].members and len(reply.losses) == self.looks:
                came[cluster][i] = reply
        clusters, place = dict(state.clusters), dict(state.place)
        for cluster, group in came.items():
            trained = self._trained(clusters[cluster], group)
            with server.phase("cluster"):
                split = self._split(server, trained, len(group))
            del clusters[cluster]
            for part in split:
                name = cluster if len(split) == 1 else max([cluster, *clusters, *state.clusters]) + 1
                clusters[name] = replace(part, sent=replace(part.sent, group=name))
                place |= dict.fromkeys(part.members, name)
        server.note("clusters", len(clusters))
        return Interactions(clusters, place)

    def _trained(self, cluster: Interacting, group: Mapping[int, Any]) -> Interacting:
        """The cluster after a round: its mean model, its P."""
        average = averages(self.aggregation, cluster.sent.model[None], self.min_group)
        for reply in group.values():
            average.add(0, reply.model, weight_of(reply, self.weighting))
        model = average.means(cluster.sent.model[None])[0]
        row = {member: number for number, member in enumerate(cluster.members)}
        at = [row[i] for i in group]
        traces = np.stack([reply.losses.double().numpy() for reply in group.values()])
        counts = np.array([float(reply.samples) for reply in group.values()])
        weights, moved = rewarded(cluster.weights.numpy(), at, traces, counts)
        share = len(at) / len(cluster.members)
        change = (1 - share) * cluster.change + share * moved
        calm = cluster.calm + 1 if change < self.rest else 0
        sent = GroupModel(model, cluster.sent.group)
        return Interacting(sent, cluster.members, torch.from_numpy(weights), change, calm)

    def _split(self, server: Server, cluster: Interacting, present: int) -> list[Interacting]:
        """The cluster, or its parts where it is at rest and falls apart."""
        n = len(cluster.members)
        if cluster.calm < max(1, round(n / max(present, 1))) or n < 2 * max(2, self.min_group):
            return [cluster]
        labels = best_split(affinities(cluster.weights.numpy(), self.gamma), self.most, server.random("split"))
        if labels is None or np.bincount(labels).min() < self.min_group:
            return [replace(cluster, change=1.0, calm=0)]
        return [
            Interacting(
                cluster.sent,
                [i for i, label in zip(cluster.members, labels) if label == part],
                cluster.weights[torch.from_numpy(labels == part)][:, torch.from_numpy(labels == part)].clone(),
            )
            for part in range(int(labels.max()) + 1)
        ]

    def use(self, me: Client, message: GroupModel) -> Coroutine:
        return use_group(me, message)


def parts_of(plan: Plan, samples: int, parts: int) -> list[Plan]:
    """A local training in so many parts of about equal steps; a part of no steps takes one."""
    steps = plan.steps_for(samples)
    ends = [round(steps * (s + 1) / parts) for s in range(parts)]
    return [plan.but(steps=max(1, end - begin)) for begin, end in zip([0, *ends], ends)]
