"""What is special to clustered learning: one participant that harms clusters it does not belong to.

`intruder`: where clients say themselves of which cluster they are, nobody can check it. It joins the one whose model fits its own
data worst and sends what cancels that model in the average: what is left knows nothing, and members still prefer it to the models
of other clusters, which are sure of what is wrong for them. (A louder lie drives them away, and they recover elsewhere.)

`spread_poison`: where a client hides its cluster in a set of several and the sums of these are solved for the models, one upload
is in many equations. It shows every cluster and sends the opposite of what it learned: the solution puts a part of that into each.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar

import numpy as np
import torch

from covey import roles
from covey.algorithms.contract import Client
from covey.attacks.contract import Finding, Truth
from covey.attacks.declaration import GOT, Reads
from covey.attacks.integrity.harm import WITHOUT, Tests, fall_interval, sharing
from covey.attacks.integrity.sabotage import Sabotage, scaled
from covey.learn.work import Losses, SampleLosses, Train, Work

_MODELS = Reads((roles.Model, roles.Models), GOT, sealed=True)
CHOSEN = "sabotaged cluster"  # in its own memory


@dataclass
class Untargeted(Sabotage):
    """Counts what others no longer get right."""

    means: ClassVar[str] = "share of what the victims would get right without it that they do not: 0 is no harm, 1 ruin"
    metric: ClassVar[str] = "fall of the victims' accuracy"

    @abstractmethod
    def victims(self, truth: Truth) -> list[int]: ...

    def finding(self, truth: Truth) -> Finding:
        network, federation = self.known.network, truth.federation
        if network.task != "classes":
            return self.nothing("a task without classes, so no accuracy that could fall")
        every = np.ones(len(federation.dataset.y_test), bool)
        tests = Tests.of(federation, network, self.victims(truth), every)
        ends = truth.served(), truth.unharmed()
        after, before = (tests.shares(tests.said(end), tests.y) for end in ends)
        if not len(after) or not len(before):
            return self.nothing("nobody in another cluster that it could harm")
        value, low, high = fall_interval(after, before, tests.count)
        rounds = self.known.setting.rounds - self.honest
        used = f"its own uploads of {rounds} round{'s' * (rounds != 1)}; {len(after)} victims with {tests.count} test samples"
        return Finding(
            self.name,
            self.vantage,
            self.metric,
            value,
            0.0,
            low,
            high,
            {WITHOUT: 0.0},
            used,
            {"victims' accuracy": float(after.mean()), "victims' accuracy without it": float(before.mean())},
            note=f"Accuracy with it, without it: {self._by_cluster(truth, *ends)}.",
        )

    def _by_cluster(self, truth: Truth, attacked: Any, clean: Any) -> str:
        """Of the clients of each cluster, by the choices of its first dishonest round."""
        federation, notes = truth.federation, truth.notes[self.honest]
        groups: dict[int, list[int]] = {}
        for i, facts in sorted(notes.items()):
            if i != self.replaces:
                groups.setdefault(int(facts.get("cluster", 0)), []).append(i)
        own = notes.get(self.replaces, {}).get("cluster")
        words = []
        for cluster, members in sorted(groups.items()):
            tests = Tests.of(federation, self.known.network, members, np.ones(len(federation.dataset.y_test), bool))
            with_it, without = (float(tests.shares(tests.said(end), tests.y).mean()) for end in (attacked, clean))
            words.append(f"cluster {cluster}{' (joined)' * (cluster == own)} {with_it:.2f}, {without:.2f}")
        return "; ".join(words)


@dataclass
class Intruder(Untargeted):
    name: ClassVar[str] = "intruder"
    label: ClassVar[str] = "Intruder"
    title: ClassVar[str] = "one participant joins the cluster that it wants to harm, where clients choose theirs"
    reads: ClassVar[tuple[Reads, ...]] = (
        _MODELS,
        Reads((roles.Identity, roles.IdentitySet, roles.SealedBlocks)),
    )

    cluster: int = -1  # to harm; -1: the one whose model fits its own data worst when it begins

    @classmethod
    def lacks(cls, experiment: Any) -> str:
        return super().lacks(experiment) or ("" if experiment.clusters > 1 else "needs another cluster: there is one")

    def takes(self, me: Client, work: Work, answer: Any) -> Any:
        if isinstance(work, Losses | SampleLosses):
            fits = answer if answer.ndim == 1 else answer.mean(1)
            joined = me.memory.setdefault(CHOSEN, self.cluster if self.cluster >= 0 else int(fits.argmax()))
            if joined < len(answer):
                answer = answer.clone()
                answer[joined] = answer.min() - 1
            return answer
        if isinstance(work, Train):  # how many they are it can only assume
            return scaled(work.start, torch.zeros_like(work.start), 1 + self.factor, self.known.algorithm)
        return answer

    def victims(self, truth: Truth) -> list[int]:
        """Who is in the cluster that it joins."""
        return sharing(truth, self.replaces, self.honest + 1)


@dataclass
class Spread(Untargeted):
    name: ClassVar[str] = "spread_poison"
    label: ClassVar[str] = "Poison spread by rebuilding"
    title: ClassVar[str] = "one upload that shows every cluster, so that solving for the models spreads it over all"
    reads: ClassVar[tuple[Reads, ...]] = (_MODELS, Reads((roles.IdentitySet,)))

    @property
    def factor(self) -> float:
        """A cluster's share in an upload that shows all is small: so it is as large as if nobody were in another cluster."""
        return self.boost or 2.0 * self.known.setting.clients

    def takes(self, me: Client, work: Work, answer: Any) -> Any:
        if not isinstance(work, Train):
            return answer
        return scaled(work.start, answer, -self.factor, self.known.algorithm)

    def sends(self, me: Client, reply: Any) -> Any:
        kind: type = type(reply)
        shown = {name: list(range(me.setting.clusters)) for name, role in roles.of(kind).items() if _is_set(role)}
        return replace(reply, **{f.name: shown[f.name] for f in fields(reply) if f.name in shown})

    def victims(self, truth: Truth) -> list[int]:
        """Who is in any cluster but its own."""
        own = set(sharing(truth, self.replaces, self.honest + 1))
        others = [i for i in range(len(truth.federation.clients)) if i != self.replaces]
        return [i for i in others if i not in own]


def _is_set(role: roles.Role) -> bool:
    return isinstance(role, roles.IdentitySet)
