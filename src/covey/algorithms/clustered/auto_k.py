"""An unknown number of clusters: counted once from first updates, then any method that is told k.

    round 1:  every client trains the common start and sends how it moved
    server:   counts the clusters among the directions of these moves (`clustering.count`: silhouette, gap or eigengap), up to the
              experiment's `clusters`, and tells the method `under` it that number
    later:    the method as it is, with that k

What it shows: the server gets the first update of every client in the clear, whatever the method sends later; it is as good as
FedGroup's for grouping clients and for every attack on updates. Methods that seal what clients send are refused therefore.
Who is not there in round 1 is not counted, and joins as the method has it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar

import torch
from torch import Tensor

from covey import config, roles
from covey.algorithms.contract import (
    MASKS,
    Client,
    Coroutine,
    Messages,
    Predictor,
    Server,
    Setting,
    declaration,
    models_of,
)
from covey.clustering.count import ESTIMATORS, check_estimator, directions, estimated
from covey.errors import CoveyError
from covey.leaks import IDENTITY, SERVER, Given
from covey.learn.work import Train
from covey.measures import HIDDEN, Measure
from covey.messages import message

BOUNDED = (
    "{} clusters were counted, the most that is looked for (`clusters`): there may be more, or fewer; set it higher"
)
FEWEST = 3  # replies: fewer tell nothing of clusters


@message
@dataclass(frozen=True)
class CountingStart:
    model: Annotated[Tensor, roles.Model]  # [d]


@message
@dataclass(frozen=True)
class FirstMove:
    moved: Annotated[Tensor, roles.Change]  # [d]


@message
@dataclass(frozen=True)
class Counted:
    """The server's state."""

    start: CountingStart
    clusters: int = 0  # 0: not counted yet
    inner: Any = None  # the state of the method underneath


@dataclass(frozen=True)
class AutoK:
    name: ClassVar[str] = "auto_k"
    label: ClassVar[str] = "k estimated"
    title: ClassVar[str] = "counts the clusters among first updates, then runs a method that is told their number"
    numbered: ClassVar[bool] = False
    REFUSED: ClassVar[Mapping[str, str]] = {
        name: f"clusters are averaged by what runs under it: set algorithm.under.{name}"
        for name in ("min_group", "aggregation", "weighting")
    }

    under: Any = "ifca"  # which method: a name, or a table with its fields
    estimator: str = "silhouette"  # or "gap", "eigengap"

    def __post_init__(self) -> None:
        check_estimator(self.estimator)
        object.__setattr__(self, "under", _underneath(self.under))

    # ------------------------------------------------------------ what it is, by what runs under it

    @property
    def sends(self) -> Messages:
        return (CountingStart, *declaration(self.under).sends)

    @property
    def replies(self) -> Messages:
        return (FirstMove, *declaration(self.under).replies)

    @property
    def gives(self) -> tuple[Given, ...]:
        counted = Given(IDENTITY, (SERVER,), "it clusters the first updates of all clients to count the clusters")
        return (counted, *declaration(self.under).gives)

    @property
    def measures(self) -> Mapping[str, Measure]:
        counted = Measure("Clusters counted", "clusters", "By the first updates of all clients, before training.")
        bounded = Measure("Clusters counted, of so many", shown=HIDDEN, alarm=1, warning=BOUNDED)
        each = {f"counted_{name}": Measure(f"Clusters by {name}", "clusters") for name in ESTIMATORS}
        return {**declaration(self.under).measures, **each, "counted": counted, "counted_bound": bounded}

    @property
    def averages(self) -> bool:
        return declaration(self.under).averages

    @property
    def family(self) -> str:
        return declaration(self.under).family

    def models(self, state: Counted) -> int:
        if state.inner is None:
            return 1
        return models_of(self.under, state.inner, 0, state.clusters)

    def awaits(self, state: Counted) -> Messages:
        if state.inner is None:
            return (FirstMove,)
        asked = getattr(self.under, "awaits", None)
        return tuple(asked(state.inner)) if asked else declaration(self.under).replies

    # ------------------------------------------------------------ rounds

    def start(self, setting: Setting) -> Counted:
        self.under.start(setting)  # refuses what it refuses, before anybody has sent anything
        return Counted(CountingStart(setting.one_start()))

    def broadcast(self, state: Counted, client: int) -> Any:
        return state.start if state.inner is None else self.under.broadcast(state.inner, client)

    def client(self, me: Client, message: Any) -> Coroutine:
        if isinstance(message, CountingStart):
            if me.memory.get("counted"):
                raise CoveyError(
                    "the start was trained for counting already, and it is asked for again: nothing was sent"
                )
            model = yield Train(message.model, me.plan, purpose="count")
            me.memory["counted"] = True
            return FirstMove(model - message.model)
        return (yield from self.under.client(me, message))

    def aggregate(self, server: Server, state: Counted, replies: Iterator[tuple[int, Any]]) -> Counted:
        if state.inner is not None:
            desk = replace(server, setting=_told(server.setting, state.clusters))
            return replace(state, inner=self.under.aggregate(desk, state.inner, replies))
        moves = [reply.moved for _, reply in replies if isinstance(reply, FirstMove)]
        if len(moves) < FEWEST:
            return state
        most = server.setting.clusters
        with server.phase("cluster"):
            rows = directions(torch.stack(moves), most)
            counts = {name: estimated(name, rows, most, server.random(name)).clusters for name in ESTIMATORS}
        for name, count in counts.items():
            server.note(f"counted_{name}", count)
        server.note("counted", counts[self.estimator])
        clusters = counts[self.estimator]
        if clusters == most:
            server.note("counted_bound", most)
        return Counted(state.start, clusters, self.under.start(_told(server.setting, clusters)))

    def use(self, me: Client, message: Any) -> Coroutine:
        if isinstance(message, CountingStart):
            return Predictor(message.model[None])
        return (yield from self.under.use(me, message))


def _told(setting: Setting, clusters: int) -> Setting:
    return replace(setting, clusters=clusters, start=setting.start[:clusters])


def _underneath(given: Any) -> Any:
    from covey.algorithms import ALGORITHMS  # this one is in it, too

    algorithm = config.choose(ALGORITHMS, given, "algorithm.under") if isinstance(given, str | dict) else given
    declared = declaration(algorithm)
    if isinstance(algorithm, AutoK) or declared.trains != "clusters":
        raise CoveyError(
            f"algorithm.under is {declared.name!r}, which is not told a number of clusters: choose a clustered method, such as "
            "'ifca' or 'fedgroup'"
        )
    if declared.sealing not in ("", MASKS) or declared.further:
        raise CoveyError(
            f"algorithm.under is {declared.name!r}, which hides what clients send, and counting shows the server their first "
            "updates: count with 'ifca' where these may be shown, and tell the sealed method that number of clusters"
        )
    if any(roles.carries(kind, roles.Models) for kind in declared.replies):
        raise CoveyError(
            f"algorithm.under is {declared.name!r}, whose clients return a model for each cluster, as many as are agreed before "
            "the first round: choose a method whose clients return one, such as 'ifca' or 'fedgroup'"
        )
    return algorithm
