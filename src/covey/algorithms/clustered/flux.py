"""FLUX: Fenoglio et al., Efficient Descriptor-Driven Clustered Federated Learning under Arbitrary Distribution Shifts, NeurIPS
2025 (arXiv 2511.22305).

    rounds 1 … n:  FedAvg
    round n + 1:   every client also describes its samples by that model's outputs z: mean and deviation of z, and of z for each
                   label; sent in the clear
    server:        scales each kind of moment, takes ε from the knee of the distances to the nearest neighbour, and clusters by
                   density (DBSCAN, two are a cluster); who is near nobody is a cluster of its own
    later:         FedAvg within each cluster
    newcomers:     by the moments without labels alone, to the nearest cluster: no label is needed

`noise` adds N(0, σ²) to every moment. No ε is claimed for it: outputs have no bound.
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
from covey.algorithms.contract import Client, Coroutine, Messages, Predictor, Server, Setting
from covey.algorithms.refusals import refuse_shared_layers
from covey.algorithms.robust.averages import check_average
from covey.clustering.density import by_density, scaled_groups
from covey.errors import CoveyError
from covey.leaks import Given
from covey.learn.work import Compute, Logits, Train
from covey.measures import Measure
from covey.messages import message


@message
@dataclass(frozen=True)
class Described:
    """What a client without a group returns, after the warm-up."""

    model: Annotated[Tensor, roles.Model]  # [d]
    samples: Annotated[int, roles.Count]
    moments: Annotated[Tensor, roles.Moments]  # [2, outputs] mean and deviation of z
    by_label: Annotated[Tensor | None, roles.MomentsByLabel]  # [classes, 2, outputs]; zeros of labels that it has not


@message
@dataclass(frozen=True)
class Moments:
    """What a newcomer without labels returns, once."""

    moments: Annotated[Tensor, roles.Moments]  # [2, outputs] mean and deviation of z


@message
@dataclass(frozen=True)
class DescribedModel:
    model: Annotated[Tensor, roles.Model]  # [d]
    wanted: Annotated[bool, roles.Plain(bool)]  # whether a description goes with the reply


@message
@dataclass(frozen=True)
class Descriptions:
    grouping: Grouping
    asked: DescribedModel  # what clients without a group get
    moments: dict[int, Tensor]  # client -> [2, outputs]


@dataclass(frozen=True)
class Flux:
    name: ClassVar[str] = "flux"
    label: ClassVar[str] = "FLUX"
    title: ClassVar[str] = "clusters by moments of what a model says of clients' samples (Fenoglio et al. 2025)"
    sends: ClassVar[Messages] = (DescribedModel, GroupModel)
    replies: ClassVar[Messages] = (LocalModel, Described, Moments)
    gives: ClassVar[tuple[Given, ...]] = GIVES
    measures: ClassVar[Mapping[str, Measure]] = MEASURES

    warm_up: int = 2  # n
    labels: bool = True  # moments by label, too; false: only P(X) is described
    scale: float = 1.0  # of the ε that the knee gives
    noise: float = 0.0  # σ, on every moment
    weighting: str = "samples"  # or "clients"
    aggregation: str = "mean"  # or a rule that bears liars, per cluster: see `robust.rules`
    min_group: int = 1  # fewest clients of an average that clients get; with fewer the model stays as it is

    def __post_init__(self) -> None:
        check_average(self.weighting, self.aggregation, self.min_group)
        if self.warm_up < 0:
            raise CoveyError(f"algorithm.warm_up is {self.warm_up}: expected 0 rounds or more")
        if not 0 < self.scale < float("inf"):
            raise CoveyError(f"algorithm.scale is {self.scale}: it must be a finite number above 0")
        if not 0 <= self.noise < float("inf"):
            raise CoveyError(f"algorithm.noise is {self.noise}: it must be a finite number that is not negative")

    def start(self, setting: Setting) -> Descriptions:
        refuse_shared_layers("FLUX", setting)
        first = ungrouped(setting)
        return Descriptions(first, DescribedModel(first.reference, self.warm_up == 0), {})

    def models(self, state: Descriptions) -> int:
        return max(1, state.grouping.groups)

    def broadcast(self, state: Descriptions, client: int) -> GroupModel | DescribedModel:
        return group_model(state.grouping, client) if client in state.grouping.place else state.asked

    def client(self, me: Client, message: GroupModel | DescribedModel) -> Coroutine:
        me.note("cluster", message.group if isinstance(message, GroupModel) else 0)
        model = yield Train(message.model, me.plan)
        if isinstance(message, GroupModel) or not message.wanted:
            return LocalModel(model, me.samples)
        (outputs,) = yield Logits(message.model[None])  # [n, outputs]
        moments, by_label = yield Compute("describe", self._described, (me, outputs))
        return Described(model, me.samples, moments, by_label)

    def introduce(self, me: Client, message: GroupModel | DescribedModel) -> Coroutine:
        """Of who has no labels: the moments of its samples, to be placed by."""
        assert isinstance(message, DescribedModel)
        (outputs,) = yield Logits(message.model[None])
        moments, _ = yield Compute("describe", self._described, (me, outputs))
        return Moments(moments)

    def _described(self, me: Client, outputs: Tensor) -> tuple[Tensor, Tensor | None]:
        whole, by_label = described(outputs), None
        labels = me.data()[1]
        if self.labels and me.labelled and labels.dim() == 1:
            own = labels.to(outputs.device)
            by_label = torch.stack([described(outputs[own == c]) for c in range(outputs.shape[1])])
        if not self.noise:
            return whole, by_label
        noised = me.noise.gaussian(whole.flatten(), self.noise, "moments").view(whole.shape)
        if by_label is not None:
            by_label = me.noise.gaussian(by_label.flatten(), self.noise, "moments by label").view(by_label.shape)
        return noised, by_label

    def aggregate(self, server: Server, state: Descriptions, replies: Iterator[tuple[int, Any]]) -> Descriptions:
        now, came, unlabelled = state.grouping, [], {}
        for i, reply in replies:
            if isinstance(reply, Moments):
                unlabelled[i] = reply.moments.cpu()
            else:
                came.append((i, reply))
        if not state.asked.wanted:
            (model,) = means(self, now.reference[None], ((0, reply) for _, reply in came))
            asked = DescribedModel(model, server.round >= self.warm_up)
            return Descriptions(Grouping.of(model, now.directions, now.directions, {}), asked, {})
        descriptions = {i: reply for i, reply in came if isinstance(reply, Described) and i not in now.place}
        usual = Counter(map(_shape, descriptions.values())).most_common(
            1
        )  # what else a broken client sends is no such description
        descriptions = {i: reply for i, reply in descriptions.items() if _shape(reply) == usual[0][0]}
        known = state.moments | {i: reply.moments.cpu() for i, reply in descriptions.items()}
        if not descriptions and not now.groups:
            return state
        with server.phase("cluster"):
            place = dict(now.place) | self._placed(state, descriptions)
            place |= _nearest({i: m for i, m in unlabelled.items() if i not in place}, known, place)
        groups = max(place.values())
        founded = now.reference.expand(groups - now.groups, -1)
        before = torch.cat([now.models, founded]) if now.groups else founded
        counted = [(place[i] - 1, r) for i, r in came if i in now.place or place.get(i, 0) > now.groups]
        server.note("clusters", groups)
        return Descriptions(
            Grouping.of(now.reference, means(self, before, counted), now.directions, place), state.asked, known
        )

    def _placed(self, state: Descriptions, descriptions: Mapping[int, Described]) -> dict[int, int]:
        """The first groups by all moments; a newcomer's by those without labels."""
        place = state.grouping.place
        if not place:
            kinds = list(
                torch.stack([one.moments for one in descriptions.values()]).unbind(1)
            )  # means, deviations [n, c]
            if all(one.by_label is not None for one in descriptions.values()):
                tables = torch.stack(
                    [one.by_label for one in descriptions.values() if one.by_label is not None]
                )  # [n, c, 2, c]
                kinds += [tables[:, label, part] for label in range(tables.shape[1]) for part in (0, 1)]
            rows = scaled_groups([kind.cpu().double().numpy() for kind in kinds])
            return {i: int(label) + 1 for i, label in zip(descriptions, by_density(rows, self.scale))}
        return _nearest({i: one.moments.cpu() for i, one in descriptions.items()}, state.moments, place)

    def use(self, me: Client, message: GroupModel | DescribedModel) -> Coroutine:
        if isinstance(message, GroupModel):
            return use_group(me, message)
        return _use_reference(message)


def _nearest(new: Mapping[int, Tensor], known: Mapping[int, Tensor], place: Mapping[int, int]) -> dict[int, int]:
    """The group of each newcomer whose mean moments are nearest; moments of another shape are none, and place nobody."""
    members = [i for i in place if i in known]
    if not members:
        return {}
    groups = np.array([place[i] for i in members])
    old = torch.stack([known[i] for i in members]).flatten(1).numpy()
    numbers = np.unique(groups)
    centres = np.stack([old[groups == g].mean(0) for g in numbers])
    return {
        i: int(numbers[((centres - one.flatten().numpy()) ** 2).sum(1).argmin()])
        for i, one in new.items()
        if one.numel() == centres.shape[1]
    }


def _use_reference(message: DescribedModel) -> Coroutine:
    return Predictor(message.model[None])
    yield


def described(outputs: Tensor) -> Tensor:
    """Mean and deviation [2, outputs] of rows; zeros of none."""
    if not len(outputs):
        return torch.zeros(2, outputs.shape[1], device=outputs.device)
    return torch.stack([outputs.mean(0), outputs.std(0, correction=0)])


def _shape(reply: Described) -> tuple[Any, ...]:
    return tuple(reply.moments.shape), None if reply.by_label is None else tuple(reply.by_label.shape)
