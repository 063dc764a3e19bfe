"""What a client did to a model: read off what it got and what it returned, by whoever sees both in the clear."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from covey import roles
from covey.attacks.declaration import GOT, Reads

PLAIN = (  # what an attack on uploads declares to read
    Reads((roles.Model, roles.Models), GOT),
    Reads((roles.Model, roles.Models, roles.Change)),
)


@dataclass(frozen=True)
class Upload:
    start: Tensor  # [m, d] the models that training began from: one, or every component of a mixture
    end: Tensor  # [m, d] what became of each

    @property
    def change(self) -> Tensor:
        """[d] over all of them together."""
        return (self.end - self.start).sum(0)


def upload(got: Any, returned: Any, d: int) -> Upload | None:
    """Of two messages of one client and round; None where one of them holds no plain model of d parameters.

    A client that gets the models of all clusters and returns one began from the one that it names, or, where it names none,
    as far as anybody can tell, from the nearest.
    """
    start, end = _models(got, d), _models(returned, d)
    change = roles.first(returned, roles.Change)
    if start is None or (end is None and (change is None or len(start) > 1 or change.shape[-1] != d)):
        return None
    if end is None:
        end = start + change.reshape(1, d).to(start.device)
    end = end.to(start.device)
    if len(end) == 1 < len(start):
        own = roles.first(returned, roles.Identity)
        named = isinstance(own, int) and 0 <= own < len(start)
        place = own if named else int((start - end).norm(dim=1).argmin())
        start = start[place : place + 1]
    return Upload(start, end) if len(start) == len(end) else None


def _models(message: Any, d: int) -> Tensor | None:
    """[m, d] of all models that stand in a message as they are."""
    rows = [
        sent.detach().reshape(-1, d)
        for _, sent in roles.carried(message, roles.Models, roles.Model)
        if sent.shape[-1] == d
    ]
    return torch.cat(rows) if rows else None
