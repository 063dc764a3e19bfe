"""Global model acquisition: Appendix A of Kim et al., RAID 2023, against Sattler's CFL, which sends a client its own model only.

Colluding clients join after clusters have formed. The server walks every newcomer down its tree of splits, by which side its
update is more like. An update and its antiparallel are like opposite sides, so at every node a colluder may choose: colluder
number r turns its update round at depth l when bit l of r is set. So 2^depth colluders reach all leaves of an even tree; what
was received by the first n of them says what n would have got.

They probe a node once. Sent there again, it is a leaf: from then on the colluder trains like everyone, to keep its model
current. A probe is the colluder's own first update ("update", as the paper has it) or a direction that the colluders agreed
on, as long as that update ("random", the paper's other suggestion): with data of their own, two colluders' updates need not
be alike, and then turning them round chooses nothing in common. Its control is "honest": joiners that turn nothing round get
what their data are like, which is the share that the attack must exceed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

from torch import Tensor

from covey.algorithms.contract import Client, Coroutine
from covey.algorithms.sattler import ModelChange, NodeModel
from covey.attacks.contract import Finding, Knowledge, Truth, View
from covey.attacks.declaration import GOT, Reads, declaration
from covey.errors import CoveyError
from covey.leaks import CLIENT, MODELS, Leak
from covey.learn.work import Train
from covey.randomness import key, normals
from covey.statistics import wilson


@dataclass
class Acquisition:
    """How many of the cluster models that there are when they join a coalition of joiners obtains.

    Probes and unlike data may get a colluder split off afterwards: "sent at the end" is the share of the other clients' models
    that colluders are still sent in the last round.
    """

    name: ClassVar[str] = "acquisition"
    label: ClassVar[str] = "Acquisition"
    title: ClassVar[str] = "joiners steer down the tree of clusters to collect its models (Kim et al. 2023)"
    row: ClassVar[Leak] = MODELS
    seen_from: ClassVar[tuple[str, ...]] = (CLIENT,)
    reads: ClassVar[tuple[Reads, ...]] = (Reads((NodeModel,), GOT),)
    means: ClassVar[str] = "share of the cluster models that the colluders obtain; 1 is all"
    controls: ClassVar[tuple[str, ...]] = ("one client alone",)
    active: ClassVar[bool] = True
    used: ClassVar[str] = "the models that the colluders are sent"

    first: int = 1  # the colluders are clients first, first + 1, …
    colluders: int = 1
    probe: str = "random"  # or "update"; "honest": the control
    memory: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.first < 1 or self.colluders < 1:
            raise CoveyError(
                f"{self.name} has {self.colluders} colluders from client {self.first} on: it needs one at least, and a "
                "client before them to spy on"
            )
        if self.probe not in ("random", "update", "honest"):
            raise CoveyError(f"the probe of {self.name} is {self.probe!r}: choose 'random', 'update' or 'honest'")

    @classmethod
    def lacks(cls, experiment: Any) -> str:
        last = experiment.participation.joined(experiment.training.rounds, experiment.clients)
        late = 0 < experiment.participation.initial < last
        return "" if late else "needs clients that join later: set participation.initial, join and join_every"

    @classmethod
    def audited(cls, experiment: Any) -> dict[str, Any]:
        first = experiment.participation.initial
        last = experiment.participation.joined(experiment.training.rounds, experiment.clients)
        return {"first": first, "colluders": last - first}

    @property
    def vantage(self) -> str:
        return "+".join(f"client:{i}" for i in self.replaces)

    @property
    def replaces(self) -> tuple[int, ...]:
        return tuple(range(self.first, self.first + self.colluders))

    def begin(self, knowledge: Knowledge) -> None:
        if declaration(self).unreadable(knowledge.algorithm):
            raise CoveyError(
                f"{self.name} walks down a tree of clusters, and no message to a client of this algorithm names a node of "
                "one: set algorithm = 'sattler'"
            )
        self.memory.setdefault("received", {})

    def observe(self, view: View) -> None:
        if isinstance(view.message, NodeModel):
            received = self.memory["received"].setdefault(int(view.receiver.removeprefix("client:")), {})
            received[view.round] = view.message.node

    def end_round(self, round: int) -> None:
        pass

    def client(self, me: Client, message: NodeModel) -> Coroutine:
        """A colluder in its client's place."""
        trained = yield Train(message.model, me.plan)
        change = trained - message.model.to(trained.device)
        path: list[int] = me.memory.setdefault("path", [])
        me.note("cluster", message.node)
        if self.probe == "honest" or message.node in path:  # sent here again: a leaf, or a root that was never split
            return ModelChange(change, me.samples)
        me.memory["path"] = [*path, message.node]
        probe = change if self.probe == "update" else agreed(me.seed, message.node, change)
        turned = (me.id - self.first) >> len(path) & 1
        return ModelChange(-probe if turned else probe, me.samples)

    def finding(self, truth: Truth) -> Finding:
        rounds = sorted({r for got in self.memory["received"].values() for r in got})
        if not rounds:
            raise CoveyError(
                f"{self.name}: no colluder ever joined; let clients {self.first} and on join before the end"
            )
        there = self._models(truth, rounds[0])  # before any probe had an effect
        by_colluders = [self._share(there, rounds[-1], n) for n in range(1, self.colluders + 1)]
        by_round = {str(r): self._share(there, r, self.colluders) for r in rounds}
        value, alone = by_colluders[-1], 1 / len(there)
        low, high = wilson(value, len(there))
        last = self._models(truth, rounds[-1])
        standing = {node for got in self.memory["received"].values() for r, node in got.items() if r == rounds[-1]}
        details = {
            "cluster models": len(there),
            "sent at the end": len(standing & last) / len(last),
            "share by colluders": by_colluders,
            "share by round": by_round,
            "pictures": [
                {
                    "kind": "line",
                    "title": "share of the cluster models obtained, by number of colluders",
                    "x": list(range(1, self.colluders + 1)),
                    "y": by_colluders,
                }
            ],
        }
        return Finding(
            self.name,
            self.vantage,
            "share of cluster models",
            value,
            alone,
            low,
            high,
            {self.controls[0]: alone},
            self.used,
            details,
        )

    def _models(self, truth: Truth, round: int) -> set[int]:
        """The nodes whose models the other clients had in a round."""
        facts = truth.notes[round - 1]
        return {fact["cluster"] for i, fact in facts.items() if i not in self.replaces and "cluster" in fact}

    def _share(self, models: set[int], until: int, colluders: int) -> float:
        """Of these nodes, those that the first so many colluders have received by a round."""
        members = self.replaces[:colluders]
        got = {node for i in members for r, node in self.memory["received"].get(i, {}).items() if r <= until}
        return len(got & models) / len(models)


def agreed(seed: int, node: int, like: Tensor) -> Tensor:
    """The colluders' common direction at a node, as long as an update of theirs."""
    direction = normals([key(seed, node, "acquisition")], len(like), like.device)[0]
    scaled: Tensor = direction * (like.norm() / direction.norm())
    return scaled
