"""scikit-learn's random forest of two classes for a GPU: all trees in step, node by node, each the very tree that it grows.

Trees depend on each other in nothing, so the next nodes of all of them are split together: a few large operations in place of
thousands of small sorts. What a tree draws is drawn on the host as scikit-learn draws it, from the same seeds; weights are whole
numbers, whose sums are exact in any order, so cuts are equal to the bit. `score.py` compares trees with scikit-learn's own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

LEAST = 2  # samples in a leaf
SAME = 1e-7  # float32 values so close are one to scikit-learn
NO_IMPURITY = float(np.finfo(np.float64).eps)
LARGEST = 2**31 - 1  # of the numbers that it draws
VALUES = 1 << 25  # looked at together, at most: about a hundred bytes each
OFTEN = (
    16  # a feature that has one value in a sixteenth of all rows is looked at in every node: it may be constant there
)
Flags = NDArray[np.bool_]
Floats = NDArray[np.floating]
Whole = NDArray[np.int64]


@dataclass(frozen=True)
class Node:
    """Not split yet."""

    rows: int
    weight: int
    positive: int  # weight of the positive rows
    constants: int = 0  # features known to be constant in it
    mark: int = 0  # that its rows bear
    parent: int = -1
    side: int = 0
    number: int = -1  # in its tree


@dataclass
class Tree:
    """Nodes in the order in which they were looked at, left before right; -1 for a leaf's feature."""

    waiting: list[Node]
    feature: list[int] = field(default_factory=list)
    threshold: list[float] = field(default_factory=list)
    children: list[list[int]] = field(default_factory=list)
    share: list[float] = field(default_factory=list)  # of the positive rows in a node's weight

    def next(self) -> Node | None:
        """The next node that may be split; those in between are leaves."""
        while self.waiting:
            node = replace(self.waiting.pop(), number=len(self.feature))
            self.feature.append(-1)
            self.threshold.append(0.0)
            self.children.append([0, 0])
            self.share.append(node.positive / node.weight)
            if node.parent >= 0:
                self.children[node.parent][node.side] = node.number
            impurity = 1.0 - (float((node.weight - node.positive) ** 2) + float(node.positive**2)) / node.weight**2
            if node.rows >= 2 * LEAST and impurity > NO_IMPURITY:
                return node
        return None

    def split(self, node: Node, feature: int, threshold: float, rows: int, weight: int, positive: int) -> None:
        """The last three are of its left part. Of `node`, constants are those known by now."""
        self.feature[node.number], self.threshold[node.number] = feature, threshold
        rest = node.rows - rows, node.weight - weight, node.positive - positive
        for side, part in ((1, rest), (0, (rows, weight, positive))):
            self.waiting.append(Node(*part, node.constants, 2 * node.number + 1 + side, node.number, side))


def grow(samples: Sequence[tuple[Floats, Flags]], trees: int, seed: int, device: torch.device) -> list[list[Tree]]:
    """A forest for each sample: float32 [n, f] rows and which of them are positive."""
    jobs = [(s, own) for s in range(len(samples)) for own in _seeds(seed, trees)]
    widest, features = max(len(x) for x, _ in samples), samples[0][0].shape[1]
    columns = torch.zeros(len(samples), features, widest)
    for s, (x, _) in enumerate(samples):
        columns[s, :, : len(x)] = torch.from_numpy(np.ascontiguousarray(x.T))
    columns = columns.to(device)
    lengths = [len(x) for x, _ in samples]
    repeated = np.stack([_repeats(columns[s, :, :n], max(1, n // OFTEN)) for s, n in enumerate(lengths)])
    constant = np.stack([_repeats(columns[s, :, :n], n - 1) for s, n in enumerate(lengths)])
    at_once = max(1, VALUES // (widest * _looked_at(features)))
    grown: list[Tree] = []
    for first in range(0, len(jobs), at_once):
        part = jobs[first : first + at_once]
        of = np.array([s for s, _ in part])
        weight = np.zeros((len(part), widest), np.int64)
        positive = np.zeros_like(weight)
        for i, (s, own) in enumerate(part):
            n = lengths[s]
            weight[i, :n] = np.bincount(np.random.RandomState(own).randint(0, n, n), minlength=n)
            positive[i, :n] = weight[i, :n] * samples[s][1]
        draws = Draws([own for _, own in part], features)
        looked = np.flatnonzero(repeated[of].any(0) & ~constant[of].all(0))
        grown += _grown(columns, of, weight, positive, draws, looked, constant[of])
    return [grown[s * trees : (s + 1) * trees] for s in range(len(samples))]


def shares(forest: Sequence[Tree], x: Floats) -> NDArray[np.float64]:
    """[trees, n]: the share of positive rows in the leaf that each row of float32 [n, f] comes to."""
    most = max(len(tree.feature) for tree in forest)

    def table(values: Sequence[Sequence[float]], kind: type) -> NDArray[Any]:
        return np.array([[*row, *[0] * (most - len(row))] for row in values], kind)

    feature = table([tree.feature for tree in forest], np.int64)
    threshold = table([tree.threshold for tree in forest], np.float64)
    sides = [table([[c[side] for c in tree.children] for tree in forest], np.int64) for side in (0, 1)]
    share = table([tree.share for tree in forest], np.float64)
    each, row = np.arange(len(forest))[:, None], np.arange(len(x))
    at = np.zeros((len(forest), len(x)), np.int64)
    while (inner := feature[each, at] >= 0).any():
        left = x[row, feature[each, at]] <= threshold[each, at]
        at = np.where(inner, np.where(left, sides[0][each, at], sides[1][each, at]), at)
    reached: NDArray[np.float64] = share[each, at]
    return reached


def _seeds(seed: int, trees: int) -> list[int]:
    random = np.random.RandomState(seed)
    return [int(random.randint(LARGEST)) for _ in range(trees)]


def _looked_at(features: int) -> int:
    return max(1, int(np.sqrt(features)))


def _repeats(columns: Tensor, times: int) -> Flags:
    """[f] whether some value of each row of [f, n] comes once and so many times more."""
    ordered = columns.sort(1).values
    return (ordered[:, times:] <= ordered[:, : len(ordered[0]) - times] + SAME).any(1).cpu().numpy()


@dataclass
class Drawn:
    """Of some trees: the features that their nodes look at, and what the drawing leaves behind."""

    looked_at: Whole  # [a, v]; -1: none
    random: NDArray[np.uint32]  # [a]
    features: NDArray[np.int32]  # [a, f]
    constants: Whole  # [a] how many are known by now


class Draws:
    """Which features each tree looks at, node by node: scikit-learn's drawing without replacement, which remembers constants."""

    def __init__(self, seeds: Sequence[int], features: int) -> None:
        self._random = np.array([np.random.RandomState(seed).randint(0, LARGEST) for seed in seeds], np.uint32)
        self._features = np.tile(np.arange(features, dtype=np.int32), (len(seeds), 1))
        self._constants = np.zeros_like(self._features)

    def of(self, trees: Whole, known: Whole, constant: Flags) -> Drawn:
        """`known`: how many constants these nodes' parents knew; `constant` [a, f]: all that are, as far as one knows."""
        random, features = self._random[trees], self._features[trees]
        most = _looked_at(features.shape[1])
        end, total = np.full(len(trees), features.shape[1]), known.copy()
        visited, found, again, count = (np.zeros(len(trees), np.int64) for _ in range(4))
        looked_at = np.full((len(trees), most), -1, np.int64)
        while len(on := np.flatnonzero((end > total) & ((visited < most) | (visited <= found + again)))):
            visited[on] += 1
            random[on] = word = _xorshift(random[on])
            place = again[on] + (word & np.uint32(LARGEST)).astype(np.int64) % (end[on] - found[on] - again[on])
            old = place < known[on]
            if len(i := on[old]):
                _swap(features, i, place[old], again[i])
                again[i] += 1
            i, place = on[~old], place[~old] + found[on[~old]]
            flat = constant[i, features[i, place]]
            if len(j := i[flat]):
                _swap(features, j, place[flat], total[j])
                found[j] += 1
                total[j] += 1
            j, place = i[~flat], place[~flat]
            looked_at[j, count[j]] = features[j, place]
            count[j] += 1
            end[j] -= 1
            _swap(features, j, place, end[j])
        return Drawn(looked_at, random, features, total)

    def keep(self, trees: Whole, known: Whole, drawn: Drawn) -> None:
        self._random[trees] = drawn.random
        self._features[trees] = drawn.features
        for tree, before, now in zip(trees, known, drawn.constants):
            self._features[tree, :before] = self._constants[tree, :before]
            self._constants[tree, before:now] = self._features[tree, before:now]


def _xorshift(word: NDArray[np.uint32]) -> NDArray[np.uint32]:
    word = np.where(word == 0, np.uint32(1), word)
    word ^= word << np.uint32(13)
    word ^= word >> np.uint32(17)
    word ^= word << np.uint32(5)
    return word


def _swap(table: NDArray[np.int32], rows: Whole, a: Whole, b: Whole) -> None:
    table[rows, a], table[rows, b] = table[rows, b], table[rows, a]


def _grown(
    columns: Tensor, of: Whole, weight: Whole, positive: Whole, draws: Draws, looked: Whole, constant: Flags
) -> list[Tree]:
    """Trees on columns [s, f, n], tree i on those of sample of[i]. `looked`: features that may be constant in a node,
    `constant` [t, f] those that are everywhere.
    """
    rows, sums, ones = (weight > 0).sum(1), weight.sum(1), positive.sum(1)
    trees = [Tree([Node(int(r), int(w), int(p))]) for r, w, p in zip(rows, sums, ones)]
    ground = Ground(columns, *(torch.from_numpy(array).to(columns.device) for array in (of, weight, positive)))
    features = torch.from_numpy(looked).to(columns.device)
    while found := [(i, node) for i, tree in enumerate(trees) if (node := tree.next())]:
        at, nodes = np.array([i for i, _ in found]), [node for _, node in found]
        here = ground.of(at, nodes)
        flat = constant[at]
        flat[:, looked] |= here.constant(features.expand(len(at), -1))
        known = np.array([node.constants for node in nodes])
        drawn = _drawn(draws, at, known, flat, here)
        draws.keep(at, known, drawn)
        cuts = here.cut(torch.from_numpy(drawn.looked_at).to(columns.device))
        for i, node, constants, (able, feature, threshold, *left) in zip(at, nodes, drawn.constants.tolist(), cuts):
            if able:
                whole = replace(node, constants=constants)
                trees[i].split(whole, int(feature), threshold, *(int(number) for number in left))
    return trees


def _drawn(draws: Draws, trees: Whole, known: Whole, flat: Flags, here: Here) -> Drawn:
    """A feature that only proves to be constant when it is drawn changes what is drawn after it: drawn again then."""
    drawn = draws.of(trees, known, flat)
    again = np.arange(len(trees))
    while True:
        looked_at = drawn.looked_at[again]
        proved = here.some(again).constant(torch.from_numpy(looked_at).to(here.device))
        if not (late := proved.any(1)).any():
            return drawn
        again, first = again[late], proved.argmax(1)[late]  # those behind it may not be drawn at all
        flat[again, looked_at[late, first]] = True
        once_more = draws.of(trees[again], known[again], flat[again])
        for name in ("looked_at", "random", "features", "constants"):
            getattr(drawn, name)[again] = getattr(once_more, name)


class Ground:
    """Where trees stand: the rows of each, on the device, and the node that each row is in."""

    def __init__(self, columns: Tensor, of: Tensor, weight: Tensor, positive: Tensor) -> None:
        self.columns, self.of_tree, self.weight, self.positive = columns, of, weight, positive
        self.mark = torch.where(weight > 0, 0, -1)  # [t, n]

    def of(self, trees: Whole, nodes: Sequence[Node]) -> Here:
        device, most = self.columns.device, max(node.rows for node in nodes)
        table = torch.tensor([[n.rows, n.weight, n.positive, n.mark, n.number] for n in nodes], device=device)
        tree = torch.from_numpy(trees).to(device)
        within = self.mark[tree] == table[:, 3:4]
        row = within.to(torch.uint8).argsort(dim=1, descending=True, stable=True)[:, :most]
        own = torch.arange(most, device=device) < table[:, :1]
        return Here(self, tree, within, torch.where(own, row, row[:, :1]), own, table)


@dataclass(frozen=True)
class Here:
    """One node of each of some trees."""

    ground: Ground
    tree: Tensor  # [a]
    within: Tensor  # [a, n]
    row: Tensor  # [a, m] its rows, then the first of them again
    own: Tensor  # [a, m] which of these count
    table: Tensor  # [a, 5] rows, weight, positive weight, mark, number

    @property
    def device(self) -> torch.device:
        return self.tree.device

    def some(self, which: Whole) -> Here:
        at = torch.from_numpy(which).to(self.device)
        return Here(self.ground, *(part[at] for part in (self.tree, self.within, self.row, self.own, self.table)))

    def constant(self, features: Tensor) -> Flags:
        """[a, v] whether features [a, v] are; -1: no feature."""
        at_once = max(1, VALUES // self.row.numel())
        parts = [self._constant(part) for part in torch.split(features, at_once, dim=1)]
        return np.concatenate([part.cpu().numpy() for part in parts], 1) if parts else np.zeros(features.shape, bool)

    def _constant(self, features: Tensor) -> Tensor:
        smallest, largest = self._values(features).aminmax(dim=2)
        return (largest <= smallest + SAME) & (features >= 0)

    def _values(self, features: Tensor) -> Tensor:
        """[a, v, m] of features [a, v]."""
        of = self.ground.of_tree[self.tree][:, None, None]
        return self.ground.columns[of, features.clamp(min=0)[:, :, None], self.row[:, None]]

    def cut(self, features: Tensor) -> list[list[float]]:
        """Splits each node at its best cut, the first of equals: whether it can be, feature, threshold; rows and weights left."""
        ground, most = self.ground, self.row.shape[1]
        values, order = self._values(features).masked_fill(~self.own[:, None], torch.inf).sort(dim=2)
        weight, positive = (part[self.tree] for part in (ground.weight, ground.positive))
        left, left_ones = (
            part.gather(1, self.row)
            .mul_(self.own)[:, None]
            .expand_as(order)
            .gather(2, order)
            .cumsum(2)[..., :-1]
            .double()
            for part in (weight, positive)
        )
        rows, all_weight, all_ones = (self.table[:, i, None, None] for i in range(3))
        right, right_ones = all_weight - left, all_ones - left_ones
        score = -right * _gini(right, right_ones) - left * _gini(left, left_ones)
        before = torch.arange(1, most, device=self.device)
        able = (values[..., 1:] > values[..., :-1] + SAME) & (before >= LEAST) & (rows - before >= LEAST)
        score = score.masked_fill(~(able & (features >= 0)[:, :, None]), -torch.inf).flatten(1)
        best = score.amax(1, keepdim=True)
        places = torch.arange(score.shape[1], device=self.device)
        place = places.expand_as(score).masked_fill(score != best, score.shape[1] - 1).amin(1)
        able = best[:, 0] > -torch.inf
        each, which, at = torch.arange(len(score), device=self.device), place // (most - 1), place % (most - 1)
        low, high = (values[each, which, at + i].double() for i in (0, 1))
        threshold = low / 2.0 + high / 2.0
        threshold = torch.where(threshold == high, low, threshold)
        feature = features[each, which].clamp(min=0)
        to_left = ground.columns[ground.of_tree[self.tree], feature].double() <= threshold[:, None]  # [a, n]
        moved, mark = self.within & able[:, None], 2 * self.table[:, 4:5] + torch.where(to_left, 1, 2)
        ground.mark[self.tree] = torch.where(moved, mark, ground.mark[self.tree])
        gone = moved & to_left
        told = (able, feature, threshold, gone.sum(1), (gone * weight).sum(1), (gone * positive).sum(1))
        listed: list[list[float]] = torch.stack([fact.double() for fact in told], 1).tolist()
        return listed


def _gini(weight: Tensor, positive: Tensor) -> Tensor:
    other = weight - positive
    return 1.0 - (other * other + positive * positive) / (weight * weight)
