"""A federation: samples, and who holds which. What every partition returns and every engine runs on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from covey.data.checks import called, check_dataset, pieces
from covey.data.dataset import Dataset
from covey.data.holdings import Holdings, Rows, held, label_shares
from covey.data.own import given
from covey.errors import CoveyError


@dataclass(frozen=True)
class Phase:
    """Who holds what from a round on, where that changes during a run; the samples themselves stay."""

    first: int  # round, from 2 on
    clients: Sequence[NDArray[np.int64]]
    clusters: NDArray[np.int64] | None
    distributions: NDArray[np.float64]

    def __post_init__(self) -> None:
        object.__setattr__(self, "clients", held(self.clients))


@dataclass(frozen=True)
class Federation:
    """A dataset cut over clients. Pure function of (dataset, parameters, seed); clients are disjoint unless
    `notes` says otherwise.

    Test samples carry a *group* (their label, unless the partition says otherwise) and every client a
    distribution over the groups, so that a client's accuracy on its own distribution is a weighted mean of
    per-group accuracies.

    Of your own data: `Federation.from_arrays`, `from_frame`, `from_path`, `from_torch`, `from_huggingface`. Where these
    know no clients, the federation has none yet, and the experiment's partition cuts it when it runs.
    """

    dataset: Dataset
    clients: Sequence[NDArray[np.int64]]  # rows of x_train, one array per client; kept as `Holdings`
    clusters: NDArray[np.int64] | None  # [n] true cluster of each client, where the partition has one
    test_groups: NDArray[np.int64]  # [m_test]
    distributions: NDArray[np.float64]  # [n, groups], rows sum to 1
    public: tuple[NDArray[np.int64], ...] = ()  # per cluster (or one): rows no client holds, known to the server
    notes: dict[str, object] = field(default_factory=dict)  # what a reader must know: overlaps, property rows, ...
    names: tuple[str, ...] = ()  # of the clients, where they have any
    phases: tuple[Phase, ...] = ()  # what changes later in a run, in the order of rounds

    def __post_init__(self) -> None:
        object.__setattr__(self, "clients", held(self.clients))

    def phase(self, round: int) -> int:
        """How many changes there have been by this round."""
        return sum(phase.first <= round for phase in self.phases) if self.phases else 0

    def at(self, round: int) -> Federation:
        """As it is in this round."""
        if not (begun := self.phase(round)):
            return self
        now = self.phases[begun - 1]
        return replace(self, clients=now.clients, clusters=now.clusters, distributions=now.distributions, phases=())

    @property
    def holdings(self) -> Holdings:
        """The clients' rows as two arrays, for what is asked of all clients at once."""
        return self.clients if isinstance(self.clients, Holdings) else Holdings.of(self.clients)

    @cached_property
    def tested_apart(self) -> bool:
        """Whether client i is tested on group i and on nothing else: natural clients with test rows of their own."""
        shares = self.distributions
        if self.phases or shares.ndim != 2 or len(shares) != shares.shape[1] or not (np.diagonal(shares) == 1).all():
            return False
        if shares.strides[0] == -shares.strides[1]:  # a line seen as a matrix: its first row and column are all of it
            return int(np.count_nonzero(shares[0])) == int(np.count_nonzero(shares[:, 0])) == 1
        return int(np.count_nonzero(shares)) == len(shares)

    def histogram(self, of: Sequence[int] | None = None) -> NDArray[np.int64]:
        """Label counts per client (of these, or of all), [n, labels]; of numbers to predict, how many there are of each."""
        width, y = self.dataset.outputs, self.dataset.y_train
        parts = self.clients if of is None else [self.clients[i] for i in of]
        if self.dataset.task == "classes":
            return np.stack([np.bincount(y[rows], minlength=width) for rows in parts])
        if self.dataset.task == "labels":
            return np.stack([np.rint(y[rows].sum(0)).astype(np.int64) for rows in parts])
        return np.stack([np.full(width, len(rows), np.int64) for rows in parts])

    # ------------------------------------------------------------ cut as the data say

    @classmethod
    def by_label(cls, dataset: Dataset, clients: Sequence[Rows], public: Rows, **notes: object) -> Federation:
        """Clients without true clusters, each to be tested on labels in the proportions that it holds.

        Where rows have no one label (several at once, numbers), all test rows are one group.
        """
        one_label = dataset.task == "classes"
        return cls(
            dataset=dataset,
            clients=clients,
            clusters=None,
            test_groups=dataset.y_test if one_label else np.zeros(len(dataset.y_test), np.int64),
            distributions=label_shares(clients, dataset.y_train, len(dataset.classes))
            if one_label
            else np.ones((len(clients), 1)),
            public=(public,) if len(public) else (),
            notes=notes,
        )

    @classmethod
    def by_owner(cls, dataset: Dataset) -> Federation:
        """Every client holds the rows that the data say are its own; without clients, for a partition to cut, where they name none.

        A client is tested on its own test rows; where these are nobody's, on all of them in the proportions of its own labels.
        """
        if dataset.owners is None:
            return cls(dataset, (), None, np.zeros(len(dataset.y_test), np.int64), np.zeros((0, 1)))
        order = np.argsort(dataset.owners, kind="stable")
        counts = np.bincount(dataset.owners, minlength=len(dataset.holders))
        own = Holdings.cut(order.astype(np.int64), counts)
        if dataset.test_owners is None:
            return replace(cls.by_label(dataset, own, np.zeros(0, np.int64)), names=dataset.holders)
        return cls(dataset, own, None, dataset.test_owners, _identity(len(own)), names=dataset.holders)

    # ------------------------------------------------------------ of one's own data

    @classmethod
    def from_arrays(
        cls,
        x: ArrayLike,
        y: ArrayLike,
        *,
        clients: ArrayLike | None = None,
        test: tuple[ArrayLike, ArrayLike] | float | ArrayLike = 0.1,
        test_clients: ArrayLike | None = None,
        classes: Sequence[str] = (),
        kind: str = "",
        task: str = "",
        name: str = "own data",
    ) -> Federation:
        """From samples [m, …] and labels [m], taken as they are: nothing is scaled.

        Memory-mapped arrays stay mapped where the test set is given as (x, y): holding rows back would copy the others.

        Args:
            clients: whose each row is (names or numbers); None: the experiment's partition cuts it.
            test: the share of each client's rows (of each class, without clients) that is held back, or a mask [m] of the
                test rows, or (x, y) of a test set.
            test_clients: whose the rows of such a test set are; None: everybody's.
            classes: names of the labels 0, 1, …; none: labels may be anything, and are their own names.
            kind: image, binary, real or tokens; "": by the type of x (uint8: image, or binary if all is 0 or 1).
            task: classes, labels (y of 0/1 [m, labels]) or numbers; "": by y.
        """
        return _cut(given.from_arrays(x, y, clients, test, test_clients, tuple(classes), kind, task, name))

    @classmethod
    def from_frame(
        cls,
        frame: Any,
        label: str | Sequence[str] = "",
        client: str = "",
        *,
        test: Any = 0.1,
        name: str = "own data",
        **rules: Any,
    ) -> Federation:
        """From a table: a pandas frame, a pyarrow table, or anything with `to_arrow()` or `to_pandas()`.

        Args:
            label: the column to predict, or several; "": one that is called label, target, class or y.
            client: the column that says whose a row is; "": one that is called client or silo, else the partition cuts it.
            test: a share, the name of a column that says it, or a frame of test rows.
            rules: as the table [data] of a TOML file: task, drop, categories, missing, standardise, min_rows, most_values.
        """
        return _cut(given.from_frame(frame, label, client, test, name, rules))

    @classmethod
    def from_path(cls, path: str, **rules: Any) -> Federation:
        """From a file or folder, as `dataset = "PATH"` reads it, with the keys of the table [data]."""
        return _cut(given.from_path(path, rules))

    @classmethod
    def from_torch(
        cls, samples: Any, *, test: Any = 0.1, clients: ArrayLike | None = None, name: str = "own data", **more: Any
    ) -> Federation:
        """From a torch `Dataset` of (sample, label), read once into memory; `test` may be another one.

        Float images as torch keeps them, [channels, h, w] with 1 or 3 channels, become [h, w, channels], covey's order.
        `more`: as `from_arrays` has it.
        """
        return _cut(given.from_torch(samples, test, clients, name, more))

    @classmethod
    def from_huggingface(
        cls,
        samples: Any,
        label: str | Sequence[str] = "",
        client: str = "",
        *,
        column: str = "",
        test: Any = 0.1,
        name: str = "own data",
        **rules: Any,
    ) -> Federation:
        """From a dataset of the package `datasets`, or a dictionary of its splits train and test.

        Args:
            column: the one that holds the samples, as images or arrays; "": such a column where there is one, else all columns
                are a table (see `from_frame`).
        """
        return _cut(given.from_huggingface(samples, label, client, column, test, name, rules))


def _cut(dataset: Dataset) -> Federation:
    """Checked at once where the data name the clients; a partition's cut is checked when it is made."""
    federation = Federation.by_owner(dataset)
    return federation if dataset.owners is None else check(federation)


def _identity(n: int) -> NDArray[np.float64]:
    """[n, n], of which only 2n - 1 numbers are stored: ten thousand clients would take 800 MB."""
    line = np.zeros(2 * n - 1)
    line[n - 1] = 1.0
    return np.lib.stride_tricks.as_strided(line[n - 1 :], (n, n), (-line.itemsize, line.itemsize), writeable=False)


# ---------------------------------------------------------------- what it must be before anything trains on it


def check(federation: Federation) -> Federation:
    """The same federation, or one sentence on what is wrong with it."""
    if not isinstance(federation, Federation):
        raise CoveyError(
            f"federation is a {type(federation).__name__}: make one with covey.Federation.from_arrays(x, y, clients=…) "
            "or from_frame"
        )
    check_dataset(federation.dataset)
    for now in (federation, *(federation.at(phase.first) for phase in federation.phases)):
        _check_clients(now)
        _check_tests(now)
    return federation


def _check_clients(federation: Federation) -> None:
    rows = len(federation.dataset.y_train)
    if not federation.clients:
        raise CoveyError(
            f"{called(federation.dataset)} names no clients: give clients=…, or a partition that cuts it, such as iid"
        )
    if not isinstance(federation.clients, Holdings):  # what could not be joined
        wrong = next(i for i, own in enumerate(federation.clients) if not isinstance(held((own,)), Holdings))
        raise CoveyError(
            f"the rows of {who(federation, wrong)} are no array of whole numbers: give row numbers of x_train"
        )
    every, sizes = federation.holdings.rows, federation.holdings.sizes
    if not sizes.min():
        raise CoveyError(f"{who(federation, int(sizes.argmin()))} has no training rows: give it some, or leave it out")
    if every.min() < 0 or every.max() >= rows:
        at = np.flatnonzero((every < 0) | (every >= rows))[0]
        holder = who(federation, federation.holdings.owners[at])
        raise CoveyError(f"{holder} holds row {every[at]}, there are the rows 0 to {rows - 1}: correct it")
    taken = np.zeros(rows, np.bool_)  # a count of each would take eight times the memory
    taken[every] = True
    if np.count_nonzero(taken) < len(every) and not federation.notes.get("overlap"):
        row = int(np.bincount(every, minlength=rows).argmax())
        holders = [who(federation, i) for i in federation.holdings.owners[every == row][:2]]
        twice = f"{holders[0]} twice" if holders[0] == holders[1] else " and ".join(holders)
        raise CoveyError(
            f"row {row} is held by {twice}: give each row to one client, or note the overlap in notes['overlap']"
        )
    if federation.clusters is not None and np.shape(federation.clusters) != (len(federation.clients),):
        raise CoveyError(
            f"clusters has shape {list(np.shape(federation.clusters))}, there are {len(federation.clients)} clients: "
            "give one number per client, or None"
        )
    for j, public in enumerate(federation.public):
        if len(public) and not 0 <= int(np.min(public)) <= int(np.max(public)) < rows:
            raise CoveyError(f"public part {j} names rows outside 0 to {rows - 1}: correct it")
    if federation.names and len(set(federation.names)) < len(federation.clients):
        raise CoveyError(
            f"names lists {len(set(federation.names))} different names for {len(federation.clients)} clients: give one each"
        )


def _check_tests(federation: Federation) -> None:
    """Every client must be tested on something: a score of nothing would read as 0."""
    n, tests, shares = len(federation.clients), len(federation.dataset.y_test), federation.distributions
    if np.ndim(shares) != 2 or len(shares) != n:
        raise CoveyError(
            f"distributions has shape {list(np.shape(shares))}, expected [{n}, groups]: one row per client"
        )
    if np.shape(federation.test_groups) != (tests,):
        raise CoveyError(
            f"test_groups has shape {list(np.shape(federation.test_groups))}, there are {tests} test rows: one group each"
        )
    groups = federation.test_groups
    if groups.dtype.kind not in "iu" or groups.min() < 0 or groups.max() >= shares.shape[1]:
        raise CoveyError(
            f"test_groups holds groups outside 0 to {shares.shape[1] - 1}: distributions has that many columns"
        )
    tested = np.bincount(groups, minlength=shares.shape[1]) > 0
    if federation.tested_apart:
        _refuse_bare(federation, np.flatnonzero(~tested))
        return
    for start, part in pieces(shares):
        totals = part.sum(1)
        wrong = np.flatnonzero(~(np.abs(totals - 1) < 1e-6) | (part.min(1) < 0))
        bare = np.flatnonzero(~part[:, tested].any(1))
        if len(wrong) and (not len(bare) or wrong[0] <= bare[0]):
            raise CoveyError(
                f"the distribution of {who(federation, start + int(wrong[0]))} sums to {totals[wrong[0]]:g}: shares of 0 or more "
                "that sum to 1"
            )
        _refuse_bare(federation, start + bare)


def _refuse_bare(federation: Federation, bare: NDArray[np.int64]) -> None:
    if len(bare):
        raise CoveyError(
            f"{who(federation, int(bare[0]))} has no test rows: hold some of its rows back, or leave it out (data.min_rows)"
        )


def who(federation: Federation, client: int) -> str:
    """A client in a sentence."""
    name = f" ('{federation.names[client]}')" if client < len(federation.names) else ""
    return f"client {client}{name}"
