"""Images in one folder per class."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from covey.data.own.arrays import Arrays
from covey.data.own.limits import explained
from covey.errors import CoveyError, nearest

PICTURES = (".png", ".jpg", ".jpeg")


def is_class_folder(folder: Path) -> bool:
    """Whether a folder holds images, and nothing that holds more."""
    inside = [p for p in folder.iterdir() if not p.name.startswith(".")]
    return any(p.suffix.lower() in PICTURES for p in inside) and not any(p.is_dir() for p in inside)


def read_pictures(folder: Path, shape: tuple[int, ...] = (), classes: Sequence[str] = ()) -> Arrays:
    """All images below the folders of classes; y are names. `shape`, `classes`: as agreed, else as the images have them.

    Without an agreed shape the first image says the size, and all are in colour if one of them is.
    """
    inside = sorted(p.name for p in folder.iterdir() if p.is_dir() and not p.name.startswith("."))
    unknown = [name for name in inside if classes and name not in classes]
    if unknown:
        raise CoveyError(f"{folder / unknown[0]} is named after no agreed class{nearest(unknown[0], list(classes))}")
    size = (shape[1], shape[0]) if shape else None
    x: list[NDArray[np.uint8]] = []
    y: list[str] = []
    for name in classes or inside:
        for file in sorted((folder / name).iterdir()) if name in inside else []:
            if file.name.startswith("."):
                continue
            if file.suffix.lower() not in PICTURES:
                raise CoveyError(f"{file} is no .png or .jpg: move it out of the folder of class '{name}'")
            colours = picture(file, size)
            size = (colours.shape[1], colours.shape[0])
            if shape and shape[2:] != (3,) and _coloured(colours):
                raise CoveyError(f"{file} is in colour, agreed are grey images of {list(shape)}: convert it to grey")
            x.append(colours)
            y.append(name)
    if not y:
        such = f", such as {classes[0]}" if classes else ""
        raise CoveyError(f"{folder} is empty: put images into folders named after the classes{such}")
    stacked = np.stack(x)
    if shape:
        stacked = stacked if shape[2:] == (3,) else np.ascontiguousarray(stacked[..., 0]).reshape(len(y), *shape)
    elif not _coloured(stacked):
        stacked = np.ascontiguousarray(stacked[..., 0])
    return Arrays(str(folder), stacked, np.array(y))


def picture(file: Path, size: tuple[int, int] | None) -> NDArray[np.uint8]:
    """One image [h, w, 3], its size (width, height) read from the header before anything is decoded."""
    from PIL import Image

    with explained(file):
        try:
            with warnings.catch_warnings():  # of large images: they are refused below in our own words
                warnings.simplefilter("ignore", Image.DecompressionBombWarning)
                image = Image.open(file, formats=("PNG", "JPEG"))
        except Image.DecompressionBombError as e:
            fits = f"{size[0]}×{size[1]}" if size else "10,000×10,000"
            raise CoveyError(f"{file} claims to be far larger than {fits} pixels: remove it") from e
        with image:
            if size and image.size != size:
                extent = "×".join(map(str, image.size))
                raise CoveyError(
                    f"{file} is {extent} pixels (width × height), agreed are {size[0]}×{size[1]}: resize it"
                )
            if image.mode not in ("1", "L", "P", "RGB"):
                raise CoveyError(
                    f"{file} has the mode {image.mode}: save it as plain grey or RGB with 8 bits per channel"
                )
            return np.asarray(image.convert("RGB"))


def _coloured(image: NDArray[np.uint8]) -> bool:
    return bool((image != image[..., :1]).any())
