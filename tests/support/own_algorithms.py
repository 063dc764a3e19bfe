"""Algorithms outside the registry, in a module that other processes can import."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from covey.algorithms.averaging import GlobalModel
from covey.algorithms.contract import Server, Setting
from covey.algorithms.fedavg import FedAvg
from covey.algorithms.ifca import IFCA
from covey.algorithms.mingledpie.mingledpie import MingledPie
from covey.algorithms.routing import Routing
from covey.crypto.key_kinds import Describe
from covey.crypto.sealing.sealing import key_kind


@dataclass(frozen=True)
class Mine(IFCA):
    """An algorithm outside the registry, in a module that workers can import."""

    name: ClassVar[str] = "mine"

    extra: float = 0.5


@dataclass(frozen=True)
class Odd(IFCA):
    """With a field that may hold what cannot cross the wire."""

    start_at: Any = None


@dataclass(frozen=True)
class Reticent(MingledPie):
    """Describes one piece of its key material only, and changes more than draws when real parties run it."""

    name: ClassVar[str] = "reticent"
    key_kinds: ClassVar[Mapping[str, Describe]] = {"sealing": key_kind}

    def deployed(self, encryption: str) -> Reticent:
        return replace(self, draw="secret", history=3)


@dataclass(frozen=True)
class Undescribed(Routing):
    """Silos hold a key that opens, and one of each silo's own; it describes what the server holds only."""

    name: ClassVar[str] = "undescribed"

    def keys(self, setting: Setting) -> dict[str, dict[str, Any]]:
        material = super().keys(setting)
        single = {i: {"single": bytes([i]) * 32} for i in range(setting.clients)}
        return material | {"clients": {"vault": material["clients"]["sealing"], "own": single}}


@dataclass(frozen=True)
class Dealt(FedAvg):
    """Notes which GPUs its process may see."""

    name: ClassVar[str] = "dealt"

    def aggregate(self, server: Server, state: GlobalModel, replies: Iterator[tuple[int, Any]]) -> GlobalModel:
        server.note("visible", float(os.environ.get("CUDA_VISIBLE_DEVICES") or -1))
        return super().aggregate(server, state, replies)
