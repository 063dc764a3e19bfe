"""What crosses the wire in the clear under client-level DP: to a server that is trusted with it, or noised by its client."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from torch import Tensor

from covey import roles
from covey.errors import CoveyError
from covey.messages import message


class Bit(roles.Role):
    """Whether a contribution was below the clipping bound, ±½, or that with noise."""

    words = "whether a change was clipped"


class Changes(roles.Role):
    """Changes of several models, [b, d]."""

    words = "changes of models"

    def check(self, value: Any, bounds: roles.Bounds) -> None:
        if not isinstance(value, Tensor) or value.ndim != 2 or value.shape[1] != bounds.weights:
            raise CoveyError(f"is no table of {bounds.weights} numbers in a row")
        roles.refuse_infinite(value)


class Sizes(roles.Role):
    """How much of the client counts in each block, [b], possibly noised."""

    words = "weights of the clusters"


@message
@dataclass(frozen=True)
class Bounded:
    """A broadcast with the clipping bound of its round, where that changes."""

    inner: Annotated[Any, roles.Part]
    clip: Annotated[float, roles.Plain(float)]


@message
@dataclass(frozen=True)
class ClippedChange:
    """Of the one model that there is."""

    change: Annotated[Tensor, roles.Change]  # [d]
    within: Annotated[float, Bit]


@message
@dataclass(frozen=True)
class ClippedUpdate:
    """Of the model of a cluster."""

    change: Annotated[Tensor, roles.Change]  # [d]
    cluster: Annotated[int, roles.Identity]
    within: Annotated[float, Bit]


@message
@dataclass(frozen=True)
class ClippedChanges:
    """Of several models at once, or noised ones of all of them."""

    changes: Annotated[Tensor, Changes]  # [b, d]
    shares: Annotated[Tensor, Sizes]  # [b]
    within: Annotated[float, Bit]


@message
@dataclass(frozen=True)
class PrivateState:
    """An algorithm's state, and what the server remembers for the next sum. The noises are as secret as the clients' updates."""

    state: Annotated[Any, roles.Part]
    clip: Annotated[float, roles.Plain(float)]  # C of the next round
    sizes: Annotated[Tensor | None, Sizes] = None  # [b] of blocks, noised, smoothed over rounds
    past: Annotated[list[Tensor] | None, Changes] = None  # noises of the last rounds, where later ones take them back
    velocity: Annotated[Tensor | None, Changes] = None  # [b, d] of server momentum
    sent: Annotated[Any, roles.Part] = None  # what everybody is sent, where the bound goes with it
