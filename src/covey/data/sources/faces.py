"""Faces with attributes: LFW and UTKFace, packed as .npz or as published.

LFW's published form is lfw-funneled.tgz with lfw_attributes.txt (Kumar et al. 2009), whose attributes are
scores of classifiers: positive means present. The packed form has labels of its own, gender and smile by
people and the rest by classifiers. An attribute that nobody knows is 255.
"""

from __future__ import annotations

import io
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from covey.data.dataset import UNKNOWN, Dataset
from covey.data.sources.class_names import RACES, UTK_RACES
from covey.data.sources.files import Form, WantedFile, arrays, damaged, held_out, members, reading
from covey.data.sources.packed import part, photographs

Column = NDArray[Any]
CLASSES = {"gender": ("female", "male"), "smile": ("no smile", "smile")}
CROP = (slice(70, 195), slice(78, 172))  # the face in a 250 × 250 photograph; halved it is 62 × 47


def labelled(
    name: str,
    x: NDArray[np.uint8],
    columns: dict[str, Column],
    test: Column,
    label: str,
    races: tuple[str, ...],
    note: str = "",
) -> Dataset:
    """The rows whose chosen label is known; all columns as attributes of the training rows."""
    y = columns[label]
    known = y != UNKNOWN
    train, held = known & ~test, known & test
    left_out = "" if known.all() else f"{int((~known).sum())} rows without a known {label} are left out"
    return Dataset(
        f"{name}:{label}",
        x[train],
        y[train].astype(np.int64),
        x[held],
        y[held].astype(np.int64),
        races if label == "race" else CLASSES[label],
        attributes={key: column[train] for key, column in columns.items()},
        note="; ".join(filter(None, (note, left_out))),
    )


@lru_cache(maxsize=1)
def unpacked(path: Path, stamp: int) -> dict[str, Column]:
    """The arrays of a packed file with its photographs as `x`, decoded once for all labels that are asked for."""
    content: dict[str, Column] = arrays(path)
    content["x"] = photographs(part(content, "luma_diff", path), part(content, "chroma_diff", path))
    return content


def read_lfw(paths: tuple[Path, ...], label: str) -> Dataset:
    (path,) = paths
    content = unpacked(path, path.stat().st_mtime_ns)
    race = part(content, "race_pred", path)
    names = [bytes(n).decode() for n in part(content, "attr40_names", path)]
    if "Eyeglasses" not in names:
        raise damaged(path, "has no attribute Eyeglasses")
    eyewear = part(content, "attr40_pred", path)[:, names.index("Eyeglasses")]
    columns = {
        "gender": part(content, "gender", path),
        "smile": part(content, "smile", path),
        "race": race,
        "black": only_known(race, race == RACES.index("black")),
        "glasses": only_known(eyewear, eyewear > 127),
        "identity": part(content, "identity", path),
    }
    note = "race, black and glasses are what a classifier thought"
    return labelled("lfw", content["x"], columns, part(content, "is_test", path), label, RACES, note)


def only_known(source: Column, values: Column) -> NDArray[np.uint8]:
    return np.where(source == UNKNOWN, UNKNOWN, values).astype(np.uint8)


def read_lfw_published(paths: tuple[Path, ...], label: str) -> Dataset:
    images, table = paths
    with reading(table):
        lines = table.read_text("utf-8").splitlines()
        header = next(line for line in lines if "imagenum" in line).lstrip("#").strip().split("\t")
        rows = [line.split("\t") for line in lines if line.strip() and not line.startswith("#")]
        scores = np.array([row[2 : len(header)] for row in rows], np.float32)
    column = {name: scores[:, i] for i, name in enumerate(header[2:])}
    needed = {"Male", "White", "Black", "Asian", "Indian", "Smiling", "Eyeglasses", "Sunglasses"}
    if needed - set(column):
        raise damaged(table, f"has no column '{min(needed - set(column))}'")
    stems = [f"{row[0].replace(' ', '_')}_{int(row[1]):04d}.jpg" for row in rows]
    wanted = set(stems)
    inside = members(images, lambda name: PurePosixPath(name).name in wanted)
    photos = {PurePosixPath(name).name: body for name, body in inside.items()}
    keep = [i for i, stem in enumerate(stems) if stem in photos]
    if not keep:
        raise damaged(images, f"holds no photograph that {table.name} names")
    x = np.stack([picture(photos[stems[i]], images, (47, 62), CROP) for i in keep])
    people = np.unique([rows[i][0] for i in keep], return_inverse=True)[1]
    columns: dict[str, Column] = {
        "gender": column["Male"] > 0,
        "smile": column["Smiling"] > 0,
        "race": np.argmax([column[r] for r in ("White", "Black", "Asian", "Indian")], axis=0),
        "black": column["Black"] > 0,
        "glasses": column["Eyeglasses"] > 0,
        "sunglasses": column["Sunglasses"] > 0,
    }
    columns = {key: values[keep].astype(np.uint8) for key, values in columns.items()}
    columns["identity"] = people.astype(np.int32)
    test = held_out(columns[label].astype(np.int64), key=4)
    note = "all attributes are scores of classifiers (Kumar et al.)"
    return labelled("lfw", x, columns, test, label, RACES[:4], note)


def picture(body: bytes, path: Path, size: tuple[int, int], crop: tuple[slice, slice] | None = None) -> Column:
    """An image file as [h, w, 3] of this (width, height)."""
    from PIL import Image

    with reading(path), Image.open(io.BytesIO(body)) as image:
        pixels = np.asarray(image.convert("RGB"))
        cut = Image.fromarray(pixels[crop] if crop else pixels)
        return np.asarray(cut.resize(size, Image.Resampling.BOX))


def read_utk(paths: tuple[Path, ...], label: str) -> Dataset:
    (path,) = paths
    content = unpacked(path, path.stat().st_mtime_ns)
    columns = {key: part(content, key, path) for key in ("gender", "race", "age")}
    columns["black"] = (columns["race"] == UTK_RACES.index("black")).astype(np.uint8)
    note = f"a subset: {len(content['x']):,} of 23,705 faces, with a split of its own"
    return labelled("utkface", content["x"], columns, part(content, "is_test", path), label, UTK_RACES, note)


def read_utk_published(paths: tuple[Path, ...], label: str) -> Dataset:
    """Aligned faces named age_gender_race_date.jpg.chip.jpg; a few names lack a field and are left out."""
    (path,) = paths
    photos = members(path, lambda n: n.endswith(".jpg"))
    fields = {name: PurePosixPath(name).name.split("_") for name in sorted(photos)}
    sound = [n for n, f in fields.items() if len(f) == 4 and all(v.isdigit() for v in f[:3])]
    numbers = np.array([[int(v) for v in fields[n][:3]] for n in sound], np.int64).reshape(-1, 3)
    if not sound or numbers[:, 1].max() > 1 or numbers[:, 2].max() >= len(UTK_RACES):
        raise damaged(path, "holds no faces named age_gender_race_date.jpg")
    x = np.stack([picture(photos[n], path, (32, 32)) for n in sound])
    columns: dict[str, Column] = {
        "gender": 1 - numbers[:, 1],  # 1 is male, as in LFW; in the file names it is 0
        "race": numbers[:, 2],
        "age": numbers[:, 0],
        "black": numbers[:, 2] == UTK_RACES.index("black"),
    }
    columns = {key: values.astype(np.uint8) for key, values in columns.items()}
    test = held_out(columns[label].astype(np.int64), key=5)
    return labelled("utkface", x, columns, test, label, UTK_RACES)


def lfw_forms(sha256: str) -> tuple[Form, ...]:
    photos = WantedFile(
        "lfw-funneled.tgz",
        ("https://ndownloader.figshare.com/files/5976015",),
        sha256="b47c8422c8cded889dc5a13418c4bc2abbda121092b3533a83306f90d900100a",
    )
    scores = "https://www.cs.columbia.edu/CAVE/databases/pubfig/download/lfw_attributes.txt"
    table = WantedFile("lfw_attributes.txt", (scores,))
    return (
        Form((photos, table), read_lfw_published, ("lfw", "")),
        Form((WantedFile("lfw_funneled"), table), read_lfw_published, ("lfw", "")),
        Form((WantedFile("lfw62x47.npz", sha256=sha256),), read_lfw, ("", "lfw")),
    )


def utk_forms(sha256: str) -> tuple[Form, ...]:
    return (
        *(Form((WantedFile(f),), read_utk_published, ("utkface", "")) for f in ("UTKFace.tar.gz", "UTKFace")),
        Form((WantedFile("utkface32.npz", sha256=sha256),), read_utk, ("", "utkface")),
    )
