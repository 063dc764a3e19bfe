"""What an attack is: an observer with a vantage point, and the finding it ends with.

    begin(knowledge)   what this adversary has before the first round: its parties' keys, auxiliary data, a machine
    observe(view)      one message that one of its parties sent or received, as the rounds pass
    end_round(round)   all of a round's messages have passed
    finding(truth)     the score, against a truth that the attack sees only here

`observe` and `end_round` may be coroutines that yield work (on the auxiliary data), like a client's. What an attack keeps
between rounds goes in `self.memory` (codec types), so that an interrupted run resumes with it. A vantage is a server as the
protocol names it, 'client:3', 'eavesdropper' or a coalition such as 'server+client:0'.

What it is to others, it declares in class variables: see `attacks.declaration`. It reads messages by what their fields carry
(`roles.first(view.message, roles.Identity)`), so that it works under every algorithm whose messages carry that.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from covey.algorithms.contract import Predictor, Setting, declaration
from covey.attacks.finding import Finding, Scale
from covey.data.federation import Federation
from covey.leaks import EAVESDROPPER
from covey.learn.flat import Network
from covey.learn.work import Work
from covey.messages import message


@message
@dataclass(frozen=True)
class View:
    """One message as a party saw it, in a copy: ciphertexts are bytes in it, never what is inside."""

    round: int
    sender: str  # "server", "client:7", …
    receiver: str
    message: Any


@dataclass(frozen=True)
class Knowledge:
    """What an adversary has before the first round: no row of any client outside its vantage is in it."""

    setting: Setting
    network: Network
    keys: Mapping[str, Mapping[str, Any]]  # party of the vantage -> its key material
    x: NDArray[np.generic]  # auxiliary samples; work that the attack asks for runs on these, `on` are positions here
    y: NDArray[np.int64]
    where: Mapping[str, NDArray[np.int64]]  # "public:j", "own:i", "auxiliary", "property" -> positions
    attributes: Mapping[str, NDArray[np.generic]]  # of the auxiliary samples
    algorithm: Any = None  # the protocol and its defence, which every party knows
    defence: Any = None


Outcome = Mapping[int, Predictor]  # client -> the model that it predicts with


def _nothing_spent(delta: float | None) -> Mapping[str, Any]:
    return {}


@dataclass(frozen=True)
class Truth:
    """What really happened, for scoring."""

    federation: Federation
    notes: list[dict[int, dict[str, Any]]]  # per round: client -> what it noted (e.g. its true cluster)
    servers: list[dict[str, Any]] = field(default_factory=list)  # per round: what the servers noted (e.g. an order)
    served: Callable[[], Outcome] = dict  # what clients predict with in the end …
    unharmed: Callable[[], Outcome] = dict  # … and in the end of the same run without any attacker: costs that run
    priced: Callable[[float | None], Mapping[str, Any]] = _nothing_spent  # the ledger's entries, at a δ or at its own
    looked_at: bool = True  # whether pictures are: some cost more than the score


__all__ = ["Attack", "Finding", "Knowledge", "Outcome", "Scale", "Truth", "View", "parties", "sees"]

Thinking = Generator[Work | list[Work], Any, None] | None


class Attack(Protocol):
    memory: dict[str, Any]

    @property
    def name(self) -> str: ...
    @property
    def vantage(self) -> str: ...

    def begin(self, knowledge: Knowledge) -> None: ...
    def observe(self, view: View) -> Thinking: ...
    def end_round(self, round: int) -> Thinking: ...
    def finding(self, truth: Truth) -> Finding: ...


def parties(vantage: str) -> frozenset[str]:
    return frozenset(vantage.split("+"))


def replied(view: View, algorithm: Any) -> bool:
    """Whether this is a client's reply to a broadcast, and not its answer to a further question of the round."""
    further = () if algorithm is None else declaration(algorithm).advises
    return view.sender.startswith("client:") and type(view.message) not in further


def received(view: View, algorithm: Any) -> bool:
    """Whether this is a broadcast to a client, and not a further question of the round."""
    further = () if algorithm is None else declaration(algorithm).consults
    return view.receiver.startswith("client:") and type(view.message) not in further


def sees(vantage: str, view: View) -> bool:
    """Whether this adversary's parties sent or received the message; an eavesdropper sees all traffic."""
    return bool(parties(vantage) & {EAVESDROPPER, view.sender, view.receiver})
