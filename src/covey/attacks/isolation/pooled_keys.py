"""Pooled keys: whose uploads a server opens with all that some clients hold.

Where all clients share a key one of them is enough. Where sums are opened together, or masks cancel in them, it takes a quorum:
t clients hold t shares of every one-round key, or of every mask's seed. With fewer the server has the sums, and what its clients
added to them; what follows from these is `isolation`'s question.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

from covey import roles
from covey.algorithms.admission import ADDED
from covey.algorithms.contract import declaration
from covey.algorithms.sums.openings import pooled
from covey.attacks.contract import Finding, Knowledge, Truth, View, replied
from covey.attacks.declaration import Reads
from covey.leaks import COALITION, ISOLATION, Leak
from covey.statistics import wilson


@dataclass
class PooledKeys:
    """Share of the other clients' uploads that the server and its clients read."""

    name: ClassVar[str] = "pooled_keys"
    label: ClassVar[str] = "Pooled keys"
    title: ClassVar[str] = "whose models the server reads with the keys of clients on its side"
    row: ClassVar[Leak] = ISOLATION
    seen_from: ClassVar[tuple[str, ...]] = (COALITION,)
    reads: ClassVar[tuple[Reads, ...]] = (Reads((roles.Sealed,)),)
    means: ClassVar[str] = "share of the other clients' models that are read exactly: 0 tells nothing, 1 is all"
    controls: ClassVar[tuple[str, ...]] = ("no keys",)
    own_rows: ClassVar[bool] = False

    vantage: str = "server+client:0"
    memory: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def lacks(cls, experiment: Any) -> str:
        added = declaration(experiment.algorithm).sealing in ADDED
        return "" if added else "opens vectors that a server adds up, with keys that clients hold"

    def begin(self, knowledge: Knowledge) -> None:
        self.algorithm, self.rounds = knowledge.algorithm, knowledge.setting.rounds
        self.key = declaration(knowledge.algorithm).sealed_with
        clients = {party: keys for party, keys in knowledge.keys.items() if party.startswith("client:")}
        self.members = {int(party.removeprefix("client:")): keys for party, keys in clients.items()}
        self.memory.setdefault("read", {})

    def observe(self, view: View) -> None:
        """Looks in the last round: what opens there opened before."""
        if view.round != self.rounds or not replied(view, self.algorithm):
            return
        client = int(view.sender.removeprefix("client:"))
        if client not in self.members:
            self.memory["read"][client] = self._reads(view.message, client, view.round)

    def _reads(self, message: Any, sender: int, round: int) -> bool:
        held = {i: keys for i, keys in self.members.items() if self.key in keys}
        boxes = roles.first(message, roles.Boxes) or []
        for role, value in roles.carried(message, roles.Model, roles.Sealed):
            if not isinstance(role, roles.Sealed):
                return True
            sealed = value if isinstance(value, list) else [value]
            if roles.Model in role.inside and pooled(held, sender, sealed, boxes, round, self.key) is not None:
                return True
        return False

    def end_round(self, round: int) -> None:
        pass

    def finding(self, truth: Truth) -> Finding:
        read = self.memory["read"]
        hits, n = sum(read.values()), len(read)
        low, high = wilson(hits / n, n) if n else (0.0, 1.0)
        return Finding(
            attack=self.name,
            vantage=self.vantage,
            metric="share of uploads",
            value=hits / n if n else 0.0,
            chance=0.0,
            low=low if hits else 0.0,
            high=high,
            controls={self.controls[0]: 0.0},
            used=f"the keys of {len(self.members)} of {len(self.members) + n} clients"
            if n
            else "nothing: nobody else replied",
            details={"uploads": n, "read": hits},
        )
