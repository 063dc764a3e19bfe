"""Sattler's CFL: Sattler, Müller and Samek, Clustered Federated Learning, IEEE TNNLS 2020 (arXiv 1910.01991).

Clients send updates Δ_i. Every cluster averages its own. When ‖mean Δ‖ < ε1 while some ‖Δ_i‖ > ε2, its model has come to
rest where its clients have not: it is split where the largest cosine similarity across the cut, α, is smallest, provided
√((1 − α) / 2) > γ. The two halves go on from the model plus the mean update of their own members.

The splits form a tree. Every client stands at a node of it, at first at the root. At a leaf its update counts; at an inner
node it is compared with the mean updates of the two sides at the split and the client moves on to the nearer one. So join
newcomers, one level a round, and likewise those who were away when their cluster was split. (The paper caches the updates of
all members at every split and takes the largest similarity; the two means are what we keep.)

Similarities need all updates of a cluster at once: memory grows with the number of clients here, for the algorithm's sake.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar

import torch
from torch import Tensor

from covey import roles
from covey.algorithms.averaging import check_weighting, use_model, weight_of
from covey.algorithms.contract import Client, Coroutine, Messages, Server, Setting
from covey.algorithms.refusals import refuse_shared_layers
from covey.algorithms.robust.averages import averages, check_aggregation, check_group
from covey.clustering.bipartition import bipartition, cosine_similarities, is_separated, wants_split
from covey.config import later
from covey.errors import CoveyError
from covey.leaks import EAVESDROPPER, IDENTITY, SERVER, Given
from covey.learn.work import Train
from covey.measures import Measure
from covey.messages import message


@message
@dataclass(frozen=True)
class NodeModel:
    model: Annotated[Tensor, roles.Model]  # [d]
    node: Annotated[int, roles.Identity(bounded=False)]  # tells the clients that share a model so; the record needs it


@message
@dataclass(frozen=True)
class ModelChange:
    change: Annotated[Tensor, roles.Change]  # [d] Δ
    samples: Annotated[int, roles.Count]


@message
@dataclass(frozen=True)
class Node:
    sent: NodeModel  # an inner node's model stays as it was at the split
    children: tuple[int, int] | None = None
    sides: Tensor | None = None  # [2, d] directions of the children's mean updates at the split


@message
@dataclass(frozen=True)
class ClusterTree:
    nodes: tuple[Node, ...]
    place: dict[int, int]  # client -> node; who is not in it stands at the root
    largest: float = 0.0  # ‖mean Δ‖ of any cluster in any round so far

    def at(self, client: int) -> int:
        return self.place.get(client, 0)

    def onward(self, node: int, change: Tensor) -> int:
        """Where a client with this update stands next: at a leaf it stays."""
        place = self.nodes[node]
        if place.children is None or place.sides is None:
            return node
        return place.children[int((place.sides @ change).argmax())]


@dataclass(frozen=True)
class Sattler:
    name: ClassVar[str] = "sattler"
    label: ClassVar[str] = "Sattler's bipartition"
    title: ClassVar[str] = "clusters split in two when their clients disagree at rest (Sattler et al. 2020)"
    surveyed: ClassVar[bool] = True
    sends: ClassVar[Messages] = (NodeModel,)
    replies: ClassVar[Messages] = (ModelChange,)
    gives: ClassVar[tuple[Given, ...]] = (
        Given(IDENTITY, (SERVER,), "it splits the clients itself"),
        Given(IDENTITY, (EAVESDROPPER,), "every message to a client names its node of the tree"),
    )

    measures: ClassVar[Mapping[str, Measure]] = {
        "clusters": Measure("Clusters", words="Leaves of the tree of clusters, which splits a leaf in two."),
    }

    eps1: float = 0.0  # ε1; 0: a tenth of the largest ‖mean Δ‖ so far, the paper's rule of thumb
    eps2: float = 0.0  # ε2; 0: five times ε1, the middle of the 1 to 10 times that the paper suggests
    gamma: float = 0.7  # γ; 0.7: the halves must point apart (α < 0.02); 0: any similarity below 1 splits
    weighting: str = "clients"  # or "samples"
    aggregation: str = later("mean")  # or a rule that bears liars: see `robust.rules`; splits do not
    min_group: int = later(1)  # fewest clients of a cluster whose average clients get, and of either half of a split

    def __post_init__(self) -> None:
        if min(self.eps1, self.eps2) < 0 or (self.eps2 and self.eps2 < self.eps1):
            raise CoveyError(
                f"algorithm.eps1 is {self.eps1} and algorithm.eps2 {self.eps2}: expected 0 <= eps1 <= eps2, since the "
                "mean of updates is never longer than the longest of them"
            )
        if not 0 <= self.gamma < 1:
            raise CoveyError(f"algorithm.gamma is {self.gamma}: it must be at least 0 and below 1, else nothing splits")
        check_weighting(self.weighting)
        check_aggregation(self.aggregation, self.weighting)
        check_group(self.min_group, self.aggregation)

    def start(self, setting: Setting) -> ClusterTree:
        refuse_shared_layers("Sattler's CFL", setting)
        return ClusterTree((Node(NodeModel(setting.one_start(), 0)),), {})

    def models(self, state: ClusterTree) -> int:
        return sum(node.children is None for node in state.nodes)

    def broadcast(self, state: ClusterTree, client: int) -> NodeModel:
        return state.nodes[state.at(client)].sent

    def client(self, me: Client, message: NodeModel) -> Coroutine:
        me.note("cluster", message.node)
        model = yield Train(message.model, me.plan)
        return ModelChange(model - message.model, me.samples)

    def aggregate(self, server: Server, state: ClusterTree, replies: Iterator[tuple[int, Any]]) -> ClusterTree:
        place = dict(state.place)
        groups: dict[int, list[tuple[int, Any]]] = defaultdict(list)
        for client, reply in replies:
            node = state.at(client)
            if state.nodes[node].children is None:
                groups[node].append((client, reply))
            place[client] = state.onward(node, reply.change)
        groups = {node: group for node, group in groups.items() if len(group) >= self.min_group}
        means = {node: self._mean([r for _, r in group]) for node, group in groups.items()}
        largest = max([state.largest, *(float(mean.norm()) for mean in means.values())])
        nodes = list(state.nodes)
        for node, group in groups.items():
            with server.phase("cluster"):
                halves = self._halves([r for _, r in group], largest)
            model = nodes[node].sent.model
            if halves is None:
                nodes[node] = Node(NodeModel(model + means[node], node))
                continue
            sides = [self._mean([group[i][1] for i in half]) for half in halves]
            children = (len(nodes), len(nodes) + 1)
            nodes += [Node(NodeModel(model + side, child)) for side, child in zip(sides, children)]
            directions = torch.stack([side / side.norm().clamp(min=1e-30) for side in sides])
            nodes[node] = replace(nodes[node], children=children, sides=directions)
            for half, child in zip(halves, children):
                place.update({group[i][0]: child for i in half})
        server.note("clusters", sum(node.children is None for node in nodes))
        return ClusterTree(tuple(nodes), place, largest)

    def _mean(self, replies: list[Any]) -> Tensor:
        average = averages(self.aggregation, torch.zeros_like(replies[0].change)[None])
        for reply in replies:
            average.add(0, reply.change, weight_of(reply, self.weighting))
        return average.overall(replies[0].change)

    def _halves(self, replies: list[Any], largest: float) -> tuple[list[int], list[int]] | None:
        """Who goes where if this cluster is to be split now."""
        changes = torch.stack([reply.change for reply in replies]).cpu().numpy()  # [n, d]
        eps1 = self.eps1 or largest / 10
        weights = [weight_of(reply, self.weighting) for reply in replies]
        if len(replies) < 2 * self.min_group or not wants_split(changes, weights, eps1, self.eps2 or 5 * eps1):
            return None
        cut = bipartition(cosine_similarities(changes))
        halves = cut.first.tolist(), cut.second.tolist()
        large = min(map(len, halves)) >= self.min_group
        return halves if large and is_separated(cut.cross, self.gamma) else None

    def use(self, me: Client, message: NodeModel) -> Coroutine:
        return use_model(me, message)
