"""Cohorts: clients of one wave that run as one, where their algorithm says that its text reads the same for many (`in_rows`).

A round of a thousand small clients is mostly the Python of a thousand coroutines. Where all of a wave got the same message and
the same plan and remember the same kinds of vectors, one coroutine runs for all of them: a vector has a row for each client, [n, d]
(or is [d], one for all), a number is an array [n] (or one for all). A function that wants one client, with its memory, keys and
random numbers, is asked for each of them, and what it says is an array [n] of whatever that is. What cannot go so (`Apart`) goes
client by client, with the same results but for floating-point noise.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import cached_property
from itertools import repeat
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from covey.algorithms.contract import Client, Coroutine, Setting, lowest
from covey.learn.work import Compute, Plan
from covey.messages import Rows, same, size
from covey.names import OURS

IN_ROWS = ("broadcast", "client", "aggregate", "use")  # methods of which an algorithm says that they read in rows


class Apart(Exception):
    """These clients do not go as one, this time."""


class Alone(Apart):
    """Nor will any others: the algorithm asks for what only one client can be given."""


@dataclass
class Cohort:
    """Many clients, as their algorithm's text sees them: a `Client` with arrays. What only one has (its data, its random numbers)
    is not here, but where a function is asked for each: it gets the client in the place of this.
    """

    ids: NDArray[np.int64]  # [n]
    round: int
    seed: int
    sizes: NDArray[np.int64]  # [n] samples
    plan: Plan
    setting: Setting
    recall: Callable[[NDArray[np.int64]], dict[str, Tensor]]
    members: Callable[[], list[Client]]
    notes: dict[str, Any] = field(default_factory=dict)
    keys: Mapping[str, Any] = field(default_factory=dict)
    # Of each function that was asked for one client after the other: what it was given, and what it said, of each.
    asked: list[tuple[list[list[Any]], list[Any]]] = field(default_factory=list)
    chooser: None = None
    secret: None = None

    @cached_property
    def samples(self) -> int | NDArray[np.int64]:
        return int(self.sizes[0]) if (self.sizes == self.sizes[0]).all() else self.sizes

    @cached_property
    def memory(self) -> dict[str, Tensor]:
        """What each remembers, in rows; looked for where the algorithm asks."""
        return self.recall(self.ids)

    @property
    def remembers(self) -> bool:
        """Whether anything of it may have changed."""
        return "memory" in self.__dict__ and bool(self.memory)

    def memories(self) -> Iterator[dict[str, Any]]:
        """What each remembers now."""
        if self.went_singly:
            return (one.memory for one in self.clients)
        return (memory for _, memory in Sheet(self.ids, self.memory).memories()) if self.remembers else repeat({})

    @cached_property
    def clients(self) -> list[Client]:
        """Each with what is its own."""
        return self.members()

    @property
    def went_singly(self) -> bool:
        """Whether a function was asked for each, which may have changed what it remembers."""
        return "clients" in self.__dict__

    def each(self, work: Compute) -> Any:
        """What a function for one client says of each, where that is no vector: those come in rows."""
        n = len(self.ids)
        if any(isinstance(argument, Tensor) for argument in work.arguments):
            raise Alone
        columns = [self.clients if argument is self else one_by_one(argument, n) for argument in work.arguments]
        given = [arguments for _, *arguments in zip(self.ids, *columns)]
        results = [work.function(*arguments) for arguments in given]
        self.asked.append((given, results))
        if work.alike:
            if not all(same(one, results[0]) for one in results):
                raise Apart
            return results[0]
        return tuple(map(column, zip(*results))) if isinstance(results[0], tuple) else column(results)

    def __getattr__(self, name: str) -> Any:
        raise Alone(name)

    def choose(self, losses: Tensor) -> Any:
        return lowest(losses)

    def note(self, name: str, value: Any) -> None:
        self.notes[name] = value

    def repeated(self, place: int, turn: Coroutine) -> Coroutine:
        """A turn of one of them alone, in which functions of one client say what they have said here: they were asked for each,
        and what they drew nobody may be able to draw again. One that is given something else is asked anew.
        """
        said = [(given[place], results[place]) for given, results in self.asked]
        answer = None
        while True:
            try:
                request = turn.send(answer)
            except StopIteration as stop:
                return stop.value
            if said and _asks_with(request, said[0][0]):
                _, answer = said.pop(0)
            else:
                answer = yield request


def reads_in_rows(algorithm: Any) -> bool:
    return _says(algorithm, "in_rows", IN_ROWS)


def sends_alike(algorithm: Any) -> bool:
    return _says(algorithm, "sends_alike", ("broadcast",))


def _says(algorithm: Any, word: str, methods: Sequence[str]) -> bool:
    """Whether it says so of the very text of these methods that runs: a subclass that writes one anew must say it again."""
    kinds = type(algorithm).__mro__
    said = next((place for place, kind in enumerate(kinds) if word in vars(kind)), None)
    if said is None or not vars(kinds[said])[word]:
        return False
    return all(next((p for p, kind in enumerate(kinds) if m in vars(kind)), 0) >= said for m in methods)


@dataclass(frozen=True)
class Sheet:
    """What clients remember, in rows."""

    ids: NDArray[np.int64]
    columns: Mapping[str, Tensor]

    @property
    def nbytes(self) -> int:
        return sum(column.nbytes for column in self.columns.values())

    def memories(self) -> Iterator[tuple[int, dict[str, Any]]]:
        rows = zip(*(column.unbind(0) for column in self.columns.values()))
        for client, values in zip(self.ids.tolist(), rows):
            yield client, dict(zip(self.columns, values))


@dataclass(frozen=True)
class Outcomes:
    """What the turn of a cohort produced: see `host.Outcome`."""

    clients: NDArray[np.int64]
    reply: Any  # its fields in rows
    notes: dict[str, Any]

    def each(self) -> Iterator[tuple[int, Any, dict[str, Any]]]:
        """(client, reply, notes) one by one."""
        return zip(self.clients.tolist(), split(self.reply, len(self.clients)), self.notes_of_each())

    def without_rows(self) -> Outcomes:
        """The same for whoever does not look into what is written only for those who ask: in its place is something as long."""
        blanks = {f.name: v.like() for f in fields(self.reply) if isinstance(v := getattr(self.reply, f.name), Rows)}
        return replace(self, reply=replace(self.reply, **blanks))

    def notes_of_each(self) -> Iterator[dict[str, Any]]:
        columns = [one_by_one(column, len(self.clients)) for column in self.notes.values()]
        return (
            (dict(zip(self.notes, values)) for values in zip(*columns)) if columns else iter([{} for _ in self.clients])
        )

    def bytes_sent(self) -> int:
        """By all of them. A message's size depends on its numbers by how many digits they have, so equal ones are counted."""
        given = {f.name: getattr(self.reply, f.name) for f in fields(self.reply)}
        # Rows, see `in_rows`; nobody looks at what is in them.
        rows = {n: _like(v) for n, v in given.items() if isinstance(v, Tensor | Rows)}
        lists = {n for n, v in given.items() if isinstance(v, np.ndarray) and isinstance(v[0], list)}
        others = {n: column(map(tuple, v)) if n in lists else v for n, v in given.items() if n not in rows}
        try:
            kinds = _kinds(list(others.values()), len(self.clients))
        except TypeError:  # a table among them, or a list for all
            return sum(map(size, split(self.reply, len(self.clients))))
        total, make = 0, type(self.reply)
        for kind, count in kinds.items():
            said = {n: list(value) if n in lists else value for n, value in zip(others, kind)}
            total += size(make(**said, **rows)) * count
        return total


def is_own(algorithm: Any) -> bool:
    """Whether it is not one that covey brings, whose every word in rows is tested."""
    return type(algorithm).__module__.partition(".")[0] != OURS


def alike(one: Any, other: Any) -> bool:
    """Whether two messages, notes or memories are the same but for what floating point makes of the order of sums."""
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        room = 0.01 * float(other.abs().float().mean()) if other.numel() else 0.0
        return one.shape == other.shape and torch.allclose(
            one.float(), other.float(), rtol=0.01, atol=room, equal_nan=True
        )
    if isinstance(one, np.ndarray) and isinstance(other, np.ndarray):
        if one.dtype.kind == other.dtype.kind == "f":
            return alike(torch.from_numpy(one), torch.from_numpy(other))
        return one.shape == other.shape and alike(one.tolist(), other.tolist())
    if isinstance(one, list | tuple) and type(one) is type(other):
        return len(one) == len(other) and all(map(alike, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(alike(value, other[name]) for name, value in one.items())
    if is_dataclass(one) and type(one) is type(other):
        return all(alike(getattr(one, f.name), getattr(other, f.name)) for f in fields(one))
    if isinstance(one, bytes) and isinstance(other, bytes):
        return len(one) == len(other)  # what is sealed in them may differ by as little
    if isinstance(one, float | np.floating) or isinstance(other, float | np.floating):
        return bool(np.isclose(float(one), float(other), rtol=0.01, equal_nan=True))
    return bool(one == other)


def _asks_with(request: Any, given: Sequence[Any]) -> bool:
    """Whether a function of one client is asked, with these arguments."""
    if not isinstance(request, Compute) or request.rowwise or request.shared or len(request.arguments) != len(given):
        return False
    return all(isinstance(one, Client) or alike(one, other) for one, other in zip(request.arguments, given))


def in_rows(reply: Any, n: int) -> Any:
    """The reply with a row for each client in every vector, also in one that they share."""
    shared = {f.name: v for f in fields(reply) if isinstance(v := getattr(reply, f.name), Tensor) and v.dim() == 1}
    return replace(reply, **{name: vector.expand(n, -1) for name, vector in shared.items()}) if shared else reply


def split(reply: Any, n: int) -> Iterator[Any]:
    """The messages of n clients from one in rows."""
    columns = [one_by_one(getattr(reply, f.name), n) for f in fields(reply)]
    return (type(reply)(*values) for values in zip(*columns))


def one_by_one(column: Any, n: int) -> Any:
    if isinstance(column, Tensor):
        return column.unbind(0) if column.dim() > 1 else repeat(column, n)
    if isinstance(column, Rows):
        return list(column)
    return column.tolist() if isinstance(column, np.ndarray) else repeat(column, n)


def column(values: Iterable[Any]) -> Any:
    """[n] of what each has, numbers or anything else; None where nobody has any."""
    values = list(values)
    if all(value is None for value in values):
        return None
    if isinstance(values[0], Tensor):
        raise Alone
    whole = all(type(value) is int for value in values)
    return np.fromiter(values, np.int64 if whole else object, len(values))


def _like(rows: Tensor | Rows[Any]) -> Any:
    return rows.like() if isinstance(rows, Rows) else torch.empty(rows.shape[1:], dtype=rows.dtype)


def _kinds(columns: list[Any], n: int) -> dict[tuple[Any, ...], int]:
    """How often each combination of values comes, of columns [n] or of one value for all."""
    arrays = [column for column in columns if isinstance(column, np.ndarray)]
    if not arrays:
        return {tuple(columns): n}
    if len(arrays) == 1 and arrays[0].ndim == 1:
        values, counts = np.unique(arrays[0], return_counts=True)
        parts = [one_by_one(values if column is arrays[0] else column, len(values)) for column in columns]
        return dict(zip(zip(*parts), counts.tolist()))
    return Counter(zip(*(one_by_one(column, n) for column in columns)))
