"""What stands behind `covey data list`, `covey data check` and `covey data get`."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from covey.data.sources import SOURCES
from covey.data.sources.files import Form, Source, data_folder
from covey.data.sources.load import load, missing, source_of
from covey.errors import CoveyError

if TYPE_CHECKING:
    from covey.data.sources.download import Progress  # with all of HTTP, which an inventory does not need


@dataclass(frozen=True)
class Entry:
    """One line of the inventory."""

    name: str
    title: str
    kind: str
    licence: str
    present: bool
    paths: tuple[Path, ...]  # what was found; empty when it is generated, embedded or not here
    bytes: int
    folder: Path  # where it was looked for
    fetchable: bool  # `covey data get` can fetch it


@dataclass(frozen=True)
class Check:
    """What a dataset turned out to be."""

    name: str
    train: int
    test: int
    shape: tuple[int, ...]
    classes: int
    attributes: tuple[str, ...]
    checksums: tuple[tuple[Path, str], ...]  # each file: "published", "other" or "unknown" (none is known for it)
    note: str
    stand_in: str


def inventory(folder: Path | None = None) -> list[Entry]:
    root = data_folder(folder)
    return [entry(name, source, root) for name, source in SOURCES.items()]


def entry(name: str, source: Source, root: Path) -> Entry:
    _, paths = first_found(source, root)
    return Entry(
        name=name,
        title=source.title,
        kind=source.kind,
        licence=source.licence,
        present=bool(paths) or is_installed(source),
        paths=paths,
        bytes=sum(size(path) for path in paths),
        folder=root,
        fetchable=any(form.mirrored for form in source.forms),
    )


def first_found(source: Source, root: Path) -> tuple[Form | None, tuple[Path, ...]]:
    for form in source.forms:
        paths = form.find(root)
        if paths:
            return form, paths
    return None, ()


def is_here(name: str, folder: Path | None = None) -> bool:
    """Judged by files alone; what is generated, embedded or in an installed package is here."""
    _, source, _ = source_of(name)
    return bool(first_found(source, data_folder(folder))[1]) or is_installed(source)


def is_whole(name: str, folder: Path | None = None) -> bool | None:
    """Whether what is here of a dataset is the published set, judged by its files alone; None: nothing is here."""
    _, source, _ = source_of(name)
    form, _ = first_found(source, data_folder(folder))
    return form.rows is not None if form else None


def is_installed(source: Source) -> bool:
    """Whether a dataset that lies in no file of its own can be made here."""
    held = not source.package or importlib.util.find_spec(source.package) is not None
    return source.make is not None and held


def size(path: Path) -> int:
    if path.is_dir():
        return sum(p.stat().st_size for p in path.rglob("*") if p.is_file())
    return path.stat().st_size


def check(name: str, folder: Path | None = None) -> Check:
    """Decodes the dataset and compares its files with the checksums that are known; damage is an error."""
    from covey.data.sources.download import verified

    _, source, _ = source_of(name)
    form, paths = first_found(source, data_folder(folder))
    dataset = load(name, folder)
    words = {True: "published", False: "other", None: "unknown"}
    files = zip(form.files, paths) if form else ()
    return Check(
        name=dataset.name,
        train=len(dataset.y_train),
        test=len(dataset.y_test),
        shape=dataset.x_train.shape[1:],
        classes=len(dataset.classes),
        attributes=tuple(dataset.attributes),
        checksums=tuple((path, words[None if path.is_dir() else verified(path, file)]) for file, path in files),
        note=dataset.note,
        stand_in=dataset.stand_in,
    )


def get(name: str, progress: Progress | None = None, folder: Path | None = None) -> tuple[Path, ...]:
    """Fetches what is missing of a dataset's first mirrored form, and decodes it once; the files that it is made of."""
    from covey.data.sources.download import fetch, verified

    base, source, _ = source_of(name)
    if source.make:
        load(name, folder)  # generated, embedded, or in a package: says what to install where that is not here
        return ()
    root = data_folder(folder)
    form = next((form for form in source.forms if form.mirrored), None)
    if form is None:
        raise CoveyError(missing(base, source, root))
    home = root / (form.places[0] or base)
    paths = []
    for file in form.files:
        path = home / file.name
        intact = path.exists() and verified(path, file) is not False
        paths.append(path if intact else fetch(file, home, progress))
    load(name, folder)
    return tuple(paths)
