"""Tests of noised sums over clients: a whole client is the canary, looked for in the sums by whoever may see them.

What the canary client adds is the test's, far longer than the bound, and from round to round opposite, so that noise which comes
twice cancels. What all others add is known to the adversary, so they add nothing. Bounding, noise, sealing and summing are the
experiment's own code, in a small circle of clients where there is one; of it as many as may be corrupted send no noise at all.

    taking part    the canary client's contribution, or nothing (zeros, where it must send something)
    its cluster    the same contribution in one block or in another; claimed is what holds for a replaced client
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from covey.algorithms.contract import Client, Coroutine, Server, Setting, make_keys, own_keys
from covey.algorithms.sums.contributions import Contribution
from covey.audit.canaries import worlds
from covey.audit.canaries.claims import FURTHER
from covey.audit.canaries.verdict import LedgerTest
from covey.crypto.noise.source import SecretNoise
from covey.experiment.experiment import Experiment
from covey.learn.work import Plan
from covey.ledger.pricing import price
from covey.randomness import generator

WIDTH = 8  # weights of the models that the canary moves: one direction is all that counts
BLOCKS = 2  # of its models: the canary's own and another
FAR = 1e6
ROUNDS = 2  # of a trial: enough to see noise that is drawn twice
SEALED, CLEAR = 200, 3000  # trials: where every one seals and opens, and where it does not
CANARY = 0
TAKING_PART, CLUSTER = "taking part", "its cluster"
Spends = list[tuple[int, int, Any]]


@dataclass(frozen=True)
class Planted:
    """An algorithm whose canary client adds what the test wants."""

    name: ClassVar[str] = "planted"
    title: ClassVar[str] = "a canary client"

    number: int
    counted: bool
    block: int = 0
    sign: float = 1.0

    def blocks(self, setting: Any) -> int:
        return self.number

    def start(self, setting: Setting) -> torch.Tensor:
        return setting.start

    def broadcast(self, state: torch.Tensor, client: int) -> torch.Tensor:
        return state

    def client(self, me: Client, message: Any) -> Coroutine:
        return None
        yield

    def contribution(self, me: Client, message: Any, reply: Any) -> Contribution:
        change = torch.zeros(WIDTH)
        change[0] = FAR * self.sign
        return Contribution({self.block: change}, {self.block: 1.0} if self.counted else {})


@dataclass(frozen=True)
class Circle:
    """The protected algorithm among few clients, without any training."""

    protected: Any
    setting: Setting
    keys: Mapping[str, Any]
    deployed: bool

    def sums(
        self, round: int, block: int | None, spends: Spends, past: list[torch.Tensor] | None = None
    ) -> NDArray[np.float64]:
        """What a round shows: every block along the canary's direction, its size, and how many were clipped.

        `past`: noises of the rounds before, where this one takes them back; its own is put to them.
        """
        sign = 1.0 if round % ROUNDS else -1.0
        planted = replace(self.protected.stands_for, block=block or 0, sign=sign)
        acting = replace(self.protected, stands_for=planted)
        clients = {i: self._client(i, round) for i in range(self.setting.clients)}

        def consult(questions: Mapping[int, Any], enough: int) -> dict[int, Any]:
            return {j: finished(acting.advise(clients[j], question)) for j, question in questions.items()}

        server = Server(round, self.setting.seed, self.setting, dict(self.keys.get("server", {})), _nobody, _untimed)
        server = replace(server, consult=consult, secret=SecretNoise() if self.deployed else None)
        state = replace(acting.start(self.setting), past=past or None)
        there = block is not None and self._drawn(round) and not past
        total = acting.summation.total(server, state, self._replies(acting, state, clients, there))
        if past is not None and total.noise is not None:
            past.append(total.noise)
        spends += [(round, CANARY, event) for event in clients[CANARY].events]
        spends += [(round, client, event) for client, event in server.events]
        moved = total.changes[:, 0].numpy() / state.clip
        return np.concatenate([moved, total.sizes.numpy(), [total.within]])

    def _drawn(self, round: int) -> bool:
        """Whether the canary client is in this round, where clients are drawn by coins. Where noise is taken back it answers in the
        first round of a trial only, since it must not again within the band.
        """
        rate = getattr(self.protected.summation, "sampling", 1.0)
        return rate >= 1 or bool(generator(self.setting.seed, round, "drawn").random() < rate)

    def _replies(
        self, acting: Any, state: Any, clients: Mapping[int, Client], there: bool
    ) -> Iterator[tuple[int, Any]]:
        summation, blocks = acting.summation, acting.stands_for.number
        silent: Sequence[int] = getattr(summation, "false_clients", ())
        for i, me in clients.items():
            if i == CANARY and there:
                yield i, finished(acting.client(me, acting.broadcast(state, i)))
            elif i in silent:
                yield i, summation.silent(me, blocks)
            elif hasattr(summation, "absent"):
                yield i, finished(summation.absent(me, blocks))

    def _client(self, i: int, round: int) -> Client:
        keys = own_keys(self.keys.get("clients", {}), i)
        me = Client(i, round, self.setting.seed, 1, Plan(), self.setting, {}, keys, data=_no_data)
        return replace(me, secret=SecretNoise() if self.deployed else None)


def tests(experiment: Experiment, trials: int, deployed: bool) -> list[LedgerTest]:
    """[] where no sum over clients is noised. `trials`: 0 for the usual."""
    if not hasattr(experiment.algorithm, "summation"):
        return []
    circle = circle_of(experiment, deployed)
    planted = circle.protected.stands_for
    tests = [_two_worlds(circle, TAKING_PART, (0, None), trials, experiment.seed)]
    if planted.counted and planted.number > 1:
        tests.append(_two_worlds(circle, CLUSTER, (0, 1), trials, experiment.seed))
    return tests


def circle_of(experiment: Experiment, deployed: bool) -> Circle:
    inner = experiment.algorithm.stands_for
    number = min(inner.blocks(experiment.algorithm.terms), BLOCKS)
    smaller: Callable[[], Any] = getattr(
        experiment.algorithm.summation, "smaller", lambda: experiment.algorithm.summation
    )
    summation = smaller()
    protected = replace(
        experiment.algorithm, stands_for=Planted(number, inner.counted), summation=replace(summation, blocks=number)
    )
    clients = getattr(summation, "members", 1)
    start = torch.zeros(experiment.clusters, WIDTH)
    setting = Setting(
        experiment.seed,
        clients,
        experiment.clusters,
        1,
        Plan(),
        start,
        torch.ones(WIDTH, dtype=torch.bool),
        experiment.encryption,
    )
    return Circle(protected, setting, make_keys(protected, setting), deployed)


def _two_worlds(circle: Circle, question: str, blocks: tuple[int, int | None], trials: int, seed: int) -> LedgerTest:
    count = trials or (SEALED if hasattr(circle.protected.summation, "silent") else CLEAR)
    there = generator(seed, "a client", question).permutation(np.arange(count) % 2 == 0)
    takes_back = getattr(circle.protected.summation, "band", 1) > 1
    spends: Spends = []
    known = []
    for trial in range(count):
        block = blocks[0] if there[trial] else blocks[1]
        of_trial: Spends = []
        rounds = range(ROUNDS * trial + 1, ROUNDS * trial + 1 + ROUNDS)
        past: list[torch.Tensor] | None = [] if takes_back else None
        known.append(np.concatenate([circle.sums(round, block, of_trial, past) for round in rounds]))
        spends = spends if len(spends) >= len(of_trial) else of_trial
    mechanism, delta = spends[0][2].mechanism, spends[0][2].delta
    curve = {d: e for d in (delta, *FURTHER) if math.isfinite(e := _claimed(spends, d, mechanism, question))}
    scores = worlds.discriminant(np.stack(known), there)
    seen = worlds.compare(scores, there, curve, delta)
    return LedgerTest(
        mechanism=mechanism,
        method=f"two worlds, {question}",
        rounds=ROUNDS,
        claimed=curve.get(delta),
        delta=delta,
        trials=count,
        deployed=circle.deployed,
        **asdict(seen),
    )


def _claimed(spends: Spends, delta: float, mechanism: str, question: str) -> float:
    entry = price(spends, delta)[mechanism]
    epsilon = entry["epsilon"] if question == TAKING_PART else entry["total"]["replaced"]
    return math.inf if epsilon is None else float(epsilon)


def finished(turn: Coroutine) -> Any:
    """What a client's turn returns; it asks for computations only, there is no machine."""
    answer: Any = None
    while True:
        try:
            work: Any = turn.send(answer)
        except StopIteration as stop:
            return stop.value
        answer = work.function(*work.arguments)


def _nobody(party: str, message: Any) -> Any:
    raise AssertionError(f"a sum asks {party}")


def _untimed(phase: str) -> Any:
    return nullcontext()


def _no_data() -> Any:
    raise AssertionError("a canary client has no samples")
