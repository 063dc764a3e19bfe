"""APFL: Deng, Kamani and Mahdavi, Adaptive Personalized Federated Learning, 2020 (arXiv 2003.13461).

    client i, every step:  w ← w − η ∇f_i(w; ξ)                        its copy of the global model
                           v ← v − η α ∇f_i(v̄; ξ),  v̄ = α v + (1 − α) w   its own, before this step
    adaptive:              α ← α − η ⟨v − w, ∇f_i(v̄; ξ)⟩, once a round, kept within 0 and 1
    server:                w = mean w_i

A client predicts with v̄; v and α never leave it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from covey.algorithms.averaging import GlobalModel, LocalModel
from covey.algorithms.contract import Client, Coroutine, Messages, Predictor, Server, Setting
from covey.algorithms.personal.steps import batches, one_step, refuse_momentum
from covey.algorithms.robust.averages import check_average, mean_model
from covey.errors import CoveyError
from covey.learn.work import Train


@dataclass(frozen=True)
class APFL:
    name: ClassVar[str] = "apfl"
    label: ClassVar[str] = "APFL"
    title: ClassVar[str] = "each client's own mixture of a global and a local model (Deng et al. 2020)"
    family: ClassVar[str] = "personalised"
    sends: ClassVar[Messages] = (GlobalModel,)
    replies: ClassVar[Messages] = (LocalModel,)
    trains: ClassVar[str] = "one"

    alpha: float = 0.5  # α at first: the share of the client's own model
    adaptive: bool = True  # false: α stays
    weighting: str = "clients"  # or "samples"
    aggregation: str = "mean"  # or a rule that bears liars: see `robust.rules`
    min_group: int = 1  # fewest clients of an average that clients get; with fewer the model stays as it is

    def __post_init__(self) -> None:
        check_average(self.weighting, self.aggregation, self.min_group)
        if not 0 <= self.alpha <= 1:
            raise CoveyError(f"algorithm.alpha is {self.alpha}: the share of a client's own model is from 0 to 1")

    def start(self, setting: Setting) -> GlobalModel:
        refuse_momentum("APFL", setting)
        return GlobalModel(setting.one_start())

    def broadcast(self, state: GlobalModel, client: int) -> GlobalModel:
        return state

    def client(self, me: Client, message: GlobalModel) -> Coroutine:
        w, (v, alpha) = message.model, self._own(me)
        step = one_step(me.plan)
        for t, batch in enumerate(batches(me, me.plan.steps_for(me.samples), "batches")):
            mixed = torch.lerp(w, v, alpha)  # v̄
            w_next, mixed_next = yield [
                Train(w, step, on=batch, purpose=f"train {t}"),
                Train(mixed, step, on=batch, purpose=f"mixed {t}"),
            ]
            moved = mixed_next - mixed  # −η ∇f(v̄)
            slope = float((v - w).double() @ moved.double()) if self.adaptive and t == 0 else 0.0
            v, w = moved.mul_(alpha).add_(v), w_next
            alpha = min(1.0, max(0.0, alpha + slope))
        me.memory["model"], me.memory["alpha"] = v, alpha
        return LocalModel(w, me.samples)

    def aggregate(self, server: Server, state: GlobalModel, replies: Iterator[tuple[int, Any]]) -> GlobalModel:
        return mean_model(state, replies, self.weighting, self.aggregation, self.min_group)

    def use(self, me: Client, message: GlobalModel) -> Coroutine:
        if "model" not in me.memory:  # it has not taken part yet
            return Predictor(message.model[None])
        v, alpha = self._own(me)
        return Predictor(torch.lerp(message.model, v.to(message.model.device), alpha)[None], index=None)
        yield

    def _own(self, me: Client) -> tuple[Tensor, float]:
        """(v, α), at first the common start and the share agreed on."""
        own: Tensor | None = me.memory.get("model")
        return me.setting.one_start() if own is None else own, float(me.memory.get("alpha", self.alpha))
