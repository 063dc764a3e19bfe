"""FedSoft: Ruan and Joe-Wong, FedSoft: Soft Clustered Federated Learning with Proximal Local Updating, AAAI 2022.

    u_s ∝ max(share of my samples that centre s fits best, σ), estimated anew every τ rounds
    client:  w = argmin  f(w) + λ/2 Σ_s u_s ‖w − c_s‖²,  sends w and u
    server:  v_ks = u_ks n_k / Σ_k' u_k's n_k';  draws K clients for each centre s with probability v_ks, with replacement;
             c_s = mean of the models of those drawn

With Σ_s u_s = 1 the penalty is λ/2 ‖w − c̄‖² plus a constant, where c̄ = Σ_s u_s c_s: one proximal term around c̄, where the
training also starts. A client predicts with its own w.

Deviations: u is scaled to sum 1 after smoothing. With `selection = 0` every client that takes part counts with weight v_ks,
the mean of what the draw gives. With `selection = K` the draw is the paper's, among those who take part, but made after
training (which it does not depend on), so that those not drawn have trained and sent in vain.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from covey import roles
from covey.algorithms.averaging import Averages
from covey.algorithms.contract import Client, Coroutine, Messages, Predictor, Server, Setting
from covey.algorithms.refusals import refuse_equal_starts, refuse_shared_layers
from covey.algorithms.robust.averages import check_group
from covey.algorithms.sums.contributions import Contribution
from covey.config import later
from covey.errors import CoveyError
from covey.leaks import EAVESDROPPER, IDENTITY, SERVER, Given
from covey.learn.work import SampleLosses, Train
from covey.messages import message


@message
@dataclass(frozen=True)
class Centres:
    models: Annotated[Tensor, roles.Models]  # [S, d]


@message
@dataclass(frozen=True)
class SoftUpdate:
    model: Annotated[Tensor, roles.Model]  # [d] w
    importance: Annotated[Tensor, roles.Memberships]  # [S] u
    samples: Annotated[int, roles.Count]


@dataclass(frozen=True)
class FedSoft:
    name: ClassVar[str] = "fedsoft"
    label: ClassVar[str] = "FedSoft"
    title: ClassVar[str] = "soft clusters: each client pulled to all centres by importance (Ruan and Joe-Wong 2022)"
    surveyed: ClassVar[bool] = True
    one_part: ClassVar[bool] = False
    counted: ClassVar[bool] = True
    sends: ClassVar[Messages] = (Centres,)
    replies: ClassVar[Messages] = (SoftUpdate,)
    REFUSED: ClassVar[Mapping[str, str]] = {
        "aggregation": "every client states itself how much its model counts in each centre, and no robust rule takes weights that "
        "a liar chooses; take algorithm = 'ifca' or 'fedem' with weighting = 'clients'"
    }
    gives: ClassVar[tuple[Given, ...]] = (
        Given(IDENTITY, (SERVER, EAVESDROPPER), "every reply states the client's weights of clusters"),
    )

    pull: float = 0.1  # λ
    interval: int = 1  # τ: rounds between two estimates of u
    smoother: float = 0.0001  # σ
    selection: int = 0  # K: clients drawn per centre; 0: all, weighted
    # fewest clients of a centre that clients get, in effect, (Σ v)² / Σ v², or drawn; with fewer it stays as it is
    min_group: int = later(1)

    def __post_init__(self) -> None:
        check_group(self.min_group)
        if not 0 <= self.pull < float("inf"):
            raise CoveyError(f"algorithm.pull is {self.pull}: it must be a finite number that is not negative")
        if self.interval < 1 or self.selection < 0:
            raise CoveyError(
                f"algorithm.interval is {self.interval} and algorithm.selection {self.selection}: expected at least "
                "1 round, and 0 (all) or a number of clients"
            )
        if not 0 <= self.smoother <= 1:
            raise CoveyError(f"algorithm.smoother is {self.smoother}: it is a share, from 0 to 1")

    def start(self, setting: Setting) -> Centres:
        refuse_shared_layers("FedSoft", setting)
        refuse_equal_starts("FedSoft", setting)
        return Centres(setting.start)

    def broadcast(self, state: Centres, client: int) -> Centres:
        return state

    def client(self, me: Client, message: Centres) -> Coroutine:
        importance = me.memory.get("importance")
        if importance is None or (me.round - 1) % self.interval == 0:
            losses = yield SampleLosses(message.models)  # [S, n]
            importance = self.importance(losses)
        me.note("membership", importance.tolist())
        me.note("cluster", int(importance.argmax()))
        centre = importance @ message.models  # c̄
        model = yield Train(centre, me.plan.but(proximal=self.pull), anchor=centre)
        me.memory["importance"], me.memory["model"] = importance, model
        return SoftUpdate(model, importance, me.samples)

    def importance(self, losses: Tensor) -> Tensor:
        """u [S] from the losses [S, n]."""
        count = torch.bincount(losses.argmin(0), minlength=len(losses))
        smoothed = (count / losses.shape[1]).clamp(min=self.smoother)
        return smoothed / smoothed.sum()

    def aggregate(self, server: Server, state: Centres, replies: Iterator[tuple[int, Any]]) -> Centres:
        if self.selection:
            return Centres(self._draw_means(server.random("selection"), state.models, replies))
        average, squares = Averages(len(state.models), like=state.models), [0.0] * len(state.models)
        for _, reply in replies:
            for s, u in enumerate(reply.importance.tolist()):
                average.add(s, reply.model, u * reply.samples)
                squares[s] += (u * reply.samples) ** 2
        enough = [w * w >= self.min_group * q * (1 - 1e-9) for w, q in zip(average.weights, squares)]
        kept = torch.tensor(enough, device=state.models.device)[:, None]
        return Centres(torch.where(kept, average.means(state.models), state.models))

    def _draw_means(self, random: np.random.Generator, centres: Tensor, replies: Iterator[tuple[int, Any]]) -> Tensor:
        """The means of K models per centre, each slot drawn on its own while the replies pass by: S·K models are held."""
        chosen: list[list[Tensor]] = [[centre] * self.selection for centre in centres]
        drawn = np.full((len(centres), self.selection), -1)  # whose
        total = np.zeros(len(centres))
        for client, reply in replies:
            weight = reply.importance.double().cpu().numpy() * reply.samples
            total += weight
            taken = random.random((len(centres), self.selection)) * total[:, None] < weight[:, None]
            for s, slot in np.argwhere(taken):
                chosen[s][slot], drawn[s, slot] = reply.model, client
        enough = [len(set(own[own >= 0].tolist())) >= self.min_group for own in drawn]
        means = [torch.stack(models).double().mean(0).float() for models in chosen]
        return torch.stack([mean if full else centre for mean, full, centre in zip(means, enough, centres)])

    def blocks(self, setting: Setting) -> int:
        return setting.clusters

    def contribution(self, me: Client, message: Centres, reply: SoftUpdate) -> Contribution:
        weights = reply.importance.tolist()
        return Contribution(
            {s: u * (reply.model - message.models[s]) for s, u in enumerate(weights)}, dict(enumerate(weights))
        )

    def moved(self, setting: Setting, state: Centres, means: Tensor, share: float) -> Centres:
        return Centres(state.models + means)

    def use(self, me: Client, message: Centres) -> Coroutine:
        model = me.memory.get("model")
        if model is None:
            losses = yield SampleLosses(message.models)
            model = self.importance(losses) @ message.models
        return Predictor(model[None], index=None)
