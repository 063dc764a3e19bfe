"""Simulated updates for category inference: auxiliary samples become labelled rows, as Algorithm 1 of the paper has it.

One step of plain SGD is linear in its samples: the update of a subset is the mean of the updates of its samples, and a group's
the mean of its subsets'. So the machine is asked for the gradient of each *auxiliary sample* and cluster (some thousands), and ten
thousand subsets and their groups are sums of those: exact, and no set of full updates is ever held.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from covey.learn.work import Fisher, SampleGradients, Work
from covey.randomness import uniforms

AT_ONCE = {
    "cpu": 16e6,
    "cuda": 256e6,
}  # bytes of full updates held at a time: a cache's worth, or a fair share of a GPU's
QUIET = 0.1  # share of the coordinates that carry the least signal: what moves there is noise


@dataclass(frozen=True)
class Features:
    """What of an update [d] the attack model reads: a linear map, so that averages of features are features of averages.

    'bias': the output layer's biases; 'output': all of the output layer; 'update': every parameter, `size` sums with keyed
    random signs over blocks of neighbouring parameters (a random projection: inner products are kept in expectation).
    """

    kind: str
    d: int
    classes: int
    head: int  # parameters of the output layer, the last of the vector
    size: int
    key: int

    @property
    def reads(self) -> slice:
        """The coordinates of an update that any feature depends on: the last of them, or all."""
        return slice(self.d - {"bias": self.classes, "output": self.head}.get(self.kind, self.d), self.d)

    def of(self, updates: Tensor) -> Tensor:
        """[n, d] -> [n, features]."""
        return self.project(updates[:, self.reads])

    def project(self, part: Tensor) -> Tensor:
        """As `of`, from the coordinates that it reads."""
        if self.kind != "update":
            return part
        signs = torch.where(uniforms([self.key], self.d, part.device)[0] < 0.5, -1.0, 1.0)
        padded = F.pad(part * signs, (0, self._block * self._blocks - self.d))
        return padded.view(len(part), self._blocks, self._block).sum(2)

    def spread(self, device: torch.device) -> Tensor:
        """Standard deviation of each feature when every coordinate of the update has independent unit noise."""
        if self.kind != "update":
            return torch.ones(self.classes if self.kind == "bias" else self.head, device=device)
        sizes = torch.full((self._blocks,), float(self._block), device=device)
        sizes[-1] = self.d - self._block * (self._blocks - 1)
        return sizes.sqrt()

    @property
    def _block(self) -> int:
        return -(-self.d // self.size)

    @property
    def _blocks(self) -> int:
        return -(-self.d // self._block)


@dataclass(frozen=True)
class Simulated:
    """One-step updates of every auxiliary sample from one cluster's model."""

    features: Tensor  # [n, features]
    quiet: Tensor  # coordinates of the update that the auxiliary samples move least; none where no noise is expected

    def noise(self, update: Tensor) -> float:
        """Standard deviation of the noise on an observed update [d]: what moves where no signal is."""
        return float(update[self.quiet].square().mean().sqrt())


def simulate(
    model: Tensor, samples: Tensor, lr: float, features: Features, noisy: bool
) -> Generator[Work, Any, Simulated]:
    """Asks for the gradient of each of the samples (positions [n]) at `model`, as far as features read it, in parts that fit the
    memory; where noise is to be measured (`noisy`), also for what the samples move of every parameter.
    """
    last = len(model) - features.reads.start
    at_once = max(1, int(AT_ONCE.get(model.device.type, AT_ONCE["cpu"]) / (4 * last)))
    parts: list[Tensor] = []
    for part in torch.split(samples, at_once):
        gradients: Tensor = yield SampleGradients(model, last, on=part)
        parts.append(features.project(gradients.mul_(-lr)))
    energy: Tensor = (yield Fisher(model, on=samples)) if noisy else torch.zeros(0)
    return Simulated(torch.cat(parts), energy.argsort(stable=True)[: max(1, int(QUIET * len(model)))])


@dataclass(frozen=True)
class Subsets:
    """γ small subsets of the auxiliary samples, drawn with replacement, and the categories in each."""

    members: NDArray[np.int64]  # [γ, s] positions of samples
    labels: NDArray[np.bool_]  # [γ, classes]

    def filed(self, losses: NDArray[np.float64]) -> NDArray[np.int64]:
        """The cluster [γ] whose model has the lowest mean loss on each subset; `losses` [k, n] of single samples."""
        return np.asarray(losses[:, self.members].mean(2).argmin(0))


def draw_subsets(y: NDArray[np.int64], classes: int, count: int, size: int, random: np.random.Generator) -> Subsets:
    members = random.integers(0, len(y), (count, size))
    return Subsets(members, (y[members][..., None] == np.arange(classes)).any(1))


def filed_alone(losses: NDArray[np.float64], y: NDArray[np.int64], classes: int) -> NDArray[np.bool_]:
    """[k, classes] from the losses [k, n] of single samples: where at least half of a fair share of a category is filed.

    Nothing is simulated and no update is read: what the published models give away by themselves.
    """
    k = len(losses)
    counts = np.zeros((k, classes))
    np.add.at(counts, (losses.argmin(0), y), 1)
    return np.asarray((counts > 0) & (counts * 2 * k >= counts.sum(0)))


@dataclass(frozen=True)
class Rows:
    """What one cluster's attack model learns from."""

    x: Tensor  # [rows, features]
    labels: Tensor  # [rows, classes] float 0/1


def group(
    simulated: Simulated, subsets: Subsets, filed: NDArray[np.int64], rows: int, size: int, random: np.random.Generator
) -> Rows:
    """Averages of random groups of the subsets filed here; their labels by logical or."""
    device = simulated.features.device
    updates = _means(simulated.features, subsets.members[filed])  # [m, features]
    chosen = random.integers(0, len(filed), (rows, size))
    labels = subsets.labels[filed][chosen].any(1)
    return Rows(_means(updates, chosen), torch.from_numpy(labels).to(device, torch.float32))


def _means(values: Tensor, of: NDArray[np.int64]) -> Tensor:
    """Means of the rows of `values` [n, features] that `of` [m, s] names: [m, features], never m × s rows at once."""
    return F.embedding_bag(torch.from_numpy(of).to(values.device), values, mode="mean")
