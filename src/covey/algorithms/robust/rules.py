"""Averages that a few liars among the clients cannot move at will, for servers that see every client's model in the clear.

    algorithm.aggregation = "mean"           flat memory; one lie of any size moves it anywhere
                            "median"         coordinate by coordinate (Yin et al. 2018)
                            "trimmed:0.2"    mean without the largest and the smallest 20 % of every coordinate (the same paper)
                            "krum:0.2"       the model that lies closest to its neighbours, 20 % being lies (Blanchard et al. 2017)
                            "multikrum:0.2"  the mean of the 80 % that lie closest to their neighbours (the same paper)
                            "clipped"        mean of changes no longer than the median change; "clipped:1.5": than 1.5

Limits. All but the mean hold the models of a round at once, n · d numbers, since no robust rule can be summed as replies come.
Every client counts the same: a liar would choose its own weight. Of n who share an average, the median and the clipped mean bear
fewer than n / 2 liars, the trimmed mean the share that it trims, Krum its share if that is at most (n − 3) / 2: in a small
cluster one liar may be too many, and liars choose their cluster. The rules take clients whose data differ for liars, too, and
cost accuracy there; none of them sees a lie that stays within the honest clients' spread (a backdoor may). A server that gets
ciphertexts can do nothing of this.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from covey.errors import CoveyError, meant

SHARE = 0.2  # of the clients that may lie, where a rule is not told
COLUMNS = 4096  # coordinates that are sorted at once: sorting takes four times the memory of what it sorts
NAMES = ("mean", "median", "trimmed", "krum", "multikrum", "clipped")


@dataclass(frozen=True)
class Rule:
    """`algorithm.aggregation`, read."""

    name: str
    number: float = 0.0  # a share of liars; a bound on norms, 0: the median norm

    @classmethod
    def of(cls, text: str) -> Rule:
        name, colon, rest = text.partition(":")
        if name not in NAMES:
            raise CoveyError(f"algorithm.aggregation is {text!r}: choose one of {', '.join(NAMES)}{meant(name, NAMES)}")
        if not colon:
            return cls(name, SHARE if name in ("trimmed", "krum", "multikrum") else 0.0)
        if name in ("mean", "median"):
            raise CoveyError(f"algorithm.aggregation is {text!r}: '{name}' takes no number, so write '{name}'")
        try:
            number = float(rest)
        except ValueError:
            number = math.nan
        bound, below = (
            ("a norm above 0", math.inf) if name == "clipped" else ("a share of liars, above 0 and below 0.5", 0.5)
        )
        if not 0 < number < below:
            raise CoveyError(f"algorithm.aggregation is {text!r}: expected {bound} after '{name}:'")
        return cls(name, number)


def aggregate(rule: Rule, models: Tensor, sent: Tensor) -> Tensor:
    """One model [d] of the clients' models [n, d]; `sent` is what each was sent, [d] or [n, d]."""
    n = len(models)
    if rule.name == "median":
        return trimmed_mean(models, n)
    if rule.name == "trimmed":
        return trimmed_mean(models, count_of(rule.number, n))
    if rule.name == "clipped":
        return clipped_mean(models, sent, rule.number)
    liars = count_of(rule.number, n)
    order = krum_scores(models, liars).argsort(stable=True)
    chosen = order[:1] if rule.name == "krum" else order[: max(1, n - liars)]
    return models[chosen.sort().values].double().mean(0).float()


def count_of(share: float, n: int) -> int:
    """So many of n, rounded up: a fifth of 10 is 2 whatever a product of floats says."""
    return math.ceil(share * n - 1e-9)


def trimmed_mean(models: Tensor, cut: int) -> Tensor:
    """Mean of every coordinate without its `cut` largest and smallest values; at most so many that one or two are left."""
    n, d = models.shape
    cut = min(cut, (n - 1) // 2)
    kept = [models[:, at : at + COLUMNS].sort(0).values[cut : n - cut] for at in range(0, d, COLUMNS)]
    return torch.cat([columns.double().mean(0).float() for columns in kept])


def krum_scores(models: Tensor, liars: int) -> Tensor:
    """Sum of squared distances to the n − f − 2 nearest other models, [n]: lies that agree with nobody honest score high."""
    n = len(models)
    centred = models.double() - models.double().mean(0)  # distances are the same, and products lose fewer digits
    squares = centred.square().sum(1)
    distances = (squares[:, None] + squares[None] - 2 * centred @ centred.T).clamp(min=0).triu(1)
    distances = (
        distances + distances.T
    )  # a product by many threads is not symmetric in its last bit, and would break ties
    others: Tensor = distances.fill_diagonal_(math.inf).sort(1).values  # [n, n], itself last
    return others[:, : min(max(1, n - liars - 2), n - 1)].sum(1)


def clipped_mean(models: Tensor, sent: Tensor, bound: float = 0.0) -> Tensor:
    """What was sent plus the mean of the changes, each scaled down to the bound; 0: to the median of their norms."""
    changes = models.double() - sent.double()  # [n, d]
    norms = changes.norm(dim=1)
    limit = torch.as_tensor(bound, dtype=norms.dtype, device=norms.device) if bound else norms.quantile(0.5)
    scales = (limit / norms.clamp(min=1e-30)).clamp(max=1)
    start = sent.double() if sent.ndim == 1 else sent.double().mean(0)
    mean: Tensor = start + (changes * scales[:, None]).mean(0)
    return mean.float()
