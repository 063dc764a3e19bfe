"""PQFed: A Privacy-Preserving Quality-Controlled Federated Learning Framework.

Round 1 selects: the server sends a PCA fitted on public images, every client fits it, too, and returns its projected samples
with Laplace noise (what the server sent is compared, not used: it would decide what is said about the samples). The server
turns them into histograms over common k-means clusters and these into earth mover's distances (`clustering/collaborators.py`).
From round 2 on, the algorithm `under` it runs among the target and those near it.

    strict, lenient     within 30 % or 60 % of the largest distance          threshold   within `threshold` of it
    top                 the `m` nearest                                      all         everybody
    incremental         the target with one client at a time, the nearest first, `step_rounds` rounds each, from the model so
                        far; after each step one round in which the target alone judges the model on samples that it held
                        back; at the first drop the model before it stays

Ours: distances that sampling noise alone could give are refused; noise for coordinates of a public range (features are
clipped to the range of the public images), beside the paper's own, read from private data; the incremental target judges on
held-back training samples, not on the test set; `target = -1` makes every client a target with a group and model of its own.

Reproduced by `covey reproduce pqfed --table table2` (3, 4 … 8, fig3 … fig6).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from torch import Tensor

from covey import config, roles
from covey.algorithms.contract import MASKS, Client, Coroutine, Messages, Predictor, Server, Setting, declaration
from covey.algorithms.coroutines import in_step
from covey.algorithms.pqfed import incremental
from covey.algorithms.pqfed.features import Features, NoisyFeatures, check_agreed, describe, public_features
from covey.algorithms.pqfed.messages import Collaboration, Idle, Renewal, Turns
from covey.algorithms.pqfed.selection import select_groups
from covey.clustering import collaborators
from covey.errors import CoveyError, meant
from covey.leaks import IDENTITY, SERVER, Given
from covey.learn.work import Compute
from covey.measures import DISTANCES, GROUPS, HIDDEN, Measure
from covey.strength import Strength

STRATEGIES = ("strict", "lenient", "threshold", "top", "all", "incremental")


@dataclass(frozen=True)
class PQFed:
    name: ClassVar[str] = "pqfed"
    label: ClassVar[str] = "PQFed"
    title: ClassVar[str] = "clients with similar (noised) features train together, for one target or for each"
    family: ClassVar[str] = "private"
    gives: ClassVar[tuple[Given, ...]] = (Given(IDENTITY, (SERVER,), "it selects who trains with whom"),)
    strengths: ClassVar[tuple[Strength, ...]] = (
        Strength("epsilon", (math.inf, 100.0, 10.0, 3.0, 1.0, 0.3, 0.1), "ε", "budget of one coordinate of a feature"),
    )

    measures: ClassVar[Mapping[str, Measure]] = {
        "earth_movers": Measure(
            "Earth mover's distance of the noised features",
            shown=DISTANCES,
            beside="They range over {distance_range}; sampling alone would give {range_by_chance}.",
        ),
        "collaborators": Measure(
            "Recommended groups", words="Whom each client learns with, the nearest first.", shown=GROUPS
        ),
        "distance_range": Measure("Range of the distances", shown=HIDDEN),
        "range_by_chance": Measure("Range that sampling alone would give", shown=HIDDEN),
        "group_size": Measure("Size of the groups", "clients", "Clients that learn together, mean over the groups."),
        "validation": Measure("Accuracy on what the target held back", words="The search stops at the first drop."),
    }

    REFUSED: ClassVar[Mapping[str, str]] = {
        name: f"groups are averaged by what runs under it: set algorithm.under.{name}"
        for name in ("min_group", "aggregation", "weighting")
    }

    under: Any = "fedavg"  # what trains the group: a name, or a table with its fields
    target: int = 0  # -1: every client, with a group and a model of its own
    strategy: str = "strict"
    threshold: float = 0.3  # of strategy "threshold": share of the largest distance
    m: int = 4  # of strategy "top"
    epsilon: float = 10.0  # per coordinate; inf: no noise
    sensitivity: str = "public"  # or "data": the range of the client's own features, as the paper has it; it leaks
    components: int = 50
    k: int = 4  # clusters of the features
    ground: str = "centroid"  # or "label", for the paper's figures only
    reselect: int = 0  # rounds between selections; 0: only one
    budget: float = math.inf  # ε per record that a client spends on selections at most
    step_rounds: int = 20  # of strategy "incremental"
    validation: float = 0.2  # of strategy "incremental": share of its samples that the target holds back
    stop: bool = True  # of strategy "incremental", at the first drop; false: try everybody, keep the same model

    def __post_init__(self) -> None:
        _choice("strategy", self.strategy, STRATEGIES)
        _choice("sensitivity", self.sensitivity, ("public", "data"))
        _choice("ground", self.ground, collaborators.GROUNDS)
        if not self.epsilon > 0:
            raise CoveyError(f"algorithm.epsilon is {self.epsilon}: a privacy budget is above 0 (inf: no noise)")
        if not self.budget > 0:
            raise CoveyError(f"algorithm.budget is {self.budget}: it must be above 0 (inf: no limit)")
        if not 0 < self.threshold <= 1:
            raise CoveyError(f"algorithm.threshold is {self.threshold}: a share of the largest distance, above 0 to 1")
        if not 0 < self.validation < 1:
            raise CoveyError(f"algorithm.validation is {self.validation}: a share strictly between 0 and 1")
        for name, least in {"target": -1, "m": 1, "components": 1, "k": 2, "reselect": 0, "step_rounds": 1}.items():
            if getattr(self, name) < least:
                raise CoveyError(f"algorithm.{name} is {getattr(self, name)}: it must be at least {least}")
        object.__setattr__(self, "under", _underneath(self.under))
        if self.strategy == "incremental":
            incremental.check(self.under, self.target, self.reselect)
            if declaration(self.under).min_group > 2:
                raise CoveyError(
                    f"algorithm.under.min_group is {declaration(self.under).min_group}, and strategy 'incremental' trains two "
                    "clients at a time: set it to 2 or less, or choose another strategy"
                )

    @property
    def parts(self) -> Messages:
        return declaration(self.under).replies

    @property
    def sends(self) -> Messages:
        return (Features, Renewal, Turns, Idle, incremental.Check, *declaration(self.under).sends)

    @property
    def replies(self) -> Messages:
        return (NoisyFeatures, Turns, Idle, incremental.Judgement, *self.parts)

    def start(self, setting: Setting) -> Collaboration:
        if self.target >= setting.clients:
            raise CoveyError(f"algorithm.target is {self.target}, but clients count from 0 to {setting.clients - 1}")
        selections = 1 + ((setting.rounds - 1) // (self.reselect + 1) if self.reselect else 0)
        self._check_budget(selections * self.cost, "one selection" if selections == 1 else f"{selections} selections")
        if self.strategy == "incremental" and setting.rounds < self.step_rounds + 2:
            raise CoveyError(
                f"{setting.rounds} rounds are one for the selection, {self.step_rounds} for the first client and one to judge: "
                f"set training.rounds to at least {self.step_rounds + 2}, or algorithm.step_rounds lower"
            )
        features = self._features(setting)
        targets = range(setting.clients) if self.target < 0 else [self.target]
        first = self.under.start(setting)
        return Collaboration("select", features, {t: [] for t in targets}, dict.fromkeys(targets, first))

    def models(self, state: Collaboration) -> int:
        return len(state.inner)

    @property
    def cost(self) -> float:
        """ε per record of one selection, by basic composition over the coordinates."""
        return self.epsilon * self.components

    def wants(self, state: Collaboration, client: int) -> bool:
        """Whether this client takes part in the next round."""
        if state.phase == "select":
            return True
        if state.search is not None:
            return incremental.wants(state.search, state.phase, self.target, client)
        return any(client in group for group in state.groups.values())

    def serves(self, state: Collaboration, client: int) -> bool:
        """Whether the model is for this client: helpers are not examined."""
        return client in state.groups

    def awaits(self, state: Collaboration) -> Messages:
        """What those whom it wants in the next round return."""
        if state.phase == "train":
            return self.parts if self.target >= 0 else (Turns,)
        return {"select": (NoisyFeatures,), "check": (incremental.Judgement,)}.get(state.phase, (Idle,))

    def broadcast(self, state: Collaboration, client: int) -> Any:
        if state.phase == "select":
            renewed = state.since > 0 and client in state.groups
            return (
                Renewal(state.features, self.under.broadcast(state.inner[client], client))
                if renewed
                else state.features
            )
        if state.phase == "check":
            return incremental.Check(self._model(state))
        if not self.wants(state, client):
            return Idle()
        if self.target >= 0:  # one object for all, as the algorithm underneath has it
            return self.under.broadcast(state.inner[self.target], client)
        working = [t for t, group in state.groups.items() if client in group]
        return Turns({t: self.under.broadcast(state.inner[t], client) for t in working})

    def client(self, me: Client, message: Any) -> Coroutine:
        self._check_request(me, message)
        if isinstance(message, Features | Renewal):
            spent = me.memory.get("spent", 0.0) + self.cost
            self._check_budget(spent, f"client {me.id}'s selections up to round {me.round}")
            # By our own features, not by those that were sent: they decide what is said about the samples.
            agreed = yield Compute("describe", self._features, (me.setting,), shared=True)
            check_agreed(message if isinstance(message, Features) else message.features, agreed)
            me.memory["spent"] = spent
            return (yield from describe(me, agreed, self.epsilon))
        if isinstance(message, incremental.Check):
            return (yield from incremental.judge(me, message, self.validation))
        if isinstance(message, Idle):
            return Idle()
        if isinstance(message, Turns):
            replies = yield from in_step([self._work(me, t, part) for t, part in message.parts.items()])
            return Turns(dict(zip(message.parts, replies)))
        if self.strategy == "incremental" and me.id == self.target:
            return (yield from incremental.without_held_back(me, self.validation, self._work, self.target, message))
        return (yield from self._work(me, self.target, message))

    def _check_request(self, me: Client, message: Any) -> None:
        """What the agreed strategy never asks of this client: models for others than targets, judgements by others than one."""
        if isinstance(message, Turns):
            asked = "models for several targets" if self.target >= 0 or not _are_clients(message.parts, me) else ""
        elif isinstance(message, incremental.Check):
            asked = "" if self.strategy == "incremental" and me.id == self.target else "a judgement"
        else:
            asked = (
                "a model for one target" if self.target < 0 and type(message) in declaration(self.under).sends else ""
            )
        if asked:
            raise CoveyError(
                f"client {me.id} was asked for {asked}, which is no part of what was agreed: nothing was sent"
            )

    def _features(self, setting: Setting) -> Features:
        return public_features(setting, self.components, self.sensitivity == "public")

    def _work(self, me: Client, target: int, message: Any) -> Coroutine:
        """One turn for one target; what the algorithm underneath remembers is kept apart from its work for others."""
        name = f"for {target}"
        memory = dict(me.memory.get(name, {}))
        reply = yield from self.under.client(replace(me, memory=memory), message)
        if memory:
            me.memory[name] = memory
        return reply

    def aggregate(self, server: Server, state: Collaboration, replies: Iterator[tuple[int, Any]]) -> Collaboration:
        if state.phase == "select":
            width = state.features.axes.shape[1]
            described = {i: reply for i, reply in replies if isinstance(reply, NoisyFeatures)}
            return self._select(server, state, {i: r for i, r in described.items() if r.rows.shape[1] == width})
        if state.phase == "check":
            return self._judge_step(server, state, [reply.accuracy for _, reply in replies])
        if state.phase == "done":
            return state
        inner = self._aggregate_groups(server, state, replies)
        since = state.since + 1
        if state.search is not None:
            return replace(state, inner=inner, since=since, phase="check" if since == self.step_rounds else "train")
        again = self.reselect and since >= self.reselect
        return replace(state, inner=inner, since=since, phase="select" if again else "train")

    def _aggregate_groups(self, server: Server, state: Collaboration, replies: Iterator[tuple[int, Any]]) -> Any:
        if self.target >= 0:
            size = 2 if state.search is not None else len(state.groups[self.target])
            return {
                self.target: self.under.aggregate(_server_of_group(server, size), state.inner[self.target], replies)
            }
        sorted_out: dict[int, list[tuple[int, Any]]] = defaultdict(list)
        for client, reply in replies:
            for t, part in reply.parts.items():
                sorted_out[t].append((client, part))
        return {
            t: self.under.aggregate(_server_of_group(server, len(state.groups[t])), inner, iter(sorted_out[t]))
            for t, inner in state.inner.items()
        }

    def _select(self, server: Server, state: Collaboration, sent: dict[int, NoisyFeatures]) -> Collaboration:
        if not sent or (self.target >= 0 and self.target not in sent):
            return state  # without the target nothing can be compared: the next round asks again
        rows = {i: features.rows.cpu().numpy() for i, features in sent.items()}
        share = self.threshold if self.strategy == "threshold" else collaborators.THRESHOLDS.get(self.strategy, 1.0)
        at_most = self.m if self.strategy == "top" else 0
        with server.phase("cluster"):
            chosen = select_groups(
                rows, self.target, self.k, self.ground, share, at_most, server.random("collaborators")
            )
        if chosen.spread is not None:
            server.note("distance_range", chosen.spread.seen)
            server.note("range_by_chance", chosen.spread.by_chance)
            if self.strategy != "all":
                collaborators.refuse_drowned(chosen.spread, self.epsilon)
        groups = {t: chosen.groups.get(t, [t]) for t in state.groups}
        server.note("earth_movers", chosen.distances.tolist())
        server.note("collaborators", {str(t): group for t, group in groups.items()})
        server.note("group_size", float(np.mean([len(g) for g in groups.values()])))
        if self.strategy == "incremental":
            return self._step(server.setting, replace(state, groups=groups, search=incremental.Search()), None)
        return replace(state, phase="train", groups=groups, since=0)

    def _step(self, setting: Setting, state: Collaboration, model: Tensor | None) -> Collaboration:
        """The next client's turn with the target, from the model so far."""
        assert state.search is not None
        others = state.groups[self.target][1:]
        if state.search.step >= len(others):
            return replace(state, phase="done")
        start = setting.start if model is None else model[None]
        first = self.under.start(replace(setting, start=start, clients=2))
        search = replace(state.search, partner=others[state.search.step])
        return replace(state, phase="train", since=0, search=search, inner={self.target: first})

    def _judge_step(self, server: Server, state: Collaboration, accuracies: list[float]) -> Collaboration:
        assert state.search is not None
        if not accuracies:
            return state  # the target did not answer: it is asked again
        server.note("validation", accuracies[0])
        dropped = state.search.dropped or accuracies[0] < state.search.best
        if dropped and self.stop:
            return replace(state, phase="done")
        search = incremental.Search(state.search.step + 1, best=accuracies[0], dropped=dropped)
        return self._step(server.setting, replace(state, search=search), self._model(state))

    def _model(self, state: Collaboration) -> Tensor:
        """The model of the incremental search so far."""
        model: Tensor = roles.first(self.under.broadcast(state.inner[self.target], self.target), roles.Model)
        return model

    def use(self, me: Client, message: Any) -> Coroutine:
        if isinstance(message, Turns):
            return (yield from self.under.use(me, message.parts[me.id]))
        if isinstance(message, Renewal):
            return (yield from self.under.use(me, message.part))
        if isinstance(message, incremental.Check):
            return Predictor(message.model[None])
        if isinstance(message, Features | Idle):
            kept = me.memory.get("kept")  # the incremental search has ended: the model before the drop
            return Predictor((me.setting.one_start() if kept is None else kept)[None])
        return (yield from self.under.use(me, message))

    def _check_budget(self, spent: float, what: str) -> None:
        if spent > self.budget * (1 + 1e-9):
            raise CoveyError(
                f"{what} would spend ε = {spent:g} per record ({self.components} coordinates of {self.epsilon:g} each), above "
                f"algorithm.budget = {self.budget:g}: lower algorithm.epsilon or components, or select less often"
            )


def _are_clients(parts: Mapping[Any, Any], me: Client) -> bool:
    return all(type(target) is int and 0 <= target < me.setting.clients for target in parts)


def _choice(field: str, word: str, known: tuple[str, ...]) -> None:
    if word not in known:
        raise CoveyError(f"algorithm.{field} is {word!r}: choose one of {', '.join(known)}{meant(word, known)}")


def _underneath(given: Any) -> Any:
    """The algorithm that trains a group, from its name or its table."""
    from covey.algorithms import ALGORITHMS  # this one is in it, too

    algorithm = config.choose(ALGORITHMS, given, "algorithm.under") if isinstance(given, str | dict) else given
    declared = declaration(algorithm)
    if (
        isinstance(algorithm, PQFed)
        or declared.trains == "own"
        or declared.sealing not in ("", MASKS)
        or declared.further
    ):
        raise CoveyError(
            f"algorithm.under is {declared.name!r}, which has a protocol of its own, or none: choose a method that trains "
            "in the clear with one server"
        )
    return algorithm


def _server_of_group(server: Server, size: int) -> Server:
    """The server's desk for one group: it counts the group's clients only."""
    return replace(server, setting=replace(server.setting, clients=size))
