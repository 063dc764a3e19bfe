"""A federation: samples, and who holds which. What every partition returns and every engine runs on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from covey.data.holdings import Holdings, held


@dataclass(frozen=True)
class Dataset:
    """Samples as arrays.

    Pixels stay uint8 (scaled to [0, 1] where they are used), binary features are uint8 0/1, token ids int32.
    Loaded arrays are shared between callers and therefore read-only: copy before writing.
    """

    name: str
    x_train: NDArray[np.generic]  # [m, ...]: images are [m, h, w] or [m, h, w, c]
    y_train: NDArray[Any]  # [m] int64 labels; other tasks: see `task`
    x_test: NDArray[np.generic]
    y_test: NDArray[Any]
    classes: tuple[str, ...]  # names of the labels, or of the outputs
    kind: str = "image"  # image (uint8, / 255), binary (0/1 as they are), real (float32), tokens (0 = padding)
    attributes: dict[str, NDArray[np.generic]] = field(default_factory=dict)  # gender: [m], ... of training rows
    stand_in: str = ""  # non-empty: generated data, and what it stands in for; shown beside every figure on it
    note: str = ""  # what a reader of a figure must know of this copy, e.g. that it is a subset of the published set
    vocabulary: tuple[str, ...] = ()  # token data: the word of each id; 0 is padding, 1 an unknown word
    task: str = "classes"  # or labels: y is float32 [m, labels], each 0 or 1; or numbers: float32 [m, outputs]
    owners: NDArray[np.int64] | None = None  # [m] the client that each training row is from, where the data say so
    test_owners: NDArray[np.int64] | None = None  # [m_test] the same of test rows; None: the test rows are everybody's
    holders: tuple[str, ...] = ()  # names of those clients: hospitals, users

    columns: tuple[
        Any, ...
    ] = ()  # how columns of a table became its numbers (`data.own.encoding.Feature`): for new samples

    @property
    def outputs(self) -> int:
        """How many numbers a model gives for a sample."""
        return len(self.classes)


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
        from covey.data.own.given import from_arrays

        return from_arrays(x, y, clients, test, test_clients, tuple(classes), kind, task, name)

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
        from covey.data.own.given import from_frame

        return from_frame(frame, label, client, test, name, rules)

    @classmethod
    def from_path(cls, path: str, **rules: Any) -> Federation:
        """From a file or folder, as `dataset = "PATH"` reads it, with the keys of the table [data]."""
        from covey.data.own.given import from_path

        return from_path(path, rules)

    @classmethod
    def from_torch(
        cls, samples: Any, *, test: Any = 0.1, clients: ArrayLike | None = None, name: str = "own data", **more: Any
    ) -> Federation:
        """From a torch `Dataset` of (sample, label), read once into memory; `test` may be another one.

        Float images as torch keeps them, [channels, h, w] with 1 or 3 channels, become [h, w, channels], covey's order.
        `more`: as `from_arrays` has it.
        """
        from covey.data.own.given import from_torch

        return from_torch(samples, test, clients, name, more)

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
        from covey.data.own.given import from_huggingface

        return from_huggingface(samples, label, client, column, test, name, rules)
