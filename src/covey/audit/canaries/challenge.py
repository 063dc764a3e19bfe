"""What the adversary chooses: the model that is broadcast, the canaries, and the samples around them.

A guarantee covers every model and every dataset, so a test may choose the worst. The last layer is silent but for its biases,
so that the model is certain of one class, or torn between some, whatever it reads; hidden layers are random and loud, so that a
canary's gradient is longer than any usual bound and its clipped length is the bound itself.

    a sample added or removed   certain of class 0: a sample of class 0 has no gradient, a canary of class 1 the longest there is
    a sample replaced           torn between 0 and 1: a sample of one class has the opposite gradient of one of the other

Around it stand copies of the absent one, so that a batch tells of nothing but the canary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from covey.data.dataset import Dataset
from covey.data.federation import Federation
from covey.errors import CoveyError
from covey.learn.flat import Network
from covey.learn.initial import initial
from covey.learn.machine import Machine
from covey.learn.work import Gradient, Job
from covey.randomness import generator, key

LOUD = 30.0  # norm of a canary's gradient: bounds above it are not reached, and the test is the weaker for it
DOUBT = 60.0  # logits between what the model holds for possible and the rest


@dataclass(frozen=True)
class Challenge:
    """Canaries: row 2j of the dataset is canary j where it is absent, row 2j + 1 where it is there."""

    dataset: Dataset
    starts: Tensor  # [b, d] models to broadcast in turn: a canary shows in another direction under each
    directions: Tensor  # [b, m, d] where each canary moves a model that starts there

    @property
    def canaries(self) -> int:
        return self.directions.shape[1]

    def rows(self, there: NDArray[np.bool_], samples: int) -> NDArray[np.int64]:
        """A client's samples: its canaries, there or absent, then copies of the first absent one."""
        planted = 2 * np.arange(len(there)) + there
        return np.concatenate([planted, np.zeros(samples - len(there), np.int64)]).astype(np.int64)


def challenge(
    network: Network, template: Dataset, replaced: bool, canaries: int, starts: int, seed: int, device: str
) -> Challenge:
    """`replaced`: neighbours differ in a replaced sample, not in one added or removed."""
    if template.task != "classes" or network.classes < 2:
        raise CoveyError(
            f"the canaries are samples of a wrong class, and '{template.name}' has no classes to choose from: the ledger can be "
            "audited where a model tells classes apart"
        )
    rng = generator(seed, "canaries")
    inputs = _inputs(template, canaries, rng)
    absent, there = _labels(network.classes, replaced, canaries, rng)
    labels = np.stack([absent, there], 1).reshape(-1)
    dataset = replace(
        template,
        x_train=np.repeat(inputs, 2, axis=0),
        y_train=labels,
        x_test=inputs[:1],
        y_test=absent[:1],
        attributes={},
    )
    machine = Machine(network, dataset.x_train, dataset.y_train, device=device)
    shallow = (
        len(network.shapes) == 2
    )  # one layer: then a canary shows in one direction only: it can still be less loud
    possible = [sorted({*labels.tolist()}) if replaced and not (shallow and j % 2) else [0] for j in range(starts)]
    models = [_start(network, machine, possible[j], seed, j) for j in range(starts)]
    directions = torch.stack([_directions(machine, model, canaries) for model in models])
    return Challenge(dataset, torch.stack(models), directions)


def federation(of: Challenge, coins: Sequence[NDArray[np.bool_]], samples: int) -> Federation:
    """Clients that differ in nothing but which of their canaries are there."""
    groups = np.zeros(len(of.dataset.y_test), np.int64)
    rows = tuple(of.rows(there, samples) for there in coins)
    return Federation(of.dataset, rows, None, groups, np.ones((len(rows), 1)))


def _inputs(template: Dataset, canaries: int, rng: np.random.Generator) -> NDArray[np.generic]:
    """One canary is a sample of the data; several are random, so that no two move a model alike."""
    x = template.x_train
    if canaries == 1:
        return x[:1].copy()
    if template.kind == "tokens":
        return rng.integers(1, int(x.max()) + 1, size=(canaries, *x.shape[1:])).astype(x.dtype)
    if template.kind == "real":
        return rng.standard_normal((canaries, *x.shape[1:])).astype(x.dtype)
    largest = 255 if template.kind == "image" else 1
    return (largest * (rng.random((canaries, *x.shape[1:])) < 0.1)).astype(x.dtype)


def _labels(
    classes: int, replaced: bool, canaries: int, rng: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(label where it is absent, where it is there) of each canary; different ones keep canaries apart."""
    if canaries == 1:
        return np.zeros(1, np.int64), np.ones(1, np.int64)
    if not replaced:
        return np.zeros(canaries, np.int64), rng.integers(1, classes, canaries)
    absent = rng.integers(0, classes, canaries)
    return absent, (absent + rng.integers(1, classes, canaries)) % classes


def _start(network: Network, machine: Machine, possible: Sequence[int], seed: int, number: int) -> Tensor:
    """A random model of loud features that holds these classes, and no others, for equally possible."""
    model = initial(network, key(seed, "challenge", number))
    weight, bias = f"{network.facts.last}.weight", f"{network.facts.last}.bias"
    if not {weight, bias} <= set(network.shapes):  # a network of another shape: its own random model must do
        return model
    for _ in range(12):
        parts = {name: part.clone() for name, part in network.unflatten(model).items()}
        parts[weight].zero_()
        parts[bias].fill_(-DOUBT)
        parts[bias][list(possible)] = 0.0
        silent = network.flatten(parts)
        if float(_gradient(machine, silent, 1).norm()) >= LOUD:
            break
        model = model * 2.0
    return silent


def _directions(machine: Machine, model: Tensor, canaries: int) -> Tensor:
    """Unit vectors [m, d] along which each canary's presence moves the model: against its gradient."""
    differences = [
        _unit(_gradient(machine, model, 2 * j)) - _unit(_gradient(machine, model, 2 * j + 1)) for j in range(canaries)
    ]
    return torch.stack([_unit(vector) for vector in differences])


def _gradient(machine: Machine, at: Tensor, row: int) -> Tensor:
    [gradient] = machine.compute([Job(torch.tensor([row]), 0, Gradient(at))])
    return gradient.cpu()


def _unit(vector: Tensor) -> Tensor:
    """Of length 1, or 0 where there is nothing but rounding: a certain model's gradient."""
    norm = float(vector.norm())
    return vector / norm if norm > 1e-6 else torch.zeros_like(vector)
