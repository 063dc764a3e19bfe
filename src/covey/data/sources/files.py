"""Where dataset files lie, which ones are wanted, and what to say when one is missing or damaged."""

from __future__ import annotations

import os
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import numpy as np
from numpy.typing import NDArray

from covey.data.dataset import Dataset
from covey.errors import CoveyError, Unavailable

Read = Callable[[tuple[Path, ...], str], Dataset]  # (the files of a form, the chosen label) -> the dataset


@dataclass(frozen=True)
class WantedFile:
    """A file or folder by name; where it can be fetched, and a checksum of the published one where there is
    one.
    """

    name: str
    urls: tuple[str, ...] = ()
    sha256: str = ""
    md5: str = ""


@dataclass(frozen=True)
class Form:
    """One way a dataset may lie on disk: these files together, in one of these places below the data folder."""

    files: tuple[WantedFile, ...]
    read: Read
    places: tuple[str, ...] = ("",)
    rows: tuple[int, int] | None = None  # (training, test) rows, where the form is the whole published set

    @property
    def mirrored(self) -> bool:
        return all(file.urls for file in self.files)

    def find(self, folder: Path) -> tuple[Path, ...] | None:
        for place in self.places:
            paths = tuple(folder / place / file.name for file in self.files)
            if all(path.exists() for path in paths):
                return paths
        return None


@dataclass(frozen=True)
class Source:
    """A dataset by name: what it is, how it may lie on disk, under which licence. No forms: it is generated
    or embedded.
    """

    name: str
    title: str
    kind: str  # image, binary, tokens
    classes: int  # with a choice of label: of the first one
    licence: str
    forms: tuple[Form, ...] = ()
    shape: tuple[int, ...] = ()  # of one sample; empty: any
    labels: tuple[str, ...] = ()  # `name:label` chooses one; the first is the default
    by_hand: str = ""  # where a person gets it when there is no public mirror
    make: Callable[[], Dataset] | None = None
    package: str = ""  # of Python, which holds what `make` reads; empty: covey and what it needs
    label: str = ""  # the name as its authors write it
    has_clients: bool = False  # its rows say whose they are, so it is not cut unless asked


def data_folder(folder: Path | None = None) -> Path:
    """The argument, else COVEY_DATA, else the user's cache folder."""
    if folder is not None:
        return Path(folder).expanduser()
    if os.environ.get("COVEY_DATA"):
        return Path(os.environ["COVEY_DATA"]).expanduser()
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(cache).expanduser() / "covey"


def damaged(path: Path, what: str) -> Unavailable:
    return Unavailable(
        f"{path} {what[:300]}; delete it and get it again (`covey data get`), or put an intact copy there."
    )


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turns whatever a decoder raises on a broken file into one sentence that names the file."""
    try:
        yield
    except CoveyError:
        raise
    except Exception as error:  # zip, tar, numpy and codecs raise a dozen kinds on damaged files
        raise damaged(path, f"cannot be decoded ({type(error).__name__}: {error})") from error


def members(path: Path, wanted: Callable[[str], bool]) -> dict[str, bytes]:
    """Contents of the files whose name below the root is wanted, of a folder, a tar or a zip. Nothing is
    unpacked to disk.
    """
    with reading(path):
        if path.is_dir():
            below = {p.relative_to(path).as_posix(): p for p in sorted(path.rglob("*")) if p.is_file()}
            return {name: p.read_bytes() for name, p in below.items() if wanted(name)}
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                return {name: archive.read(name) for name in archive.namelist() if wanted(name)}
        contents = {}
        with tarfile.open(path, "r:*") as tar:
            for entry in tar:
                if entry.isfile() and wanted(entry.name):
                    stream = tar.extractfile(entry)
                    contents[entry.name] = stream.read() if stream else b""
        return contents


def named(path: Path, *names: str) -> list[bytes]:
    """The members with these base names, in this order; a missing one is an error that says which."""
    contents = members(path, lambda name: PurePosixPath(name).name in names)
    inside = {PurePosixPath(name).name: body for name, body in contents.items()}
    missing = [name for name in names if name not in inside]
    if missing:
        raise damaged(path, f"has no {missing[0]} inside")
    return [inside[name] for name in names]


def arrays(path: Path) -> dict[str, NDArray[np.generic]]:
    """The arrays of an .npz, never unpickling anything."""
    with reading(path), np.load(path, allow_pickle=False) as archive:
        return {name: archive[name] for name in archive.files}


def held_out(labels: NDArray[np.int64], key: int, share: float = 0.2) -> NDArray[np.bool_]:
    """A fixed test part for sets that have none: `share` of every label, the same rows on every machine."""
    rng = np.random.default_rng([0x5E7, key])
    order = np.lexsort((rng.random(len(labels)), labels))
    _, first, counts = np.unique(labels[order], return_index=True, return_counts=True)
    rank = np.arange(len(labels)) - np.repeat(first, counts)
    test = np.zeros(len(labels), np.bool_)
    test[order] = rank < np.rint(share * np.repeat(counts, counts))
    return test
