"""How letters travel: what the coordinator, and every other party, asks of whatever carries them.

A transport carries sealed bytes and is trusted with nothing: letters are signed, addressed and good for one answer
(`letters.py`), so what it may lose, delay, repeat or change costs rounds at most. It has two ends:

    Mail      the coordinator's: nodes that come and go, messages to them, and their answers
    Handle    a silo's or a further server's: what the carrier calls for each letter, until the party is finished

`flower.Link` is the one and `flower.answer_calls` calls the other, over Flower, with TLS and node authentication. `InProcess` is
both in one process, for tests and for whoever wants to see a deployment without a network. Another carrier (NVFlare, a message
queue) is a class with `Mail`'s methods and a loop that calls `Handle`; `serve.py` chooses, and nothing else knows which it is.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Protocol

from covey.errors import CoveyError

Handle = Callable[[bytes], bytes]  # a letter's bytes to its answer's; a CoveyError: there is none


class Mail(Protocol):
    """The coordinator's end. Nothing that happens on the way raises; what is lost is never answered."""

    nodes: dict[str, int]  # name -> the carrier's number for its node
    authenticated: bool  # a node's number is its party's and nobody else's

    def admit(self, name: str, public: bytes) -> None:
        """From now on the holder of this node key may come, under a number that only it gets."""

    def strike(self, keys: Mapping[bytes, str], kept: Mapping[str, bytes]) -> None:
        """From now on these node keys may not, and are told why; nor may any but those kept, by name."""

    def present(self) -> set[int]:
        """Nodes that are there."""

    def begun(self) -> dict[int, float]:
        """Nodes that have begun anew since this was asked last, and when (`time.monotonic`): what was sent to them before is
        lost. This may be heard after answers of their new life.
        """

    def wait(self, seconds: float) -> None:
        """Until there may be something to read, or so long."""

    def send(self, node: int, data: bytes, seconds: float) -> str:
        """Posts a letter, which is kept for so long; the id by which its answer is found."""

    def receive(self, ids: list[str]) -> Iterator[tuple[str, bytes | None]]:
        """The answers that have come for these letters; None: the party has none to give."""

    def undelivered(self) -> set[str]:
        """Letters that were given up on their way."""


class InProcess:
    """A carrier without a network: a letter is delivered when its answer is asked for.

    `away` are parties that cannot be reached for a while; `tamper` may change an answer on its way, or take it.
    """

    authenticated = True

    def __init__(self, handlers: Mapping[str, Handle]) -> None:
        self.handlers = dict(handlers)
        self.nodes = {name: number for number, name in enumerate(self.handlers)}
        self.away: set[str] = set()
        self.tamper: Callable[[str, bytes, bytes], bytes | None] = lambda name, call, answer: answer
        self._names = {number: name for name, number in self.nodes.items()}
        self._waiting: dict[str, tuple[str, bytes]] = {}
        self._sent = 0

    def admit(self, name: str, public: bytes) -> None:
        if name in self.handlers and name not in self.nodes:
            self._names[len(self._names)] = name
            self.nodes[name] = len(self._names) - 1

    def strike(self, keys: Mapping[bytes, str], kept: Mapping[str, bytes]) -> None:
        self.nodes = {name: number for name, number in self.nodes.items() if name in kept}

    def present(self) -> set[int]:
        return {number for name, number in self.nodes.items() if name not in self.away}

    def begun(self) -> dict[int, float]:
        return {}

    def undelivered(self) -> set[str]:
        return set()

    def wait(self, seconds: float) -> None:
        time.sleep(min(seconds, 0.1))  # nothing rings here

    def send(self, node: int, data: bytes, seconds: float) -> str:
        self._sent += 1
        self._waiting[str(self._sent)] = (self._names[node], data)
        return str(self._sent)

    def receive(self, ids: list[str]) -> Iterator[tuple[str, bytes | None]]:
        for id in ids:
            name, data = self._waiting[id]
            if name in self.away or name not in self.nodes:
                continue
            try:
                answer: bytes | None = self.tamper(name, data, self.handlers[name](data))
            except CoveyError:
                answer = None
            yield id, answer
