"""Asynchronous rounds over real silos: who is at work on which round's models, and the replies that wait for their round.

The rules are the simulation's (`covey.rounds.asynchronous`); the clock is the silos' own. A silo is sent one round's models and is
awaited until it has answered, however many rounds pass meanwhile. Of which round its models were is the coordinator's own book,
never what a silo says: an answer that does not name the very letter, with its round, is refused. One silo has one letter and so at
most one reply in the buffer, however fast it answers.

Unlike in the simulation a silo cannot be told that it has taken too long before it sends: its reply comes and is thrown away, and
what it has spent on it is spent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from covey.deploy.letters import RoundReply
from covey.deploy.session import PendingLetter
from covey.rounds.asynchronous import Arrivals, UnderWay


@dataclass(frozen=True)
class Waiting:
    """A reply that was admitted, until a round takes it."""

    begun: int  # the round whose models it was trained from
    answer: RoundReply
    came: Any  # as it crossed the wire


class Buffer:
    """See the module's docstring. Clients are numbers."""

    def __init__(self, size: int, bound: int, way: UnderWay) -> None:
        self.size, self.bound = size, bound
        self.begun, self.states = dict(way.begun), dict(way.states)  # client -> round; round -> the server's state
        self.letters: dict[str, PendingLetter] = {}  # that are not answered yet, of any round
        self.waiting: dict[int, Waiting] = {}  # in the order in which they came
        self.discarded = 0  # replies that were too old, in the round under way

    @property
    def way(self) -> UnderWay:
        """For the checkpoint. Replies that wait are no part of it: asked again, a silo repeats its answer."""
        return UnderWay(begun=dict(self.begun), states=dict(self.states))

    def open(self, round: int) -> None:
        """A round begins. What was begun too long ago is not kept, and nor are its models; its letter stays awaited."""
        self.discarded = 0
        self.begun = {i: begun for i, begun in self.begun.items() if round - begun <= self.bound}
        for client in [i for i, one in self.waiting.items() if round - one.begun > self.bound]:
            del self.waiting[client]
            self.discarded += 1
        self._forget()

    def unasked(self, present: Iterable[int]) -> list[int]:
        """Those of whom neither an answer is awaited nor one waits."""
        awaited = {sent.client for sent in self.letters.values()}
        return [i for i in present if i not in awaited and i not in self.waiting]

    def begin(self, client: int, round: int, state: Any) -> int:
        """The round whose models this silo is to work on: this one's, unless it was at work on others and was lost sight of."""
        begun = self.begun.setdefault(client, round)
        if begun == round:
            self.states[round] = state
        return begun

    def is_too_old(self, sent: PendingLetter, round: int) -> bool:
        return round - sent.round > self.bound

    def discard(self, client: int) -> None:
        self.begun.pop(client, None)
        self.discarded += 1

    def fail(self, client: int) -> None:
        """Its answer was refused: it begins anew with the next round."""
        self.begun.pop(client, None)

    def keep(self, sent: PendingLetter, answer: RoundReply, came: Any) -> None:
        self.waiting[sent.client] = Waiting(sent.round, answer, came)

    def remain(self, is_member: Callable[[int], bool]) -> None:
        """Without those that were revoked: nothing of theirs goes into an average any more."""
        self.begun = {i: begun for i, begun in self.begun.items() if is_member(i)}
        self.waiting = {i: one for i, one in self.waiting.items() if is_member(i)}
        self.letters = {id: sent for id, sent in self.letters.items() if is_member(sent.client)}

    def take(self) -> tuple[dict[int, Waiting], Arrivals]:
        """The first replies, as many as a round takes; who sent them is idle from now on."""
        taken = dict(list(self.waiting.items())[: self.size])
        states = {one.begun: self.states[one.begun] for one in taken.values()}
        for client in taken:
            del self.waiting[client]
            self.begun.pop(client, None)
        self._forget()
        return taken, Arrivals({i: one.begun for i, one in taken.items()}, states, self.discarded, self.way)

    def _forget(self) -> None:
        used = set(self.begun.values())
        self.states = {round: state for round, state in self.states.items() if round in used}
