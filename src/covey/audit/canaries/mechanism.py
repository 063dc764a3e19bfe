"""The mechanism under test: an experiment's own clients, defence, kernels and noise, with what they release overheard.

Every client of a host is one trial: all get the same broadcast, train side by side as in any simulation, and draw their own
noise. Only what they train on and the model they start from are the test's.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from covey.algorithms.contract import Client, Coroutine, Setting, declaration
from covey.crypto.noise.source import SecretNoise
from covey.data.federation import Federation
from covey.engines.hosts.host import Host, Outcome
from covey.engines.prepare import make_host, setting_of
from covey.errors import CoveyError
from covey.experiment.experiment import Experiment
from covey.experiment.exposure import Exposure
from covey.learn.flat import Network
from covey.learn.work import Train

RELEASED = "released"
Public = tuple[Tensor, Tensor] | None  # samples that no client holds, and their labels
AT_ONCE = 64  # trials side by side: their models are in memory together


@dataclass(frozen=True)
class Overheard:
    """A defence as it is; every model that it gives back is noted."""

    inner: Any

    @property
    def name(self) -> str:
        return str(self.inner.name)

    def train(self, me: Client, work: Train) -> Coroutine:
        model = yield from self.inner.train(me, work)
        me.note(RELEASED, [*me.notes.get(RELEASED, []), model])
        return model


@dataclass(frozen=True)
class Request:
    """The plainest protocol: a client trains the model that it gets. In place of those that seal what they send."""

    name: ClassVar[str] = "request"
    title: ClassVar[str] = "one training"

    def start(self, setting: Setting) -> Tensor:
        return setting.start[0]

    def broadcast(self, state: Tensor, client: int) -> Tensor:
        return state

    def client(self, me: Client, message: Tensor) -> Coroutine:
        return (yield Train(message, me.plan))


@dataclass(frozen=True)
class Trials:
    """Clients of one host, ready to take turns."""

    experiment: Experiment
    host: Host
    messages: Sequence[Any]  # broadcast in turn, round by round

    def turns(self, clients: Sequence[int], rounds: int) -> Iterator[list[list[Outcome]]]:
        """The outcomes of so many rounds, by client, as groups of clients get done."""
        plans = [self.experiment.training.plan(round) for round in range(1, rounds + 1)]
        for begin in range(0, len(clients), AT_ONCE):
            group = clients[begin : begin + AT_ONCE]
            passed = []
            for round, plan in enumerate(plans, 1):
                message = self.messages[(round - 1) % len(self.messages)]
                passed.append(self.host.run(round, [(i, message, plan) for i in group]))
            yield [list(outcomes) for outcomes in zip(*passed)]


def training_trials(
    experiment: Experiment, network: Network, federation: Federation, starts: Tensor, public: Public, deployed: bool
) -> Trials:
    """Trials of a defence: by the experiment's own protocol where it trains at once and in the clear."""
    defended = replace(experiment, defence=Overheard(experiment.defence))
    if not declaration(experiment.algorithm).sealing:
        with contextlib.suppress(CoveyError):  # a protocol that refuses a start where all models are one
            [[[outcome]]] = _trials(defended, network, federation, starts, public, deployed).turns([0], 1)
            if released(outcome):
                return _trials(defended, network, federation, starts, public, deployed)
    return _trials(replace(defended, algorithm=Request()), network, federation, starts, public, deployed)


def own_trials(
    experiment: Experiment, network: Network, federation: Federation, public: Public, deployed: bool
) -> Trials:
    """Trials of what the algorithm itself releases when it is first asked, without a defence."""
    start = torch.zeros(1, network.d)
    return _trials(replace(experiment, defence=None), network, federation, start, public, deployed)


def released(outcome: Outcome) -> list[Tensor]:
    models: list[Tensor] = outcome.notes.get(RELEASED, [])
    return models


def _trials(
    experiment: Experiment,
    network: Network,
    federation: Federation,
    starts: Tensor,
    public: Public,
    deployed: bool,
) -> Trials:
    clients = len(federation.clients)
    alone = replace(
        experiment,
        clients=max(clients, experiment.clusters),
        encryption="none",
        exposure=Exposure(),
        attacks=(),
    )
    personal = torch.ones(network.d, dtype=torch.bool)
    settings = [
        setting_of(alone, clients, start.expand(alone.clusters, -1).contiguous(), personal, public) for start in starts
    ]
    messages = [alone.algorithm.broadcast(alone.algorithm.start(setting), 0) for setting in settings]
    host = make_host(alone, network, federation, settings[0], {}, {})
    host.secret = SecretNoise() if deployed else None
    return Trials(alone, host, messages)
