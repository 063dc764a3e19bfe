"""What a party's keys were used for, written beside the keys: a --state folder that is new, or a copy of an old one, knows less.

A silo that goes on from a restored state would answer a round again, with other noise than the one that its ledger has; a second
server would count its questions anew. So the folder of keys has a counter that only grows, and a party whose state is behind it
stops. The counter is read anew before every use, and is written by one process at a time, so two processes with the same keys
see each other. Whoever restores keys and state together from one copy can still do this: nothing on that machine could tell.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Generic, TypeVar

from covey import files
from covey.errors import CoveyError
from covey.messages import check_fields, message

T = TypeVar("T")
NAME = "used.bin"
LOST = "what these keys were used for is not known without it: make new keys"


class BesideKeys(Generic[T]):
    """A record in that folder: read anew before every use, and written by one process at a time.

    `empty` until something is written. Without a path (a rehearsal) nothing is kept.

    `lost` ends the sentence of a file that cannot be read: what is not known without it, and what to do.
    """

    def __init__(self, path: Path | None, empty: T, lost: str) -> None:
        self.path, self._empty, self._lost = path, empty, lost

    def read(self) -> T:
        if self.path is None or not self.path.is_file():
            return self._empty
        try:
            record = files.read_state(self.path)
            if not isinstance(record, type(self._empty)):
                raise CoveyError("it holds something else")
            check_fields(record)
        except (CoveyError, OSError) as e:
            raise CoveyError(f"{self.path} cannot be read ({e}), and {self._lost}") from e
        return record

    @contextmanager
    def alone(self) -> Iterator[None]:
        """No other process between reading and writing."""
        if self.path is None:
            yield
            return
        held = files.lock(self.path.with_suffix(".lock"))
        if held is None:
            raise CoveyError(
                f"another process uses the keys in {self.path.parent} at this moment: run one party with them"
            )
        with held:
            yield

    def write(self, record: T) -> None:
        if self.path is None:
            return
        try:
            files.write_state(self.path, record)
        except CoveyError as e:
            raise CoveyError(f"{e}; the folder of the keys keeps what they were used for") from e


@message
@dataclass(frozen=True)
class Used:
    begun: dict[str, int] = field(default_factory=dict)  # run -> the last round that was begun in it
    answered: dict[str, int] = field(default_factory=dict)  # run -> the last round whose answer was to leave
    refusals: int = 0  # that depended on a secret key, over all runs
    questions: int = 0  # to a second server
    advised: dict[str, int] = field(default_factory=dict)  # run -> further questions of rounds that a silo has answered
    booked: int = 0  # rounds of all runs that stand in the silo's budget


class Usage:
    """The counter in a party's folder of keys; None: a rehearsal, whose noise and keys protect nobody."""

    def __init__(self, folder: Path | None) -> None:
        self.path = folder / NAME if folder is not None else None
        self._kept = BesideKeys(self.path, Used(), LOST)
        self.used = self._kept.read()

    def check_state(self, run: str, round: int, answered: bool) -> None:
        """Refuses a state that has not come as far as its keys."""
        self.used = self._kept.read()
        begun, left = self.used.begun.get(run, 0), self.used.answered.get(run, 0)
        if round < begun or (0 < round == left and not answered):
            raise CoveyError(
                f"these keys have answered round {begun} of run {run[:20]}, and this --state folder has come to round {round}: "
                "it is an old copy, or another folder, and would answer anew what was answered; take the one that has it all, or "
                "join as a new silo (`covey keys add`)"
            )

    def begin(self, run: str, round: int, again: bool = False) -> None:
        """Refused if another process has begun this round; `again`: this one had, and was stopped in the middle of it."""
        with self._alone():
            if not again and round <= self.used.begun.get(run, 0):
                raise CoveyError(
                    f"another process has begun round {round} of run {run[:20]} with these keys: run one silo with them"
                )
            self._write(replace(self.used, begun={**self.used.begun, run: round}))

    def answer(self, run: str, round: int) -> None:
        """Before the answer leaves."""
        with self._alone():
            self._write(replace(self.used, answered={**self.used.answered, run: round}))

    def check_advice(self, run: str, advised: int) -> None:
        """A silo helps once a round; a state from before it helped would help again, with other sums."""
        self.used = self._kept.read()
        if advised < self.used.advised.get(run, 0):
            raise CoveyError(
                f"these keys have answered {self.used.advised[run]} further questions of run {run[:20]}, and this --state folder "
                f"knows of {advised}: it is an old copy; take the one that has it all, or join as a new silo (`covey keys add`)"
            )

    def advise(self, run: str, advised: int) -> None:
        """Before the answer leaves; refused if another process has answered a further question meanwhile."""
        with self._alone():
            self.check_advice(run, advised - 1)
            self._write(replace(self.used, advised={**self.used.advised, run: advised}))

    def check_booked(self, booked: int) -> None:
        """A budget that was removed, or restored from a copy, would allow again what was spent."""
        self.used = self._kept.read()
        if booked < self.used.booked:
            raise CoveyError(
                f"these keys have spent in {self.used.booked} rounds, and the budget beside them knows of {booked}: it was "
                "removed, or is an old copy; bring back the one that has it all, or make new keys and count what was spent as lost"
            )

    def book(self, booked: int) -> None:
        """Before the answer leaves."""
        with self._alone():
            self._write(replace(self.used, booked=max(booked, self.used.booked)))

    def refuse(self, refusals: int) -> None:
        with self._alone():
            self._write(replace(self.used, refusals=max(refusals, self.used.refusals)))

    def check_questions(self, written: int) -> None:
        """Refuses a list of questions that is shorter than what its keys have been asked."""
        self.used = self._kept.read()
        if written < self.used.questions:
            raise CoveyError(
                f"these keys have been asked {self.used.questions} questions, and this --state folder knows of {written}: it is an "
                "old copy, or another folder; take the folder that has all of them, or make new keys for every run"
            )

    def ask(self, questions: int) -> None:
        with self._alone():
            self._write(replace(self.used, questions=questions))

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """With what stands beside the keys now."""
        with self._kept.alone():
            self.used = self._kept.read()
            yield

    def _write(self, used: Used) -> None:
        self.used = used
        self._kept.write(used)
