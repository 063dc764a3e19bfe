"""Which data a run is on: loaded or given, cut over clients, checked, and known again by their fingerprint."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

from covey.data.dataset import Dataset
from covey.data.federation import Federation, check
from covey.data.fingerprint import federation_parts, fingerprint, parts
from covey.data.names import GIVEN, SILOS, is_given, is_path
from covey.data.own.read import read_path
from covey.data.own.rules import Rules
from covey.data.partitions import PARTITIONS
from covey.data.sources.load import load
from covey.errors import CoveyError, CoveyWarning
from covey.experiment.experiment import Experiment, as_the_data_say


def settle(experiment: Experiment, given: Federation | None = None) -> tuple[Experiment, Federation]:
    """The experiment as it is written down, and its federation.

    What the data decide is put in: the number of natural clients and, of data that covey does not know by name, the absolute path
    (or the name under which they were given) and the fingerprint, by which the same data are known again.
    """
    if given is not None and not isinstance(given, Federation):
        check(given)  # refuses it
    cut_already = given is not None and bool(given.clients)
    federation = check(given) if given is not None and cut_already else cut(experiment, given)
    changed: dict[str, Any] = {}
    if cut_already:
        changed["partition"] = as_the_data_say()
    if given is not None:
        changed["dataset"] = GIVEN + federation.dataset.name
    elif is_path(experiment.dataset):
        changed["dataset"] = str(Path(experiment.dataset).expanduser().resolve())
    if changed:
        own = fingerprint(federation_parts(federation) if cut_already else parts(_uncut(experiment, given)))
        refuse_other_data(experiment.data.fingerprint, own, federation.dataset.name)
        changed["data"] = replace(experiment.data, fingerprint=own)
    if cut_already or getattr(experiment.partition, "as_the_data_say", False):
        changed["clients"] = len(federation.clients)
        if experiment.clients not in (Experiment.clients, len(federation.clients)):
            warnings.warn(
                f"clients = {experiment.clients} is not used: the data say whose they are, and have "
                f"{len(federation.clients)} clients; choose another partition to cut them anew",
                CoveyWarning,
                stacklevel=2,
            )
    return (replace(experiment, **changed) if changed else experiment), federation


def settled(experiment: Experiment, given: Federation | None = None) -> Experiment:
    """The experiment as it is written down; data that covey knows by name decide nothing, and are not read for it."""
    decided = getattr(experiment.partition, "as_the_data_say", False) or is_path(experiment.dataset)
    known = given is None and not decided and not is_given(experiment.dataset)
    return experiment if known or experiment.dataset == SILOS else settle(experiment, given)[0]


def unpinned(experiment: Experiment) -> Experiment:
    """The same on whatever data there are now."""
    return replace(experiment, data=replace(experiment.data, fingerprint=""))


def data_line(experiment: Experiment, federation: Federation) -> str:
    """A settled run's data: name, size, fingerprint. One name may stand for a part of a dataset on this machine, for all on that.

    As they were before they were cut: a partition may change samples or labels, by the seed.
    """
    pinned = experiment.data.fingerprint
    return described(experiment.data_name, federation.dataset if pinned else dataset_of(experiment), pinned)


def described(name: str, dataset: Dataset, pinned: str = "") -> str:
    """A dataset in a line; `pinned`: its fingerprint, where that is known."""
    size = f"{len(dataset.y_train):,} training and {len(dataset.y_test):,} test samples"
    return f"{name}: {size}, {pinned or fingerprint(parts(dataset))}"


def cut(experiment: Experiment, given: Federation | None = None) -> Federation:
    """The experiment's dataset (or data that nobody has cut yet), as its partition cuts it over the clients."""
    dataset = _uncut(experiment, given)
    if dataset.task != "classes" and not getattr(experiment.partition, "every_task", False):
        fits = [PARTITIONS.word(e) for e in PARTITIONS.entries if e.declared.get("every_task")]
        raise CoveyError(
            f"partition '{experiment.partition.name}' cuts by class, the task of {dataset.name} is '{dataset.task}': "
            f"choose {' or '.join(fits)}"
        )
    federation: Federation = experiment.partition.make(
        dataset, experiment.clients, experiment.true_clusters or experiment.clusters, experiment.seed
    )
    return check(_with_small_newcomers(experiment, federation))


def _with_small_newcomers(experiment: Experiment, federation: Federation) -> Federation:
    """Those who join later hold fewer rows, where the experiment says so; what they are tested on stays."""
    part = experiment.participation
    if not part.newcomer_samples:
        return federation
    if federation.phases:
        raise CoveyError(
            "participation.newcomer_samples is of data that stay: leave it out, or the partition that drifts"
        )
    held = [rows if i < part.initial else rows[: part.newcomer_samples] for i, rows in enumerate(federation.clients)]
    return replace(federation, clients=tuple(held))


def _uncut(experiment: Experiment, given: Federation | None) -> Dataset:
    """As the data are; a partition may change samples or labels, by the seed."""
    return given.dataset if given is not None else dataset_of(experiment)


def dataset_of(experiment: Experiment) -> Dataset:
    """What the experiment's `dataset` stands for, read by its table [data] where it is a path."""
    name = experiment.dataset
    if name == SILOS:
        raise CoveyError(
            "dataset = 'silos' is data that only the silos have: deploy it (`covey keys make`), or simulate a named dataset"
        )
    if is_given(name):
        raise CoveyError(
            f"the data '{experiment.data_name}' were handed over in Python and lie in no file: call it with the same federation, "
            "run(experiment, federation=…, out=FOLDER, resume=True) or audit(experiment, FOLDER, federation=…)"
        )
    if is_path(name):
        return read_path(Path(name), unpinned(experiment).data).dataset
    if unpinned(experiment).data != Rules():
        raise CoveyError(
            f"the table [data] is for data of your own, {name} is covey's: leave it out, or give a path as dataset"
        )
    return load(name)


def refuse_other_data(pinned: str, own: str, name: str) -> None:
    """Refuses data that are not the ones a run was made with."""
    if pinned and pinned != own:
        raise CoveyError(
            f"the data '{name}' are not those of this run: their fingerprint is {own}, the run's is {pinned}; restore the data and "
            "the table [data] as they were, or leave data.fingerprint out for a new run"
        )
