"""The models that a run ends with: kept in its folder, to predict with, to go on with in torch, to be exported.

Whose model predicts? A client that took part: its own, or the mixture that it uses. Somebody new, with some labelled samples: the
cluster's model with the lowest loss on them, as IFCA's clients choose. Somebody new without labels: where there is one model, that
one; else covey refuses to guess, and wants a cluster.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, fields
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from covey.algorithms.contract import Predictor
from covey.data.own.encoding import Feature, is_number
from covey.data.own.new import of_samples
from covey.data.own.sheet import spelt
from covey.errors import CoveyError
from covey.learn import predict
from covey.learn.flat import Network
from covey.messages import decode, encode, message
from covey.metrics.totals import CLASSES, NUMBERS

SEEN = 32  # sets of models that clients share, of which it is known where they lie
MOST_BYTES = 256 << 20  # of models that clients have to themselves: beyond, none of them is kept


@message
@dataclass(frozen=True)
class KeptModels:
    """models.bin: the models of clusters, then those that clients have to themselves."""

    models: Tensor  # [m, d]
    clusters: int  # how many of them clients share
    rows: dict[int, int]  # client -> the one that it predicts with
    mixtures: dict[int, dict[str, Any]]  # client -> its weights of those from `first` on
    left_out: int  # clients whose own models were too many to keep
    network: dict[str, Any]  # all that the layout depends on, beside the model that the experiment names
    classes: list[str]  # names of the outputs
    fingerprint: str = ""  # of the network beyond its vectors: layout, and what nobody trains
    columns: list[dict[str, Any]] = field(default_factory=list)  # how a table became samples: fields of `Feature`
    names: list[str] = field(default_factory=list)  # of the clients, where the data name them
    of: int = 0  # how many clients there are, where only those of a sample are in `rows` and `mixtures`; 0: all are


class _Collection:
    """Models as they come in; those that many clients share come once."""

    def __init__(self, network: Network) -> None:
        self.network = network
        self.shared: list[Tensor] = []
        self.own: dict[int, Tensor] = {}
        self.rows: dict[int, int] = {}
        self.mixtures: dict[int, dict[str, Any]] = {}
        self.left_out = 0
        self._blocks: dict[bytes, int] = {}  # digest of models to choose from -> the first of them
        self._seen: list[tuple[Tensor, int]] = []  # blocks that came last, where they lie

    def add(self, client: int, use: Predictor) -> None:
        if use.weights is not None:
            weights = use.weights.detach().float().cpu()
            self.mixtures[client] = {"first": self._block(use.models), "weights": weights}
        elif use.index is not None:
            if self.network.local:  # the model is the cluster's, the statistics that it predicts with are the client's
                self._block(self.network.whole(use.models[:, : self.network.d]))
                self._add_own(client, use.models[use.index])
            else:
                self.rows[client] = self._block(use.models) + use.index
        else:
            self._add_own(client, use.models[0])

    def _add_own(self, client: int, model: Tensor) -> None:
        if self.left_out or (len(self.own) + 1) * model.numel() * 4 > MOST_BYTES:
            self.left_out += 1 + len(self.own)
            self.own.clear()  # some of many would be a choice that nobody asked for
        else:
            self.own[client] = model.detach().float().cpu()

    def _block(self, models: Tensor) -> int:
        for seen, first in self._seen:  # what many clients of a host were sent
            if _same_memory(seen, models):
                return first
        same = models.detach().float().cpu().contiguous()
        digest = hashlib.blake2b(same.numpy().tobytes(), digest_size=16).digest()
        if digest not in self._blocks:
            self._blocks[digest] = len(self.shared)
            self.shared += list(same)
        self._seen = [*self._seen[1 - SEEN :], (models, self._blocks[digest])]
        return self._blocks[digest]


def _same_memory(one: Tensor, other: Tensor) -> bool:
    return one is other or (
        one.data_ptr() == other.data_ptr()
        and one.device == other.device
        and one.shape == other.shape
        and one.stride() == other.stride()
        and one.dtype == other.dtype
    )


def keep(
    uses: Iterable[tuple[int, Predictor]],
    network: Network,
    classes: Iterable[str],
    columns: Iterable[Feature] = (),
    names: Iterable[str] = (),
    of: int = 0,
) -> KeptModels:
    """What is kept of what clients predict with."""
    came = _Collection(network)
    for client, use in uses:
        came.add(client, use)
    models = [*came.shared, *came.own.values()]
    rows = came.rows | {client: len(came.shared) + i for i, client in enumerate(came.own)}
    stacked = torch.stack(models) if models else torch.zeros(0, network.d)
    facts = {f.name: getattr(network, f.name) for f in fields(network) if f.name != "name"}
    return KeptModels(
        stacked,
        len(came.shared),
        rows,
        came.mixtures,
        came.left_out,
        facts,
        list(classes),
        network.fingerprint,
        [asdict(column) for column in columns],
        list(names),
        of,
    )


def read_feature(column: dict[str, Any]) -> Feature:
    """Back from its fields."""
    return Feature(**{**column, "values": tuple(column["values"])})


@dataclass(frozen=True)
class Models:
    """The models of a finished run."""

    kept: KeptModels
    network: Network

    @classmethod
    def read(cls, data: bytes, model: Any) -> Models:
        """From models.bin, and the model that the experiment names."""
        kept = decode(data)
        if not isinstance(kept, KeptModels):
            raise CoveyError("models.bin holds no models: it was changed since it was written")
        facts: dict[str, Any] = {name: tuple(v) if isinstance(v, list) else v for name, v in kept.network.items()}
        network = Network(model, **facts)
        network.check_fingerprint(kept.fingerprint, "this run")
        return cls(kept, network)

    def bytes(self) -> bytes:
        return encode(self.kept)

    @cached_property
    def columns(self) -> tuple[Feature, ...]:
        """How the training table was read; none: samples are arrays."""
        return tuple(map(read_feature, self.kept.columns))

    # ------------------------------------------------------------ which one

    def choose(self, client: int | str | None = None, cluster: int | None = None) -> tuple[Tensor, Tensor | None]:
        """(models [m, d], weights of their mixture or None): see the module's docstring."""
        if client is not None and cluster is not None:
            raise CoveyError("both a client and a cluster are named: one of them says which model it is")
        if client is not None:
            return self._of_client(self.number(client))
        if cluster is None:
            if len(self.kept.models) == 1:
                return self.kept.models, None
            raise CoveyError(f"which model? {self.there()}: name a client or a cluster, or give labelled samples")
        if not 0 <= cluster < self.kept.clusters:
            raise CoveyError(f"there is no cluster {cluster}: {self.there()}")
        self._refuse_without_statistics()
        return self.kept.models[cluster : cluster + 1], None

    def number(self, client: int | str) -> int:
        """A client's place among all, from 0: of its name, where the data name clients.

        Where names are numbers (hospitals 3, 7 and 19), 7 is the one of that name and never the eighth.
        """
        names = self.kept.names
        if str(client) in names:
            return names.index(str(client))
        if str(client).isdecimal() and not any(name.isdecimal() for name in names):
            return int(client)
        there = f"the data name {', '.join(names[:20])}{', …' if len(names) > 20 else ''}" if names else self.there()
        raise CoveyError(f"there is no client '{client}': {there}")

    def called(self, number: int) -> str:
        """What the data call a client."""
        return self.kept.names[number] if number < len(self.kept.names) else str(number)

    def _of_client(self, client: int) -> tuple[Tensor, Tensor | None]:
        if client in self.kept.rows:
            row = self.kept.rows[client]
            return self.kept.models[row : row + 1], None
        if client in self.kept.mixtures:
            first, weights = self.kept.mixtures[client]["first"], self.kept.mixtures[client]["weights"]
            return self.kept.models[first : first + len(weights)], weights
        if 0 <= client < self.kept.of:
            if len(self.kept.models) == 1:
                return self.kept.models, None  # everybody's
            kept = len(self.kept.rows) + len(self.kept.mixtures)
            raise CoveyError(
                f"client {client} is none of the {kept:,} of {self.kept.of:,} clients whose "
                "choice this run kept: name a cluster, give labelled samples, or run with evaluation.clients = 0 to keep all"
            )
        raise CoveyError(f"client {client} has no model in this run: {self.there()}")

    def predictors(self) -> dict[int, Predictor]:
        """What every client predicts with whose model is kept."""
        chosen = {client: self._of_client(client) for client in (*self.kept.rows, *self.kept.mixtures)}
        return {i: Predictor(models, None if mixed is not None else 0, mixed) for i, (models, mixed) in chosen.items()}

    def nearest(self, x: NDArray[Any], y: Any) -> int:
        """The cluster whose model has the lowest loss on labelled samples."""
        if not self.kept.clusters:
            raise CoveyError(f"there is no cluster's model to choose: {self.there()}")
        self._refuse_without_statistics()
        targets = self.targets(y)
        if len(targets) != len(x):
            raise CoveyError(f"{len(x)} labelled samples came with {len(targets)} labels: one each")
        return int(predict.losses(self.network, self.kept.models[: self.kept.clusters], x, targets).argmin())

    def _refuse_without_statistics(self) -> None:
        if self.network.local:
            raise CoveyError(
                "the clients of this run kept their models' running statistics to themselves (layers.buffers = 'local'), so a "
                "cluster's model alone cannot predict: name a client, or train with layers.buffers = 'shared'"
            )

    def targets(self, y: Any) -> NDArray[Any]:
        """Targets as the network reads them; classes by name or by number."""
        given = np.asarray(y)
        if self.network.task != CLASSES:
            return given.astype(np.float32).reshape(len(given), -1)
        if given.dtype.kind in "iuf" and all(is_number(name) for name in self.kept.classes):
            given = np.array([spelt(value) for value in given.tolist()])  # classes 1 and 2 are no places from 0
        if given.dtype.kind in "USO":
            places = {name: i for i, name in enumerate(self.kept.classes)}
            if unknown := [str(name) for name in given if str(name) not in places]:
                raise CoveyError(f"label '{unknown[0]}' is none of {', '.join(self.kept.classes[:20])}")
            return np.array([places[str(name)] for name in given], np.int64)
        outside = given[(given < 0) | (given >= len(self.kept.classes)) | (given != np.rint(given))]
        if len(outside):
            raise CoveyError(f"label {outside[0]} is none of the classes 0 to {len(self.kept.classes) - 1}: correct it")
        return given.astype(np.int64)

    def there(self) -> str:
        """Which models there are, in words."""
        held = [f"clusters 0 to {self.kept.clusters - 1}" if self.kept.clusters > 1 else "cluster 0"]
        own = len(self.kept.models) - self.kept.clusters
        held = held[: self.kept.clusters] + ([f"{own} clients' own"] if own else [])
        if self.kept.left_out:
            held.append(f"not the {self.kept.left_out} clients' own, which took more than {MOST_BYTES >> 20} MiB")
        return f"kept are {', '.join(held) or 'no models'}"

    # ------------------------------------------------------------ what it does

    def module(self, cluster: int | None = None, client: int | str | None = None) -> nn.Module:
        """A torch module with the weights of one model, in evaluation mode."""
        models, weights = self.choose(client, cluster)
        if weights is not None:
            raise CoveyError(f"client {client} predicts with a mixture of {len(weights)} models: take a cluster's")
        module: nn.Module = self.network.module()
        self.network.write(models[0], module)
        return module.eval()

    def probabilities(
        self,
        x: Any,
        *,
        client: int | str | None = None,
        cluster: int | None = None,
        labelled: tuple[Any, Any] | None = None,
    ) -> NDArray[np.float32]:
        """[n, outputs]: probabilities of classes or labels, or the numbers. `labelled`: (samples, labels) of somebody new.

        Samples are arrays as the dataset holds them or, where it was a table, a frame with the same columns.
        """
        if labelled is not None:
            if client is not None or cluster is not None:
                raise CoveyError("labelled samples choose a model where none is named: name neither client nor cluster")
            cluster = self.nearest(of_samples(labelled[0], self.columns), labelled[1])
        models, weights = self.choose(client, cluster)
        return predict.probabilities(self.network, models, weights, of_samples(x, self.columns))

    def predict(self, x: Any, **which: Any) -> list[Any]:
        """The class of each sample, the labels that it has, or its numbers; `which`: as `probabilities` takes it."""
        given = self.probabilities(x, **which)
        return given.tolist() if self.network.task == NUMBERS else self._named(given)

    def words(self, given: NDArray[np.float32]) -> list[str]:
        """Probabilities (numbers) as a text for each sample."""
        if self.network.task == NUMBERS:
            return ["; ".join(f"{value:.6g}" for value in row) for row in given]
        return [one if isinstance(one, str) else "; ".join(one) for one in self._named(given)]

    def _named(self, given: NDArray[np.float32]) -> list[Any]:
        names = self.kept.classes
        if self.network.task == CLASSES:
            return [names[c] for c in given.argmax(1)]
        return [[names[i] for i in np.flatnonzero(row > 0.5)] for row in given]
