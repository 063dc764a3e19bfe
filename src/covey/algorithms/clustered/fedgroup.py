"""FedGroup and FlexCFL: Duan et al., FedGroup: Efficient Federated Learning via Decomposed Similarity-Based Clustering, ISPA 2021;
Flexible Clustered Federated Learning for Client-Level Data Distribution Shift, IEEE TPDS 2022.

    round 1:    every client trains the common start;  V = the m leading right singular vectors of the updates ΔW [n, d]
                EDC: client i is described by its cosines to these, [m]; k-means finds the groups
    newcomers:  trains the common start, joins the group with the largest cosine to the mean update of its first members
    later:      FedAvg within each group, then w_g ← w_g + η_G Σ_{l≠g} w_l / ‖w_l‖
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from covey.algorithms.averaging import LocalModel
from covey.algorithms.clustered.groups import (
    GIVES,
    MEASURES,
    Grouping,
    GroupModel,
    group_model,
    grouped_once,
    nearest_by_cosine,
    train_group,
    ungrouped,
    use_group,
)
from covey.algorithms.contract import Client, Coroutine, Messages, Server, Setting
from covey.algorithms.refusals import refuse_shared_layers
from covey.algorithms.robust.averages import check_average
from covey.clustering.agglomerative import Labels, in_order
from covey.clustering.features import k_means, nearest_centre
from covey.errors import CoveyError
from covey.leaks import Given
from covey.measures import Measure


@dataclass(frozen=True)
class FedGroup:
    name: ClassVar[str] = "fedgroup"
    label: ClassVar[str] = "FedGroup"
    title: ClassVar[str] = "groups by the cosines of first updates to their main directions (Duan et al. 2021)"
    sends: ClassVar[Messages] = (GroupModel,)
    replies: ClassVar[Messages] = (LocalModel,)
    gives: ClassVar[tuple[Given, ...]] = GIVES
    measures: ClassVar[Mapping[str, Measure]] = MEASURES

    directions: int = 0  # m; 0: as many as groups
    mixing: float = 0.0  # η_G, between groups
    weighting: str = "samples"  # or "clients"
    aggregation: str = "mean"  # or a rule that bears liars, per group: see `robust.rules`
    min_group: int = 1  # fewest clients of an average that clients get; with fewer the model stays as it is

    def __post_init__(self) -> None:
        check_average(self.weighting, self.aggregation, self.min_group)
        if self.directions < 0 or not 0 <= self.mixing < float("inf"):
            raise CoveyError(
                f"algorithm.directions is {self.directions} and algorithm.mixing {self.mixing}: neither may be negative"
            )

    @property
    def averages(self) -> bool:
        """With η_G > 0 a group's model has a little of the others added to it."""
        return self.mixing == 0

    def start(self, setting: Setting) -> Grouping:
        refuse_shared_layers("FedGroup", setting)
        return ungrouped(setting)

    def models(self, state: Grouping) -> int:
        return max(1, state.groups)

    def broadcast(self, state: Grouping, client: int) -> GroupModel:
        return group_model(state, client)

    def client(self, me: Client, message: GroupModel) -> Coroutine:
        return train_group(me, message)

    def aggregate(self, server: Server, state: Grouping, replies: Iterator[tuple[int, Any]]) -> Grouping:
        k = server.setting.clusters

        def labels(updates: Tensor) -> Labels:
            described = decomposed_cosines(updates, self.directions or k, server.random("directions"))
            centres = k_means(described, min(k, len(described)), server.random("k-means"))
            return in_order(nearest_centre(described, centres))

        now = grouped_once(self, server, state, replies, labels, nearest_by_cosine)
        if not (self.mixing and now.groups):
            return now
        return Grouping.of(now.reference, mixed(now.models, self.mixing), now.directions, now.place)

    def use(self, me: Client, message: GroupModel) -> Coroutine:
        return use_group(me, message)


def decomposed_cosines(
    updates: Tensor, directions: int, random: np.random.Generator
) -> np.ndarray[Any, np.dtype[np.float64]]:
    """EDC: cosines [n, m] of the updates [n, d] to their leading right singular vectors, by subspace iteration."""
    count = min(directions, *updates.shape)
    span = min(count + 10, *updates.shape)
    basis = torch.from_numpy(random.standard_normal((updates.shape[1], span), np.float32)).to(updates)
    basis = torch.linalg.qr(basis)[0]
    for _ in range(5):
        basis = torch.linalg.qr(updates.T @ (updates @ basis))[0]
    _, _, turn = torch.linalg.svd(updates @ basis, full_matrices=False)
    leading = basis @ turn.T[:, :count]  # [d, m]
    units = updates / updates.norm(dim=1, keepdim=True).clamp(min=1e-30)
    return np.asarray((units @ leading).cpu().double().numpy())


def mixed(models: Tensor, rate: float) -> Tensor:
    """w_g + η_G Σ_{l≠g} w_l / ‖w_l‖"""
    units = models / models.norm(dim=1, keepdim=True).clamp(min=1e-30)
    moved: Tensor = models + rate * (units.sum(0) - units)
    return moved
