"""What every party of a deployment knows before round 1: the same bytes for all, and nothing of anybody's samples.

A simulation computes it from the whole federation (`prepare`); a deployment computes it once, where the keys are made, and
hands it out. Of a named dataset, for a rehearsal, it holds the public part and the start models of the simulation with that
seed. Of real silos (`dataset = "silos"`) it is made from the experiment's description and the folder of public samples.
"""

from __future__ import annotations

import copy
import functools
import hashlib
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from covey import config
from covey.algorithms.contract import Setting
from covey.data.dataset import Dataset
from covey.data.federation import Federation
from covey.data.names import SILOS
from covey.data.own.encoding import Feature
from covey.data.own.silo import read_part, read_with_columns
from covey.engines import prepare
from covey.engines.settle import settle
from covey.errors import CoveyError
from covey.experiment.deployment import Silos
from covey.experiment.experiment import Experiment
from covey.learn.flat import Network
from covey.messages import encode, message
from covey.models.choice import Given
from covey.models.spec import VOCABULARY


@message
@dataclass(frozen=True)
class Agreed:
    """See the module's docstring."""

    experiment: str  # TOML, without what is each party's own business: engine, out and attacks
    start: Tensor  # [k, d] initial cluster models
    personal: Tensor  # [d] bool
    public: tuple[Tensor, Tensor] | None  # samples as the network reads them, and labels, that no silo holds
    shape: list[int]  # of one sample
    classes: list[str]
    kind: str
    vocabulary: int  # token samples: number of ids
    task: str = "classes"  # what is predicted: as in Dataset.task
    model: str = ""  # fingerprint of the network beyond its vector: layout, frozen weights; see `Network.fingerprint`


def agree(experiment: Experiment) -> Agreed:
    """What the parties of this experiment are given."""
    if isinstance(experiment.model, Given):
        raise CoveyError(
            f"the model is {experiment.model}, and no code travels: in a deployment each party imports its own copy, "
            'so put it in a module and set model = "package.module:Net"'
        )
    if experiment.dataset == SILOS:
        federation = federation_of(experiment)
        network = network_for(experiment, experiment.silos)
        setting = prepare.agree(experiment, federation, network)
    else:
        settled, cut = settle(experiment)
        federation, network, setting = prepare.prepare(settled, cut)
        if len(federation.clients) != experiment.clients:
            raise CoveyError(
                f"the partition makes {len(federation.clients)} clients of {experiment.clients}: set clients to that"
            )
    return Agreed(
        experiment=_text(experiment),
        start=setting.start.cpu(),
        personal=setting.personal.cpu(),
        public=setting.public,
        shape=list(network.input_shape),
        classes=list(federation.dataset.classes),
        kind=network.kind,
        vocabulary=network.vocabulary,
        task=network.task,
        model=network.fingerprint,
    )


def table_of(agreed: Agreed) -> config.Table:
    """The experiment's table, of which nothing is imported yet."""
    return copy.deepcopy(_parsed(agreed.experiment))


@functools.lru_cache(maxsize=8)
def _parsed(text: str) -> config.Table:
    """Every party asks for the table again and again, and reading TOML takes longer than copying what was read."""
    return tomllib.loads(text)


def experiment_of(agreed: Agreed, engine: Mapping[str, Any] | None = None) -> Experiment:
    """The experiment, computed as this party's own `engine` table says."""
    return Experiment.of(table_of(agreed), engine=dict(engine or {}))


def network_of(agreed: Agreed) -> Network:
    """The network as this party's own code builds it; refused where that is another than the parties agreed on."""
    experiment = experiment_of(agreed)
    network = network_for(experiment, agreed)
    network.check_fingerprint(agreed.model, "this deployment's keys")
    return network


def setting_of(agreed: Agreed, experiment: Experiment) -> Setting:
    """As the simulation's `prepare` gives it, on the device of this party's experiment."""
    return prepare.setting_of(experiment, experiment.clients, agreed.start, agreed.personal, agreed.public)


def samples_at(folder: Path, agreed: Agreed) -> tuple[Any, Any, Any, Any]:
    """(x_train, y_train, x_test, y_test) of a silo's own folder, read by the agreed rules."""
    return samples_and_columns_at(folder, agreed)[0]


def samples_and_columns_at(folder: Path, agreed: Agreed) -> tuple[tuple[Any, Any, Any, Any], tuple[Feature, ...]]:
    """These, and how a table's columns were read: with this silo's own means and deviations, to predict with at home."""
    experiment = experiment_of(agreed)
    return read_with_columns(folder, agreed, experiment.data, experiment.silos.columns)


def digest(agreed: Agreed) -> str:
    """By which parties find out whether they were given the same."""
    return hashlib.sha256(encode(agreed)).hexdigest()


def network_for(experiment: Experiment, samples: Agreed | Silos) -> Network:
    """The network for samples that are described, not at hand."""
    return Network(
        experiment.model,
        tuple(samples.shape),
        len(samples.classes),
        samples.kind,
        samples.vocabulary or VOCABULARY,
        samples.task,
        experiment.training.loss,
        experiment.layers.buffers,
    )


def federation_of(experiment: Experiment) -> Federation:
    """A federation of which only the public samples are known: one part, or one per cluster, as the folder has them."""
    silos = experiment.silos
    parts = _public_parts(Path(silos.public), experiment.clusters) if silos.public else []
    read = [read_part(part, silos, experiment.data, silos.columns) for part in parts]
    none = np.zeros((0, *silos.shape), np.uint8), np.zeros(0, np.int64)
    x, y = np.concatenate([x for x, _ in read] or [none[0]]), np.concatenate([y for _, y in read] or [none[1]])
    ends = np.cumsum([0, *(len(labels) for _, labels in read)])
    return Federation(
        dataset=Dataset(SILOS, x, y, *none, classes=silos.classes, kind=silos.kind),
        clients=(none[1],) * experiment.clients,
        clusters=None,
        test_groups=none[1],
        distributions=np.full((experiment.clients, len(silos.classes)), 1 / len(silos.classes)),
        public=tuple(np.arange(a, b) for a, b in pairwise(ends)),
    )


def _public_parts(folder: Path, clusters: int) -> list[Path]:
    """cluster-0, cluster-1, … where they are there, else the folder itself."""
    parts = sorted(p.name for p in folder.glob("cluster-*"))
    if not parts:
        return [folder]
    wanted = [f"cluster-{j}" for j in range(clusters)]
    if set(parts) != set(wanted):
        raise CoveyError(
            f"{folder} has {', '.join(parts)}, {clusters} clusters need {wanted[0]} to {wanted[-1]}: "
            "add what is missing, or put all public samples into one part"
        )
    return [folder / name for name in wanted]


def _text(experiment: Experiment) -> str:
    """The TOML that all parties get; where the public samples lay on the machine that made the keys is no part of it."""
    shared = replace(experiment, silos=replace(experiment.silos, public=""))
    return config.to_toml({k: v for k, v in shared.table().items() if k not in ("engine", "out", "attacks")})
