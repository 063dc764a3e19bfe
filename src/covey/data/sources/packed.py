"""The compact .npz files: plain arrays, or pixels stored as differences (which compress better) and packed
bits.

A plain `NAME.npz` with x_train, y_train, x_test, y_test, as Keras distributes MNIST, is read as well.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from covey.data.dataset import Dataset
from covey.data.sources.files import Form, WantedFile, arrays, damaged

Pixels = NDArray[np.uint8]
BLOCK = 256  # photographs turned into colour at a time: stays in the cache, and never a float copy of all


def restored(differences: NDArray[Any]) -> Pixels:
    """Pixels from their differences along both image axes (the last two), modulo 256."""
    across = np.cumsum(differences, axis=-1, dtype=np.uint8)
    return np.cumsum(across, axis=-2, dtype=np.uint8)


def colour(differences: NDArray[Any]) -> Pixels:
    """[3, m, h, w] differences of (R − G, G, B − G) -> [m, h, w, 3], lossless."""
    planes = restored(differences)
    planes[0] += planes[1]
    planes[2] += planes[1]
    return np.ascontiguousarray(np.moveaxis(planes, 0, -1))


def photographs(luma: NDArray[Any], chroma: NDArray[Any]) -> Pixels:
    """Brightness [m, h, w] and half-resolution Cb, Cr [2, m, ⌈h/2⌉, ⌈w/2⌉], all as differences -> RGB [m, h,
    w, 3].
    """
    height, width = luma.shape[1:]
    rgb = np.empty((*luma.shape, 3), np.uint8)
    for start in range(0, len(luma), BLOCK):
        part = slice(start, start + BLOCK)
        y = restored(luma[part]).astype(np.float32)
        half = restored(chroma[:, part]).astype(np.float32) - 128
        cb, cr = (c.repeat(2, axis=1).repeat(2, axis=2)[:, :height, :width] for c in half)
        for channel, value in enumerate((y + 1.402 * cr, y - 0.344136 * cb - 0.714136 * cr, y + 1.772 * cb)):
            rgb[part, ..., channel] = value.round().clip(0, 255)
    return rgb


def part(content: dict[str, NDArray[Any]], name: str, path: Path) -> NDArray[Any]:
    if name not in content:
        raise damaged(path, f"has no array '{name}' (it has {', '.join(content) or 'none'})")
    return content[name]


def read(
    paths: tuple[Path, ...], label: str, name: str, classes: tuple[str, ...], whole: int = 0, split: str = ""
) -> Dataset:
    """`whole`: images of the published set, so that a subset says that it is one, and by whose `split`."""
    (path,) = paths
    content: dict[str, NDArray[Any]] = arrays(path)
    x = [
        colour(content[f"x_{half}_diff"]) if f"x_{half}_diff" in content else part(content, f"x_{half}", path)
        for half in ("train", "test")
    ]
    y = [part(content, f"y_{half}", path).reshape(-1).astype(np.int64) for half in ("train", "test")]
    held = len(y[0]) + len(y[1])
    note = f"a subset: {held:,} of {whole:,} images, {split}" if held < whole else ""
    return Dataset(name, x[0], y[0], x[1], y[1], classes, note=note)


def form(
    name: str,
    classes: tuple[str, ...],
    sha256: str,
    rows: tuple[int, int] | None = None,
    whole: int = 0,
    split: str = "",
    file: str = "",
) -> Form:
    """`file`: without .npz, where it is not called as the dataset."""
    wanted = WantedFile(f"{file or name}.npz", sha256=sha256)
    reader = partial(read, name=name, classes=classes, whole=whole, split=split)
    return Form((wanted,), reader, ("", name), rows)
