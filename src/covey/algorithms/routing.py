"""Exact oblivious routing, beside which MingledPie's trade is to be seen: every client contributes to every cluster.

Client i seals k blocks `[σ_ib θ_i, σ_ib]`, where `σ_ib` is 1 for its own cluster and 0 for the others; the server adds block b
into the sum of cluster b. No block can be told from another, so the server's best guess at an identity is 1/k whatever it
remembers, there is nothing to rebuild and no rebuilding error. The price: k times the upload and the encryption.

Keys, parties and trust as in `mingledpie.py`: all clients hold the same secret key.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import numpy as np
from torch import Tensor

from covey import roles
from covey.algorithms.contract import Client, Coroutine, Messages, Predictor, Server, Setting
from covey.algorithms.rebuild import Rebuilt, mingled_means, rebuild_models, recall
from covey.algorithms.robust.averages import UNDER_SEALS, check_group
from covey.config import later
from covey.crypto.key_kinds import Describe
from covey.crypto.sealing import sealing
from covey.crypto.sealing.sealing import key_kind
from covey.learn.work import Compute, Losses, Train, Work
from covey.messages import message


@message
@dataclass(frozen=True)
class RoutedSums:
    sums: Annotated[
        list[bytes], roles.SealedSums((roles.Model, roles.Count))
    ]  # k, each seals [d + 1]; none before the first round


@message
@dataclass(frozen=True)
class RoutedUpdate:
    blocks: Annotated[list[bytes], roles.SealedBlocks((roles.Model, roles.Count))]  # k, each seals [d + 1]


@dataclass(frozen=True)
class Routing:
    name: ClassVar[str] = "routing"
    label: ClassVar[str] = "Oblivious routing"
    title: ClassVar[str] = "exact oblivious routing: a sealed block for every cluster, at k times the upload"
    surveyed: ClassVar[bool] = True
    sealing: ClassVar[str] = "sums"
    REFUSED: ClassVar[Mapping[str, str]] = UNDER_SEALS
    sends: ClassVar[Messages] = (RoutedSums,)
    replies: ClassVar[Messages] = (RoutedUpdate,)
    key_kinds: ClassVar[Mapping[str, Describe]] = {"sealing": key_kind}

    bound: float = 16.0  # largest weight that can be sealed
    min_group: int = later(
        1
    )  # fewest clients of a cluster whose mean a client uses; the server sees no counts and sends all

    def __post_init__(self) -> None:
        check_group(self.min_group)

    def keys(self, setting: Setting) -> dict[str, dict[str, Any]]:
        seal = sealing.generate_keys(setting.encryption, self.bound, setting.clients)
        return {"clients": {"sealing": seal}, "server": {"sealing": sealing.sealer(seal).public()}}

    def start(self, setting: Setting) -> RoutedSums:
        return RoutedSums([])

    def broadcast(self, state: RoutedSums, client: int) -> RoutedSums:
        return state

    def client(self, me: Client, message: RoutedSums) -> Coroutine:
        models = yield from self._models(me, message)
        losses = yield Losses(models)  # [k]
        choice = int(losses.argmin())
        me.note("cluster", choice)
        model = yield Train(models[choice], me.plan)
        blocks = yield Compute("encrypt", _seal_blocks, (me.keys["sealing"], model, choice, me.setting.clusters))
        return RoutedUpdate(blocks)

    def aggregate(self, server: Server, state: RoutedSums, replies: Iterator[tuple[int, Any]]) -> RoutedSums:
        k, d = server.setting.start.shape
        mixer = sealing.mixer(server.keys["sealing"], k, d + 1)
        came = False
        for _, reply in replies:
            came = True
            for b, block in enumerate(reply.blocks):
                mixer.add(block, [b])
        return RoutedSums(mixer.sums()) if came else state

    def use(self, me: Client, message: RoutedSums) -> Coroutine:
        models = yield from self._models(me, message)
        losses = yield Losses(models)
        return Predictor(models, index=int(losses.argmin()))

    def _models(self, me: Client, message: RoutedSums) -> Generator[Work, Any, Tensor]:
        if not message.sums:
            return me.setting.start
        rebuilt = yield Compute(
            "decrypt", _open_means, (me.keys["sealing"], message, me.setting, self.min_group), shared=True
        )
        return (yield from recall(me, rebuilt))


def _seal_blocks(keys: bytes, model: Tensor, choice: int, clusters: int) -> list[bytes]:
    block = np.append(model.cpu().numpy().astype(np.float64), 1.0)
    return [sealing.sealer_of(keys).seal(block if b == choice else np.zeros_like(block)) for b in range(clusters)]


def _open_means(keys: bytes, message: RoutedSums, setting: Setting, least: int) -> Rebuilt:
    opened = np.stack([sealing.sealer_of(keys).open(one) for one in message.sums])  # [k, d + 1]
    sums, counts = opened[:, :-1], sealing.whole_counts(opened[:, -1])
    means, known = mingled_means(sums, counts)
    known = [there and bool(count >= least) for there, count in zip(known, counts)]
    mean = None if bool(setting.personal.all()) else sums.sum(0) / counts.sum()
    return rebuild_models(means, known, setting, mean)
