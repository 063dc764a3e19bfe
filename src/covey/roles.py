"""What the fields of messages carry, in one vocabulary: generic code asks for a role, never for a field by its spelling.

    @message
    @dataclass(frozen=True)
    class ClusterUpdate:
        model: Annotated[Tensor, roles.Model]
        cluster: Annotated[int, roles.Identity]
        samples: Annotated[int, roles.Count]

Admission checks a reply field by field, attacks read what they can use of a message, the audit finds out what a party is
handed and whether anything of it is sealed. A role of one's own is a subclass of `Role` with words and a check.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import typing
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from covey.errors import CoveyError

LARGEST_COUNT = 10**12


@dataclass(frozen=True)
class Bounds:
    """What a field is measured by: the sizes that everyone agreed on, and how its checker looks at what is not plain."""

    clients: int
    clusters: int
    weights: int  # d
    sealed: Callable[[bytes, int], None]  # refuses bytes that do not seal one vector of so many numbers under our keys
    part: Callable[[Any], None]  # refuses a message inside a message that may not stand there


def _nothing_sealed(sealed: bytes, length: int) -> None:
    raise CoveyError("is sealed, and no key was agreed on")


def _nothing_inside(part: Any) -> None:
    raise CoveyError(f"holds a {type(part).__name__}, and nothing may stand there")


NOTHING_AGREED = Bounds(
    0, 0, 0, _nothing_sealed, _nothing_inside
)  # for messages whose fields need no sizes to be checked


class Role:
    """What one field carries. `words` end the sentence "a message with …"."""

    words: ClassVar[str]

    def check(self, value: Any, bounds: Bounds) -> None:
        """Refuses, with a CoveyError that continues the field's name, what an honest sender cannot have sent."""
        refuse_infinite(value)

    def numbers(self, bounds: Bounds) -> int:
        """How many numbers it takes inside a sealed vector."""
        raise CoveyError(f"{self.words} cannot stand in a sealed vector")


# ---------------------------------------------------------------- models


class Model(Role):
    """Weights of one trained model, [d]."""

    words = "a model"

    def check(self, value: Any, bounds: Bounds) -> None:
        _floats(value, (bounds.weights,))

    def numbers(self, bounds: Bounds) -> int:
        return bounds.weights


class SharedLayers(Role):
    """The weights of a model without its personal layers, [s] of the d: which ones is agreed (`Setting.personal`)."""

    words = "the shared layers of a model"

    def check(self, value: Any, bounds: Bounds) -> None:
        if not isinstance(value, Tensor) or value.ndim != 1 or not 0 < len(value) <= bounds.weights:
            raise CoveyError(f"is no vector of 1 to {bounds.weights} weights")
        _floats(value, tuple(value.shape))


class Models(Role):
    """The models of all clusters, [k, d]."""

    words = "the models of all clusters"

    def check(self, value: Any, bounds: Bounds) -> None:
        _floats(value, (bounds.clusters, bounds.weights))


class Change(Role):
    """A change of a model, or of what corrects one, [d]."""

    words = "a change of a model"

    def check(self, value: Any, bounds: Bounds) -> None:
        _floats(value, (bounds.weights,))


# ---------------------------------------------------------------- clusters


@dataclass(frozen=True)
class Identity(Role):
    """The cluster of the client that sends or receives it."""

    words = "a cluster identity"
    bounded: bool = True  # one of the k clusters; else any number, as the nodes of a growing tree

    def check(self, value: Any, bounds: Bounds) -> None:
        least, below = 0, bounds.clusters if self.bounded else LARGEST_COUNT
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value < below:
            raise CoveyError(f"is {value!r}, expected a cluster from 0 to {below - 1}")


class IdentitySet(Role):
    """Clusters of which one may be the client's."""

    words = "a set of cluster identities"

    def check(self, value: Any, bounds: Bounds) -> None:
        if not isinstance(value, list) or not 0 < len(value) == len(set(map(str, value))):
            raise CoveyError(f"is {value!r}, expected a list of different clusters")
        for one in value:
            Identity().check(one, bounds)


class Memberships(Role):
    """How much the client belongs to each cluster, [k]."""

    words = "weights of the clusters"

    def check(self, value: Any, bounds: Bounds) -> None:
        _floats(value, (bounds.clusters,))
        if bool((value < 0).any()):
            raise CoveyError("holds a negative weight")


class Indicator(Role):
    """1 at the client's own cluster, 0 at the others: only ever inside something sealed."""

    words = "the indicator of a cluster"

    def numbers(self, bounds: Bounds) -> int:
        return bounds.clusters


class GroupSizes(Role):
    """How many clients showed, or were put into, each cluster."""

    words = "the sizes of groups"


# ---------------------------------------------------------------- numbers


class Count(Role):
    """How many samples a client trained on; inside a sealed vector, how many clients a sum counts."""

    words = "a number of samples"

    def check(self, value: Any, bounds: Bounds) -> None:
        if isinstance(value, bool) or not isinstance(value, int) or not 0 < value <= LARGEST_COUNT:
            raise CoveyError(f"is {value!r}, expected a positive number of samples")

    def numbers(self, bounds: Bounds) -> int:
        return 1


class Share(Role):
    """An accuracy, or another number from 0 to 1."""

    words = "a share"

    def check(self, value: Any, bounds: Bounds) -> None:
        if isinstance(value, bool) or not isinstance(value, float | int) or not 0 <= value <= 1:
            raise CoveyError(f"is {value!r}, expected a share from 0 to 1")


@dataclass(frozen=True)
class Plain(Role):
    """A value that says nothing about anybody's data: a sender, a round, a purpose, a nonce."""

    words = "a value about nobody's data"
    kind: type | None = None

    def check(self, value: Any, bounds: Bounds) -> None:
        if self.kind is not None and type(value) is not self.kind:
            raise CoveyError(f"is a {type(value).__name__}, expected a {self.kind.__name__}")
        refuse_infinite(value)


# ---------------------------------------------------------------- features and rows


class FeatureMap(Role):
    """How clients are to describe a sample: public. A message with such fields has `project(samples)`, the features [n, c], and
    `width()`, the public range [c] of each or None: who reads it need not know more of it.
    """

    words = "a map from samples to features"


class NoisedFeatures(Role):
    """One row of features per sample of a client, noise added, [n, c]."""

    words = "noised features of samples"

    def check(self, value: Any, bounds: Bounds) -> None:
        if not isinstance(value, Tensor) or value.ndim != 2 or min(value.shape) < 1:
            raise CoveyError("is no table of rows")
        _floats(value, tuple(value.shape))


class SingularVectors(Role):
    """Leading singular vectors of a client's raw samples, [inputs, p], the largest first; columns of zeros where it has fewer."""

    words = "singular vectors of samples"

    def check(self, value: Any, bounds: Bounds) -> None:
        NoisedFeatures().check(value, bounds)


class Moments(Role):
    """Means and deviations of a client's features, [2, c], and by label [classes, 2, c]: zeros of labels that it has not."""

    words = "moments of features"

    def check(self, value: Any, bounds: Bounds) -> None:
        if not isinstance(value, Tensor) or value.ndim not in (2, 3) or value.shape[-2] != 2:
            raise CoveyError("is no table of means and deviations")
        _floats(value, tuple(value.shape))


class MomentsByLabel(Moments):
    """The same of each label; None where they were not asked for."""

    def check(self, value: Any, bounds: Bounds) -> None:
        if value is not None:
            super().check(value, bounds)


class LabelWeights(Role):
    """How much of each label a client gives to each cluster, [k, classes]: over the clusters they add up to its label counts."""

    words = "weights of labels"

    def check(self, value: Any, bounds: Bounds) -> None:
        if not isinstance(value, Tensor) or value.ndim != 2 or len(value) != bounds.clusters:
            raise CoveyError(f"is no table of labels for {bounds.clusters} clusters")
        _floats(value, tuple(value.shape))
        if bool((value < 0).any()):
            raise CoveyError("holds a negative weight")


class LossTrace(Role):
    """A client's losses while it trained, [s]."""

    words = "a trace of losses"

    def check(self, value: Any, bounds: Bounds) -> None:
        if not isinstance(value, Tensor) or value.ndim != 1 or not len(value):
            raise CoveyError("is no list of losses")
        _floats(value, tuple(value.shape))


class ShuffledRows(Role):
    """Rows of several clients in an order that the receiver is not told."""

    words = "shuffled rows of clients"


class RowMemberships(Role):
    """Which clusters each shuffled row belongs to, [n, k]."""

    words = "the clusters of shuffled rows"


class Covered(Role):
    """Vectors under a blind that the receiver cannot take off."""

    words = "vectors under a blind"


# ---------------------------------------------------------------- sealed, and messages in messages


@dataclass(frozen=True)
class Sealed(Role):
    """A vector that only `opened_by` can open, and what is inside."""

    words = "a sealed vector"
    inside: tuple[type[Role], ...]
    opened_by: str = "clients"  # the holders of the opening key, as keys name parties

    def check(self, value: Any, bounds: Bounds) -> None:
        if not isinstance(value, bytes):
            raise CoveyError(f"is a {type(value).__name__}, expected sealed bytes")
        bounds.sealed(value, sum(role().numbers(bounds) for role in self.inside))


@dataclass(frozen=True)
class SealedBlocks(Sealed):
    """One sealed vector for every cluster, all but one of zeros: what is sent is the same whatever the identity."""

    words = "a sealed vector for every cluster"

    def check(self, value: Any, bounds: Bounds) -> None:
        if not isinstance(value, list) or len(value) != bounds.clusters:
            raise CoveyError(f"is not a list of {bounds.clusters} blocks")
        for one in value:
            super().check(one, bounds)


@dataclass(frozen=True)
class SealedSums(Sealed):
    """Sums of sealed vectors, as the server sends them back."""

    words = "sealed sums"

    def check(self, value: Any, bounds: Bounds) -> None:
        if not isinstance(value, list) or not all(isinstance(one, bytes) for one in value):
            raise CoveyError("is not a list of sealed sums")


class Boxes(Role):
    """What clients send each other through the server: each box opens with one client's own key."""

    words = "boxes between clients"

    def check(self, value: Any, bounds: Bounds) -> None:
        if value is None:  # clients have nothing to say to each other
            return
        boxes = value.values() if isinstance(value, dict) else [value] if isinstance(value, bytes) else value
        if not isinstance(value, list | dict | bytes) or not all(isinstance(box, bytes) for box in boxes):
            raise CoveyError("is not a list of boxes")


class BlindedShares(Role):
    """Shares of keys of one round under pads: uniform residues to whoever does not hold the pads."""

    words = "blinded shares of keys"

    def check(self, value: Any, bounds: Bounds) -> None:
        if not isinstance(value, list) or not all(isinstance(one, bytes) for one in value):
            raise CoveyError("is not a list of shares")


class MaskShares(Role):
    """Shares of the seeds of masks that do not cancel in a sum, by the client whose masks they are."""

    words = "shares of masks"

    def check(self, value: Any, bounds: Bounds) -> None:
        if not isinstance(value, dict) or not all(
            type(i) is int and 0 <= i < bounds.clients and isinstance(one, bytes) for i, one in value.items()
        ):
            raise CoveyError("is not a table of shares by client")


class Groups(Role):
    """Which clients are in which sum: who showed what, where clients show sets of clusters."""

    words = "the groups of clients"

    def check(self, value: Any, bounds: Bounds) -> None:
        if not isinstance(value, list) or not all(isinstance(group, list) for group in value):
            raise CoveyError("is not a list of groups")
        for group in value:
            if len(set(map(str, group))) != len(group) or not all(
                type(i) is int and 0 <= i < bounds.clients for i in group
            ):
                raise CoveyError(f"holds a group that is no set of clients below {bounds.clients}")


class Payload(Role):
    """Bytes that their sender signed. What is in them is for the receiver to open and to check: nothing is said of it."""

    words = "signed bytes"

    def check(self, value: Any, bounds: Bounds) -> None:
        if type(value) is not bytes:
            raise CoveyError(f"is a {type(value).__name__}, expected bytes")


class Part(Role):
    """A message inside a message."""

    words = "another message"

    def check(self, value: Any, bounds: Bounds) -> None:
        bounds.part(value)


class Parts(Role):
    """Messages by client."""

    words = "other messages"

    def check(self, value: Any, bounds: Bounds) -> None:
        if not isinstance(value, dict) or not all(type(i) is int and 0 <= i < bounds.clients for i in value):
            raise CoveyError("is not a table of replies by target")
        for one in value.values():
            bounds.part(one)


# ---------------------------------------------------------------- asking


@functools.cache
def of(kind: type) -> Mapping[str, Role]:
    """Field -> role of a message class; fields without a role are left out."""
    if not dataclasses.is_dataclass(kind):
        return {}
    hints = typing.get_type_hints(kind, include_extras=True)
    declared = {f.name: _role(hints[f.name]) for f in dataclasses.fields(kind)}
    return {name: role for name, role in declared.items() if role is not None}


def carried(message: Any, *wanted: type[Role]) -> Iterator[tuple[Role, Any]]:
    """(role, value) of every field of these roles, in the message and in the messages inside it; None is not carried."""
    kind: type = type(message)
    for name, role in of(kind).items():
        value = getattr(message, name)
        if value is not None and isinstance(role, wanted):
            yield role, value
        elif not isinstance(value, Tensor | int | float):  # asked of every reply: most fields are these
            yield from _within(value, wanted)


def first(message: Any, *wanted: type[Role]) -> Any:
    """The first such value, or None."""
    return next((value for _, value in carried(message, *wanted)), None)


def carrier(message: Any, wanted: type[Role]) -> Any:
    """The message itself, or the first one inside it, that has a field of this role; None where there is none."""
    kind: type = type(message)
    if any(isinstance(role, wanted) for role in of(kind).values()):
        return message
    inner = (carrier(part, wanted) for _, part in carried(message, Part))
    return next((one for one in inner if one is not None), None)


def carries(kind: type, *wanted: type[Role], sealed: bool = False) -> bool:
    """Whether messages of this class may carry such a field; with `sealed` also inside something sealed."""
    for role in declared(kind):
        if isinstance(role, wanted) or (
            sealed and isinstance(role, Sealed) and any(issubclass(r, wanted) for r in role.inside)
        ):
            return True
    return False


@functools.cache
def declared(kind: type) -> tuple[Role, ...]:
    """All roles of a message class, those of message classes that its fields are annotated with included."""
    return tuple(_declared(kind, ()))


def _declared(kind: type, above: tuple[type, ...]) -> Iterator[Role]:
    if not dataclasses.is_dataclass(kind) or kind in above:
        return
    for hint in typing.get_type_hints(kind, include_extras=True).values():
        if (role := _role(hint)) is not None:
            yield role
        for inner in _classes(hint):
            yield from _declared(inner, (*above, kind))


def _role(hint: Any) -> Role | None:
    for extra in getattr(hint, "__metadata__", ()):
        if isinstance(extra, Role):
            return extra
        if isinstance(extra, type) and issubclass(extra, Role):
            return extra()
    return None


def _classes(hint: Any) -> Iterator[type]:
    if isinstance(hint, type) and not typing.get_args(hint):
        yield hint
    for argument in typing.get_args(hint):
        yield from _classes(argument)


def _within(value: Any, wanted: tuple[type[Role], ...]) -> Iterator[tuple[Role, Any]]:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else (value,)
    for one in inner:
        if dataclasses.is_dataclass(one) and not isinstance(one, type):
            yield from carried(one, *wanted)


# ---------------------------------------------------------------- checks


def check(message: Any, bounds: Bounds) -> None:
    """Refuses, with a CoveyError that names the field, a message that an honest sender cannot have sent."""
    kind: type = type(message)
    for name, role in of(kind).items():
        try:
            role.check(getattr(message, name), bounds)
        except CoveyError as e:
            raise CoveyError(f"{kind.__name__}.{name} {e}") from e


def refuse_infinite(value: Any) -> None:
    """All that can be said of a value without a role: its numbers are numbers."""
    if isinstance(value, Tensor):
        bad = value.is_floating_point() and not bool(torch.isfinite(value).all())
    else:
        bad = isinstance(value, float) and not math.isfinite(value)
    if bad:
        raise CoveyError("holds a number that is infinite or none")
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    for one in inner or getattr(value, "__dict__", {}).values():
        refuse_infinite(one)


def _floats(value: Any, shape: tuple[int, ...]) -> None:
    if not isinstance(value, Tensor) or value.dtype != torch.float32:
        raise CoveyError(f"is a {getattr(value, 'dtype', type(value).__name__)}, expected float32 numbers")
    if tuple(value.shape) != shape:
        raise CoveyError(f"has the shape {list(value.shape)}, expected {list(shape)}")
    if not bool(torch.isfinite(value).all()):
        raise CoveyError("holds a number that is infinite or none")
