"""FedEM: Marfoq et al., Federated Multi-Task Learning under a Mixture of Distributions, NeurIPS 2021.

Every client's data is a mixture of M distributions (M = the experiment's `clusters`), with a model each that all share and
mixture weights π that are its own.

    E-step:  q(z_x = m) ∝ π_m exp(−ℓ(θ_m; x))  for every sample x
    M-step:  π_m = mean_x q(z_x = m);   θ_m trained on the losses weighted with q(z_x = m)
    server:  θ_m = Σ_i n_i / n · θ_{m,i}

A client predicts with Σ_m π_m p_m(y | x). One that has not taken part yet fits π with an E-step from uniform weights.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import torch
from torch import Tensor

from covey import roles
from covey.algorithms.averaging import check_weighting, weight_of
from covey.algorithms.contract import Client, Coroutine, Messages, Predictor, Server, Setting
from covey.algorithms.refusals import refuse_equal_starts, refuse_shared_layers
from covey.algorithms.robust.averages import averages, check_aggregation, check_group
from covey.config import later
from covey.learn.work import SampleLosses, Train
from covey.messages import message


@message
@dataclass(frozen=True)
class Components:
    models: Annotated[Tensor, roles.Models]  # [M, d]


@message
@dataclass(frozen=True)
class TrainedComponents:
    models: Annotated[Tensor, roles.Models]  # [M, d]
    samples: Annotated[int, roles.Count]


def responsibilities(losses: Tensor, mixture: Tensor | None) -> Tensor:
    """The E-step: q [M, n] from the losses [M, n] of every component; mixture None: uniform."""
    fit = -losses if mixture is None else mixture.log()[:, None] - losses
    return fit.softmax(dim=0)


@dataclass(frozen=True)
class FedEM:
    name: ClassVar[str] = "fedem"
    label: ClassVar[str] = "FedEM"
    title: ClassVar[str] = "every client a mixture of shared component models (Marfoq et al. 2021)"
    sends: ClassVar[Messages] = (Components,)
    replies: ClassVar[Messages] = (TrainedComponents,)

    weighting: str = later("samples")  # or "clients"
    aggregation: str = later("mean")  # or a rule that bears liars, per component: see `robust.rules`
    min_group: int = later(
        1
    )  # fewest clients of an average that clients get; with fewer the components stay as they are

    def __post_init__(self) -> None:
        check_weighting(self.weighting)
        check_aggregation(self.aggregation, self.weighting)
        check_group(self.min_group, self.aggregation)

    def start(self, setting: Setting) -> Components:
        refuse_shared_layers("FedEM", setting)
        refuse_equal_starts("FedEM", setting)
        return Components(setting.start)

    def broadcast(self, state: Components, client: int) -> Components:
        return state

    def client(self, me: Client, message: Components) -> Coroutine:
        losses = yield SampleLosses(message.models)  # [M, n]
        q = responsibilities(losses, me.memory.get("mixture"))
        mixture = q.mean(1)  # π
        me.memory["mixture"] = mixture
        me.note("membership", mixture.tolist())
        me.note("cluster", int(mixture.argmax()))
        trained = yield [
            Train(model, me.plan, weights=q[m], purpose=f"train {m}" if m else "train")
            for m, model in enumerate(message.models)
        ]
        return TrainedComponents(torch.stack(trained), me.samples)

    def aggregate(self, server: Server, state: Components, replies: Iterator[tuple[int, Any]]) -> Components:
        average = averages(self.aggregation, state.models, self.min_group)
        for _, reply in replies:
            for m, model in enumerate(reply.models):
                average.add(m, model, weight_of(reply, self.weighting))
        return Components(average.means(state.models))

    def use(self, me: Client, message: Components) -> Coroutine:
        mixture = me.memory.get("mixture")
        if mixture is None:
            losses = yield SampleLosses(message.models)
            mixture = responsibilities(losses, None).mean(1)
        return Predictor(message.models, index=None, weights=mixture)
