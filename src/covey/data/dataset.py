"""A dataset: samples and what is known of them. What every source returns."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

UNKNOWN = 255  # in an attribute: nobody labelled this row


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
