"""The idx format of MNIST, Fashion-MNIST and EMNIST, plain or gzipped."""

from __future__ import annotations

import gzip
import math
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from covey.data.dataset import Dataset
from covey.data.sources.files import Form, WantedFile, damaged, named, reading

UBYTE = 8  # the idx code of unsigned bytes, the only type these sets use

PARTS = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)
EMNIST_PARTS = tuple("emnist-balanced-" + part.replace("t10k", "test") for part in PARTS)


def decode(body: bytes, path: Path) -> NDArray[np.uint8]:
    """An idx array: two zero bytes, type, number of dimensions, sizes (big-endian), then the values."""
    if body[:2] == b"\x1f\x8b":
        with reading(path):
            body = gzip.decompress(body)
    if len(body) < 4 or body[:2] != b"\0\0" or body[2] != UBYTE or not 1 <= body[3] <= 4:
        raise damaged(path, "is not an idx file of unsigned bytes")
    start = 4 + 4 * body[3]
    if len(body) < start:
        raise damaged(path, "ends in the middle of its header")
    shape = tuple(int(size) for size in np.frombuffer(body[4:start], ">u4"))
    if len(body) - start != math.prod(shape) or len(body) == start:
        raise damaged(path, f"holds {len(body) - start} values where its header says {shape}")
    return np.frombuffer(body, np.uint8, offset=start).reshape(shape)


def read(paths: tuple[Path, ...], label: str, name: str, classes: tuple[str, ...], transposed: bool = False) -> Dataset:
    """From the four files, or from one archive that holds them gzipped."""
    if len(paths) == 1:
        bodies = named(paths[0], *(part + ".gz" for part in EMNIST_PARTS))
        paths = paths * 4
    else:
        with reading(paths[0].parent):
            bodies = [path.read_bytes() for path in paths]
    x_train, y_train, x_test, y_test = (decode(body, path) for body, path in zip(bodies, paths))
    if transposed:
        x_train, x_test = (np.ascontiguousarray(x.swapaxes(1, -1)) for x in (x_train, x_test))
    return Dataset(name, x_train, y_train.astype(np.int64), x_test, y_test.astype(np.int64), classes)


def forms(
    name: str, classes: tuple[str, ...], mirrors: tuple[str, ...], md5: tuple[str, ...], torchvision: str
) -> tuple[Form, ...]:
    """The gzipped and the plain files of an MNIST-like set, in its own folder or where torchvision puts them.

    Never directly in the data folder: MNIST and Fashion-MNIST use the same four file names.
    """
    zipped = tuple(
        WantedFile(f"{part}.gz", tuple(f"{mirror}{part}.gz" for mirror in mirrors), md5=digest)
        for part, digest in zip(PARTS, md5)
    )
    plain = tuple(WantedFile(part) for part in PARTS)
    reader = partial(read, name=name, classes=classes)
    return tuple(Form(files, reader, (name, torchvision), (60_000, 10_000)) for files in (zipped, plain))


def emnist_forms(classes: tuple[str, ...]) -> tuple[Form, ...]:
    """EMNIST Balanced. Its images are stored with rows and columns exchanged: they are turned upright."""
    reader = partial(read, name="emnist", classes=classes, transposed=True)
    archive = WantedFile(
        "gzip.zip",
        ("https://biometrics.nist.gov/cs_links/EMNIST/gzip.zip",),
        md5="58c8d27c78d21e728a6bc7b3cc06412e",
    )
    zipped = tuple(WantedFile(f"{part}.gz") for part in EMNIST_PARTS)
    plain = tuple(WantedFile(part) for part in EMNIST_PARTS)
    places, rows = ("emnist", "EMNIST/raw"), (112_800, 18_800)
    return tuple(Form(files, reader, places, rows) for files in (zipped, plain, (archive,)))
