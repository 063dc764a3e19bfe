"""Averages by any rule, with one face: `algorithm.aggregation` is read here and nowhere else.

The mean takes flat memory (`averaging`); the other rules hold what came until they are asked.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from covey.algorithms.averaging import (
    Averages,
    GlobalModel,
    LocalModel,
    Numbers,
    Term,
    check_weighting,
    terms,
)
from covey.algorithms.robust.rules import Rule, aggregate
from covey.errors import CoveyError

# For algorithms whose server gets ciphertexts, as `REFUSED`: see `covey.config`.
UNDER_SEALS = {
    "aggregation": "the server gets ciphertexts, so it can neither compare what silos send nor bound its norm; lies can be "
    "kept out only where it sees models, for example with algorithm = 'ifca'"
}


def check_aggregation(aggregation: str, weighting: str = "clients") -> None:
    """Refuses what is no rule, and weights that a liar chooses itself."""
    if Rule.of(aggregation).name != "mean" and weighting != "clients":
        raise CoveyError(
            f"algorithm.aggregation is {aggregation!r} and algorithm.weighting {weighting!r}: a liar would choose its own weight, "
            "so set algorithm.weighting = 'clients'"
        )


def check_group(min_group: int, aggregation: str = "mean") -> None:
    """Refuses a number of clients that is none, and a rule that hands out a single client's model."""
    if min_group < 1:
        raise CoveyError(f"algorithm.min_group is {min_group}: it is the fewest clients of an average, at least 1")
    if min_group > 1 and Rule.of(aggregation).name == "krum":
        raise CoveyError(
            f"algorithm.min_group is {min_group} and algorithm.aggregation {aggregation!r}, which hands everybody one client's "
            "own model: take 'multikrum'"
        )


def averages(aggregation: str, sent: Tensor, least: int = 1) -> Averages | RobustAverages:
    """Averages of what comes back, of `least` clients or more, one for every row of what was sent, [k, d]."""
    rule = Rule.of(aggregation)
    return Averages(len(sent), sent, least) if rule.name == "mean" else RobustAverages(rule, sent, least)


def check_average(weighting: str, aggregation: str, min_group: int) -> None:
    """The three fields of every method that averages what clients trained."""
    check_weighting(weighting)
    check_aggregation(aggregation, weighting)
    check_group(min_group, aggregation)


def mean_model(
    state: GlobalModel, replies: Iterator[tuple[int, LocalModel]], weighting: str, aggregation: str, least: int
) -> GlobalModel:
    """The replies' average, or what was sent where too few answered."""
    return GlobalModel(mean_vector(state.model, replies, weighting, aggregation, least))


def mean_vector(
    sent: Tensor, replies: Iterator[tuple[int, Any]], weighting: str, aggregation: str, least: int
) -> Tensor:
    """The same of the vectors alone: whole models, or the layers of them that clients share."""
    return mean_of(sent, terms(replies, weighting), aggregation, least)


def mean_of(sent: Tensor, came: Iterable[Term], aggregation: str, least: int) -> Tensor:
    """The average of what came, all of it one group; what was sent itself where nothing came."""
    average = averages(aggregation, sent[None], least)
    for term in came:
        average.add(0, term.model, term.weight, term.clients)
    return average.means(sent[None])[0] if any(average.counts) else sent


class RobustAverages:
    """`Averages` by another rule: holds every model until they are asked for."""

    def __init__(self, rule: Rule, sent: Tensor, least: int = 1) -> None:
        self.rule, self.sent, self.least = rule, sent, least
        self.models: list[list[Tensor]] = [[] for _ in sent]

    @property
    def counts(self) -> list[int]:
        return [len(group) for group in self.models]

    @property
    def weights(self) -> list[float]:
        return [float(count) for count in self.counts]

    def add(self, j: int | Numbers, model: Tensor, weight: float | Numbers = 1.0, clients: int = 1) -> None:
        if model.dim() == 2:
            n = len(model)
            for one in zip(np.broadcast_to(j, n).tolist(), model.unbind(0), np.broadcast_to(weight, n).tolist()):
                self.add(*one)
            return
        assert isinstance(j, int)
        if clients != 1:
            raise CoveyError(f"the mean of {clients} models came, but '{self.rule.name}' compares models one by one")
        if weight != 1:
            raise CoveyError(
                f"a model came with the weight {weight:g}, but '{self.rule.name}' counts every client the same"
            )
        self.models[j].append(model)

    def means(self, previous: Tensor) -> Tensor:
        """One model of each group as float32 [k, d]; where too few contributed, the row of `previous`."""
        groups = zip(self.models, self.sent, previous)
        full = [(group if len(group) >= self.least else [], sent, before) for group, sent, before in groups]
        return torch.stack([self._one(group, sent) if group else before for group, sent, before in full])

    def overall(self, previous: Tensor) -> Tensor:
        """One model of all groups together, float32 [d]."""
        everyone = [model for group in self.models for model in group]
        if len(everyone) < self.least:
            return previous
        sent = torch.stack([row for row, group in zip(self.sent, self.models) for _ in group])
        return aggregate(self.rule, torch.stack(everyone), sent)

    def _one(self, group: list[Tensor], sent: Tensor) -> Tensor:
        return aggregate(self.rule, torch.stack(group), sent)
