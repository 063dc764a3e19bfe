"""What an attack is: an observer with a vantage point, and the finding it ends with.

    begin(knowledge)   what this adversary has before the first round: its parties' keys, auxiliary data, a machine
    observe(view)      one message that one of its parties sent or received, as the rounds pass
    end_round(round)   all of a round's messages have passed
    finding(truth)     the score, against a truth that the attack sees only here

`observe` and `end_round` may be coroutines that yield work (on the auxiliary data), like a client's. What an attack keeps
between rounds goes in `self.memory` (codec types), so that an interrupted run resumes with it. A vantage is 'server', 'csp',
'client:3', 'eavesdropper' or a coalition such as 'server+client:0'.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from covey.algorithms.contract import Setting
from covey.data.federation import Federation
from covey.learn.flat import Network
from covey.learn.work import Work
from covey.messages import message


@message
@dataclass(frozen=True)
class View:
    """One message as a party saw it: ciphertexts are bytes in it, never what is inside."""

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


@dataclass(frozen=True)
class Truth:
    """What really happened, for scoring."""

    federation: Federation
    notes: list[dict[int, dict[str, Any]]]  # per round: client -> what it noted (e.g. its true cluster)
    servers: list[dict[str, Any]] = field(default_factory=list)  # per round: what the servers noted (e.g. an order)


@message
@dataclass(frozen=True)
class Finding:
    """A score beside what it must be compared with. A score that its controls also reach is not a leak."""

    attack: str
    vantage: str
    metric: str
    value: float
    chance: float
    low: float
    high: float
    controls: dict[str, float] = field(default_factory=dict)
    used: str = ""  # what of its view the attack used, in words
    details: dict[str, Any] = field(default_factory=dict)
    perfect: float = 1.0  # the score of who knows everything; 0 for an error, where less is worse

    @property
    def verdict(self) -> str:
        """In plain words: what the interval says against the best attacker that ignores the observation."""
        scale = Scale(self.chance, tuple(self.controls.values()), self.perfect)
        if not scale.beyond(self.low, self.high):
            return "no leak seen"
        return "broken" if scale.broken(self.value) else "leaks"


@dataclass(frozen=True)
class Scale:
    """How a score is to be read: from what guessing and the controls reach to what is perfect, upwards or downwards."""

    chance: float
    controls: tuple[float, ...] = ()
    perfect: float = 1.0

    @property
    def upwards(self) -> bool:
        return self.perfect >= self.chance

    @property
    def bar(self) -> float:
        """What the best attacker scores that ignores the observation."""
        return (max if self.upwards else min)((self.chance, *self.controls))

    def beyond(self, low: float, high: float) -> bool:
        """Whether a whole interval lies on the leaking side of the bar."""
        return low > self.bar if self.upwards else high < self.bar

    def broken(self, value: float) -> bool:
        """Within a twentieth of perfect: 0.95 of a share, a twentieth of the error of guessing."""
        room = 0.05 * max(abs(self.perfect), abs(self.chance))
        return value >= self.perfect - room if self.upwards else value <= self.perfect + room

    def excess(self, value: float) -> float:
        """How far beyond the bar, as a share of the way to perfect."""
        way = self.perfect - self.bar
        return (value - self.bar) / (way if abs(way) > 1e-9 else 1e-9)


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


def sees(vantage: str, view: View) -> bool:
    """Whether this adversary's parties sent or received the message; an eavesdropper sees all traffic."""
    return "eavesdropper" in vantage or bool(parties(vantage) & {view.sender, view.receiver})


def wilson(value: float, trials: int) -> tuple[float, float]:
    """Wilson's 95 % interval of a success rate; the intervals of other metrics come from repetitions."""
    if trials <= 0:
        return 0.0, 1.0
    z2 = 1.959964**2
    centre = (value + z2 / (2 * trials)) / (1 + z2 / trials)
    half = (1.959964 / (1 + z2 / trials)) * ((value * (1 - value) + z2 / (4 * trials)) / trials) ** 0.5
    return max(0.0, centre - half), min(1.0, centre + half)
