"""Experiment: one dataclass is the TOML file, the command line and the Python call."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from covey import config
from covey.algorithms import ALGORITHMS
from covey.algorithms.contract import declaration
from covey.attacks import ATTACKS
from covey.compression import COMPRESSIONS
from covey.compression.replies import check
from covey.data import names as datasets
from covey.data.names import SILOS
from covey.data.own.rules import Rules
from covey.data.partitions import PARTITIONS
from covey.defences import DEFENCES
from covey.defences.contract import Terms, protected
from covey.errors import CoveyError, nearest
from covey.experiment import encryptions
from covey.experiment.deployment import Deployment, Silos
from covey.experiment.exposure import Exposure
from covey.experiment.participation import Participation
from covey.learn.flat import check_buffers
from covey.learn.losses import check_name
from covey.learn.precision import ARITHMETIC
from covey.learn.work import Plan
from covey.metrics.metric import resolve
from covey.models.choice import model_of, spec
from covey.names import Registry, path_of

ENGINES = ("simulate", "ray")


@dataclass(frozen=True)
class Training:
    """Rounds and what a client does in one."""

    rounds: int = 20
    epochs: int = 5
    steps: int = 0  # > 0: this many mini-batch steps instead of epochs
    batch_size: int = 50  # 0: full batch
    last_batch: str = config.later(
        "keep"
    )  # of an epoch, where too few are left: as it is; drop; merge: with the one before
    lr: float = 0.01
    lr_decay: float = 1.0  # the learning rate of round t is lr · lr_decay^(t-1) …
    lr_milestones: tuple[int, ...] = ()  # … times lr_drop for every milestone passed
    lr_drop: float = 0.1
    momentum: float = 0.0
    weight_decay: float = 0.0
    dropout: float = 0.0
    loss: str = config.later("")  # empty: as the data's task has it; mae, huber …, or your own package.module:function
    target: float = 0.0  # > 0: stop when the mean accuracy of clients on their own distribution reaches it …
    target_metric: str = "client_mean"  # … or another reading: average_cluster, global

    def __post_init__(self) -> None:
        if self.rounds < 1:
            raise CoveyError(f"training.rounds is {self.rounds}: at least one round is needed")
        if self.epochs < 1 and self.steps < 1:
            raise CoveyError("training.epochs and training.steps are both 0: a client would do nothing")
        if not 0 < self.lr_decay <= 1:
            raise CoveyError(f"training.lr_decay is {self.lr_decay}: it must be above 0 and at most 1")
        if not 0 <= self.target <= 1:
            raise CoveyError(f"training.target is {self.target}: an accuracy lies between 0 and 1")
        if self.target_metric not in ("client_mean", "average_cluster", "global"):
            raise CoveyError(
                f"training.target_metric is {self.target_metric!r}: client_mean, average_cluster or global"
            )
        check_name(self.loss)
        self.plan(1)  # refuses what a plan refuses

    def plan(self, round: int) -> Plan:
        """The training plan of a round, before device heterogeneity."""
        passed = sum(round > m for m in self.lr_milestones)
        return Plan(
            lr=self.lr * self.lr_decay ** (round - 1) * self.lr_drop**passed,
            epochs=self.epochs,
            steps=self.steps,
            batch_size=self.batch_size,
            last_batch=self.last_batch,
            momentum=self.momentum,
            weight_decay=self.weight_decay,
            dropout=self.dropout,
        )


@dataclass(frozen=True)
class Start:
    """Where the cluster models begin."""

    common: bool = True  # one initial model for all clusters, or a different one each
    pretrain_epochs: int = 1  # on the public samples of each cluster, where the partition sets some aside
    pretrain_batch: int = 0  # 0: full batch
    pretrain_lr: float = 0.0  # 0: the training's

    def __post_init__(self) -> None:
        if self.pretrain_epochs < 0 or self.pretrain_batch < 0 or self.pretrain_lr < 0:
            raise CoveyError("start.pretrain_epochs, start.pretrain_batch and start.pretrain_lr must not be negative")


@dataclass(frozen=True)
class Layers:
    """With `personal` > 0 only the last so many layers are averaged per cluster, the others over all clients."""

    personal: int = 0  # 0: all layers are personal
    buffers: str = config.later(
        "shared"
    )  # what training changes beside parameters (BatchNorm): averaged; local: each client's

    def __post_init__(self) -> None:
        check_buffers(self.buffers)


@dataclass(frozen=True)
class Evaluation:
    every: int = 1  # rounds; the last round is always evaluated
    samples: int = 0  # at most this many test samples; 0: all
    clients: int = config.later(
        10_000
    )  # of more clients, this many are evaluated and listed, by the seed; 0: all of them
    metrics: tuple[str, ...] = config.later(
        ()
    )  # beside the usual ones of the data's task; own: package.module:function
    training: bool = config.later(
        False
    )  # at the end of a simulation, accuracy on the samples that clients train on, too: accuracy.training

    def __post_init__(self) -> None:
        if self.every < 1 or self.samples < 0 or self.clients < 0:
            raise CoveyError(
                "evaluation.every must be at least 1, evaluation.samples and evaluation.clients not negative"
            )
        for name in self.metrics:
            resolve(name)


@dataclass(frozen=True)
class EngineConfig:
    RENAMED: ClassVar[Mapping[str, str]] = {"wave": "clients_at_once"}  # keys of older files -> fields

    name: str = "simulate"  # on this machine; ray: on Ray workers, here or on the cluster at RAY_ADDRESS
    device: str = "auto"  # auto: cuda where there is one, on Ray cpu; cpu; cuda
    gpus: float = config.later(1.0)  # of each Ray worker with device = "cuda"; with .5 two workers share a GPU
    workers: int = 0  # on a CPU; 0: one per core, or COVEY_CORES (macOS: 1); 1: no worker processes, as without fork
    clients_at_once: int = 0  # advanced together by a host; 0: chosen by device
    kernel: str = "auto"  # linear, loop, stacked, streams: force how training is computed
    arithmetic: str = config.later(
        "ieee"
    )  # on a GPU: ieee, torch, tf32 or bf16, from exact float32 to the fastest: see docs/simulation_at_scale.md
    tf32: bool = False  # the older word for arithmetic = "tf32"
    state_mb: float = config.later(1024.0)  # of what clients remember, per worker; more lies in a mapped file in TMPDIR
    checkpoint_every: int = 10  # rounds, and at the end; 0: only when interrupted and by the minutes below
    checkpoint_minutes: float = 5.0

    def __post_init__(self) -> None:
        if self.name not in ENGINES:
            raise CoveyError(f"unknown engine '{self.name}'{nearest(self.name, ENGINES)}")
        if self.device not in ("auto", "cpu", "cuda"):
            raise CoveyError(f"engine.device is {self.device!r}: choose auto, cpu or cuda")
        if self.arithmetic not in ARITHMETIC:
            raise CoveyError(f"engine.arithmetic is {self.arithmetic!r}: choose {', '.join(ARITHMETIC)}")
        if self.tf32 and self.arithmetic not in ("ieee", "tf32"):
            raise CoveyError(f"engine.tf32 is true and engine.arithmetic is {self.arithmetic!r}: leave one of them out")
        if self.arithmetic == "bf16" and (self.device == "cpu" or (self.name == "ray" and self.device != "cuda")):
            raise CoveyError(
                f"engine.arithmetic is 'bf16' and engine.device is {self.device!r}, a CPU: leave it out here, or use "
                "engine.device = 'cuda'"
            )
        if not (0 < self.gpus <= 1 or self.gpus == int(self.gpus) >= 1):
            raise CoveyError(f"engine.gpus is {self.gpus}: a share of one GPU above 0, or a whole number of GPUs")
        if not self.state_mb >= 0:
            raise CoveyError(f"engine.state_mb is {self.state_mb}: it must not be negative")
        if self.workers < 0 or self.clients_at_once < 0 or self.checkpoint_every < 0 or self.checkpoint_minutes <= 0:
            raise CoveyError(
                "engine.workers, engine.clients_at_once and engine.checkpoint_every must not be negative, "
                "engine.checkpoint_minutes must be positive"
            )

    @property
    def computes_in(self) -> str:
        """The arithmetic of a GPU."""
        return "tf32" if self.tf32 else self.arithmetic


@dataclass(frozen=True)
class Experiment:
    """Everything that determines a run. `Experiment.of(...)` takes tables and names as a TOML file has them."""

    dataset: str = "digits"  # a name, a path of your own, or package.module:thing
    partition: Any = field(default_factory=lambda: config.choose(PARTITIONS, "label_sets", "partition"))
    model: Any = "fcnn"  # a name, package.module:Net, a table with a name and options, or a torch.nn.Module
    # What runs: a defence of whole clients is around it already; it is written down without
    algorithm: Any = field(default_factory=lambda: config.choose(ALGORITHMS, "ifca", "algorithm"))
    training: Training = field(default_factory=Training)
    clients: int = 20
    clusters: int = 5  # that the algorithm is told, and that the partition makes …
    true_clusters: int = config.later(0)  # … unless it is to make so many others: what does it cost to be wrong?
    start: Start = field(default_factory=Start)
    layers: Layers = field(default_factory=Layers)
    participation: Participation = field(default_factory=Participation)
    exposure: Exposure = field(default_factory=Exposure)
    defence: Any = None
    compression: Any = None  # of what clients send; after the defence
    encryption: str = encryptions.PLAIN
    attacks: tuple[Any, ...] = ()
    evaluation: Evaluation = field(default_factory=Evaluation)
    seed: int = 0
    seeds: int = 1  # > 1: repeat with seed, seed + 1, …; mean and standard deviation
    engine: EngineConfig = field(default_factory=EngineConfig)
    silos: Silos = field(default_factory=Silos)
    deployment: Deployment = field(default_factory=Deployment)
    out: str = ""  # folder of the run; empty: runs/<algorithm>-<dataset>-<number>
    data: Rules = config.later(Rules())  # noqa: RUF009 - frozen; how a dataset of your own is read

    def __post_init__(self) -> None:
        if self.clients < 1 or self.clusters < 1:
            raise CoveyError(f"clients is {self.clients} and clusters is {self.clusters}: both must be at least 1")
        if self.clusters > self.clients:
            raise CoveyError(
                f"{self.clusters} clusters for {self.clients} clients: there must be at least as many clients"
            )
        if not 0 <= self.true_clusters <= self.clients:
            raise CoveyError(
                f"true_clusters is {self.true_clusters} for {self.clients} clients: at most so many, or 0 for as many as clusters"
            )
        if self.seeds < 1 or self.seed < 0:
            raise CoveyError(f"seed is {self.seed} and seeds is {self.seeds}: expected 0 or more, and at least 1")
        object.__setattr__(self, "model", model_of(self.model))
        spec(self.model)  # refuses what is none
        object.__setattr__(self, "algorithm", protected(self.defence, self.algorithm, self._terms))
        declaration(self.algorithm)  # refuses what is none
        encryptions.check(self.algorithm, self.encryption)
        if self.participation.buffer:
            self._check_asynchronous()
        if not self.participation.newcomer_labels:
            self._check_unlabelled()
        if self.compression is not None:
            check(self.compression, self.algorithm, self.encryption)
        if self.data.client not in ("", "none") and not getattr(self.partition, "as_the_data_say", False):
            raise CoveyError(
                f"data.client is '{self.data.client}', but partition = '{self.partition.name}' cuts the rows anew: set "
                "partition = 'natural' for the clients that the data have, or leave data.client out"
            )
        if self.dataset == SILOS:
            self.silos.check()
        if self.deployment.min_silos > self.clients:
            raise CoveyError(f"deployment.min_silos is {self.deployment.min_silos}, of {self.clients} clients")

    def _check_unlabelled(self) -> None:
        declared = declaration(self.algorithm)
        placed = hasattr(self.algorithm, "introduce")
        if placed and (self.defence is not None or self.compression is not None):
            what = "defence" if self.defence is not None else "compression"
            raise CoveyError(
                f"participation.newcomer_labels = false: what newcomers tell of their samples is no update, and the {what} is "
                f"of updates: leave out the {what} or newcomer_labels"
            )
        if not placed and (declared.trains != "one" or declared.family):
            able = ", ".join(name for name in ALGORITHMS if hasattr(ALGORITHMS[name], "introduce"))
            raise CoveyError(
                f"participation.newcomer_labels = false: {declared.name} finds or makes a newcomer's model with labels; choose an "
                f"algorithm that places it by its samples ({able}), one with a single model for all, or leave it out"
            )

    def _check_asynchronous(self) -> None:
        buffer, declared = self.participation.buffer, declaration(self.algorithm)
        if buffer > self.clients:
            raise CoveyError(
                f"participation.buffer is {buffer}, of {self.clients} clients: at most so many can wait in it"
            )
        if (
            self.defence is not None
            and hasattr(self.algorithm, "rebased")
            and not hasattr(type(self.algorithm), "rebased")
        ):
            raise CoveyError(  # a protocol that a defence puts around the algorithm
                f"{self.defence.name} sums one round's replies by a protocol of its own and accounts for who is in which round, "
                "and asynchronous rounds mix several: leave out the defence or participation.buffer"
            )
        if not hasattr(self.algorithm, "rebased"):
            raise CoveyError(
                f"{declared.name} takes no replies to older models, so its rounds cannot be asynchronous: leave out "
                "participation.buffer, or choose an algorithm with `rebased` (docs/asynchronous.md)"
            )
        if self.encryption != encryptions.PLAIN:
            raise CoveyError(
                f"encryption = '{self.encryption}' opens the sum of one round's replies, and asynchronous rounds mix replies of "
                "several: leave out encryption or participation.buffer"
            )
        if self.compression is not None:
            raise CoveyError("compression is of a round's own model: leave it out, or participation.buffer")
        if declared.min_group > buffer:
            raise CoveyError(
                f"algorithm.min_group is {declared.min_group} and participation.buffer {buffer}: every round would be withheld"
            )

    @classmethod
    def of(cls, table: Mapping[str, Any] | None = None, /, **more: Any) -> Experiment:
        """From a table of plain values (a TOML file's content, or keyword arguments)."""
        if table is not None and not isinstance(table, Mapping):
            raise CoveyError(
                f"Experiment.of was given {table!r}: expected keywords, as Experiment.of(dataset=…, algorithm=…), or a table "
                "of them; covey.experiment.presets.table_of(NAME, []) is that of a preset, Experiment.read(PATH) reads a TOML file"
            )
        values = config.merge(table or {}, more)
        for key in ("defence", "compression"):
            named = values.get(key)
            if named == "none" or (isinstance(named, Mapping) and named.get("name") == "none"):
                values[key] = None
        kinds = {"partition": PARTITIONS, "algorithm": ALGORITHMS, "defence": DEFENCES, "compression": COMPRESSIONS}
        for key, registry in kinds.items():
            if key in values and not (key in ("defence", "compression") and values[key] is None):
                values[key] = _chosen(registry, values[key], key)
        dataset = str(values.get("dataset", ""))
        if "partition" not in values and datasets.has_clients(dataset):
            values["partition"] = as_the_data_say()
        evaluation = values.get("evaluation")
        if isinstance(evaluation, Mapping) and isinstance(evaluation.get("metrics"), list | tuple):
            metrics = [path_of(m) if callable(m) else m for m in evaluation["metrics"]]
            values["evaluation"] = {**evaluation, "metrics": metrics}
        attacks = values.get("attacks", ())
        if not isinstance(attacks, list | tuple):
            raise CoveyError(f'attacks is {attacks!r}: expected a list, for example ["a1"]')
        values["attacks"] = tuple(_chosen(ATTACKS, a, "attacks") for a in attacks)
        return config.build(cls, values)

    @classmethod
    def read(cls, path: str | Path, *assignments: str) -> Experiment:
        """From a TOML file, with `key=value` assignments on top."""
        table = config.read_toml(Path(path))
        for assignment in assignments:
            table = config.assign(table, assignment)
        return cls.of(table)

    @property
    def _terms(self) -> Terms:
        return Terms(
            self.clients,
            self.clusters,
            self.training.rounds,
            self.participation.share,
            self.participation.sampling,
            self.encryption,
            self.training.target > 0,
        )

    @property
    def data_name(self) -> str:
        """The dataset as titles have it."""
        return datasets.people_call(self.dataset)

    @property
    def stem(self) -> str:
        """The dataset as a part of a folder's name."""
        return datasets.file_name(self.dataset)

    def table(self) -> dict[str, Any]:
        """Plain tables, as `Experiment.of` reads them."""
        table: dict[str, Any] = config.to_table(self)
        return table

    def toml(self) -> str:
        return config.to_toml(self.table())


def as_the_data_say() -> Any:
    """The partition that cuts data by the clients that they name."""
    name = next(PARTITIONS.word(entry) for entry in PARTITIONS.entries if entry.declared.get("as_the_data_say"))
    return config.choose(PARTITIONS, name, "partition")


def _chosen(registry: Registry, value: Any, key: str) -> Any:
    """What a name or a table picks from the registry; an object of the user's own passes as it is."""
    if isinstance(value, str | Mapping):
        return config.choose(registry, value, key)
    if value is None or isinstance(value, bool | int | float | list | tuple):
        raise CoveyError(f"{key} is {value!r}: expected a name or a table with one, such as '{next(iter(registry))}'")
    return value
