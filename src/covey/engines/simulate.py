"""The simulation's hosts: one in this process (a GPU, or a single core), or one per worker process on this machine.

Workers are forked, so that they share the data and whatever algorithm the user defined, notebook or script. Each owns the
clients whose number is its own modulo the number of workers, with their memories; only codec bytes pass between the processes.
Replies are handed on in the order of the calls and at most three waves per worker are under way, so neither the result nor the
memory depends on how many workers there are.
"""

from __future__ import annotations

import contextlib
import functools
import math
import multiprocessing as mp
import os
import signal
import sys
import traceback
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol, TypeVar

import torch

from covey.engines.allocation import keep_freed
from covey.engines.calls import Call
from covey.engines.channel import Channel, channels
from covey.engines.hosts.host import Host
from covey.engines.orphans import die_with_parent
from covey.engines.spill import Spill
from covey.errors import CoveyError, NotFinite
from covey.learn.work import Plan
from covey.messages import decode, pieces, size
from covey.names import fault_of_own_code

T = TypeVar("T")
PART = 32 << 20  # bytes of memories that cross a pipe at a time


class Hosts(Protocol):
    """What advances the clients of a run, wherever they are. `own_loops`: they train as `Machine` has it."""

    own_loops: bool

    def run(self, round: int, calls: Sequence[Call]) -> Iterator[Any]: ...
    def check(self) -> None:
        """Raises what was wrong with trainings of this round whose results were handed out before anybody looked at them."""
        ...

    def advise(self, round: int, calls: Sequence[Call]) -> Iterator[Any]: ...
    def score(self, round: int, calls: Sequence[Call]) -> Iterator[Any]: ...
    def predictors(self, round: int, calls: Sequence[Call]) -> Iterator[Any]: ...
    def seconds(self) -> dict[str, float]: ...
    def memories(self, done: int) -> dict[int, dict[str, Any]]: ...
    def restore(self, memories: dict[int, dict[str, Any]]) -> None: ...
    def close(self) -> None: ...


class InProcess:
    """One host, here. `in_rows`: clients of a wave may run as one, and their outcomes come as one: see `cohort`."""

    def __init__(self, host: Host, wave: int, in_rows: bool = False, own_loops: bool = False) -> None:
        self.host, self.wave, self.in_rows, self.own_loops = host, wave, in_rows, own_loops
        self._unchecked: tuple[int, Sequence[Call]] = (0, [])  # a round, and who trains in it

    def run(self, round: int, calls: Sequence[Call]) -> Iterator[Any]:
        self._unchecked = round, calls
        for at in range(0, len(calls), self.wave):
            wave = calls[at : at + self.wave]
            together = self.host.run_as_one(round, wave) if self.in_rows else None
            if together is None:
                yield from self.host.run(round, wave)
            else:
                yield together
                self.host.sum_up()

    def check(self) -> None:
        try:
            self.host.check()
        except NotFinite as error:
            raise self._named(error) from None
        self._unchecked = (0, [])

    def _named(self, error: NotFinite) -> NotFinite:
        """It, with whose values they are: of clients that ran as one only all together were looked at, and so they run again."""
        round, calls = self._unchecked
        self.host.memories.take_back()
        try:
            for at in range(0, len(calls), self.wave):
                self.host.run(round, calls[at : at + self.wave])
        except NotFinite as named:
            return named
        except Exception:  # whatever else goes wrong now, this is what went wrong first
            return error
        return error

    def advise(self, round: int, calls: Sequence[Call]) -> Iterator[Any]:
        for at in range(0, len(calls), self.wave):
            yield from self.host.advise(round, calls[at : at + self.wave])

    def score(self, round: int, calls: Sequence[Call]) -> Iterator[Any]:
        for at in range(0, len(calls), self.wave):
            wave = calls[at : at + self.wave]
            together = self.host.score_as_one(round, wave) if self.in_rows else None
            if together is None:
                yield from self.host.score(round, wave)
            else:
                yield together

    def predictors(self, round: int, calls: Sequence[Call]) -> Iterator[Any]:
        for at in range(0, len(calls), self.wave):
            yield from self.host.predictors(round, calls[at : at + self.wave])

    def seconds(self) -> dict[str, float]:
        return self.host.timing.take()

    def memories(self, done: int) -> dict[int, dict[str, Any]]:
        return self.host.memories.snapshot(done)

    def restore(self, memories: dict[int, dict[str, Any]]) -> None:
        self.host.memories.restore(memories)

    def close(self) -> None:
        pass


class Workers:
    """A host in each of several forked processes. `make_host` runs in the worker.

    `owners`: the process of each client, see `dealing`. `state_bytes`: of what clients remember, how much may lie in this process's
    memory when it is gathered.
    """

    def __init__(
        self,
        make_host: Callable[[], Host],
        count: int,
        owners: Sequence[int],
        wave: int,
        state_bytes: float = math.inf,
        own_loops: bool = False,
    ) -> None:
        self.wave, self.count, self.state_bytes, self.own_loops = wave, count, state_bytes, own_loops
        self._owners = owners
        self._pipes: list[Channel] = []
        self._processes: list[Any] = []
        self._tickets = [0] * count  # number of each worker's latest request: answers to an abandoned one are dropped
        self._last: list[Any] = []  # the messages that the workers hold, so that a repeated one is not sent again
        context = mp.get_context("fork")
        sys.stdout.flush()
        sys.stderr.flush()
        for number in range(count):
            ours, theirs = channels(context.Pipe())
            process = context.Process(
                target=_work,
                args=(make_host, theirs, [*self._pipes, ours]),
                daemon=True,
                name=f"covey-{number}",
            )
            process.start()
            theirs.close()
            self._pipes.append(ours)
            self._processes.append(process)

    def run(self, round: int, calls: Sequence[Call]) -> Iterator[Any]:
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
        for number in range(self.count):
            self._ask(number, {"do": "seconds"})
        return on_the_clock([self._hear(number) for number in range(self.count)])

    def memories(self, done: int) -> dict[int, dict[str, Any]]:
        """In parts, and beyond the limit into a file: those of a million clients are larger than memory."""
        merged: dict[int, dict[str, Any]] = {}
        spill = Spill(self.state_bytes)
        for number in range(self.count):
            self._ask(number, {"do": "memories", "done": done})
            while (part := self._hear(number)) is not None:
                merged.update({i: spill.put(i, memory) for i, memory in part.items()})
        return merged

    def restore(self, memories: dict[int, dict[str, Any]]) -> None:
        for number in range(self.count):
            for part in parts({i: m for i, m in memories.items() if self._owners[i] == number}):
                self._ask(number, {"do": "restore", "memories": part})
                self._hear(number)

    def close(self) -> None:
        for pipe in self._pipes:
            pipe.close()  # a worker that finds its pipe closed ends
        for process in self._processes:
            process.join(timeout=2)
            if process.is_alive():
                process.terminate()
                process.join(timeout=5)
        self._pipes, self._processes = [], []

    def _spread(self, do: str, round: int, calls: Sequence[Call]) -> Iterator[Any]:
        work = spread(calls, self.count, self._owners)
        again = same(work.messages, self._last)
        self._last = work.messages
        for number in range(self.count):
            self._ask(
                number,
                {
                    "do": do,
                    "round": round,
                    "wave": self.wave,
                    "calls": work.calls[number],
                    "messages": None if again else work.messages,
                    "plans": work.plans,
                },
            )
        arrived: list[Iterator[Any]] = [iter(()) for _ in range(self.count)]
        for client, _, _ in calls:
            number = self._owners[client]
            outcome = next(arrived[number], None)
            if outcome is None:  # the end of a wave
                arrived[number] = self._hear(number)
                outcome = next(arrived[number])
            yield outcome
            outcome = None  # else it would be kept while the next one is read

    def _ask(self, number: int, request: dict[str, Any]) -> None:
        self._tickets[number] += 1
        try:
            self._pipes[number].send(*pieces(request | {"ticket": self._tickets[number]}))
        except (BrokenPipeError, ConnectionResetError, OSError) as e:
            raise self._dead(number) from e

    def _hear(self, number: int) -> Any:
        try:
            answer = decode(self._pipes[number].receive(), lazily=True)
            while answer["ticket"] != self._tickets[number]:
                answer = decode(self._pipes[number].receive(), lazily=True)
        except (EOFError, ConnectionResetError, OSError) as e:
            raise self._dead(number) from e
        return accept(answer)

    def _dead(self, number: int) -> CoveyError:
        process = self._processes[number]
        process.join(timeout=1)
        code = process.exitcode
        how = f"killed by signal {-code}" if code is not None and code < 0 else f"exit code {code}"
        return CoveyError(
            f"worker {number} died ({how}); finished rounds are kept: continue with `covey resume`, "
            "with fewer engine.workers if the machine ran out of memory"
        )


def _work(make_host: Callable[[], Host], pipe: Channel, inherited: list[Channel]) -> None:
    """A worker's life: answers requests until its pipe closes."""
    for other in inherited:
        other.close()  # else this worker would keep the others' pipes open after the parent is gone
    die_with_parent(signal.SIGKILL)  # it may be deep in a wave when its pipe closes
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent decides
    torch.set_num_threads(1)
    keep_freed()
    host = functools.cache(make_host)
    messages: list[Any] = []
    with contextlib.suppress(EOFError, BrokenPipeError, ConnectionResetError):
        while True:
            request = decode(pipe.receive())
            messages = request.get("messages") or messages
            for answer in respond(host, request, messages, pieces):
                pipe.send(*answer)
                if pipe.poll():
                    break  # the parent has gone on to something else


@dataclass(frozen=True)
class Spread:
    """Calls cut over workers, each client's to the one that owns it."""

    calls: list[list[tuple[int, int, int]]]  # per worker: client, place of its message, place of its plan
    messages: list[Any]  # the distinct ones
    plans: list[dict[str, Any]]


def spread(calls: Sequence[Call], count: int, owners: Sequence[int]) -> Spread:
    by_worker: list[list[tuple[int, int, int]]] = [[] for _ in range(count)]
    places: dict[int, int] = {}  # id of a message -> its place among the distinct ones
    messages: list[Any] = []
    plans: list[Plan] = []
    for client, broadcast, plan in calls:
        if id(broadcast) not in places:
            places[id(broadcast)] = len(messages)
            messages.append(broadcast)
        if plan not in plans[-64:]:
            plans.append(plan)
        at = len(plans) - 1 - plans[::-1].index(plan)
        by_worker[owners[client]].append((client, places[id(broadcast)], at))
    return Spread(by_worker, messages, [asdict(p) for p in plans])


def parts(memories: dict[int, dict[str, Any]]) -> Iterator[dict[int, dict[str, Any]]]:
    """Memories cut so that each part, or its last client's memory, is some PART bytes."""
    part: dict[int, dict[str, Any]] = {}
    length = 0
    for i, memory in memories.items():
        part[i] = memory
        length += size(memory)
        if length >= PART:
            yield part
            part, length = {}, 0
    if part:
        yield part


def on_the_clock(seconds: Sequence[dict[str, float]]) -> dict[str, float]:
    """The seconds of each phase, as their mean over the workers: they run side by side."""
    total: dict[str, float] = defaultdict(float)
    for worker in seconds:
        for phase, spent in worker.items():
            total[phase] += spent / len(seconds)
    return dict(total)


def same(messages: list[Any], others: list[Any]) -> bool:
    """Whether these are the very same objects: then workers hold them already."""
    return len(messages) == len(others) and all(a is b for a, b in zip(messages, others))


def respond(
    host: Callable[[], Host], request: dict[str, Any], messages: list[Any], written: Callable[[Any], T]
) -> Iterator[T]:
    """The answers to a request as they are sent back, one per wave; what goes wrong, also in writing one, is an answer, too."""
    ticket = {"ticket": request["ticket"]}
    try:
        for answer in _answers(host(), request, messages):
            yield written(ticket | {"ok": answer})
    except CoveyError as e:
        yield written(ticket | {"refused": str(e), "not finite": isinstance(e, NotFinite)})
    except Exception as e:
        sentence = fault_of_own_code(e)
        yield written(ticket | ({"refused": sentence} if sentence else {"failed": traceback.format_exc()}))


def accept(answer: dict[str, Any]) -> Any:
    """What a worker answered, or what went wrong there raised here."""
    if "refused" in answer:
        raise (NotFinite if answer.get("not finite") else CoveyError)(answer["refused"])
    if "failed" in answer:
        raise RuntimeError("a worker failed:\n" + answer["failed"])
    return answer["ok"]


def _answers(host: Host, request: dict[str, Any], messages: list[Any]) -> Iterator[Any]:
    do = request["do"]
    if do in ("run", "advise", "score", "predictors"):
        plans = [Plan(**p) for p in request["plans"]]
        calls = [(client, messages[m], plans[p]) for client, m, p in request["calls"]]
        for at in range(0, len(calls), request["wave"]):
            yield getattr(host, do)(request["round"], calls[at : at + request["wave"]])
    elif do == "seconds":
        yield host.timing.take()
    elif do == "memories":
        yield from parts(host.memories.snapshot(request["done"]))
        yield None
    elif do == "restore":
        host.memories.restore(request["memories"])
        yield None


def cores() -> int:
    """Cores that this process may use: COVEY_CORES where it is set, since who shares a machine may want fewer than there are."""
    given = os.environ.get("COVEY_CORES", "")
    if given:
        if not given.isdecimal() or int(given) < 1:
            raise CoveyError(f"COVEY_CORES is {given!r}: a whole number of at least 1, or unset for all cores")
        return int(given)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)


def can_fork() -> bool:
    """Windows cannot."""
    return "fork" in mp.get_all_start_methods()


def forks_safely() -> bool:
    """macOS can fork, but its system libraries may fail in the child: only where the user asks for workers."""
    return can_fork() and sys.platform != "darwin"
