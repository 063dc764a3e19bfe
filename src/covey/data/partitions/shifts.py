"""True clusters beyond label skew: all clients hold all labels, and clusters differ in what labels mean or in how samples look."""

from __future__ import annotations

import colorsys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from covey.config import later
from covey.data.dataset import Dataset
from covey.data.federation import Federation
from covey.data.holdings import Rows
from covey.data.partitions.dealing import check_clients, generator, hand_out, set_aside
from covey.errors import CoveyError, meant

TRIES = 1000  # draws of a permutation that no other cluster has
LOOKS = ("rotation", "colour", "blur")
Samples = NDArray[np.generic]
Labels = NDArray[np.int64]
Change = Callable[[int, Samples, Labels], tuple[Samples, Labels]]  # (cluster, samples, labels) -> as they are there


@dataclass(frozen=True)
class ConceptShift:
    """Cluster 0 has the labels as they are; in every other cluster `moved` labels, drawn anew, mean one another in a circle.

    Two moved labels are a swap, all of them (0) a permutation without a fixed label. A client holds a uniform sample and is
    tested on all test samples under its cluster's labels, so one model for all cannot be right for everybody.
    """

    name: ClassVar[str] = "concept_shift"
    label: ClassVar[str] = "Concept shift"
    title: ClassVar[str] = "true clusters: the same samples, labels permuted (or two swapped) in each cluster"
    stream: ClassVar[int] = 8

    moved: int = 0  # labels that mean others; 2: a swap; 0: all
    samples: int = 0  # per client; 0: all there is
    public: int = 0  # rows per cluster that no client holds: known to the server

    def __post_init__(self) -> None:
        if self.moved < 0 or self.moved == 1:
            raise CoveyError(f"partition.moved is {self.moved}: 2 labels are a swap, 0 means all of them.")

    def make(self, dataset: Dataset, clients: int, clusters: int, seed: int) -> Federation:
        labels, rng = len(dataset.classes), generator(seed, self.stream)
        if self.moved > labels:
            raise CoveyError(f"partition.moved is {self.moved}, {dataset.name} has {labels} labels: at most so many.")
        meaning = self._meanings(labels, clusters, rng)

        def change(cluster: int, x: Samples, y: Labels) -> tuple[Samples, Labels]:
            return x, meaning[cluster][y]

        circles = tuple(tuple(int(j) for j in row) for row in meaning)
        return _apart(dataset, clients, clusters, self.samples, self.public, change, rng, {"labels_mean": circles})

    def _meanings(self, labels: int, clusters: int, rng: np.random.Generator) -> Labels:
        """[k, labels]: what each label means in each cluster; no two clusters are alike."""
        rows = [np.arange(labels)]
        for _ in range(TRIES):
            if len(rows) == clusters:
                break
            circle = rng.permutation(labels)[: self.moved or labels]
            row = np.arange(labels)
            row[circle] = np.roll(circle, 1)
            if not any((row == other).all() for other in rows):
                rows.append(row)
        if len(rows) < clusters:
            raise CoveyError(
                f"{clusters} clusters cannot all mean something else by {labels} labels of which {self.moved or labels} move; "
                f"ask for at most {len(rows)} clusters, or move other labels (partition.moved)."
            )
        return np.stack(rows)


@dataclass(frozen=True)
class FeatureShift:
    """Every cluster sees the images in its own way: turned, tinted or blurred; labels mean the same everywhere.

    Cluster c is turned by c · `step` degrees (around the middle, what comes from outside is black), tinted with the hue c ·
    `step` of a full circle (grey images become colour images), or blurred with a Gaussian of c · `step` pixels. Images only.
    """

    name: ClassVar[str] = "feature_shift"
    label: ClassVar[str] = "Feature shift"
    title: ClassVar[str] = "true clusters: the same labels, images turned, tinted or blurred in each cluster"
    stream: ClassVar[int] = 9

    look: str = "rotation"  # or "colour", "blur"
    step: float = 0.0  # from a cluster to the next; 0: a full turn or circle over the clusters, 1 pixel of blur
    samples: int = 0  # per client; 0: all there is
    public: int = 0  # rows per cluster that no client holds: known to the server
    copies: bool = later(
        False
    )  # every cluster holds all rows, each seen in its way; false: a row is in one cluster only

    def __post_init__(self) -> None:
        if self.copies and self.public:
            raise CoveyError("partition.copies leaves no rows that no client holds: set partition.public = 0.")
        if self.look not in LOOKS:
            raise CoveyError(f"partition.look is '{self.look}': choose {', '.join(LOOKS)}{meant(self.look, LOOKS)}")
        if not np.isfinite(self.step) or self.step < 0:
            raise CoveyError(f"partition.step is {self.step}: a number of 0 or more.")

    def make(self, dataset: Dataset, clients: int, clusters: int, seed: int) -> Federation:
        if dataset.kind != "image":
            raise CoveyError(
                f"feature_shift turns, tints and blurs images, and {dataset.name} holds {dataset.kind} samples: choose another "
                "partition, such as 'concept_shift'."
            )
        step = self.step or {"rotation": 360 / clusters, "colour": 1 / clusters, "blur": 1.0}[self.look]
        see = {"rotation": turned, "colour": tinted, "blur": blurred}[self.look]

        def change(cluster: int, x: Samples, y: Labels) -> tuple[Samples, Labels]:
            return see(np.asarray(x, np.uint8), cluster * step), y

        rng, notes = generator(seed, self.stream), {"step": step}
        if not self.copies:
            return _apart(dataset, clients, clusters, self.samples, self.public, change, rng, notes)
        check_clients(clients)
        held = _dealt_from_copies(len(dataset.y_train), clients, clusters, self.samples, rng)
        several = replace(
            dataset,
            x_train=np.concatenate([dataset.x_train] * clusters),
            y_train=np.tile(dataset.y_train, clusters),
            attributes={},
        )
        return _as_seen(several, held, clusters, (), change, notes)


def _apart(
    dataset: Dataset,
    clients: int,
    clusters: int,
    samples: int,
    public: int,
    change: Change,
    rng: np.random.Generator,
    notes: dict[str, Any],
) -> Federation:
    """Rows dealt out evenly, client i in cluster i mod k."""
    check_clients(clients)
    if clusters > clients:
        raise CoveyError(f"{clients} clients cannot fill {clusters} clusters; ask for at least {clusters} clients.")
    known, rows = set_aside(np.arange(len(dataset.y_train)), public * clusters, rng)
    if samples < 0 or clients * max(samples, 1) > len(rows):
        raise CoveyError(
            f"{clients} clients with {samples or 'at least 1'} samples each do not fit in {len(rows)} rows; at most "
            f"{len(rows) // clients} samples each, or {len(rows) // max(samples, 1)} clients."
        )
    used = clients * samples or len(rows)
    held = hand_out(rng.permutation(rows)[:used], np.arange(used) % clients, clients, rng)
    shown: tuple[Rows, ...] = tuple(np.split(known, clusters)) if public else ()
    return _as_seen(dataset, held, clusters, shown, change, notes)


def _dealt_from_copies(
    rows: int, clients: int, clusters: int, samples: int, rng: np.random.Generator
) -> tuple[Rows, ...]:
    """Client i in cluster i mod k, which deals out a copy of all rows: those of cluster c begin at c · `rows`."""
    if clusters > clients:
        raise CoveyError(f"{clients} clients cannot fill {clusters} clusters; ask for at least {clusters} clients.")
    most = -(-clients // clusters)  # clients of the largest cluster
    if samples < 0 or most * max(samples, 1) > rows:
        raise CoveyError(
            f"{most} clients of a cluster with {samples or 'at least 1'} samples each do not fit in {rows} rows; at most "
            f"{rows // most} samples each."
        )
    held: dict[int, Rows] = {}
    for c in range(clusters):
        members = np.arange(c, clients, clusters)
        dealt = c * rows + rng.permutation(rows)[: len(members) * samples or rows]
        held |= {int(i): dealt[at :: len(members)] for at, i in enumerate(members)}
    return tuple(held[i] for i in range(clients))


def _as_seen(
    dataset: Dataset,
    held: Sequence[Rows],
    clusters: int,
    shown: tuple[Rows, ...],
    change: Change,
    notes: dict[str, Any],
) -> Federation:
    """Every row as its cluster has it, and one copy of the test set for each."""
    cluster = np.arange(len(held)) % clusters
    members = [
        np.concatenate([*(held[int(i)] for i in np.flatnonzero(cluster == c)), *shown[c : c + 1]])
        for c in range(clusters)
    ]
    parts = [change(c, dataset.x_train[rows_of], dataset.y_train[rows_of]) for c, rows_of in enumerate(members)]
    x = np.zeros(
        (len(dataset.y_train), *parts[0][0].shape[1:]), parts[0][0].dtype
    )  # of rows that nobody holds: nothing
    y = dataset.y_train.copy()
    for rows_of, (seen, labels) in zip(members, parts):
        x[rows_of], y[rows_of] = seen, labels
    tests = [change(c, dataset.x_test, dataset.y_test) for c in range(clusters)]
    changed = replace(
        dataset,
        x_train=x,
        y_train=y,
        x_test=np.concatenate([seen for seen, _ in tests]),
        y_test=np.concatenate([labels for _, labels in tests]),
        attributes={},
    )
    groups = np.repeat(np.arange(clusters), len(dataset.y_test))
    return Federation(changed, held, cluster, groups, np.eye(clusters)[cluster], shown, notes)


# ---------------------------------------------------------------- how images look


def turned(x: NDArray[np.uint8], degrees: float) -> NDArray[np.uint8]:
    """[m, h, w, …] turned around the middle, against the clock; bilinear, black outside. Quarter turns of squares are exact."""
    h, w = x.shape[1:3]
    angle = np.deg2rad(degrees)
    row, column = np.mgrid[:h, :w].astype(np.float64)
    up, right = row - (h - 1) / 2, column - (w - 1) / 2
    # where each pixel of the result comes from; rounded, so that a quarter turn meets its pixels
    from_row = np.round(np.cos(angle) * up + np.sin(angle) * right + (h - 1) / 2, 9)
    from_column = np.round(-np.sin(angle) * up + np.cos(angle) * right + (w - 1) / 2, 9)
    top, left = np.floor(from_row).astype(np.int64), np.floor(from_column).astype(np.int64)
    total = np.zeros(x.shape, np.float64)
    for down, aside in ((0, 0), (0, 1), (1, 0), (1, 1)):
        weight = np.abs(1 - down - (from_row - top)) * np.abs(1 - aside - (from_column - left))
        r, c = top + down, left + aside
        inside = (r >= 0) & (r < h) & (c >= 0) & (c < w)
        weight = np.where(inside, weight, 0.0).reshape(h, w, *(1,) * (x.ndim - 3))
        total += weight * x[:, np.clip(r, 0, h - 1), np.clip(c, 0, w - 1)]
    return np.rint(total).astype(np.uint8)


def tinted(x: NDArray[np.uint8], hue: float) -> NDArray[np.uint8]:
    """[m, h, w, 3]: every channel times that of the hue, 0 and 1 being red."""
    tint = np.array(colorsys.hsv_to_rgb(hue % 1.0, 1.0, 1.0))
    coloured = x[..., None] if x.ndim == 3 else x
    if coloured.shape[-1] not in (1, 3):
        raise CoveyError(f"images with {coloured.shape[-1]} channels cannot be tinted: 1 or 3 are needed.")
    return np.asarray(np.rint(coloured * tint), np.uint8)


def blurred(x: NDArray[np.uint8], pixels: float) -> NDArray[np.uint8]:
    """Under a Gaussian with this deviation, cut at three of them; edges are continued."""
    if pixels == 0:
        return x
    reach = max(1, int(np.ceil(3 * pixels)))
    offsets = np.arange(-reach, reach + 1)
    weights = np.exp(-0.5 * (offsets / pixels) ** 2)
    weights /= weights.sum()
    smooth = x.astype(np.float64)
    for axis in (1, 2):
        size = x.shape[axis]
        at = np.clip(np.arange(size)[None, :] + offsets[:, None], 0, size - 1)  # [offsets, size]
        smooth = np.sum([w * np.take(smooth, where, axis) for w, where in zip(weights, at)], axis=0)
    return np.asarray(np.rint(smooth), np.uint8)
