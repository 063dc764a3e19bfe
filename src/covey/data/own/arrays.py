"""Arrays in files: .npz, read whole, and folders of .npy, which are mapped into memory and never read whole.

Nothing is unpickled, and how much an array claims is looked at before any memory is taken.
"""

from __future__ import annotations

import math
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from covey.data.own.limits import explained, room
from covey.errors import CoveyError

MAPPED = ("x_train.npy", "y_train.npy", "x_test.npy", "y_test.npy")


@dataclass(frozen=True)
class Arrays:
    """Samples and labels as a file has them."""

    place: str
    x: NDArray[Any]
    y: NDArray[Any]
    clients: NDArray[Any] | None = None


def read_npz(path: Path, shape: tuple[int, ...] | None = None) -> Arrays:
    """Arrays x, y and, where it is there, client; `shape`: of a sample, where it is agreed, refused before x is read."""
    return _npz(path, ("x", "y", "client"), shape)


def read_npz_parts(path: Path) -> tuple[Arrays, ...]:
    """(all) of arrays x and y, or (train, test) of x_train, y_train, x_test and y_test."""
    with explained(path), zipfile.ZipFile(path) as archive:
        both = {f"{name}_{part}.npy" for name in "xy" for part in ("train", "test")} <= set(archive.namelist())
    if not both:
        return (read_npz(path),)
    return tuple(_npz(path, (f"x_{p}", f"y_{p}", f"client_{p}")) for p in ("train", "test"))


def _npz(path: Path, names: tuple[str, str, str], shape: tuple[int, ...] | None = None) -> Arrays:
    x_name, y_name, client_name = names
    with explained(path):
        with zipfile.ZipFile(path) as archive:
            there = set(archive.namelist())
            for name in (x_name, y_name):
                if f"{name}.npy" not in there:
                    held = ", ".join(sorted(n.removesuffix(".npy") for n in there)[:8]) or "nothing"
                    raise CoveyError(
                        f"{path} has no array {name}, it holds {held}: write it with numpy.savez(path, x=samples, y=labels), or "
                        "with x_train, y_train, x_test and y_test"
                    )
            wanted = [name for name in names if f"{name}.npy" in there]
            claims = {name: _claimed(path, archive, f"{name}.npy") for name in wanted}
        check_claims(path, *claims[x_name], *claims[y_name], shape)
        with np.load(path, allow_pickle=False) as stored:
            arrays = {name: stored[name] for name in wanted}
    return Arrays(str(path), arrays[x_name], arrays[y_name], arrays.get(client_name))


def check_claims(
    path: Path,
    x_shape: tuple[int, ...],
    x_type: np.dtype[Any],
    y_shape: tuple[int, ...],
    y_type: np.dtype[Any],
    wanted: tuple[int, ...] | None,
) -> None:
    """Shapes and types that an array announces, before it is read."""
    if not x_shape or (wanted is not None and x_shape[1:] != wanted):
        agreed = f", agreed are samples of {list(wanted)}" if wanted is not None else ""
        raise CoveyError(f"{path} holds x of shape {list(x_shape)}{agreed}: [n, …] is needed")
    if y_shape[:1] != x_shape[:1]:
        raise CoveyError(f"{path} holds x of {x_shape[0]} samples and y of shape {list(y_shape)}: one label per sample")
    if x_type.kind not in "fiub":
        raise CoveyError(f"{path} holds x of {x_type} and y of {y_type}: expected numbers, and whole numbers or names")


def _claimed(path: Path, archive: zipfile.ZipFile, name: str) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Shape and type that an array's header announces, refused if there cannot be room for it."""
    with archive.open(name) as file:
        version = np.lib.format.read_magic(file)
        if version not in ((1, 0), (2, 0)):
            raise CoveyError(f"{path} is written in a form that is not known ({version}): use numpy.savez")
        header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, _, dtype = header(file)
    if dtype.hasobject:
        raise CoveyError(f"{path} holds Python objects in {name}: convert them to numbers, objects are never unpickled")
    claimed = math.prod(shape) * dtype.itemsize
    if claimed > room():
        raise CoveyError(
            f"{path} claims {claimed / 2**30:.1f} GiB for {name}, {room() / 2**30:.1f} GiB is the most that is read here: "
            "split the samples over several silos, or write them as .npy files, which are mapped"
        )
    return tuple(shape), dtype


def is_mapped(folder: Path) -> bool:
    return (folder / MAPPED[0]).is_file()


def read_mapped(folder: Path) -> tuple[Arrays, Arrays]:
    """(train, test) of x_train.npy, y_train.npy, x_test.npy, y_test.npy; client_train.npy and client_test.npy may be there."""
    absent = [name for name in MAPPED if not (folder / name).is_file()]
    if absent:
        raise CoveyError(
            f"{folder} has {MAPPED[0]} but no {absent[0]}: mapped samples need their own test part, add it"
        )
    parts = []
    for part in ("train", "test"):
        clients = folder / f"client_{part}.npy"
        x, y = _mapped(folder / f"x_{part}.npy"), _mapped(folder / f"y_{part}.npy")
        check_claims(folder / f"x_{part}.npy", x.shape, x.dtype, y.shape, y.dtype, None)
        parts.append(Arrays(str(folder), x, np.array(y), np.array(_mapped(clients)) if clients.is_file() else None))
    return parts[0], parts[1]


def _mapped(path: Path) -> NDArray[Any]:
    with explained(path):
        array: NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
    return array
