"""What methods that average models share: the two messages of one model for all, and streaming weighted averages.

Averages take the memory of k accumulators, whatever the number of clients; those that bear liars are in `robust`.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from covey import roles
from covey.algorithms.contract import Client, Coroutine, Predictor
from covey.errors import CoveyError
from covey.learn.rowwise import add_to_groups
from covey.messages import message


@message
@dataclass(frozen=True)
class GlobalModel:
    model: Annotated[Tensor, roles.Model]  # [d]


@message
@dataclass(frozen=True)
class LocalModel:
    model: Annotated[Tensor, roles.Model]  # [d]
    samples: Annotated[int, roles.Count]


def check_weighting(weighting: str) -> None:
    if weighting not in ("samples", "clients"):
        raise CoveyError(f"algorithm.weighting is {weighting!r}: choose 'samples' or 'clients'")


Numbers = NDArray[np.int64] | NDArray[np.float64]  # of clients that came as one


def weight_of(reply: Any, weighting: str) -> Any:
    """A reply's weight in its average: its sample count, or one per client."""
    if weighting != "samples":
        return 1.0
    return reply.samples.astype(np.float64) if isinstance(reply.samples, np.ndarray) else float(reply.samples)


class Term(NamedTuple):
    """What goes into the average of a group; or what many clients' replies, as one, bring to theirs: [n] groups and weights."""

    group: int | Numbers
    model: Tensor  # [d]: a client's, or the mean of several; [n, d]
    weight: float | Numbers
    clients: int = 1


def terms(replies: Iterator[tuple[int, Any]], weighting: str) -> Iterator[Term]:
    """Each reply's own; its group is the cluster that it names, if it names one."""
    for _, reply in replies:
        yield Term(group_of(reply), reply.model, weight_of(reply, weighting))


def group_of(reply: Any) -> Any:
    kind: Any = type(reply)
    named = roles.first(reply, roles.Identity) if _may_name_one(kind) else None
    return named if isinstance(named, np.ndarray) else int(named or 0)


@functools.cache
def _may_name_one(kind: type) -> bool:
    return roles.carries(kind, roles.Identity)


def moved_on(model: Tensor, sent: Tensor, current: Tensor, scale: float) -> Tensor:
    """What a client changed in the model that it was sent, scaled, upon the one that there is now: [d] each."""
    return current + scale * (model - sent)


AT_ONCE = 5e8  # bytes of the models, in float64, that a GPU adds in one product: a launch for each would cost more than the sums


class Averages:
    """k running sums in float64, so that the order of the clients does not show in the result."""

    def __init__(self, k: int, like: Tensor, least: int = 1) -> None:
        self.least = least  # clients that an average needs
        self.counts = [0] * k
        self.weights = [0.0] * k
        self._sums = torch.zeros(k, like.shape[-1], dtype=torch.float64, device=like.device)
        self._waiting: list[tuple[int, Tensor, float]] = []  # on a GPU: sum, model, weight
        self._at_once = max(1, int(AT_ONCE / (8 * like.shape[-1])))

    def add(self, j: int | Numbers, model: Tensor, weight: float | Numbers = 1.0, clients: int = 1) -> None:
        """One model, or the mean of several clients'; or a row for each of many clients, [n, d], with one j and weight or [n]."""
        if model.dim() == 2:
            n = len(model)
            self._add_rows(_of_each(j, n), model, _of_each(weight, n))
            return
        assert isinstance(j, int)
        assert isinstance(weight, int | float)
        self.weights[j] += weight
        self.counts[j] += clients
        if self._sums.is_cuda:
            self._waiting.append((j, model, weight))
            if len(self._waiting) == self._at_once:
                self._add_waiting()
        else:
            self._sums[j].add_(model, alpha=weight)

    def _add_rows(self, groups: NDArray[Any], models: Tensor, weights: NDArray[Any]) -> None:
        k = len(self._sums)
        for j, (weight, count) in enumerate(
            zip(np.bincount(groups, weights, k).tolist(), np.bincount(groups, minlength=k))
        ):
            self.weights[j] += weight
            self.counts[j] += int(count)
        of, shares = groups.astype(np.int64, copy=False), weights.astype(np.float64, copy=False)
        add_to_groups(self._sums, models, of, shares, self._at_once)

    @property
    def sums(self) -> Tensor:
        """[k, d] of all that was added."""
        if self._waiting:
            self._add_waiting()
        return self._sums

    def _add_waiting(self) -> None:
        places, models, weights = zip(*self._waiting)
        self._waiting = []
        shares = torch.zeros(len(self._sums), len(models), dtype=torch.float64)
        shares[list(places), range(len(models))] = torch.tensor(weights, dtype=torch.float64)
        self._sums.addmm_(shares.to(self._sums.device), torch.stack(models).to(self._sums.dtype))

    def means(self, previous: Tensor) -> Tensor:
        """The averages as float32 [k, d]; where nobody, or too few, contributed, the row of `previous`."""
        enough = [w > 0 and n >= self.least for w, n in zip(self.weights, self.counts)]
        rows = [s / w if full else p for s, w, p, full in zip(self.sums, self.weights, previous, enough)]
        return torch.stack([row.to(torch.float32) for row in rows])

    def overall(self, previous: Tensor) -> Tensor:
        """The average over all k sums together, float32 [d]."""
        total = sum(self.weights)
        full = total > 0 and sum(self.counts) >= self.least
        return (self.sums.sum(0) / total).to(torch.float32) if full else previous


def _of_each(value: float | Numbers, n: int) -> NDArray[Any]:
    """[n] of what many clients as one have, where it is one number for all of them, too: numpy's broadcasting takes longer."""
    return value if isinstance(value, np.ndarray) and value.shape == (n,) else np.full(n, value)


def use_model(me: Client, message: Any) -> Coroutine:
    """What a client of a method with one model predicts with: the model that it was sent."""
    return Predictor(message.model[None])
    yield  # a coroutine that asks for no work
