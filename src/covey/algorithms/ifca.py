"""IFCA: Ghosh et al., An Efficient Framework for Clustered Federated Learning, NeurIPS 2020.

Each round every client takes the cluster model with the lowest loss on its own data, trains it and returns it with its
choice. Averages are per client by default, as the papers that build on IFCA have it. A cluster that nobody chose keeps its
model. With *shared layers* (`Setting.personal` false there) those parameters are averaged over all clients.

With `encryption = "secagg"` the server learns the sum of every cluster's models, and who is in which; so do clients that help to
unmask. Clusters of fewer clients than 3, or `min_group`, stay masked, and their models as they are (they are in no average of
shared layers either).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar

import torch
from torch import Tensor

from covey import roles
from covey.algorithms.averaging import moved_on
from covey.algorithms.contract import Client, Coroutine, Messages, Predictor, Server, Setting, lowest
from covey.algorithms.robust.averages import averages, check_average
from covey.algorithms.sums import masking, openings
from covey.algorithms.sums.contributions import Contribution
from covey.config import later
from covey.learn.work import Losses, Train
from covey.messages import message


@message
@dataclass(frozen=True)
class ClusterModels:
    models: Annotated[Tensor, roles.Models]  # [k, d]


@message
@dataclass(frozen=True)
class ClusterUpdate:
    model: Annotated[Tensor, roles.Model]  # [d]
    cluster: Annotated[int, roles.Identity]
    samples: Annotated[int, roles.Count]


@dataclass(frozen=True)
class IFCA(masking.Masked):
    name: ClassVar[str] = "ifca"
    label: ClassVar[str] = "IFCA"
    title: ClassVar[str] = "each client joins the cluster whose model fits it best (Ghosh et al. 2020)"
    in_rows: ClassVar[bool] = True
    sends_alike: ClassVar[bool] = True
    surveyed: ClassVar[bool] = True
    counted: ClassVar[bool] = True
    chooses: ClassVar[bool] = True  # clients ask `me.choose` which cluster to take part in
    sends: ClassVar[Messages] = (ClusterModels,)
    replies: ClassVar[Messages] = (ClusterUpdate,)
    masked: ClassVar[Messages] = (masking.MaskedClusterModel,)

    weighting: str = "clients"  # or "samples"
    aggregation: str = later("mean")  # or a rule that bears liars, per cluster: see `robust.rules`
    min_group: int = later(
        1
    )  # fewest clients of a cluster whose average clients get; with fewer the model stays as it is
    bound: float = later(16.0)  # largest weight under encryption = "secagg"
    quorum: int = later(0)  # clients that must help to unmask a sum, with encryption = "secagg"; 0: two thirds

    def __post_init__(self) -> None:
        check_average(self.weighting, self.aggregation, self.min_group)
        openings.check_quorum(self.quorum)

    def start(self, setting: Setting) -> ClusterModels:
        return ClusterModels(setting.start)

    def broadcast(self, state: ClusterModels, client: int) -> ClusterModels:
        return state

    def client(self, me: Client, message: ClusterModels) -> Coroutine:
        losses = yield Losses(message.models)  # [k]
        choice = me.choose(losses)
        me.note("cluster", choice if me.chooser is None else lowest(losses))
        model = yield Train(message.models[choice], me.plan)
        return (yield from masking.hidden(me, message, ClusterUpdate(model, choice, me.samples), self.weighting))

    def aggregate(self, server: Server, state: ClusterModels, replies: Iterator[tuple[int, Any]]) -> ClusterModels:
        average = averages(self.aggregation, state.models, self.min_group)
        for one in masking.terms(server, replies, self.weighting, self.min_group):
            average.add(one.group, one.model, one.weight, one.clients)
        if not any(average.counts):
            return state
        personal = server.setting.personal.to(state.models.device)
        models = average.means(state.models)
        shared = average.overall(state.models[0])
        return ClusterModels(torch.where(personal, models, shared))

    def rebased(self, sent: ClusterModels, state: ClusterModels, reply: ClusterUpdate, scale: float) -> ClusterUpdate:
        """Of the cluster that was chosen then."""
        j = reply.cluster
        return replace(reply, model=moved_on(reply.model, sent.models[j], state.models[j], scale))

    def blocks(self, setting: Setting) -> int:
        return setting.clusters

    def contribution(self, me: Client, message: ClusterModels, reply: ClusterUpdate) -> Contribution:
        return Contribution({reply.cluster: reply.model - message.models[reply.cluster]}, {reply.cluster: 1.0})

    def moved(self, setting: Setting, state: ClusterModels, means: Tensor, share: float) -> ClusterModels:
        """Shared layers move by the mean over clusters, not over clients: the true sizes of clusters are no public numbers."""
        personal = setting.personal.to(state.models.device)
        return ClusterModels(state.models + torch.where(personal, means, means.mean(0)))

    def use(self, me: Client, message: ClusterModels) -> Coroutine:
        losses = yield Losses(message.models)
        return Predictor(message.models, index=lowest(losses))
