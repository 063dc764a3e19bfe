"""What crosses the wire in PQFed beside the features and the messages of the algorithm underneath, and the server's state."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from covey import roles
from covey.algorithms.pqfed.features import Features
from covey.algorithms.pqfed.incremental import Search
from covey.messages import message


@message
@dataclass(frozen=True)
class Turns:
    """What a client sends or gets for each target that it works for."""

    parts: Annotated[dict[int, Any], roles.Parts]  # target -> message or reply of the algorithm underneath


@message
@dataclass(frozen=True)
class Renewal:
    """To a target whose group is selected anew: the request for features, and its model so far."""

    features: Annotated[Features, roles.Part]
    part: Annotated[Any, roles.Part]


@message
@dataclass(frozen=True)
class Idle:
    """Nothing to do: this client was not selected, or the incremental search has ended."""


@message
@dataclass(frozen=True)
class Collaboration:
    """The server's state."""

    phase: str  # select, train, check, done
    features: Features
    groups: dict[int, list[int]]  # target -> who trains with it, itself first; incremental: all others, nearest first
    inner: dict[int, Any]  # target -> state of the algorithm underneath
    since: int = 0  # rounds trained since the last selection
    search: Search | None = None
