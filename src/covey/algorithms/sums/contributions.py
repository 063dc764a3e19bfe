"""What one client adds to a round, as a vector of blocks: for whoever clips, noises or seals it without knowing the algorithm.

An algorithm whose round is a sum over clients has, beside its usual methods,

    blocks(setting)                          -> b: how many vectors [d] the sum has
    contribution(me, message, reply)         -> a Contribution: what this client, which got `message`, adds with its `reply`
    moved(setting, state, means, share)      -> the next state, from the mean change of each block [b, d]; `share` of all clients
                                                take part in a round

and says with `counted` whether it depends on data who counts in which block. `moved` sees nothing but the means, so whatever
holds of these, as a guarantee, holds of all that follows from them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

from torch import Tensor

from covey.algorithms.contract import Client, Setting

METHODS = ("blocks", "contribution", "moved")


@dataclass(frozen=True)
class Contribution:
    parts: Mapping[int, Tensor]  # block -> change [d]; a block that is not here gets zeros
    shares: Mapping[int, float] = field(default_factory=dict)  # block -> how much of the client counts there, 1 in all


class Summed(Protocol):
    """See the module's docstring."""

    counted: ClassVar[bool]

    def blocks(self, setting: Setting) -> int: ...
    def contribution(self, me: Client, message: Any, reply: Any) -> Contribution: ...
    def moved(self, setting: Setting, state: Any, means: Tensor, share: float) -> Any: ...


def is_summed(algorithm: Any) -> bool:
    """Whether its own class says so: one that changes another algorithm's clients or server may not be the same sum."""
    return all(method in vars(type(algorithm)) for method in METHODS)
