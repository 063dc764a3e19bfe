"""A federation: samples, and who holds which. What every partition returns and every engine runs on."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray


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
    task: str = (
        "classes"  # one of several; labels: y is float32 [m, labels], each 0 or 1; numbers: float32 [m, outputs]
    )

    @property
    def outputs(self) -> int:
        """How many numbers a model gives for a sample."""
        return len(self.classes)


@dataclass(frozen=True)
class Federation:
    """A dataset cut over clients. Pure function of (dataset, parameters, seed); clients are disjoint unless
    `notes` says otherwise.

    Test samples carry a *group* (their label, unless the partition says otherwise) and every client a
    distribution over the groups, so that a client's accuracy on its own distribution is a weighted mean of
    per-group accuracies.
    """

    dataset: Dataset
    clients: tuple[NDArray[np.int64], ...]  # rows of x_train, one array per client
    clusters: NDArray[np.int64] | None  # [n] true cluster of each client, where the partition has one
    test_groups: NDArray[np.int64]  # [m_test]
    distributions: NDArray[np.float64]  # [n, groups], rows sum to 1
    public: tuple[NDArray[np.int64], ...] = ()  # per cluster (or one): rows no client holds, known to the server
    notes: dict[str, object] = field(default_factory=dict)  # what a reader must know: overlaps, property rows, ...

    def histogram(self) -> NDArray[np.int64]:
        """Label counts per client, [n, labels]."""
        labels = len(self.dataset.classes)
        return np.stack([np.bincount(self.dataset.y_train[rows], minlength=labels) for rows in self.clients])
