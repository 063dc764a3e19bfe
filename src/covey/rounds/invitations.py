"""Who is called in a round, with which message and plan."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from covey.algorithms.contract import Setting, wanted
from covey.engines.calls import Alike, Call, heterogeneous
from covey.engines.cohort import is_own, sends_alike
from covey.errors import CoveyError
from covey.experiment.experiment import Experiment
from covey.measures import CLOCK
from covey.messages import same
from covey.rounds.asynchronous import Arrivals, UnderWay, arrive

Clients = Sequence[int] | NDArray[np.int64]
TRIED = 4  # clients of a call on whom it is tried whether an own algorithm sends alike


class Invitations:
    """Drawn by the experiment's seed alone, whatever has happened in the run."""

    def __init__(self, experiment: Experiment, setting: Setting) -> None:
        self._algorithm, self._training = experiment.algorithm, experiment.training
        self._part, self._setting = experiment.participation, setting
        self._speeds = self._part.speeds(setting.seed, setting.clients)
        self._durations = self._part.durations(setting.seed, setting.clients)
        # Whether one message is asked for, for all clients of a call, and they all have one plan.
        self._asked_once = self._part.slowest >= 1 and sends_alike(self._algorithm)

    def calls(self, state: Any, round: int, clients: Clients) -> Sequence[Call]:
        """Those of these clients."""
        plan, broadcast = self._training.plan(round), self._algorithm.broadcast
        if self._asked_once and len(clients):
            message = broadcast(state, int(clients[0]))
            if is_own(self._algorithm):
                self._try_word(state, round, clients, message)
            return Alike(np.asarray(clients, np.int64), message, plan)
        numbers = clients.tolist() if isinstance(clients, np.ndarray) else clients
        if self._part.slowest < 1:
            return [(i, broadcast(state, i), heterogeneous(plan, float(self._speeds[i]))) for i in numbers]
        return [(i, broadcast(state, i), plan) for i in numbers]

    def _try_word(self, state: Any, round: int, clients: Clients, message: Any) -> None:
        """An own algorithm's word that it sends alike is tried on a few clients, on others in every round."""
        broadcast, first = self._algorithm.broadcast, int(clients[0])
        for place in range(round * TRIED, (round + 1) * TRIED):
            client = int(clients[place % len(clients)])
            # Where the same client gets another one when it is asked for again (NaN, or something drawn), nothing is known.
            if not same(broadcast(state, client), message) and same(broadcast(state, first), message):
                raise CoveyError(
                    f"{self._algorithm.name} declares sends_alike, but in round {round} its broadcast gives client {client} "
                    f"another message than client {first}: leave sends_alike out, and it is asked for each"
                )

    def present(self, round: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Clients that were drawn and take part, and those that were and are lost."""
        return self._part.participants(self._setting.seed, round, self._setting.clients)

    def of_round(
        self, state: Any, round: int, present: NDArray[np.int64], lost: NDArray[np.int64], arrivals: Arrivals | None
    ) -> Sequence[Call]:
        """The calls of a round: of who is present, or of those whose replies arrive in it."""
        if arrivals is None:
            return self.calls(state, round, wanted(self._algorithm, state, self._able(present, lost, round)))
        # Each with the model that it was sent, and the plan of that round.
        late = [c for begun in arrivals.rounds for c in self.calls(arrivals.states[begun], begun, arrivals.of(begun))]
        return sorted(late, key=lambda call: call[0])

    def _able(self, present: NDArray[np.int64], lost: NDArray[np.int64], round: int) -> Iterable[int]:
        """Of those without labels the ones that come now, drawn or not, where the algorithm places them: they are asked once."""
        if self._part.newcomer_labels:
            return present
        labelled = [i for i in present.tolist() if not self._part.unlabelled(i)]
        if not hasattr(self._algorithm, "introduce"):
            return labelled
        there = range(self._part.initial, self._part.joined(round, self._setting.clients))
        gone = set(lost.tolist())
        return labelled + [i for i in there if self._part.arrival(i) == round and i not in gone]

    def arrivals(self, way: UnderWay, state: Any, round: int) -> Arrivals | None:
        """Where rounds are asynchronous: whose replies this one takes, and of which round's model they are."""
        if not self._part.buffer:
            return None
        return arrive(way, round, state, self._part.buffer, self._part.max_staleness, self._durations)

    def clock(
        self, arrivals: Arrivals | None, present: NDArray[np.int64], round: int, before: dict[str, Any] | None
    ) -> dict[str, float]:
        """Simulated time, where clients take any, and how old the round's replies were. `before`: the record before this one."""
        if arrivals is not None:
            return arrivals.notes(round)
        if not self._part.delay:
            return {}
        slowest = float(self._durations[present].max()) if len(present) else 0.0
        return {CLOCK: (before["extra"].get(CLOCK, 0.0) if before else 0.0) + slowest}
