"""RR-Cluster on IFCA: Yang, Hu, Kim and Li, Differentially Private Federated Clustering with Random Rebalancing, 2025 (arXiv
2508.06183).

Noise for client-level privacy is averaged over a cluster's clients, so a cluster of few gets most of it. So that every cluster has
`least` = B clients, the server moves clients at random from clusters that have more:

    client:  the cluster model with the lowest loss, trained; sends the change and its choice
    server:  while some cluster has fewer than B: move random clients out of those with more than B
             w_k ← w_k + mean of the changes in it
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from covey import roles
from covey.algorithms.averaging import weight_of
from covey.algorithms.contract import Client, Coroutine, Messages, Predictor, Server, Setting
from covey.algorithms.refusals import refuse_shared_layers
from covey.algorithms.robust.averages import averages, check_average
from covey.errors import CoveyError
from covey.learn.work import Losses, Train
from covey.measures import Measure
from covey.messages import message


@message
@dataclass(frozen=True)
class BalancedModels:
    models: Annotated[Tensor, roles.Models]  # [k, d]


@message
@dataclass(frozen=True)
class ChosenChange:
    change: Annotated[Tensor, roles.Change]  # [d]
    cluster: Annotated[int, roles.Identity]
    samples: Annotated[int, roles.Count]


@dataclass(frozen=True)
class RRCluster:
    name: ClassVar[str] = "rr_cluster"
    label: ClassVar[str] = "RR-Cluster"
    title: ClassVar[str] = "IFCA whose small clusters are filled up at random to a least size (Yang et al. 2025)"
    family: ClassVar[str] = "private"
    sends: ClassVar[Messages] = (BalancedModels,)
    replies: ClassVar[Messages] = (ChosenChange,)
    chooses: ClassVar[bool] = True
    measures: ClassVar[Mapping[str, Measure]] = {
        "moved": Measure(
            "Moved clients", "clients", "Clients whose change was counted in another cluster than they chose."
        )
    }

    least: int = 4  # B
    weighting: str = "clients"  # or "samples"
    aggregation: str = "mean"  # or a rule that bears liars, per cluster: see `robust.rules`
    min_group: int = 1  # fewest clients of a cluster whose average clients get; with fewer the model stays as it is

    def __post_init__(self) -> None:
        check_average(self.weighting, self.aggregation, self.min_group)
        if self.least < 1:
            raise CoveyError(f"algorithm.least is {self.least}: a cluster has at least 1 client")

    def start(self, setting: Setting) -> BalancedModels:
        refuse_shared_layers("RR-Cluster", setting)
        return BalancedModels(setting.start)

    def broadcast(self, state: BalancedModels, client: int) -> BalancedModels:
        return state

    def client(self, me: Client, message: BalancedModels) -> Coroutine:
        losses = yield Losses(message.models)  # [k]
        choice = me.choose(losses)
        me.note("cluster", int(losses.argmin()))
        model = yield Train(message.models[choice], me.plan)
        return ChosenChange(model - message.models[choice], choice, me.samples)

    def aggregate(self, server: Server, state: BalancedModels, replies: Iterator[tuple[int, Any]]) -> BalancedModels:
        came = [reply for _, reply in replies]
        chosen = np.array([reply.cluster for reply in came], np.int64)
        places = rebalanced(chosen, len(state.models), self.least, server.random("rebalance"))
        server.note("moved", int((places != chosen).sum()))
        nothing = torch.zeros_like(state.models)
        average = averages(self.aggregation, nothing, self.min_group)
        for place, reply in zip(places.tolist(), came):
            average.add(place, reply.change, weight_of(reply, self.weighting))
        return BalancedModels(state.models + average.means(nothing))

    def use(self, me: Client, message: BalancedModels) -> Coroutine:
        losses = yield Losses(message.models)
        return Predictor(message.models, index=int(losses.argmin()))


def rebalanced(
    chosen: np.ndarray[Any, np.dtype[np.int64]], clusters: int, least: int, random: np.random.Generator
) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Who counts where [n]: every cluster has `least`, or, where there are too few clients, n // clusters."""
    wanted = min(least, len(chosen) // clusters)
    places = chosen.copy()
    sizes = np.bincount(places, minlength=clusters)
    spare = [i for k in range(clusters) for i in random.permutation(np.flatnonzero(chosen == k))[wanted:]]
    spare = [spare[at] for at in random.permutation(len(spare))]
    for k in np.flatnonzero(sizes < wanted):
        for _ in range(int(wanted - sizes[k])):
            places[spare.pop()] = k
    return places
