"""The models that a party is sent: as they stand in a message, or as its own client's code gets them out of a sealed one."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from covey import roles
from covey.algorithms.contract import Client
from covey.attacks.contract import Knowledge, View
from covey.errors import CoveyError
from covey.learn.work import Compute


def models_in(view: View, known: Knowledge, memory: dict[str, Any]) -> list[Tensor]:
    """Models [d], or several as [k, d], of a message to a client; `memory` keeps what the adversary's own clients remember."""
    models = [
        sent for _, sent in roles.carried(view.message, roles.Models, roles.Model) if sent.shape[-1] == known.network.d
    ]
    if not models and view.receiver.startswith("client:") and known.keys.get(view.receiver):
        models = [_opened(view, known, memory)]
    return models


def _opened(view: View, known: Knowledge, memory: dict[str, Any]) -> Tensor:
    """The models [k, d] that the adversary's own client gets out of a sealed message.

    Its code is run up to the first thing that it would do with them on its data.
    """
    keys, kept, setting = dict(known.keys[view.receiver]), memory.setdefault("own", {}), known.setting
    number = int(view.receiver.removeprefix("client:"))
    me = Client(number, view.round, setting.seed, 0, setting.plan, setting, kept, keys, _no_data)
    turn = known.algorithm.use(me, view.message)
    answer: Any = None
    while True:
        try:
            work = turn.send(answer)
        except StopIteration as stop:
            models: Tensor = stop.value.models
            return models
        if not isinstance(work, Compute):
            return work.models  # type: ignore[no-any-return]
        answer = work.function(*work.arguments)


def _no_data() -> tuple[Tensor, Tensor]:
    raise CoveyError("this attack looks at models only, the client's samples are not its to read")
