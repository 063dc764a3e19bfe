"""FedRC: Guo, Tang and Lin, FedRC: Tackling Diverse Distribution Shifts Challenge in Federated Learning by Robust Clustering, ICML
2024 (arXiv 2301.12379).

Clusters part clients whose labels mean different things (concept shift), not those that merely have other labels: how well a model
fits a sample is taken relative to how common the sample's label is in that cluster.

    γ_ijk ∝ ω_ik exp(−f(x, y; θ_k)) / C_yk      for every sample (x, y) of client i
    ω_ik = mean_j γ_ijk;   θ_k trained on the losses weighted with γ_ijk
    C_yk = Σ_ij γ_ijk [y_ij = y] / Σ_ij γ_ijk    the share of label y in cluster k, over all clients
    server:  θ_k = Σ_i n_i / n · θ_ik,  C from the sums that clients send

Those sums are a client's label counts: the server is told them exactly.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import torch
from torch import Tensor

from covey import roles
from covey.algorithms.averaging import weight_of
from covey.algorithms.contract import Client, Coroutine, Messages, Predictor, Server, Setting
from covey.algorithms.refusals import refuse_equal_starts, refuse_shared_layers
from covey.algorithms.robust.averages import averages, check_average
from covey.errors import CoveyError
from covey.leaks import EAVESDROPPER, IDENTITY, LABELS, SERVER, Given
from covey.learn.work import Compute, SampleLosses, Train
from covey.messages import message

SMALLEST = 1e-6  # of a label's share: bounds how much a cluster draws a label that it has not seen


@message
@dataclass(frozen=True)
class Concepts:
    models: Annotated[Tensor, roles.Models]  # [k, d]
    labels: Annotated[Tensor, roles.LabelWeights]  # [k, classes] C; [k, 0] before anybody has said


@message
@dataclass(frozen=True)
class TrainedConcepts:
    models: Annotated[Tensor, roles.Models]  # [k, d]
    labels: Annotated[Tensor, roles.LabelWeights]  # [k, classes] Σ_j γ_ijk [y_ij = y]
    samples: Annotated[int, roles.Count]


@dataclass(frozen=True)
class FedRC:
    name: ClassVar[str] = "fedrc"
    label: ClassVar[str] = "FedRC"
    title: ClassVar[str] = "soft clusters for concept shift, by fit relative to a label's share (Guo et al. 2024)"
    sends: ClassVar[Messages] = (Concepts,)
    replies: ClassVar[Messages] = (TrainedConcepts,)
    gives: ClassVar[tuple[Given, ...]] = (
        Given(LABELS, (SERVER, EAVESDROPPER), "every reply holds the client's label counts"),
        Given(IDENTITY, (SERVER, EAVESDROPPER), "every reply states the client's weights of clusters"),
    )

    weighting: str = "samples"  # or "clients"
    aggregation: str = "mean"  # or a rule that bears liars, per cluster: see `robust.rules`; C does not
    min_group: int = 1  # fewest clients of an average that clients get; with fewer the models stay as they are

    def __post_init__(self) -> None:
        check_average(self.weighting, self.aggregation, self.min_group)

    def start(self, setting: Setting) -> Concepts:
        refuse_shared_layers("FedRC", setting)
        refuse_equal_starts("FedRC", setting)
        return Concepts(setting.start, setting.start[:, :0])

    def broadcast(self, state: Concepts, client: int) -> Concepts:
        return state

    def client(self, me: Client, message: Concepts) -> Coroutine:
        gamma, counts = yield from self._fitted(me, message)  # [k, n], [k, classes]
        mixture = gamma.mean(1)  # ω
        me.memory["mixture"] = mixture
        me.note("membership", mixture.tolist())
        me.note("cluster", int(mixture.argmax()))
        trained = yield [
            Train(model, me.plan, weights=gamma[k], purpose=f"train {k}" if k else "train")
            for k, model in enumerate(message.models)
        ]
        return TrainedConcepts(torch.stack(trained), counts, me.samples)

    def _fitted(self, me: Client, message: Concepts) -> Coroutine:
        losses = yield SampleLosses(message.models)  # [k, n]
        labels = yield Compute("describe", _labels, (me,))  # [n]
        shares = label_shares(message.labels, labels.to(losses.device))
        gamma = responsibilities(losses, me.memory.get("mixture"), shares)
        width = max(message.labels.shape[1], int(labels.max()) + 1)
        counts = torch.zeros(len(gamma), width, device=gamma.device)
        return gamma, counts.index_add_(1, labels.to(gamma.device), gamma)

    def aggregate(self, server: Server, state: Concepts, replies: Iterator[tuple[int, Any]]) -> Concepts:
        average = averages(self.aggregation, state.models, self.min_group)
        total = torch.zeros(len(state.models), 0, dtype=torch.float64)
        for _, reply in replies:
            for k, model in enumerate(reply.models):
                average.add(k, model, weight_of(reply, self.weighting))
            total = _wider(total, reply.labels.shape[1])
            total[:, : reply.labels.shape[1]] += reply.labels.cpu().double()
        if not total.numel():
            return state
        labels = total / total.sum(1, keepdim=True).clamp(min=1e-30)
        return Concepts(average.means(state.models), labels.float().to(state.models.device))

    def use(self, me: Client, message: Concepts) -> Coroutine:
        mixture = me.memory.get("mixture")
        if mixture is None:
            gamma, _ = yield from self._fitted(me, message)
            mixture = gamma.mean(1)
        return Predictor(message.models, index=None, weights=mixture)


def responsibilities(losses: Tensor, mixture: Tensor | None, shares: Tensor) -> Tensor:
    """γ [k, n] from losses [k, n] and the share C_yk of each sample's label [k, n]; mixture None: uniform."""
    fit = -losses - shares.clamp(min=SMALLEST).log()
    return (fit if mixture is None else fit + mixture.to(fit.device).log()[:, None]).softmax(dim=0)


def label_shares(table: Tensor, labels: Tensor) -> Tensor:
    """C_yk of every sample, [k, n]; labels that the table has not are equally rare everywhere."""
    known = _wider(table, int(labels.max()) + 1)
    if not table.shape[1]:
        return torch.ones(len(table), len(labels), device=labels.device)
    return known.to(labels.device)[:, labels]


def _wider(table: Tensor, columns: int) -> Tensor:
    missing = max(0, columns - table.shape[1])
    return torch.cat([table, torch.zeros(len(table), missing, dtype=table.dtype, device=table.device)], dim=1)


def _labels(me: Client) -> Tensor:
    labels = me.data()[1]
    if labels.dim() != 1:
        raise CoveyError("FedRC counts labels, and this data has no one class per sample: choose another algorithm")
    return labels.long()
