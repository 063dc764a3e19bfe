"""What attacks on others' models share: a client that keeps to the protocol for some rounds and then departs from it.

It runs the algorithm's own client and changes what that asks for, is answered and returns, so it fits every algorithm, sealed
uploads included: what is encrypted cannot be looked at. A defence of the clients' own (noise, clipping) binds only who keeps to
it: where the attacker trains on samples of its making, it leaves the defence out.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from covey import roles
from covey.algorithms.contract import Client, Coroutine
from covey.attacks.contract import Finding, Knowledge, Truth, View
from covey.attacks.declaration import GOT, Reads, lacks_rounds
from covey.attacks.integrity.harm import WITHOUT
from covey.errors import CoveyError
from covey.leaks import CLIENT, INTEGRITY, Leak
from covey.learn.machine import Machine
from covey.learn.work import Compute, Job, Train, Work
from covey.randomness import key

LARGEST = 100.0  # times the norm of the model, beyond which no poison goes: a model of infinities is no model
LEAST_ROUNDS = 4

Samples = tuple[NDArray[np.generic], NDArray[Any]]


def check_saboteur(name: str, vantage: str, after: int, boost: float) -> None:
    if not vantage.removeprefix("client:").isdigit() or after < 0 or boost < 0:
        raise CoveyError(
            f"{name} looks from {vantage!r}, after {after}, boost {boost}: it is one client, for example 'client:0', and both "
            "numbers are not negative"
        )


def departing(
    turn: Coroutine, asks: Callable[[Work], Work], takes: Callable[[Work, Any], Any], sends: Callable[[Any], Any]
) -> Coroutine:
    """A client's turn with other requests, other answers to them, and another reply in the end."""
    answer: Any = None
    while True:
        try:
            request = turn.send(answer)
        except StopIteration as stop:
            return sends(stop.value)
        many = request if isinstance(request, list) else [request]
        answers = yield [asks(work) for work in many]
        taken = [takes(work, one) for work, one in zip(many, answers)]
        answer = taken if isinstance(request, list) else taken[0]


def scaled(start: Tensor, trained: Tensor, factor: float, algorithm: Any) -> Tensor:
    """start + factor · (trained − start), short of what would be no model any more, or could not be sealed."""
    start = start.to(trained.device)
    step = factor * (trained - start)
    poison = start + step * min(1.0, LARGEST * float(start.norm()) / max(float(step.norm()), 1e-12))
    sealed = getattr(algorithm, "bound", None)  # the largest weight that it can seal, where it seals any
    return poison if sealed is None else poison.clamp(-0.99 * sealed, 0.99 * sealed)


@dataclass
class Sabotage(ABC):
    """One client that departs from the protocol; a subclass says how, and how the harm is counted."""

    name: ClassVar[str]
    row: ClassVar[Leak] = INTEGRITY
    seen_from: ClassVar[tuple[str, ...]] = (CLIENT,)
    reads: ClassVar[tuple[Reads, ...]] = (Reads((roles.Model, roles.Models, roles.SharedLayers), GOT, sealed=True),)
    controls: ClassVar[tuple[str, ...]] = (WITHOUT,)
    active: ClassVar[bool] = True
    own_rows: ClassVar[bool] = True
    metric: ClassVar[str]

    vantage: str = "client:0"
    after: int = 0  # honest rounds; 0: half of them
    boost: float = 0.0  # times its own change; 0: as many as share a model with it, so that its own prevails
    memory: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_saboteur(self.name, self.vantage, self.after, self.boost)

    @classmethod
    def lacks(cls, experiment: Any) -> str:
        return lacks_rounds(experiment, LEAST_ROUNDS)

    @property
    def replaces(self) -> int:
        return int(self.vantage.removeprefix("client:"))

    @property
    def honest(self) -> int:
        return self.after or self.known.setting.rounds // 2

    @property
    def factor(self) -> float:
        return self.boost or self.known.setting.clients / max(self.known.setting.clusters, 1)

    def begin(self, knowledge: Knowledge) -> None:
        self.known = knowledge

    def observe(self, view: View) -> None:
        return None

    def end_round(self, round: int) -> None:
        return None

    def client(self, me: Client, message: Any) -> Coroutine:
        turn: Coroutine = self.known.algorithm.client(me, message)
        if me.round <= self.honest:
            return (yield from turn)
        return (
            yield from departing(
                turn,
                lambda work: self.asks(me, work),
                lambda work, answer: self.takes(me, work, answer),
                lambda reply: self.sends(me, reply),
            )
        )

    def asks(self, me: Client, work: Work) -> Work:
        return work

    def takes(self, me: Client, work: Work, answer: Any) -> Any:
        return answer

    def sends(self, me: Client, reply: Any) -> Any:
        return reply

    @abstractmethod
    def finding(self, truth: Truth) -> Finding: ...

    def nothing(self, why: str) -> Finding:
        return Finding(self.name, self.vantage, self.metric, 0.0, 0.0, 0.0, 1.0, used=f"nothing: {why}")


@dataclass
class SamplePoisoning(Sabotage):
    """Trains on samples of its own making, and scales what it learned up (Bagdasaryan et al. 2020)."""

    def asks(self, me: Client, work: Work) -> Work:
        return Compute("train", self._trained, (me.round, work)) if isinstance(work, Train) else work

    def _trained(self, round: int, work: Train) -> Tensor:
        x, y = self.poisoned()
        network, device = self.known.network, work.start.device
        machine = Machine(network, x, y, device=device)
        start = network.whole(work.start)
        own = Train(start, work.plan, anchor=work.anchor, correction=work.correction)
        stream = key(self.known.setting.seed, round, self.replaces, self.name)
        (trained,) = machine.compute([Job(torch.arange(len(y)), stream, own)])
        return scaled(work.start, trained[: network.d], self.factor, self.known.algorithm)

    @property
    def own(self) -> Samples:
        rows = self.known.where[f"own:{self.replaces}"]
        return self.known.x[rows], self.known.y[rows]

    @abstractmethod
    def poisoned(self) -> Samples:
        """What it trains on in the place of its own samples."""
