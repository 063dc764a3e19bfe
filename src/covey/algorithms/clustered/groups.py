"""What methods share whose server puts clients into groups: the message to a client, the means of groups, and one-shot grouping.

Group 0 is that of clients that have no group yet: they get the reference, the model that updates are taken from, and who comes
later is put into the group whose mean update was nearest to its own. (Where a paper has no rule for newcomers, that is ours.)

Grouping needs the updates of all clients at once: memory grows with their number then, for the method's sake.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Protocol

import numpy as np
import torch
from torch import Tensor

from covey import roles
from covey.algorithms.averaging import LocalModel, weight_of
from covey.algorithms.contract import Client, Coroutine, Predictor, Server, Setting
from covey.algorithms.robust.averages import averages
from covey.clustering.agglomerative import Labels
from covey.leaks import EAVESDROPPER, IDENTITY, SERVER, Given
from covey.learn.work import Train
from covey.measures import Measure
from covey.messages import message

GIVES = (
    Given(IDENTITY, (SERVER,), "it groups the clients itself"),
    Given(IDENTITY, (EAVESDROPPER,), "every message to a client names its group"),
)
MEASURES = {"clusters": Measure("Clusters", words="Groups that the server has put clients into.")}


@message
@dataclass(frozen=True)
class GroupModel:
    model: Annotated[Tensor, roles.Model]  # [d]
    group: Annotated[int, roles.Identity(bounded=False)]  # for the record; 0: no group yet


@message
@dataclass(frozen=True)
class Grouping:
    """A server's state."""

    sent: tuple[GroupModel, ...]  # by group: one object for all clients of a group
    directions: Tensor  # [k, d] mean updates of the groups 1 to k when they were made
    place: dict[int, int]  # client -> group

    @classmethod
    def of(cls, reference: Tensor, models: Tensor, directions: Tensor, place: dict[int, int]) -> Grouping:
        return cls(tuple(GroupModel(model, g) for g, model in enumerate([reference, *models])), directions, place)

    @property
    def reference(self) -> Tensor:
        """[d]: what clients without a group get, and updates are taken from."""
        return self.sent[0].model

    @property
    def models(self) -> Tensor:
        """[k, d] of the groups 1 to k."""
        return torch.stack([one.model for one in self.sent[1:]])

    @property
    def groups(self) -> int:
        """k; 0 before there are any."""
        return len(self.sent) - 1


class Averaging(Protocol):
    """The fields of a method that say how it averages."""

    @property
    def weighting(self) -> str: ...
    @property
    def aggregation(self) -> str: ...
    @property
    def min_group(self) -> int: ...


def ungrouped(setting: Setting) -> Grouping:
    start = setting.one_start()
    return Grouping.of(start, start[None][:0], start[None][:0], {})


def group_model(state: Grouping, client: int) -> GroupModel:
    return state.sent[state.place.get(client, 0)]


def train_group(me: Client, message: GroupModel) -> Coroutine:
    """A client's turn: it trains what it was sent."""
    me.note("cluster", message.group)
    model = yield Train(message.model, me.plan)
    return LocalModel(model, me.samples)


def use_group(me: Client, message: GroupModel) -> Coroutine:
    return Predictor(message.model[None])
    yield


def means(rule: Averaging, previous: Tensor, replies: Iterable[tuple[int, Any]]) -> Tensor:
    """[k, d]: means of (row, reply); the row of `previous` where too few came."""
    average = averages(rule.aggregation, previous, rule.min_group)
    for row, reply in replies:
        average.add(row, reply.model, weight_of(reply, rule.weighting))
    return average.means(previous)


def grouped_once(
    rule: Averaging,
    server: Server,
    state: Grouping,
    replies: Iterator[tuple[int, Any]],
    labels_of: Callable[[Tensor], Labels],
    nearest: Callable[[Tensor, Tensor], int],
) -> Grouping:
    """The first groups, by `labels_of` the updates [n, d]; afterwards the means of each, and newcomers to the `nearest`.

    `nearest(update [d], directions [k, d])` is a row of the directions.
    """
    came = list(replies)
    if not came:
        return state
    if not state.groups:
        next_state = _first_groups(rule, server, state, came, labels_of)
    else:
        placed = [(state.place[i] - 1, reply) for i, reply in came if i in state.place]
        with server.phase("cluster"):
            strangers = {
                i: 1 + nearest(r.model - state.reference, state.directions) for i, r in came if i not in state.place
            }
        next_state = Grouping.of(
            state.reference, means(rule, state.models, placed), state.directions, state.place | strangers
        )
    server.note("clusters", next_state.groups)
    return next_state


def _first_groups(
    rule: Averaging,
    server: Server,
    state: Grouping,
    came: list[tuple[int, Any]],
    labels_of: Callable[[Tensor], Labels],
) -> Grouping:
    with server.phase("cluster"):
        updates = torch.stack([reply.model for _, reply in came]) - state.reference  # [n, d]
        labels = labels_of(updates)
        count = int(labels.max()) + 1
        members = np.eye(count)[labels].T / np.bincount(labels, minlength=count)[:, None]
        directions = torch.from_numpy(members).to(updates) @ updates
    before = state.reference.expand(count, -1)
    models = means(rule, before, ((int(label), reply) for label, (_, reply) in zip(labels, came)))
    place = {i: int(label) + 1 for label, (i, _) in zip(labels, came)}
    return Grouping.of(state.reference, models, directions, place)


def nearest_by_cosine(update: Tensor, directions: Tensor) -> int:
    units = directions / directions.norm(dim=1, keepdim=True).clamp(min=1e-30)
    return int((units @ update).argmax())
