"""A silo's own samples, as they lie in its folder.

    train.npz, test.npz     arrays x [n, …] and y [n]
    train.csv, test.csv     a header with a column `label`; the other columns are the values of a sample, in order
    train/, test/           one folder per class with its .png or .jpg images

One part alone is called data.npz, data.csv or data/; class folders may also lie in the folder itself. Without a test part
a tenth of every class is held out, the same one each time. Labels are names of classes, or their numbers from 0.

Everything is checked against what the federation has agreed on before it is believed: shape, kind and classes, numbers that
are none, and, before any memory is taken, how much a file claims to hold. Nothing is resized, rescaled or unpickled.
"""

from __future__ import annotations

import csv
import math
import os
import warnings
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from covey.data.sources.files import held_out
from covey.errors import CoveyError, nearest

Labelled = tuple[NDArray[Any], NDArray[np.int64]]
PICTURES = (".png", ".jpg", ".jpeg")
LABEL = "label"
MOST = 16 * 2**30  # bytes of one array; less where the machine has less memory
_SPLIT = 0x5110


class Described(Protocol):
    """What samples are agreed to be: `Agreed` and `Silos` say so."""

    @property
    def shape(self) -> Sequence[int]: ...
    @property
    def kind(self) -> str: ...
    @property
    def classes(self) -> Sequence[str]: ...
    @property
    def vocabulary(self) -> int: ...


def read_folder(
    path: Path, agreed: Described
) -> tuple[NDArray[Any], NDArray[np.int64], NDArray[Any], NDArray[np.int64]]:
    """(x_train, y_train, x_test, y_test) of a silo's folder."""
    folder = _folder(path)
    train, test = _found(folder, "train"), _found(folder, "test")
    if train is None and test is not None:
        raise CoveyError(
            f"{folder} has {test.name} but nothing to train on: add train{test.suffix}, or rename it to data"
        )
    x, y = _read(train, agreed) if train else read_part(folder, agreed)
    if test is not None:
        return x, y, *_read(test, agreed)
    apart = held_out(y, _SPLIT, 0.1)
    if not apart.any():  # too few of every class for a tenth of it
        apart[-1:] = len(y) > 1
    return x[~apart], y[~apart], x[apart], y[apart]


def read_part(path: Path, agreed: Described) -> Labelled:
    """All samples of a folder that has one part: data.npz, data.csv, data/, or class folders."""
    folder = _folder(path)
    part = _found(folder, "data")
    if part is None and any((folder / name).is_dir() for name in agreed.classes):
        part = folder
    if part is None:
        raise CoveyError(
            f"{folder} holds no samples: expected train and test (or data) as .npz, .csv or a folder of class folders"
        )
    return _read(part, agreed)


def _folder(path: Path) -> Path:
    folder = Path(path).expanduser()
    if not folder.is_dir():
        raise CoveyError(f"{folder} is no folder: give the folder that holds the silo's samples")
    return folder


def _found(folder: Path, stem: str) -> Path | None:
    """The part of this name, in whichever form it is there; None: in none."""
    forms = [folder / f"{stem}.npz", folder / f"{stem}.csv"]
    found = [p for p in forms if p.is_file()] + [p for p in [folder / stem] if p.is_dir()]
    if len(found) > 1:
        names = " and ".join(p.name for p in found)
        raise CoveyError(f"{folder} has {names}: keep one of them, it is not clear which one counts")
    return found[0] if found else None


def _read(path: Path, agreed: Described) -> Labelled:
    with _explained(path):
        if path.is_dir():
            return _pictures(path, agreed)
        x, y = _csv(path, agreed) if path.suffix == ".csv" else _npz(path, agreed)
    if not len(y):
        raise CoveyError(f"{path} is empty: put at least one sample there")
    return _values(path, x, agreed), y


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    """What a reader raises on a file that is broken or not allowed to be read, as one sentence."""
    try:
        yield
    except CoveyError:
        raise
    except PermissionError as e:
        raise CoveyError(f"{e.filename or path} may not be read by this user: change its permissions") from e
    except (
        Exception
    ) as e:  # zip, numpy and Pillow raise a dozen kinds on damaged files; fuzzing finds another now and then
        raise CoveyError(f"{path} cannot be read ({type(e).__name__}: {str(e)[:200]}): write it again") from e


def _values(path: Path, x: NDArray[Any], agreed: Described) -> NDArray[Any]:
    """The samples in the type that their kind is kept in, after checking every value."""
    if agreed.kind == "real":
        wrong = ~_finite(x)
        if not wrong.any():
            with np.errstate(over="ignore"):
                x = x.astype(np.float32, copy=False)
            wrong = ~_finite(x)  # a number that is finite may be none as float32
        if wrong.any():
            raise CoveyError(f"{path} holds values that are not finite numbers{_first(wrong)}: correct or drop them")
        return x
    top = {"image": 255, "binary": 1}.get(agreed.kind, agreed.vocabulary - 1)
    wrong = ~_finite(x)
    if not wrong.any():
        wrong = (x < 0) | (x > top) | (x != np.rint(x) if x.dtype.kind == "f" else False)
    if wrong.any():
        hint = "; pixels in [0, 1] must be multiplied by 255" if agreed.kind == "image" else ""
        raise CoveyError(
            f"{path} holds values{_first(wrong)} that do not fit {agreed.kind} samples: "
            f"expected whole numbers from 0 to {top}{hint}"
        )
    return x.astype(np.int32 if agreed.kind == "tokens" else np.uint8, copy=False)


def _finite(x: NDArray[Any]) -> NDArray[np.bool_]:
    if x.dtype.kind not in "fiub":
        return np.zeros(x.shape, np.bool_)
    return np.asarray(np.isfinite(x))


def _first(wrong: NDArray[np.bool_]) -> str:
    """Where the first wrong value is, for a sentence."""
    rows = np.flatnonzero(wrong.reshape(len(wrong), -1).any(1))
    return f" (first in sample {rows[0]})" if len(rows) else ""


# ---------------------------------------------------------------- .npz


def _npz(path: Path, agreed: Described) -> Labelled:
    with zipfile.ZipFile(path) as archive:
        names = set(archive.namelist())
        for name in ("x", "y"):
            if f"{name}.npy" not in names:
                raise CoveyError(f"{path} has no array {name}: write it with numpy.savez(path, x=samples, y=labels)")
        (shape, x_type), (labels, y_type) = (_claimed(path, archive, f"{name}.npy") for name in "xy")
    wanted = tuple(agreed.shape)
    if shape[1:] != wanted or not shape:
        raise CoveyError(
            f"{path} holds x of shape {list(shape)}, agreed are samples of {list(wanted)}: [n, …] is needed"
        )
    if labels != shape[:1]:
        raise CoveyError(f"{path} holds x of {shape[0]} samples and y of shape {list(labels)}: one label per sample")
    if x_type.kind not in "fiub" or y_type.kind not in "iuU":
        raise CoveyError(f"{path} holds x of {x_type} and y of {y_type}: expected numbers, and whole numbers or names")
    with np.load(path, allow_pickle=False) as arrays:
        x, y = arrays["x"], arrays["y"]
    if y.dtype.kind == "U":
        return x, np.array([_class(str(word), path, agreed) for word in y], np.int64)
    wrong = (y < 0) | (y >= len(agreed.classes))
    if wrong.any():
        raise CoveyError(
            f"{path} holds the label {y[wrong][0]}, agreed are the classes 0 to {len(agreed.classes) - 1} "
            f"({', '.join(agreed.classes[:8])}{', …' if len(agreed.classes) > 8 else ''}): relabel or drop those samples"
        )
    return x, y.astype(np.int64)


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
    if claimed > _room():
        raise CoveyError(
            f"{path} claims {claimed / 2**30:.1f} GiB for {name}, {_room() / 2**30:.1f} GiB is the most that is read here: "
            "split the samples over several silos"
        )
    return tuple(shape), dtype


def _room() -> int:
    """Bytes that one array may take: half of this machine's memory at most."""
    try:
        return min(MOST, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2)
    except (ValueError, OSError, AttributeError):
        return MOST


# ---------------------------------------------------------------- .csv


def _csv(path: Path, agreed: Described) -> Labelled:
    count = math.prod(agreed.shape)
    with path.open(newline="", encoding="utf-8-sig") as file:
        rows = csv.reader(file)
        header = [name.strip() for name in next(rows, [])]
        if header.count(LABEL) != 1:
            raise CoveyError(
                f"{path} has {header.count(LABEL)} columns called '{LABEL}' in its first line: expected one"
            )
        at = header.index(LABEL)
        if len(header) - 1 != count:
            raise CoveyError(
                f"{path} has {len(header) - 1} columns beside '{LABEL}', a sample of shape {list(agreed.shape)} has {count}"
            )
        x: list[NDArray[np.float64]] = []
        y: list[int] = []
        room = _room() // (8 * count)
        for row in rows:
            if not row:
                continue
            if len(row) != len(header):
                raise CoveyError(f"{path}, line {rows.line_num}: {len(row)} fields, the first line has {len(header)}")
            if len(y) >= room:
                raise CoveyError(
                    f"{path} has more than the {room:,} samples that fit here: split them over several silos"
                )
            y.append(_class(row.pop(at).strip(), f"{path}, line {rows.line_num}:", agreed))
            x.append(_numbers(row, path, rows.line_num))
    values = np.array(x, np.float64).reshape(len(x), *agreed.shape)
    return values, np.array(y, np.int64)


def _numbers(row: list[str], path: Path, line: int) -> NDArray[np.float64]:
    try:
        return np.array(row, np.float64)
    except ValueError:
        word = next(word for word in row if not _is_number(word))
        raise CoveyError(f"{path}, line {line}: {word[:40]!r} is no number; correct or drop that line") from None


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


def _class(word: str, where: object, agreed: Described) -> int:
    """The number of a class that is given by name, or by that number."""
    if word in agreed.classes:
        return list(agreed.classes).index(word)
    if word.isascii() and word.isdigit() and int(word[:9]) < len(agreed.classes):
        return int(word[:9])
    raise CoveyError(f"{where} has the unknown class '{word[:40]}'{nearest(word[:40], list(agreed.classes))}")


# ---------------------------------------------------------------- images


def _pictures(folder: Path, agreed: Described) -> Labelled:
    shape = tuple(agreed.shape)
    if agreed.kind != "image" or len(shape) not in (2, 3) or shape[2:] not in ((), (1,), (3,)):
        raise CoveyError(
            f"{folder} is a folder of images, agreed are {agreed.kind} samples of {list(shape)}: use .npz or .csv"
        )
    inside = sorted(p.name for p in folder.iterdir() if p.is_dir())
    unknown = [name for name in inside if name not in agreed.classes]
    if unknown:
        raise CoveyError(
            f"{folder / unknown[0]} is named after no agreed class{nearest(unknown[0], list(agreed.classes))}"
        )
    x, y = [], []
    for label, name in enumerate(agreed.classes):
        files = sorted((folder / name).iterdir()) if name in inside else []
        for file in files:
            if file.suffix.lower() not in PICTURES:
                raise CoveyError(f"{file} is no .png or .jpg: move it out of the folder of class '{name}'")
            x.append(_picture(file, shape))
            y.append(label)
    if not y:
        raise CoveyError(
            f"{folder} is empty: put images into folders named after the classes, such as {agreed.classes[0]}"
        )
    return np.stack(x), np.array(y, np.int64)


def _picture(file: Path, shape: tuple[int, ...]) -> NDArray[np.uint8]:
    """One image, its size read from the header before anything is decoded."""
    from PIL import Image

    with _explained(file):
        try:
            with warnings.catch_warnings():  # of large images: they are refused below in our own words
                warnings.simplefilter("ignore", Image.DecompressionBombWarning)
                image = Image.open(file, formats=("PNG", "JPEG"))
        except Image.DecompressionBombError as e:
            raise CoveyError(f"{file} claims to be far larger than {shape[1]}×{shape[0]} pixels: remove it") from e
        with image:
            if image.size != (shape[1], shape[0]):
                found = "×".join(map(str, image.size))
                raise CoveyError(
                    f"{file} is {found} pixels (width × height), agreed are {shape[1]}×{shape[0]}: resize it"
                )
            if image.mode not in ("1", "L", "P", "RGB"):
                raise CoveyError(
                    f"{file} has the mode {image.mode}: save it as plain grey or RGB with 8 bits per channel"
                )
            colours = np.asarray(image.convert("RGB"))
    if shape[2:] == (3,):
        return colours
    if (colours != colours[..., :1]).any():
        raise CoveyError(f"{file} is in colour, agreed are grey images of {list(shape)}: convert it to grey")
    return np.ascontiguousarray(colours[..., 0]).reshape(shape)
