"""What a client did to a model: read off what it got and what it returned, by whoever sees both in the clear."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from covey import roles
from covey.algorithms.contract import Setting
from covey.attacks.declaration import GOT, Reads

PLAIN = (  # what an attack on uploads declares to read
    Reads((roles.Model, roles.Models), GOT),
    Reads((roles.Model, roles.Models, roles.Change)),
)
LAYERS = (  # of one that can do without the last layers
    Reads((roles.Model, roles.Models, roles.SharedLayers), GOT),
    Reads((roles.Model, roles.Models, roles.Change, roles.SharedLayers)),
)


@dataclass(frozen=True)
class Upload:
    start: Tensor  # [m, d] the models that training began from: one, or every component of a mixture
    end: Tensor  # [m, d] what became of each

    @property
    def change(self) -> Tensor:
        """[d] over all of them together."""
        return (self.end - self.start).sum(0)


def upload(got: Any, returned: Any, d: int, setting: Setting | None = None) -> Upload | None:
    """Of two messages of one client and round; None where one of them holds no plain model of d parameters.

    Where only shared layers pass, the attacker puts the personal ones of the agreed `setting`'s start behind them: so it knows
    the whole model until a client first trains its own, and sees nothing of how those change.

    A client that gets the models of all clusters and returns one began from the one that it names, or, where it names none,
    as far as anybody can tell, from the nearest.
    """
    start, end = _models(got, d, setting), _models(returned, d, setting)
    change = roles.first(returned, roles.Change)
    own = roles.first(returned, roles.Identity)
    named = start is not None and isinstance(own, int) and 0 <= own < len(start)
    if start is not None and end is None and named:  # a change of the model that it names
        start = start[own : own + 1]
    if start is None or (end is None and (change is None or len(start) > 1 or change.shape[-1] != d)):
        return None
    if end is None:
        end = start + change.reshape(1, d).to(start.device)
    end = end.to(start.device)
    if len(end) == 1 < len(start):
        place = own if named else int((start - end).norm(dim=1).argmin())
        start = start[place : place + 1]
    return Upload(start, end) if len(start) == len(end) else None


def _models(message: Any, d: int, setting: Setting | None) -> Tensor | None:
    """[m, d] of all models that stand in a message as they are."""
    sent = [
        whole(role, value, setting) if setting is not None else value
        for role, value in roles.carried(message, roles.Models, roles.Model, roles.SharedLayers)
    ]
    rows = [one.detach().reshape(-1, d) for one in sent if one.shape[-1] == d]
    return torch.cat(rows) if rows else None


def whole(role: roles.Role, sent: Tensor, setting: Setting) -> Tensor:
    """A model as it was sent; of shared layers, with the personal ones of the agreed start."""
    shared = ~setting.personal
    if not isinstance(role, roles.SharedLayers) or len(sent) != int(shared.sum()):
        return sent
    model = setting.one_start().to(sent.device).clone()
    model[shared.to(sent.device)] = sent
    return model
