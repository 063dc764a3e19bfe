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
    return _part(model, setting, personal=False)


def whole_model(me: Client, shared: Tensor) -> Tensor:
    """The shared layers with this client's own behind them, at first those of the common start, [d]."""
    own = me.memory.get(OWN)
    if own is None:
        own = _part(me.setting.one_start(), me.setting, personal=True)
    return _whole(shared, own.to(shared.device), me.setting)


def keep_own(me: Client, model: Tensor) -> None:
    """The personal layers of [d] stay in the client's memory."""
    me.memory[OWN] = _part(model, me.setting, personal=True)


def with_own(me: Client, model: Tensor, before: Tensor) -> Tensor:
    """`before` with the personal layers of `model`: whatever else a defence changed is dropped."""
    own = _part(model, me.setting, personal=True)
    return _whole(shared_part(before, me.setting).to(own.device), own, me.setting)


# Layers are runs of a model's weights, cut and joined as such: a mask of single weights takes ten times as long.


def _part(model: Tensor, setting: Setting, personal: bool) -> Tensor:
    """A copy of the personal weights of [d], or of the others."""
    runs = zip(torch.split(model, [length for length, _ in setting.runs]), setting.runs)
    return torch.cat([run for run, (_, kind) in runs if kind == personal])


def _whole(shared: Tensor, own: Tensor, setting: Setting) -> Tensor:
    """[d] of its shared and its personal weights."""
    parts = {
        kind: iter(torch.split(vector, [length for length, of in setting.runs if of == kind]))
        for kind, vector in ((False, shared), (True, own))
    }
    return torch.cat([next(parts[kind]) for _, kind in setting.runs])
