"""Totals: what most metrics need to know of predictions, as numbers that add up over samples.

Test samples lie in groups and a client's distribution is a mixture of groups, so the totals of a client are the same mixture of
the groups' totals: each model is read once, however many clients use it.

    classes   loss, right | per class: weight of true samples, of predicted ones, of those that are both
    labels    loss, all labels right | the same three per label
    numbers   loss (mean squared error) | per output: squared error, absolute error
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

Floats = NDArray[np.float64]
CLASSES, LABELS, NUMBERS = "classes", "labels", "numbers"  # tasks: see `Dataset.task`
SMALLEST = 1e-38  # probability that a loss is still finite of


@dataclass(frozen=True)
class Totals:
    """Of samples whose weights sum to 1."""

    task: str
    vector: Floats  # see the module's docstring

    @property
    def loss(self) -> float:
        return float(self.vector[0])

    @property
    def right(self) -> float:
        """Share of samples that are right: their class, or all of their labels."""
        return float(self.vector[1])

    @property
    def true(self) -> Floats:
        return self._part(0)

    @property
    def predicted(self) -> Floats:
        return self._part(1)

    @property
    def hit(self) -> Floats:
        return self._part(2)

    @property
    def squared(self) -> Floats:
        return self._part(0)

    @property
    def absolute(self) -> Floats:
        return self._part(1)

    def _part(self, number: int) -> Floats:
        parts, head = (2, 1) if self.task == NUMBERS else (3, 2)
        width = (len(self.vector) - head) // parts
        return self.vector[head + number * width : head + (number + 1) * width]


@dataclass(frozen=True)
class Predictions:
    """What one model, or a mixture, says of samples."""

    task: str
    outputs: Tensor  # [n, outputs]: logarithms of the classes' probabilities, the labels' probabilities, or numbers
    targets: Tensor  # [n] classes; [n, outputs]
    chosen: Tensor | None = None  # [n] the class that is predicted; None: that of the largest output

    def probabilities(self) -> NDArray[np.float32]:
        """As a metric over samples reads them: probabilities of classes or labels, or the numbers themselves."""
        outputs = self.outputs.exp() if self.task == CLASSES else self.outputs
        return np.asarray(outputs.detach().cpu().numpy())


def predictions(task: str, raw: Tensor, targets: Tensor, weights: Tensor | None = None) -> Predictions:
    """From what models give, [m, n, outputs]: of the only one, or of the mixture of all by `weights` [m]."""
    if task == CLASSES:
        if weights is None:
            by_class = raw[0].t().contiguous().log_softmax(0)  # a fifth of the time of rows with a few classes each
            return Predictions(task, by_class.t(), targets, raw[0].argmax(1))
        mixed = torch.einsum("mnc,m->nc", raw.softmax(2), weights)
        return Predictions(task, mixed.clamp(min=SMALLEST).log(), targets, mixed.argmax(1))
    outputs = raw.sigmoid() if task == LABELS else raw
    mixed = outputs[0] if weights is None else torch.einsum("mnc,m->nc", outputs, weights)
    return Predictions(task, mixed, targets)


def by_group(said: Predictions, groups: NDArray[np.int64], sizes: Floats) -> Floats:
    """Mean totals of each group of samples, [groups, s]; zeros where a group has none."""
    columns = _classes(said, groups, len(sizes)) if said.task == CLASSES else _others(said, groups, len(sizes))
    return np.asarray(columns / np.maximum(sizes, 1)[:, None])


MOST_GROUPS = 64  # of samples that a device adds up by itself


class OnDevice:
    """Mean totals of each group of the same samples, of many models and where their outputs lie: one small table comes back.

    For tasks of classes. The numbers are those of `by_group`, the losses but for rounding.
    """

    def __init__(self, targets: Tensor, groups: NDArray[np.int64], sizes: Floats, classes: int) -> None:
        self._targets, self._sizes, self._classes = targets, sizes, classes
        self._at = torch.from_numpy(groups).to(targets.device) * classes  # where the classes of a sample's group begin
        self._true = self._at + targets
        cells = np.bincount(self._true.cpu().numpy(), minlength=len(sizes) * classes)
        self._of_classes = cells.reshape(len(sizes), classes)
        members = np.zeros((len(sizes), len(groups)))
        members[groups, np.arange(len(groups))] = 1
        self._members = torch.from_numpy(members).to(
            targets.device
        )  # [groups, n]: sums in one order, whatever the device does

    def totals(self, raw: Tensor) -> Floats:
        """[m, groups, s] from outputs [m, n, classes]."""
        return self.table(self.sums(raw).cpu().numpy())

    def sums(self, raw: Tensor) -> Tensor:
        """All that is needed of the outputs, [m, groups + 2 · groups · classes] on their device: nothing here waits for it."""
        m, groups, classes = len(raw), len(self._sizes), self._classes
        by_class = raw.transpose(1, 2).contiguous().log_softmax(1)  # [m, classes, n]
        loss = -by_class.gather(1, self._targets.expand(m, 1, -1))[:, 0].double()
        chosen = raw.argmax(2)
        cells = torch.zeros(m, 2, groups * classes, dtype=torch.float64, device=raw.device)
        cells[:, 0].scatter_add_(1, self._at + chosen, torch.ones_like(loss))
        cells[:, 1].scatter_add_(1, self._true.expand(m, -1), (chosen == self._targets).double())
        return torch.cat([(loss @ self._members.t()).reshape(m, -1), cells.view(m, -1)], dim=1)

    def table(self, found: Floats) -> Floats:
        """The totals [m, groups, s] from these."""
        m, groups, classes = len(found), len(self._sizes), self._classes
        counts = found[:, groups:].reshape(m, 2, groups, classes)
        table = np.empty((m, groups, 2 + 3 * classes))
        table[:, :, 0], table[:, :, 1] = found[:, :groups], counts[:, 1].sum(2)
        table[:, :, 2 : 2 + classes] = self._of_classes
        table[:, :, 2 + classes : 2 + 2 * classes], table[:, :, 2 + 2 * classes :] = counts[:, 0], counts[:, 1]
        return np.asarray(table / np.maximum(self._sizes, 1)[:, None])


def of_samples(said: Predictions, weights: Floats) -> Totals:
    """Of samples with weights that sum to 1: each is a group of its own."""
    each = by_group(said, np.arange(len(weights)), np.ones(len(weights)))
    return Totals(said.task, weights @ each)


def _classes(said: Predictions, groups: NDArray[np.int64], count: int) -> Floats:
    """Counted, not multiplied out: a table [n, classes] per model would cost more than the model."""
    classes = said.outputs.shape[1]
    chosen = said.outputs.argmax(1) if said.chosen is None else said.chosen
    loss = -said.outputs.gather(1, said.targets[:, None])[:, 0]
    y, guess, losses = (t.detach().cpu().numpy() for t in (said.targets, chosen, loss))
    size, at = count * classes, groups * classes
    true, predicted = at + y, at + guess
    cells = np.concatenate([true, predicted + size, true[y == guess] + 2 * size])
    counts = np.bincount(cells, minlength=3 * size).reshape(3, count, classes)
    table = np.empty((count, 2 + 3 * classes))
    table[:, 0] = np.bincount(groups, weights=losses, minlength=count)
    table[:, 1] = counts[2].sum(1)
    for part in range(3):
        table[:, 2 + part * classes : 2 + (part + 1) * classes] = counts[part]
    return table


def _others(said: Predictions, groups: NDArray[np.int64], count: int) -> Floats:
    rows = _label_rows(said) if said.task == LABELS else _number_rows(said)
    summed = np.zeros((count, rows.shape[1]))
    np.add.at(summed, groups, rows.detach().cpu().numpy())
    return summed


def _label_rows(said: Predictions) -> Tensor:
    y, p = said.targets.double(), said.outputs.double()
    loss = F.binary_cross_entropy(p, y, reduction="none").mean(1, keepdim=True)
    guess = (p > 0.5).double()
    right = (guess == y).all(1, keepdim=True).double()
    return torch.cat([loss, right, y, guess, y * guess], dim=1)


def _number_rows(said: Predictions) -> Tensor:
    error = said.outputs.double() - said.targets.double()
    return torch.cat([error.square().mean(1, keepdim=True), error.square(), error.abs()], dim=1)
