"""Roles of what is sent in the clear: models, clusters, numbers, and what is told of samples."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from covey.errors import CoveyError
from covey.roles.role import LARGEST_COUNT, Bounds, Role, check_floats, refuse_infinite

LEAST_REACH = 1e-100  # a server that divides by less gets no numbers

# ---------------------------------------------------------------- models


class Model(Role):
    """Weights of one trained model, [d]."""

    words = "a model"

    def check(self, value: Any, bounds: Bounds) -> None:
        check_floats(value, (bounds.weights,))

    def numbers(self, bounds: Bounds) -> int:
        return bounds.weights


class SharedLayers(Role):
    """The weights of a model without its personal layers, [s] of the d: which ones is agreed (`Setting.personal`)."""

    words = "the shared layers of a model"

    def check(self, value: Any, bounds: Bounds) -> None:
        if not isinstance(value, Tensor) or value.ndim != 1 or not 0 < len(value) <= bounds.weights:
            raise CoveyError(f"is no vector of 1 to {bounds.weights} weights")
        check_floats(value, tuple(value.shape))


class Models(Role):
    """The models of all clusters, [k, d]."""

    words = "the models of all clusters"

    def check(self, value: Any, bounds: Bounds) -> None:
        check_floats(value, (bounds.clusters, bounds.weights))


class Change(Role):
    """A change of a model, or of what corrects one, [d]."""

    words = "a change of a model"

    def check(self, value: Any, bounds: Bounds) -> None:
        check_floats(value, (bounds.weights,))


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


class Turn(Role):
    """The cluster whose sum a vector goes into, which need not be the client's own."""

    words = "the cluster whose turn it is"

    def check(self, value: Any, bounds: Bounds) -> None:
        if value is not None:  # where clients take no turns
            Identity().check(value, bounds)


class Memberships(Role):
    """How much the client belongs to each cluster, [k]."""

    words = "weights of the clusters"

    def check(self, value: Any, bounds: Bounds) -> None:
        check_floats(value, (bounds.clusters,))
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


class Reach(Role):
    """Learning rate times steps of a client: of its samples it tells no more than how many batches they make."""

    words = "how far its steps reach"

    def check(self, value: Any, bounds: Bounds) -> None:
        if not isinstance(value, float) or not LEAST_REACH <= value <= 1 / LEAST_REACH:
            raise CoveyError(f"is {value!r}, expected a learning rate times a number of steps")


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
        check_floats(value, tuple(value.shape))


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
        check_floats(value, tuple(value.shape))


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
        check_floats(value, tuple(value.shape))
        if bool((value < 0).any()):
            raise CoveyError("holds a negative weight")


class LossTrace(Role):
    """A client's losses while it trained, [s]."""

    words = "a trace of losses"

    def check(self, value: Any, bounds: Bounds) -> None:
        if not isinstance(value, Tensor) or value.ndim != 1 or not len(value):
            raise CoveyError("is no list of losses")
        check_floats(value, tuple(value.shape))


class ShuffledRows(Role):
    """Rows of several clients in an order that the receiver is not told."""

    words = "shuffled rows of clients"


class RowMemberships(Role):
    """Which clusters each shuffled row belongs to, [n, k]."""

    words = "the clusters of shuffled rows"


class Covered(Role):
    """Vectors under a blind that the receiver cannot take off."""

    words = "vectors under a blind"
