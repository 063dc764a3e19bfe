"""Exact oblivious routing, beside which MingledPie's trade is to be seen: every client contributes to every cluster.

Client i seals k blocks `[σ_ib θ_i, σ_ib]`, where `σ_ib` is 1 for its own cluster and 0 for the others; the server adds block b
into the sum of cluster b. No block can be told from another, so the server's best guess at an identity is 1/k whatever it
remembers, there is nothing to rebuild and no rebuilding error. The price: k times the upload and the encryption.

Keys, parties and trust as in `mingledpie.py`: all clients hold the same secret key, or open sums together, `quorum` of them. A
client that helps to open learns no set here: every client is in every sum.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from covey import roles
from covey.algorithms.contract import Client, Coroutine, Messages, Predictor, Server, Setting
from covey.algorithms.rebuild import Rebuilt, mingled_means, rebuild_models, recall
from covey.algorithms.robust.averages import UNDER_SEALS, check_group
from covey.algorithms.sums import openings
from covey.algorithms.sums.openings import Seals
from covey.config import later
from covey.crypto.key_kinds import Describe
from covey.crypto.openings.threshold import Opening, OpeningAdvice, OpeningQuestion
from covey.crypto.openings.threshold import key_kind as own_key_kind
from covey.crypto.sealing import sealing
from covey.crypto.sealing.sealing import key_kind
from covey.learn.work import Compute, Losses, Train, Work
from covey.measures import Measure
from covey.messages import LATER, message


@message
@dataclass(frozen=True)
class RoutedSums:
    sums: Annotated[
        list[bytes], roles.SealedSums((roles.Model, roles.Count))
    ]  # k, each seals [d + 1]; none before the first round
    # where clients open sums together
    opening: Annotated[Opening | None, roles.Part] = field(default=None, metadata=LATER)


@message
@dataclass(frozen=True)
class RoutedUpdate:
    blocks: Annotated[list[bytes], roles.SealedBlocks((roles.Model, roles.Count))]  # k, each seals [d + 1]
    # for each client, where they open together
    boxes: Annotated[list[bytes] | None, roles.Boxes] = field(default=None, metadata=LATER)


@dataclass(frozen=True)
class Routing:
    name: ClassVar[str] = "routing"
    label: ClassVar[str] = "Oblivious routing"
    title: ClassVar[str] = "exact oblivious routing: a sealed block for every cluster, at k times the upload"
    family: ClassVar[str] = "private"
    surveyed: ClassVar[bool] = True
    sealing: ClassVar[str] = "sums"
    REFUSED: ClassVar[Mapping[str, str]] = UNDER_SEALS
    sends: ClassVar[Messages] = (RoutedSums,)
    replies: ClassVar[Messages] = (RoutedUpdate,)
    consults: ClassVar[Messages] = (OpeningQuestion,)
    advises: ClassVar[Messages] = (OpeningAdvice,)
    key_kinds: ClassVar[Mapping[str, Describe]] = {"sealing": key_kind, openings.OWN: own_key_kind}
    measures: ClassVar[Mapping[str, Measure]] = {"unopened": openings.UNOPENED, "cut": openings.CUT}

    bound: float = 16.0  # largest weight that can be sealed
    min_group: int = later(
        1
    )  # fewest clients of a cluster whose mean a client uses; the server sees no counts and sends all
    quorum: int = later(0)  # clients that must help to open a sum, with encryption = "threshold"; 0: more than half

    def __post_init__(self) -> None:
        check_group(self.min_group)
        openings.check_quorum(self.quorum)

    def keys(self, setting: Setting, publics: Mapping[int, bytes] | None = None) -> dict[str, dict[str, Any]]:
        held, server = openings.issue(setting, self.bound, self.quorum, publics)
        return {"clients": held, "server": {"sealing": server}}

    def check_keys(self, keys: Mapping[str, Any], client: int, encryption: str) -> None:
        openings.check_held(keys, client, encryption, self.bound, self.quorum)

    def start(self, setting: Setting) -> RoutedSums:
        return RoutedSums([])

    def broadcast(self, state: RoutedSums, client: int) -> RoutedSums:
        return state

    def client(self, me: Client, message: RoutedSums) -> Coroutine:
        models = yield from self._models(me, message)
        losses = yield Losses(models)  # [k]
        choice = int(losses.argmin())
        me.note("cluster", choice)
        model = openings.sealable(me, (yield Train(models[choice], me.plan)), lambda: models[choice])
        given = (Seals.of(me), model, choice, me.setting.clusters)
        blocks, boxes = yield Compute("encrypt", _seal_blocks, given, on_cpu=True)
        return RoutedUpdate(blocks, boxes)

    def aggregate(self, server: Server, state: RoutedSums, replies: Iterator[tuple[int, Any]]) -> RoutedSums:
        k, d = server.setting.start.shape
        mixer = sealing.mixer(server.keys["sealing"], k, d + 1)
        came = 0
        boxes: dict[int, Sequence[bytes]] = {}
        for i, reply in replies:
            if not openings.keep_boxes(server, boxes, i, reply.boxes):
                continue
            came += 1
            for b, block in enumerate(reply.blocks):
                mixer.add(block, [b])
        if not came:
            return state
        if not openings.is_together(server.setting.encryption):
            return RoutedSums(mixer.sums())
        everyone = np.ones((k, came), dtype=bool)
        least = openings.least_opened(server.setting, self.min_group)
        opening = openings.open_together(server, everyone, boxes, range(k)) if came >= least else None
        return state if opening is None else RoutedSums(mixer.sums(), opening)

    def reticent(self, setting: Setting) -> bool:
        return openings.is_together(setting.encryption)

    def advise(self, me: Client, question: OpeningQuestion) -> Coroutine:
        """Where clients open sums together: this one's part."""
        return (yield from openings.help_open(me, question, openings.least_opened(me.setting, self.min_group)))

    def use(self, me: Client, message: RoutedSums) -> Coroutine:
        models = yield from self._models(me, message)
        losses = yield Losses(models)
        return Predictor(models, index=int(losses.argmin()))

    def _models(self, me: Client, message: RoutedSums) -> Generator[Work, Any, Tensor]:
        if not message.sums:
            return me.setting.start
        rebuilt = yield Compute(
            "decrypt", _open_means, (Seals.of(me), message, me.setting, self.min_group), shared=True
        )
        return (yield from recall(me, rebuilt))


def _seal_blocks(seals: Seals, model: Tensor, choice: int, clusters: int) -> tuple[list[bytes], list[bytes] | None]:
    block = np.append(model.cpu().numpy().astype(np.float64), 1.0)
    return seals.seal([block if b == choice else np.zeros_like(block) for b in range(clusters)])


def _open_means(seals: Seals, message: RoutedSums, setting: Setting, least: int) -> Rebuilt:
    opened = seals.open(message.sums, message.opening)  # [k, d + 1]
    sums, counts = opened[:, :-1], sealing.whole_counts(opened[:, -1])
    means, known = mingled_means(torch.from_numpy(sums), counts)
    known = [there and bool(count >= least) for there, count in zip(known, counts)]
    mean = None if bool(setting.personal.all()) else torch.from_numpy(sums.sum(0) / counts.sum())
    return rebuild_models(means, known, setting, mean)
