"""CIFAR-10 and CIFAR-100 as published: the binary and the python archives, packed or unpacked.

The python archives are pickles. They are read by an unpickler that admits nothing but the reconstruction of
numpy arrays: any other name in the stream, hence any code, is refused. `covey data get` fetches the binary
archives.
"""

from __future__ import annotations

import io
import pickle
import pickletools
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from covey.data.dataset import Dataset
from covey.data.sources.class_names import CIFAR10, CIFAR100
from covey.data.sources.files import Form, WantedFile, damaged, named

PIXELS = 3 * 32 * 32
REBUILD = np.empty(0).__reduce__()[0]  # the function that an array in a pickle is rebuilt by
BATCHES = tuple(f"data_batch_{i}" for i in range(1, 6))
Part = tuple[NDArray[np.uint8], NDArray[np.int64]]


def images(planes: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """[m, 3072] colour planes -> [m, 32, 32, 3]"""
    return np.ascontiguousarray(planes.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1))


def decode_binary(bodies: list[bytes], labels: int, path: Path) -> Part:
    """Records of `labels` label bytes, the last of which is the fine label, and the pixels."""
    body = b"".join(bodies)
    if not body or len(body) % (labels + PIXELS):
        raise damaged(path, f"holds {len(body)} bytes of records, not a multiple of {labels + PIXELS}")
    records = np.frombuffer(body, np.uint8).reshape(-1, labels + PIXELS)
    return images(records[:, labels:]), records[:, labels - 1].astype(np.int64)


class ArraysOnly(pickle.Unpickler):
    """Rebuilds dictionaries, lists, strings, numbers and numpy arrays; refuses every other global."""

    def find_class(self, module: str, name: str) -> Any:
        admitted: dict[tuple[str, str], Any] = {
            ("numpy.core.multiarray", "_reconstruct"): REBUILD,
            ("numpy._core.multiarray", "_reconstruct"): REBUILD,
            ("numpy", "ndarray"): np.ndarray,
            ("numpy", "dtype"): np.dtype,
            ("_codecs", "encode"): latin,  # how Python 3 writes bytes in the old protocols
        }
        if (module, name) not in admitted:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}, which is not part of an array")
        return admitted[module, name]


def refuse_far_places(body: bytes) -> None:
    """A pickle numbers what it refers to again, and Python takes memory up to the largest number: 5 bytes may ask for gigabytes."""
    for operation, place, _ in pickletools.genops(body):
        if operation.name in ("PUT", "BINPUT", "LONG_BINPUT") and isinstance(place, int) and place > len(body):
            raise pickle.UnpicklingError(f"it keeps something at the place {place}, of {len(body)} bytes")


def latin(text: str, encoding: str) -> bytes:
    if encoding not in ("latin1", "latin-1"):
        raise pickle.UnpicklingError(f"it asks for the encoding {encoding}")
    return text.encode("latin-1")


def decode_pickle(bodies: list[bytes], key: bytes, path: Path) -> Part:
    pixels, labels = [], []
    for body in bodies:
        try:
            refuse_far_places(body)
            batch = ArraysOnly(io.BytesIO(body), encoding="bytes").load()
            data, marks = batch[b"data"], np.asarray(batch[key], np.int64)
        except Exception as error:  # a hostile or broken stream may raise anything
            raise damaged(path, f"is not a CIFAR batch ({type(error).__name__}: {error})") from error
        if not isinstance(data, np.ndarray) or data.dtype != np.uint8 or data.shape != (len(marks), PIXELS):
            raise damaged(path, f"has a batch that is not {len(marks)} rows of {PIXELS} bytes")
        pixels.append(data)
        labels.append(marks)
    return images(np.concatenate(pixels)), np.concatenate(labels)


def read_binary(paths: tuple[Path, ...], label: str, name: str) -> Dataset:
    (path,) = paths
    parts = [f"{b}.bin" for b in (*BATCHES, "test_batch")] if name == "cifar10" else ["train.bin", "test.bin"]
    *train, test = named(path, *parts)
    labels = 1 if name == "cifar10" else 2
    return assemble(decode_binary(train, labels, path), decode_binary([test], labels, path), name)


def read_python(paths: tuple[Path, ...], label: str, name: str) -> Dataset:
    (path,) = paths
    *train, test = named(path, *((*BATCHES, "test_batch") if name == "cifar10" else ("train", "test")))
    key = b"labels" if name == "cifar10" else b"fine_labels"
    return assemble(decode_pickle(train, key, path), decode_pickle([test], key, path), name)


def assemble(train: Part, test: Part, name: str) -> Dataset:
    return Dataset(name, *train, *test, classes=CIFAR10 if name == "cifar10" else CIFAR100)


def forms(name: str, stem: str, folders: tuple[str, str], md5: tuple[str, str]) -> tuple[Form, ...]:
    """(binary archive, binary folder, python archive, python folder)"""
    datasets = []
    for kind, folder, digest, read in zip(("binary", "python"), folders, md5, (read_binary, read_python)):
        archive = f"{stem}-{kind}.tar.gz"
        wanted = WantedFile(archive, (f"https://www.cs.toronto.edu/~kriz/{archive}",), md5=digest)
        for file in (wanted, WantedFile(folder)):
            datasets.append(Form((file,), partial(read, name=name), (name, ""), (50_000, 10_000)))
    return tuple(datasets)
