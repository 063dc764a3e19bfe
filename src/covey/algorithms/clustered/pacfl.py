"""PACFL: Vahidian et al., Efficient Distribution Similarity Identification in Clustered Federated Learning via Principal Angles
between Client Data Subspaces, AAAI 2023.

    client i, once:  U_i = the p leading left singular vectors of its samples, sent in the clear
    server:          A_ij = Σ_r ∠(u_i,r, u_j,r), or the smallest principal angle; agglomerated while within β
    from then on:    FedAvg within each cluster
    newcomers:       sends U, joins the cluster nearest to it, or founds one where none is within β

`noise` adds N(0, σ²) to every entry of U_i. No ε is claimed for it: what one sample changes in a singular vector has no bound.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from covey import roles
from covey.algorithms.averaging import LocalModel
from covey.algorithms.clustered.groups import (
    GIVES,
    MEASURES,
    Grouping,
    GroupModel,
    group_model,
    means,
    ungrouped,
    use_group,
)
from covey.algorithms.contract import Client, Coroutine, Messages, Server, Setting
from covey.algorithms.refusals import refuse_shared_layers
from covey.algorithms.robust.averages import check_average
from covey.clustering.agglomerative import Floats, agglomerated, check_linkage
from covey.clustering.subspaces import angles, check_measure, leading_vectors
from covey.errors import CoveyError
from covey.leaks import Given
from covey.learn.work import Compute, Train
from covey.measures import Measure
from covey.messages import message


@message
@dataclass(frozen=True)
class Introduction:
    """What a client without a group returns."""

    model: Annotated[Tensor, roles.Model]  # [d]
    samples: Annotated[int, roles.Count]
    vectors: Annotated[Tensor, roles.SingularVectors]  # [inputs, p]


@message
@dataclass(frozen=True)
class Vectors:
    """What a newcomer without labels returns, once."""

    vectors: Annotated[Tensor, roles.SingularVectors]  # [inputs, p]


@message
@dataclass(frozen=True)
class Subspaces:
    grouping: Grouping
    vectors: dict[int, Tensor]  # client -> [inputs, p]


@dataclass(frozen=True)
class PACFL:
    name: ClassVar[str] = "pacfl"
    label: ClassVar[str] = "PACFL"
    title: ClassVar[str] = "groups by principal angles between clients' samples (Vahidian et al. 2023)"
    sends: ClassVar[Messages] = (GroupModel,)
    replies: ClassVar[Messages] = (Introduction, LocalModel, Vectors)
    gives: ClassVar[tuple[Given, ...]] = GIVES
    measures: ClassVar[Mapping[str, Measure]] = MEASURES

    vectors: int = 3  # p
    measure: str = "sum"  # of the angles; or "smallest"
    linkage: str = "average"  # or "complete", "single"
    threshold: float = 0.0  # β, degrees; 0: as many as the experiment's clusters
    noise: float = 0.0  # σ, on every entry of the singular vectors
    weighting: str = "samples"  # or "clients"
    aggregation: str = "mean"  # or a rule that bears liars, per cluster: see `robust.rules`
    min_group: int = 1  # fewest clients of an average that clients get; with fewer the model stays as it is

    def __post_init__(self) -> None:
        check_average(self.weighting, self.aggregation, self.min_group)
        check_linkage(self.linkage)
        check_measure(self.measure)
        if self.linkage == "ward":
            raise CoveyError("algorithm.linkage is 'ward', which is not for angles: choose average, complete or single")
        if self.vectors < 1:
            raise CoveyError(f"algorithm.vectors is {self.vectors}: a client sends one singular vector at least")
        for name in ("threshold", "noise"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise CoveyError(
                    f"algorithm.{name} is {getattr(self, name)}: it must be a finite number that is not negative"
                )

    def start(self, setting: Setting) -> Subspaces:
        refuse_shared_layers("PACFL", setting)
        return Subspaces(ungrouped(setting), {})

    def models(self, state: Subspaces) -> int:
        return max(1, state.grouping.groups)

    def broadcast(self, state: Subspaces, client: int) -> GroupModel:
        return group_model(state.grouping, client)

    def client(self, me: Client, message: GroupModel) -> Coroutine:
        me.note("cluster", message.group)
        model = yield Train(message.model, me.plan)
        if message.group:
            return LocalModel(model, me.samples)
        vectors = yield Compute("describe", self._described, (me,))
        return Introduction(model, me.samples, vectors)

    def introduce(self, me: Client, message: GroupModel) -> Coroutine:
        """Of who has no labels: its subspace, to be placed by."""
        return Vectors((yield Compute("describe", self._described, (me,))))

    def _described(self, me: Client) -> Tensor:
        exact = leading_vectors(me.data()[0], self.vectors).cpu()
        if not self.noise:
            return exact
        return me.noise.gaussian(exact.flatten(), self.noise, "singular vectors").view(exact.shape)

    def aggregate(self, server: Server, state: Subspaces, replies: Iterator[tuple[int, Any]]) -> Subspaces:
        came = list(replies)
        now = state.grouping
        kinds = (Introduction, Vectors) if now.groups else (Introduction,)  # who is the first of a group trains it
        bases = {i: r.vectors.cpu() for i, r in came if isinstance(r, kinds) and i not in now.place}
        untrained = {i for i, r in came if isinstance(r, Vectors)}
        came = [(i, r) for i, r in came if i not in untrained]
        new = _alike(bases, state.vectors)
        known = state.vectors | new
        if not new and not now.groups:
            return state
        with server.phase("cluster"):
            if not now.groups:
                stack = torch.stack(list(new.values()))
                far = angles(stack, stack, self.measure)
                np.fill_diagonal(far, 0.0)
                labels = agglomerated((far + far.T) / 2, self.linkage, self.threshold, server.setting.clusters)
                place = {i: int(label) + 1 for i, label in zip(new, labels)}
            else:
                place = dict(now.place)
                for i, vectors in new.items():
                    place[i] = self._joined(vectors, place, known, max(place.values()), founds=i not in untrained)
        groups = max(place.values())
        founded = now.reference.expand(groups - now.groups, -1)
        before = torch.cat([now.models, founded]) if now.groups else founded
        # A newcomer trained the reference: its model counts where everybody did.
        counted = [(place[i] - 1, r) for i, r in came if i in now.place or place.get(i, 0) > now.groups]
        server.note("clusters", groups)
        grouping = Grouping.of(now.reference, means(self, before, counted), now.directions, place)
        return Subspaces(grouping, known)

    def _joined(
        self, vectors: Tensor, place: Mapping[int, int], known: Mapping[int, Tensor], groups: int, founds: bool
    ) -> int:
        """The group of a newcomer: the one it is nearest to, as the linkage measures it, or the next where none is near enough and
        it can train one.
        """
        members = list(place)
        (far,) = angles(vectors[None], torch.stack([known[i] for i in members]), self.measure)
        group = np.array([place[i] for i in members])
        to_group = [self._linked(far[group == g]) for g in range(1, groups + 1)]
        best = int(np.argmin(to_group))
        far_off = self.threshold > 0 and to_group[best] > self.threshold
        return groups + 1 if founds and far_off else best + 1

    def _linked(self, far: Floats) -> float:
        return float({"average": far.mean(), "complete": far.max(), "single": far.min()}[self.linkage])

    def use(self, me: Client, message: GroupModel) -> Coroutine:
        return use_group(me, message)


def _alike(new: Mapping[int, Tensor], known: Mapping[int, Tensor]) -> dict[int, Tensor]:
    """Those of one shape, the commonest: what else a broken client sends is no subspace of the same samples."""
    shapes = Counter(tuple(one.shape) for one in (*known.values(), *new.values()))
    return {i: one for i, one in new.items() if tuple(one.shape) == shapes.most_common(1)[0][0]}
