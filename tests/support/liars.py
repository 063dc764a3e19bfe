"""Admitted clients that lie, for tests and benchmarks of what bears them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from covey.algorithms.contract import Client, Coroutine
from covey.attacks.contract import Finding, Knowledge, Truth, View


@dataclass
class Liars:
    """Admitted clients that train as everyone, and send the opposite of what they learnt, so many times as large."""

    count: int
    scale: float = 10.0
    name: str = "liars"
    memory: dict[str, Any] = field(default_factory=dict)

    @property
    def replaces(self) -> tuple[int, ...]:
        return tuple(range(self.count))

    @property
    def vantage(self) -> str:
        return "+".join(f"client:{i}" for i in self.replaces)

    def begin(self, knowledge: Knowledge) -> None:
        self.algorithm = knowledge.algorithm

    def client(self, me: Client, message: Any) -> Coroutine:
        reply = yield from self.algorithm.client(me, message)
        sent = message.models[reply.cluster] if hasattr(message, "models") else message.model
        lie = sent - self.scale * (reply.model - sent)
        return type(reply)(**{**vars(reply), "model": lie})

    def observe(self, view: View) -> None: ...

    def end_round(self, round: int) -> None: ...

    def finding(self, truth: Truth) -> Finding:
        return Finding(self.name, self.vantage, "", 0.0, 0.0, 0.0, 1.0)
