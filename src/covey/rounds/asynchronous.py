"""Asynchronous rounds: a round ends with so many replies, whoever they are from, and who is slow sets nobody's pace.

FedBuff: Nguyen et al., Federated Learning with Buffered Asynchronous Aggregation, AISTATS 2022. Every client is always at work, on
the model that there was when it began. A round takes the first `participation.buffer` replies that are done. What a reply of τ
rounds ago changes in the model that it was sent is multiplied by (1 + τ)^-½ and put upon the model that there is now; then the
algorithm averages as ever (`rebased` of FedAvg and IFCA). A client that is done after more than `participation.max_staleness`
rounds is told so before it sends: nothing of that training leaves it, and it begins anew.

Deviations: a client whose reply waits in the buffer waits too, and begins with the round's new model (the paper hands the freed
place to another client at once, with the old one). The server's learning rate is 1, weights are the algorithm's own. Time is
simulated: docs/asynchronous.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from covey.measures import CLOCK, DISCARDED, STALENESS, STALEST
from covey.messages import message


@message
@dataclass(frozen=True)
class UnderWay:
    """Who works on which round's model, and when it will be done, in simulated time."""

    clock: float = 0.0
    begun: dict[int, int] = field(default_factory=dict)  # client -> round
    due: dict[int, float] = field(default_factory=dict)  # client -> time
    states: dict[int, Any] = field(default_factory=dict)  # round -> the server's state when it began


@dataclass(frozen=True)
class Arrivals:
    """The replies that a round takes."""

    begun: dict[int, int]  # client -> the round whose model it has trained
    states: dict[int, Any]  # of those rounds
    discarded: int  # trainings that took too long
    way: UnderWay  # afterwards

    @property
    def rounds(self) -> list[int]:
        return sorted(set(self.begun.values()))

    def of(self, begun: int) -> list[int]:
        return sorted(client for client, round in self.begun.items() if round == begun)

    def notes(self, round: int) -> dict[str, float]:
        return {CLOCK: self.way.clock, **self.ages(round)}

    def ages(self, round: int) -> dict[str, float]:
        """How old the round's replies were, in rounds."""
        ages = [round - begun for begun in self.begun.values()] or [0]
        return {STALENESS: float(np.mean(ages)), STALEST: float(max(ages)), DISCARDED: float(self.discarded)}


def arrive(way: UnderWay, round: int, state: Any, buffer: int, bound: int, durations: NDArray[np.float64]) -> Arrivals:
    """The first `buffer` replies that are done and not too old; who is idle begins with this round's model.

    Who is done at the same time comes in the order of numbers, and one that took too long begins anew at once: it is fresh then,
    so every round ends.
    """
    begun, due, clock = dict(way.begun), dict(way.due), way.clock
    states = {**way.states, round: state}
    for client in range(len(durations)):
        if client not in begun:
            begun[client], due[client] = round, clock + float(durations[client])
    arrived: dict[int, int] = {}
    discarded = 0
    while len(arrived) < buffer:
        client = min(due, key=lambda i: (due[i], i))
        clock = max(clock, due.pop(client))
        if round - begun[client] > bound:
            begun[client], due[client] = round, clock + float(durations[client])
            discarded += 1
        else:
            arrived[client] = begun.pop(client)
    used = {*begun.values()}
    after = UnderWay(clock, begun, due, {number: one for number, one in states.items() if number in used})
    return Arrivals(arrived, {number: states[number] for number in set(arrived.values())}, discarded, after)


def ages_in_words(notes: Mapping[str, Any]) -> str:
    """How old a round's replies were; nothing where it waited for all."""
    return f"replies {notes[STALENESS]:.1f} rounds old, {notes[STALEST]:.0f} at most" if STALENESS in notes else ""


def rebased(
    replies: Iterator[tuple[int, Any]], arrivals: Arrivals, algorithm: Any, state: Any, round: int, power: float
) -> Iterator[tuple[int, Any]]:
    """Replies to older models as replies to this one; those to this one as they are, to the last bit."""
    for client, reply in replies:
        begun = arrivals.begun[client]
        if begun == round:
            yield client, reply
        else:
            sent = algorithm.broadcast(arrivals.states[begun], client)
            current = algorithm.broadcast(state, client)
            yield client, algorithm.rebased(sent, current, reply, float((1 + round - begun) ** -power))
