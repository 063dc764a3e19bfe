"""Local only: every client trains alone and sends nothing. The yardstick beside every personalised accuracy."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

from covey.algorithms.contract import Client, Coroutine, Messages, Predictor, Server, Setting
from covey.learn.work import Train
from covey.messages import message


@message
@dataclass(frozen=True)
class Begin:
    """A round has begun. Nothing else crosses the wire: the common start is part of the setting."""


@message
@dataclass(frozen=True)
class Done:
    pass


@dataclass(frozen=True)
class LocalOnly:
    name: ClassVar[str] = "local"
    label: ClassVar[str] = "Local training"
    title: ClassVar[str] = "every client trains alone: the yardstick"
    sends: ClassVar[Messages] = (Begin,)
    replies: ClassVar[Messages] = (Done,)
    trains: ClassVar[str] = "own"

    def start(self, setting: Setting) -> Begin:
        return Begin()

    def broadcast(self, state: Begin, client: int) -> Begin:
        return state

    def client(self, me: Client, message: Begin) -> Coroutine:
        me.memory["model"] = yield Train(self._model(me), me.plan)
        return Done()

    def aggregate(self, server: Server, state: Begin, replies: Iterator[tuple[int, Any]]) -> Begin:
        for _ in replies:
            pass
        return state

    def use(self, me: Client, message: Begin) -> Coroutine:
        return Predictor(self._model(me)[None], index=None)
        yield

    def _model(self, me: Client) -> Tensor:
        model: Tensor | None = me.memory.get("model")
        return me.setting.one_start() if model is None else model
