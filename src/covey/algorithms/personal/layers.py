"""Models of which the last layers never leave their client: what crosses the wire, and how a client puts its model together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor

from covey import roles
from covey.algorithms.contract import Client, Setting
from covey.errors import CoveyError
from covey.messages import message

OWN = "personal layers"  # where a client's memory has them


@message
@dataclass(frozen=True)
class SharedModel:
    model: Annotated[Tensor, roles.SharedLayers]  # [s] of the d weights


@message
@dataclass(frozen=True)
class TrainedLayers:
    model: Annotated[Tensor, roles.SharedLayers]  # [s]
    samples: Annotated[int, roles.Count]

    def check(self, setting: Setting) -> None:
        expected = int((~setting.personal).sum())
        if len(self.model) != expected:
            raise CoveyError(f"TrainedLayers.model has {len(self.model)} weights, expected the {expected} shared ones")


def shared_start(name: str, setting: Setting) -> SharedModel:
    """Where the shared layers begin; refuses a split that leaves nothing on one side."""
    personal = int(setting.personal.sum())
    if not 0 < personal < len(setting.personal):
        raise CoveyError(
            f"{name} shares some layers and keeps the others, and here {personal} of {len(setting.personal)} weights are "
            "personal: set layers.personal to fewer layers than the model has, or choose a model with more layers"
        )
    return SharedModel(shared_part(setting.one_start(), setting))


def shared_part(model: Tensor, setting: Setting) -> Tensor:
    """[s] of [d]"""
    return model[~setting.personal.to(model.device)]


def whole_model(me: Client, shared: Tensor) -> Tensor:
    """The shared layers with this client's own behind them, at first those of the common start, [d]."""
    own = me.memory.get(OWN)
    personal = me.setting.personal.to(shared.device)
    model = me.setting.one_start().to(shared.device).clone()
    model[~personal] = shared
    if own is not None:
        model[personal] = own.to(shared.device)
    return model


def keep_own(me: Client, model: Tensor) -> None:
    """The personal layers of [d] stay in the client's memory."""
    me.memory[OWN] = model[me.setting.personal.to(model.device)]


def with_own(me: Client, model: Tensor, before: Tensor) -> Tensor:
    """`before` with the personal layers of `model`: whatever else a defence changed is dropped."""
    return torch.where(me.setting.personal.to(model.device), model, before)
