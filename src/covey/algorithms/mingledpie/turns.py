"""Turns: a client shows a set as ever, and each round its vector goes into the sum of *one* cluster of the set.

In the turn of its own cluster it seals its model, in the turn of a false one zeros; nobody without a key can tell them apart. So
the sum of a cluster holds models of its members only, divided by how many they are it is their mean, and nothing is to be
rebuilt: what MingledPie's rebuild magnifies (`rebuild.noise_gain`) is not there. Sums, bytes and what is shown stay as they are.

What the server sees: the set, and an order of its members that is drawn without regard to which of them is true. Given the set,
every order is as likely for each of its members, so that any guess from orders is a guess from the set alone. Turns go round: a
client that shows s clusters counts once in s rounds, in an order that is drawn anew each time.

The price: of the members of a cluster one in s counts in a round, as if clients were sampled at that share, so a mean is of fewer
clients; who holds the key sees means of few (`min_group`). Clients train in every round all the same: one that rests, or answers
sooner, while its vector is empty shows when that is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from covey.algorithms.rebuild import Matrix
from covey.crypto.sealing.sealing import check_vector
from covey.learn.schedule import transfer

Order = list[list[int]]  # [a set, those of it whose turn is still to come]


def take(shown: Sequence[int], kept: Sequence[Order], draw: Callable[[int], bytes]) -> tuple[int, list[Order]]:
    """(whose turn it is, what to remember): the next of this set's order, which is drawn anew when it is through.

    An order belongs to a set, not to the identity that the set is shown for: two identities may have one set, and where each had an
    order of its own, a cluster that comes again too soon would tell the server that the client has changed its cluster.
    """
    others = [one for one in kept if list(one[0]) != list(shown)]
    waiting = next((list(one[1]) for one in kept if list(one[0]) == list(shown)), [])
    order = waiting or sorted(shown, key=lambda _: draw(8))
    return order[0], [*others, [list(shown), order[1:]]] if order[1:] else others


def contribution(model: Tensor, turn: Any, choice: Any, limit: float) -> Tensor:
    """What counts of a trained model in this turn: all of it in its own cluster's, nothing in another's.

    A model beyond what can be sealed is refused in every turn: a refusal that came in its own turn alone would name its cluster.
    Models of clients that run as one, [n, d], are not sealed, and nothing is beyond what that takes.
    """
    if model.dim() == 1:
        check_vector(model.cpu().numpy(), limit)
    own = transfer.there(torch.as_tensor(turn == choice), model.device)
    return torch.where(own[..., None], model, 0.0)


def contributors(counts: Matrix) -> Matrix:
    """Of H[a, b], clients of b whose vector went into the sum of a, those that sealed a model: the diagonal."""
    return np.diag(np.diag(counts))


def approach(counted: Matrix, sums: Matrix, least: int, rounds: float, last: Matrix, seen: int) -> Matrix:
    """The last models, moved towards the means of those who counted; clusters in which fewer than `least` did stay.

    A running mean that moves by η of the way has the variance of (2 - η) / η rounds' means together. With η = 2 / (1 + s), where
    turns go round in s `rounds`, that is the variance of a mean over all members. While models still move fast it would lag: of
    the first 2 s sums that a client has `seen` it takes the means as they are.
    """
    numbers = np.diag(counted)
    share = np.where(numbers >= max(least, 1), 1.0 if seen <= 2 * rounds else 2.0 / (1.0 + rounds), 0.0)
    moved: Matrix = last + share[:, None] * (sums / np.maximum(numbers, 1)[:, None] - last)
    return moved


def noise_gain(counts: Matrix) -> float:
    """By how much a mean of those who counted is noisier than one of all members, at worst; each client is in one sum."""
    members, counted = counts.sum(0), np.diag(counts)
    return float(np.sqrt(members[counted > 0] / counted[counted > 0]).max(initial=0.0))
