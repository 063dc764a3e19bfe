"""Datasets by name: `load("mnist")`, `load("lfw:smile")`, `load("purchase100-like")`, or `load("package.module:thing")`.

What lies at a path of one's own is read by `data.own`, since that takes rules.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import numpy as np

from covey.data.dataset import Dataset
from covey.data.sources import SOURCES
from covey.data.sources.files import Form, Source, damaged, data_folder, reading
from covey.errors import CoveyError, Unavailable, nearest


def source_of(name: str) -> tuple[str, Source, str]:
    """(name without its label, source, label): `lfw:smile` is lfw, labelled by smile; a path may have a label after it too."""
    base, _, label = name.partition(":")
    if base not in SOURCES and label:
        attribute, _, label = label.partition(":")
        base += ":" + attribute
    source = _source(SOURCES.resolve(base), base)
    if label and label not in source.labels:
        tail = nearest(label, source.labels) if source.labels else f"; it has one label: write '{base}'"
        raise CoveyError(f"{base} has no label '{label}'{tail}")
    return base, source, label or (source.labels[0] if source.labels else "")


def _source(thing: object, path: str) -> Source:
    if isinstance(thing, Source):
        return thing
    if not callable(thing):
        raise CoveyError(
            f"dataset '{path}' is a {type(thing).__name__}: expected a Source, or a function that gives a Dataset"
        )
    title = str(thing.__doc__ or path).strip().splitlines()[0]
    return Source(name=path, title=title, kind="", classes=0, licence="not stated", make=thing)


def load(name: str, folder: Path | None = None) -> Dataset:
    """The dataset of this name, decoded once per process and file version; its arrays are read-only.

    Looks in `folder`, else in COVEY_DATA, else in the user's cache folder, for each accepted form in turn.
    """
    base, source, label = source_of(name)
    if source.make:
        return generate(source)
    root = data_folder(folder)
    for number, form in enumerate(source.forms):
        paths = form.find(root)
        if paths:
            return decode(source, label, number, paths, tuple(path.stat().st_mtime_ns for path in paths))
    raise Unavailable(missing(base, source, root))


def missing(name: str, source: Source, root: Path) -> str:
    """How to get it, which is what a reader needs first; then which files were looked for, and where."""
    wanted = " or ".join(dict.fromkeys(" + ".join(file.name for file in form.files) for form in source.forms))
    places = dict.fromkeys(str(root / place) for form in source.forms for place in form.places)
    if any(form.mirrored for form in source.forms):
        how = f"`covey data get {name}` fetches it, or put it by hand where it is looked for"
    else:
        how = f"there is no public mirror: get it from {source.by_hand} and put it where it is looked for"
    return f"{name} is not here: {how} (COVEY_DATA sets the folder); looked for {wanted} in {', '.join(places)}."


@lru_cache(maxsize=4)
def generate(source: Source) -> Dataset:
    assert source.make is not None
    dataset = source.make()
    if not isinstance(dataset, Dataset):
        raise CoveyError(f"dataset '{source.name}' gave a {type(dataset).__name__}: expected a Dataset")
    return freeze(dataset)


@lru_cache(maxsize=4)
def decode(source: Source, label: str, number: int, paths: tuple[Path, ...], stamps: tuple[int, ...]) -> Dataset:
    """`stamps`, the times of last change, only tell versions of a file apart in the cache."""
    form = source.forms[number]
    with reading(paths[0]):
        dataset = form.read(paths, label)
        validate(dataset, source, form, paths[0])
    return freeze(dataset)


def validate(dataset: Dataset, source: Source, form: Form, path: Path) -> None:
    """Refuses a file whose content is not the set that its name promises."""
    counts = (len(dataset.y_train), len(dataset.y_test))
    if (len(dataset.x_train), len(dataset.x_test)) != counts or 0 in counts:
        raise damaged(path, f"has {len(dataset.x_train)} + {len(dataset.x_test)} samples for {counts} labels")
    if form.rows and counts != form.rows:
        raise damaged(path, f"has {counts[0]} training and {counts[1]} test samples instead of {form.rows}")
    if source.shape and (dataset.x_train.shape[1:], dataset.x_test.shape[1:]) != (source.shape,) * 2:
        raise damaged(path, f"has samples of shape {dataset.x_train.shape[1:]} instead of {source.shape}")
    expected = np.dtype({"tokens": np.int32, "real": np.float32}.get(source.kind, np.uint8))
    if {dataset.x_train.dtype, dataset.x_test.dtype} != {expected}:
        raise damaged(path, f"has samples of type {dataset.x_train.dtype} instead of {expected}")
    labels = np.concatenate([dataset.y_train, dataset.y_test])
    if labels.min() < 0 or labels.max() >= len(dataset.classes):
        raise damaged(path, f"has labels {labels.min()} to {labels.max()} for {len(dataset.classes)} classes")


def freeze(dataset: Dataset) -> Dataset:
    """Read-only arrays: every caller is handed the same ones."""
    held = (dataset.x_train, dataset.y_train, dataset.x_test, dataset.y_test, *dataset.attributes.values())
    for array in held:
        array.flags.writeable = False
    return dataset
