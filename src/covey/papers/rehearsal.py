"""Which runs a table needs, heard from the table itself: its function is called with stand-ins for runs that are not there.

A stand-in answers every question with a half, so that the function goes on to its next run. What it computes from them is thrown
away. A table that chooses its later runs by what earlier ones reached (a tuned rate, a matched noise) says so with
`options.settled`, and the rehearsal ends there: the rest is known once those runs are finished. One that computes beside its runs,
or without any, asks for its runs first and then says `options.alone`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from covey.errors import CoveyError
from covey.experiment.experiment import Experiment
from covey.papers import PAPERS
from covey.papers.harness import Options, Table, tables
from covey.papers.outcome import Diverged, Ended, Outcome, read
from covey.results.folder import RunFolder, hash_of

HALF = 0.5


@dataclass(frozen=True)
class Item:
    """A table on a dataset."""

    paper: str
    table: str
    dataset: str

    @property
    def name(self) -> str:
        return f"{self.paper}/{self.table}/{self.dataset}" if self.dataset else f"{self.paper}/{self.table}"

    @property
    def of(self) -> Table:
        return tables(self.paper)[self.table]


def items(papers: Sequence[str] = ()) -> list[Item]:
    """Every table of every paper on every dataset that it can be made on."""
    return [
        Item(paper, table, dataset)
        for paper in papers or PAPERS
        for table, known in tables(paper).items()
        for dataset in known.datasets
    ]


@dataclass(frozen=True)
class Asked:
    """What a table asked for."""

    runs: dict[str, Experiment]  # by their names
    missing: dict[str, Experiment]  # of them, those that are not finished
    more: bool  # whether others follow from what these reach
    alone: bool  # whether the table then computes by itself
    spare: frozenset[str]  # of the runs, those that it can do without


def asked(item: Item, options: Options) -> Asked:
    """By a table's function, with the runs that `options.out` has; nothing is run."""
    listener = _Listener(**(vars(options) | {"dataset": item.dataset, "quiet": True, "seen": []}))
    more = alone = False
    try:
        item.of.make(listener)
    except _Unsettled:
        more = True
    except _Alone:
        alone = True
    missing = {name: one for name, one in listener.heard.items() if name in listener.missing}
    return Asked(listener.heard, missing, more, alone, frozenset(listener.spare))


class _Unsettled(Exception):
    """A choice hangs on runs that are not there."""


class _Alone(Exception):
    """No run follows."""


@dataclass(frozen=True)
class _Listener(Options):
    heard: dict[str, Experiment] = field(default_factory=dict)
    missing: set[str] = field(default_factory=set)
    spare: set[str] = field(default_factory=set)

    def run(self, table: Mapping[str, Any], seeds: int = 1, first: int = 0) -> list[Outcome]:
        """A run that diverged is no more to be run; that the table has no place for it is said when it is made."""
        ended = self.tried(table, seeds, first)
        tables = ({**table, "seed": seed} for seed in range(first, first + seeds))
        return [o if isinstance(o, Outcome) else StandIn.of_run(Experiment.of(t)) for o, t in zip(ended, tables)]

    def tried(self, table: Mapping[str, Any], seeds: int = 1, first: int = 0) -> list[Ended]:
        return [self._heard(Experiment.of({**table, "seed": seed})) for seed in range(first, first + seeds)]

    def attempt(self, table: Mapping[str, Any], seed: int) -> Outcome | str:
        try:
            experiment = Experiment.of({**table, "seed": seed})
        except CoveyError as e:
            return str(e)
        self.spare.add(hash_of(experiment))
        if hash_of(experiment) in self.failed:
            return self.failed[hash_of(experiment)]
        ended = self._heard(experiment)
        return ended.why if isinstance(ended, Diverged) else ended

    def settled(self, outcomes: Sequence[Outcome]) -> None:
        if any(outcome.stands_in for outcome in outcomes):
            raise _Unsettled

    def alone(self) -> None:
        raise _Alone

    def _heard(self, experiment: Experiment) -> Ended:
        name = hash_of(experiment)
        self.heard[name] = experiment
        ended = read(RunFolder.named_by_hash(Path(self.out), experiment))
        if ended is not None:
            return ended
        self.missing.add(name)
        return StandIn.of_run(experiment)


class Half(float):
    """A number that can also be asked for parts of itself, which are halves."""

    def __new__(cls) -> Half:
        return super().__new__(cls, HALF)

    def __getitem__(self, key: Any) -> Half:
        return self

    def __contains__(self, key: Any) -> bool:
        return True

    def __iter__(self) -> Iterator[Any]:
        return iter(("a", "b"))

    def get(self, key: Any, default: Any = None) -> Half:
        return self

    def keys(self) -> list[str]:
        return ["a", "b"]

    def values(self) -> list[Half]:
        return [self, self]

    def items(self) -> list[tuple[str, Half]]:
        return [("a", self), ("b", self)]


@dataclass(frozen=True)
class StandIn(Outcome):
    """A run that is not there."""

    stands_in: ClassVar[bool] = True

    @classmethod
    def of_run(cls, experiment: Experiment) -> StandIn:
        last, every = experiment.training.rounds, max(1, experiment.evaluation.every)
        rounds = [
            {"round": r, "participants": 1, **dict.fromkeys(("accuracy", "extra", "seconds", "bytes"), Half())}
            for r in range(1, last + 1)
            if r % every == 0 or r == last
        ]
        return cls(dict.fromkeys(("attacks", "accuracy", "bytes", "algorithm"), Half()), rounds)
