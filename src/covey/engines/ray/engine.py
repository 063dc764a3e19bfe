"""The simulation's hosts as Ray actors: on this machine, or on the cluster at RAY_ADDRESS. For simulation only: Ray pickles
what it moves and runs what it is sent, so that a cluster is one trust domain.

Clients are cut over the workers, and calls into waves, exactly as `simulate` does it with as many processes; so the results
are the same to the bit. What covey hands to Ray are codec bytes, and arrays for the data; a round's messages and the data are
put in the object store once and fetched by whoever needs them.

A worker may die at any time. What its clients remember comes back with every wave and stays in the object store, so a new
worker is given the memories of the waves that were heard, and only the waves that were not are done again.
"""

from __future__ import annotations

import contextlib
from collections import defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from covey.algorithms.contract import Setting
from covey.data.federation import Federation
from covey.engines.calls import Call
from covey.engines.dealing import dealt
from covey.engines.narrow import trains_narrow
from covey.engines.ray.host_state import arrays, keys_for, pack
from covey.engines.ray.pool import acquire, connect, fetched, gone, places, release, replace_worker
from covey.engines.ray.worker import raw
from covey.engines.simulate import accept, on_the_clock, same, spread
from covey.errors import CoveyError
from covey.experiment.experiment import Experiment
from covey.learn.flat import Network
from covey.messages import decode, encode

UNDER_WAY = 2  # waves per worker: one that it computes, one that waits for it
DEATHS = 3  # of one worker in one round: then it is no accident


@dataclass(frozen=True)
class _Asked:
    request: bytes
    refs: list[Any]  # its answer, the clients whose memories it changed, these memories


class RayWorkers:
    """A host in each of several Ray actors; see the module's docstring."""

    def __init__(
        self,
        experiment: Experiment,
        network: Network,
        federation: Federation,
        setting: Setting,
        keys: Mapping[str, Any],
        replaced: Mapping[int, Any],
        wave: int,
    ) -> None:
        pack(experiment, setting, replaced)  # what cannot be sent is refused before a cluster is asked for
        ray = self._ray = connect()
        self.wave = wave
        self._gpus = experiment.engine.gpus if experiment.engine.device == "cuda" else 0.0
        room = places(ray, self._gpus)
        if self._gpus and experiment.engine.workers > room:
            raise CoveyError(
                f"engine.workers is {experiment.engine.workers}, the GPUs of the Ray cluster serve {room} workers with "
                f"{self._gpus:g} of one each: lower it, or lower engine.gpus"
            )
        self.count = experiment.engine.workers or min(room, setting.clients)
        self.own_loops = trains_narrow(experiment, network, federation, self.count)
        parcel = pack(experiment, setting, replaced, self.own_loops)
        self._owners = dealt(federation.holdings.sizes, self.count)
        owned = [[i for i, owner in enumerate(self._owners) if owner == n] for n in range(self.count)]
        self._keys = [keys_for(keys, own, replaced) for own in owned]
        self._shared = [ray.put(raw(parcel)), ray.put(arrays(federation))]
        self._actors = acquire(ray, self.count, self._gpus)
        for number in range(self.count):
            self._begin(number)
        self._under_way: list[deque[_Asked]] = [deque() for _ in range(self.count)]
        self._deaths = [0] * self.count
        self._last: list[Any] = []  # the messages that `_messages` holds
        self._messages: tuple[int, list[Any]] = (0, [])  # their number, and where they lie in the object store
        self._kept: dict[int, Any] = {}  # client -> where its memory lies, as of the last round known to be whole
        self._staged: dict[int, Any] = {}  # the same of the round under way
        self._staged_round = 0

    def run(self, round: int, calls: Sequence[Call]) -> Iterator[Any]:
        if round != self._staged_round:
            self._settle(self._staged_round)
            self._staged_round = round
        return self._spread("run", round, calls)

    def check(self) -> None:
        pass  # a worker looks at its results before it sends them

    def advise(self, round: int, calls: Sequence[Call]) -> Iterator[Any]:
        return self._spread("advise", round, calls)

    def score(self, round: int, calls: Sequence[Call]) -> Iterator[Any]:
        return self._spread("score", round, calls)

    def predictors(self, round: int, calls: Sequence[Call]) -> Iterator[Any]:
        return self._spread("predictors", round, calls)

    def seconds(self) -> dict[str, float]:
        self._forget()
        for number in range(self.count):
            self._ask(number, {"do": "seconds"})
        return on_the_clock([self._hear(number) for number in range(self.count)])

    def memories(self, done: int) -> dict[int, dict[str, Any]]:
        """Straight from the object store: no worker needs to be alive for it."""
        self._settle(done)
        merged: dict[int, dict[str, Any]] = {}
        for clients, ref in _by_place(self._kept):
            staged = decode(self._fetch(ref))
            merged.update({i: staged[i] for i in clients})
        return merged

    def restore(self, memories: dict[int, dict[str, Any]]) -> None:
        for number in range(self.count):
            own = {i: m for i, m in memories.items() if self._owners[i] == number}
            if own:
                self._kept.update(dict.fromkeys(own, self._ray.put(raw(encode(own)))))
                self._remind(number)

    def close(self) -> None:
        release(self._ray, self._actors, self._gpus)
        self._actors, self._shared, self._kept, self._staged = [], [], {}, {}
        self._forget()

    def _spread(self, do: str, round: int, calls: Sequence[Call]) -> Iterator[Any]:
        work = spread(calls, self.count, self._owners)
        if not same(work.messages, self._last):
            self._messages = (self._messages[0] + 1, [self._ray.put(raw(encode(work.messages)))])
            self._last = work.messages
        self._forget()
        self._deaths = [0] * self.count
        waves = [iter(_waves(own, self.wave)) for own in work.calls]

        def ask_next(number: int) -> None:
            wave = next(waves[number], None)
            if wave:
                self._ask(number, {"do": do, "round": round, "wave": len(wave), "calls": wave, "plans": work.plans})

        for _ in range(UNDER_WAY):
            for number in range(self.count):
                ask_next(number)
        arrived: list[list[Any]] = [[] for _ in range(self.count)]
        for client, _, _ in calls:
            number = self._owners[client]
            if not arrived[number]:
                arrived[number] = self._hear(number)[::-1]
                ask_next(number)
            yield arrived[number].pop()

    def _ask(self, number: int, request: dict[str, Any]) -> None:
        data = encode(request | {"ticket": 0})
        self._under_way[number].append(_Asked(data, self._send(number, data)))

    def _send(self, number: int, request: bytes) -> list[Any]:
        answer = self._actors[number].answer.options(num_returns=3)
        refs: list[Any] = answer.remote(request, self._messages)
        return refs

    def _hear(self, number: int) -> Any:
        """The answer to the oldest request under way; where the worker has died, another one's."""
        while True:
            asked = self._under_way[number][0]
            try:
                answer, changed = fetched(self._ray, asked.refs[:2])
                break
            except gone(self._ray) as e:
                self._replace(number, e)
        self._under_way[number].popleft()
        self._staged.update(dict.fromkeys(changed, asked.refs[2]))
        return accept(decode(answer))

    def _replace(self, number: int, why: Exception) -> None:
        """A new worker in the place of a dead one: with its memories, and what it was asked and has not answered."""
        self._deaths[number] += 1
        if self._deaths[number] >= DEATHS:
            raise CoveyError(
                f"Ray worker {number} died {DEATHS} times in one round; finished rounds are kept: continue with "
                "`covey resume`, with fewer engine.workers if a machine ran out of memory"
            ) from why
        with contextlib.suppress(Exception):
            self._ray.kill(self._actors[number])
        try:
            self._actors[number] = replace_worker(self._ray, self.count, self._gpus)
            self._begin(number)
            self._remind(number)
        except gone(self._ray) as e:
            self._replace(number, e)
            return
        again = [asked.request for asked in self._under_way[number]]
        self._under_way[number] = deque(_Asked(request, self._send(number, request)) for request in again)

    def _begin(self, number: int) -> None:
        self._actors[number].begin.remote(self._shared, self._keys[number], "cuda" if self._gpus else "cpu")

    def _remind(self, number: int) -> None:
        """Gives a worker the memories of its clients, those of the round under way included."""
        known = self._kept | self._staged
        own = {i: ref for i, ref in known.items() if self._owners[i] == number}
        lost = fetched(self._ray, self._actors[number].remember.remote([(i, [ref]) for i, ref in _by_place(own)]))
        if lost:
            raise CoveyError(_LOST)

    def _fetch(self, ref: Any) -> Any:
        try:
            return fetched(self._ray, ref)
        except self._ray.exceptions.RayError as e:
            raise CoveyError(_LOST) from e

    def _settle(self, done: int) -> None:
        if self._staged_round <= done:
            self._kept |= self._staged
            self._staged = {}

    def _forget(self) -> None:
        """Answers to what was abandoned are not waited for."""
        for asked in self._under_way:
            asked.clear()


_LOST = (
    "the memories of some clients lay on a machine that has left the Ray cluster; finished rounds up to the last checkpoint "
    "are kept: continue with `covey resume`"
)


def _waves(calls: list[tuple[int, int, int]], wave: int) -> list[list[tuple[int, int, int]]]:
    return [calls[at : at + wave] for at in range(0, len(calls), wave)]


def _by_place(places: Mapping[int, Any]) -> list[tuple[list[int], Any]]:
    """Clients whose memories lie in one object, with it."""
    by_place: dict[Any, list[int]] = defaultdict(list)
    for client, ref in places.items():
        by_place[ref].append(client)
    return [(clients, ref) for ref, clients in by_place.items()]
