"""What lies at a path: one table or array file, parts called train and test, class folders, or a folder or file per client."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from covey.data.own.arrays import is_mapped
from covey.data.own.images import is_class_folder
from covey.data.own.rules import TABLES
from covey.data.own.tables import is_table
from covey.errors import CoveyError

FORMS = (".npz", *TABLES)
EXPECTED = (
    "expected a .csv, .parquet or .npz file, or a folder with train and test (or data) in such a form, with class folders of "
    "images, or with a folder or file per client"
)


@dataclass(frozen=True)
class Part:
    """A file or a folder of class folders; whose it is, and whether it is for testing, where the place says so."""

    path: Path
    client: str = ""
    test: bool = False


def parts_at(path: Path) -> tuple[Part, ...]:
    """All parts at a path, clients in the order of their names; one mapped folder is one part."""
    if path.is_file():
        if not _readable(path):
            raise CoveyError(f"{path} is no table or arrays that covey reads: {EXPECTED}")
        return (Part(path),)
    if not path.is_dir():
        raise CoveyError(f"there is no file or folder {path}: check the path (the current folder is {Path.cwd()})")
    own = part_of(path)
    if own:
        return own
    inside = sorted(p for p in path.iterdir() if not p.name.startswith("."))
    folders = [p for p in inside if p.is_dir()]
    tables = [p for p in inside if p.is_file() and _readable(p)]
    if not folders and tables:
        return (Part(tables[0]),) if len(tables) == 1 else tuple(Part(p, _stem(p)) for p in tables)
    if not folders or tables:
        raise CoveyError(f"{path} holds no samples in a known form: {EXPECTED}")
    pictures = [p for p in folders if is_class_folder(p)]
    bare = [p for p in folders if not any(not f.name.startswith(".") for f in p.iterdir())]
    if pictures and bare:
        raise CoveyError(f"{bare[0]} is empty, {pictures[0]} holds images of a class: put images there, or remove it")
    return tuple(part for folder in folders for part in _of_client(folder))


def part_of(folder: Path) -> tuple[Part, ...]:
    """The parts of one folder that is a whole dataset or one silo's: train and test, data, mapped arrays or class folders."""
    if is_mapped(folder):
        return (Part(folder),)
    train, test = named(folder, "train"), named(folder, "test")
    if train is None and test is not None:
        raise CoveyError(
            f"{folder} has {test.name} but nothing to train on: add train{test.suffix}, or rename it to data"
        )
    if train is not None:
        return (Part(train), Part(test, test=True)) if test is not None else (Part(train),)
    data = named(folder, "data")
    if data is not None:
        return (Part(data),)
    folders = [p for p in folder.iterdir() if p.is_dir() and not p.name.startswith(".")]
    return (Part(folder),) if folders and all(is_class_folder(p) for p in folders) else ()


def named(folder: Path, stem: str) -> Path | None:
    """The part of this name, in whichever form it is there; None: in none."""
    forms = [p for p in (folder / f"{stem}{form}" for form in FORMS) if p.is_file()]
    there = forms + [p for p in [folder / stem] if p.is_dir()]
    if len(there) > 1:
        names = " and ".join(p.name for p in there)
        raise CoveyError(f"{folder} has {names}: keep one of them, it is not clear which one counts")
    return there[0] if there else None


def _of_client(folder: Path) -> tuple[Part, ...]:
    own = part_of(folder)
    if not own:
        tables = sorted(p for p in folder.iterdir() if p.is_file() and _readable(p))
        if len(tables) != 1:
            raise CoveyError(f"{folder} is the folder of a client but holds no samples in a known form: {EXPECTED}")
        own = (Part(tables[0]),)
    return tuple(Part(part.path, folder.name, part.test) for part in own)


def _readable(path: Path) -> bool:
    return path.suffix.lower() == ".npz" or is_table(path)


def _stem(path: Path) -> str:
    name = path.name
    return next(
        (name[: -len(form)] for form in sorted(FORMS, key=len, reverse=True) if name.lower().endswith(form)), name
    )
