"""One message for all clients is asked for once, where the algorithm says of its very text that it sends them the same."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest

from covey import Experiment, run
from covey.algorithms import ALGORITHMS
from covey.algorithms.averaging import GlobalModel
from covey.algorithms.contract import declaration
from covey.algorithms.fedavg import FedAvg
from covey.data.federation import Federation
from covey.engines.calls import Alike
from covey.engines.cohort import sends_alike
from covey.errors import CoveyError, NotFinite
from covey.learn.work import Plan

STATE = ["one", "two"]


@dataclass(frozen=True)
class Lopsided(FedAvg):
    """Another text of what its parent says."""

    def broadcast(self, state: Any, client: int) -> Any:
        return GlobalModel(client * state.model)


@dataclass(frozen=True)
class Sure(Lopsided):
    sends_alike: ClassVar[bool] = True


@dataclass(frozen=True)
class Silent(FedAvg):
    sends_alike: ClassVar[bool] = False


def test_a_word_holds_for_the_text_that_it_was_said_of() -> None:
    assert [sends_alike(one()) for one in (FedAvg, Lopsided, Sure, Silent)] == [True, False, True, False]


@pytest.mark.parametrize(("algorithm", "asked"), [(FedAvg(), 1), (Silent(), 3)])
def test_a_message_that_is_the_same_for_all_is_asked_for_once(
    algorithm: FedAvg, asked: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    clients: list[int] = []
    monkeypatch.setattr(FedAvg, "broadcast", lambda self, state, client: (clients.append(client), state)[1])
    x, y = np.eye(30, 4, dtype=np.float32), np.arange(30) % 2
    data = Federation.from_arrays(x, y, clients=np.arange(30) // 10)
    training, engine = {"rounds": 1, "epochs": 1, "batch_size": 4, "lr": 0.05}, {"device": "cpu", "workers": 1}
    given = Experiment.of(algorithm=algorithm, clusters=1, model="softmax", training=training, engine=engine)
    run(given, federation=data, quiet=True)
    assert len(clients) == 3 * asked  # for the round, its evaluation, and the models that are kept


class Anything:
    """A state of any algorithm."""

    def __getattr__(self, name: str) -> Anything:
        return self


@dataclass(frozen=True)
class Later(FedAvg):
    """Sends alike in its first round only, and then its last client another model."""

    sends_alike: ClassVar[bool] = True

    def aggregate(self, server: Any, state: Any, replies: Any) -> Any:
        return GlobalModel(super().aggregate(server, state, replies).model + 1.0)

    def broadcast(self, state: Any, client: int) -> Any:
        return (
            GlobalModel(-state.model) if client == 9 and float(state.model.max()) > 0.9 else GlobalModel(+state.model)
        )


@pytest.mark.parametrize(("algorithm", "round"), [(Sure(), 1), (Later(), 2)])
def test_a_false_word_that_all_get_the_same_is_told(algorithm: Any, round: int) -> None:
    x, y = np.eye(30, 4, dtype=np.float32), np.arange(30) % 2
    data = Federation.from_arrays(x, y, clients=np.arange(30) // 3)
    training, engine = {"rounds": 4, "epochs": 1, "batch_size": 4, "lr": 0.05}, {"device": "cpu", "workers": 1}
    given = Experiment.of(algorithm=algorithm, clusters=1, model="softmax", training=training, engine=engine)
    said = f"declares sends_alike, but in round {round} its broadcast gives client .* another message than client 0"
    with pytest.raises(CoveyError, match=said):
        run(given, federation=data, quiet=True)


@dataclass(frozen=True)
class Undefined(FedAvg):
    sends_alike: ClassVar[bool] = True

    def broadcast(self, state: Any, client: int) -> Any:
        return GlobalModel(state.model * float("nan"))


def test_what_differs_from_itself_makes_nobody_a_liar() -> None:
    with pytest.raises(NotFinite):
        run(Experiment.of(algorithm=Undefined(), training={"rounds": 1}, engine={"workers": 1}), quiet=True)


def test_every_algorithm_of_ours_that_reads_in_rows_is_asked_once() -> None:
    """Else a round on a GPU calls it a thousand times."""
    assert all(sends_alike(kind()) for kind in ALGORITHMS.values() if declaration(kind).in_rows)


@pytest.mark.parametrize("name", [name for name, kind in ALGORITHMS.items() if declaration(kind).sends_alike])
def test_who_says_so_sends_alike(name: str) -> None:
    algorithm, state = ALGORITHMS[name](), Anything()
    assert algorithm.broadcast(state, 0) is algorithm.broadcast(state, 1)


def test_calls_alike_are_a_sequence_of_calls() -> None:
    plan = Plan()
    calls = Alike(np.array([3, 5, 8]), STATE, plan)
    assert list(calls) == [(3, STATE, plan), (5, STATE, plan), (8, STATE, plan)]
    assert calls[1] == (5, STATE, plan)
    assert type(calls[1][0]) is int
    assert list(calls[1:]) == [(5, STATE, plan), (8, STATE, plan)]
    assert len(calls[3:]) == 0
