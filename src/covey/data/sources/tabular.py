"""The 0/1 tables of the membership-inference papers: Purchase100, Texas100 and Location-30.

Published as text (one row per line, a label and single-digit features) in a .tgz, and passed on as .npz with
`features` and `labels` (the labels often one-hot). None has a test part: 20 % of every label are held out,
fixed.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from covey.data.dataset import Dataset
from covey.data.sources.class_names import numbered
from covey.data.sources.files import Form, WantedFile, arrays, damaged, held_out, members, named, reading

Bits = NDArray[np.uint8]


@dataclass(frozen=True)
class Table:
    name: str
    features: int
    classes: int
    key: int  # of the fixed test part
    files: tuple[str, ...]  # one with label and features, or features and labels apart


PURCHASE = Table("purchase100", 600, 100, 1, ("dataset_purchase",))
TEXAS = Table("texas100", 6_169, 100, 2, ("feats", "labels"))
LOCATION = Table("location30", 446, 30, 3, ("bangkok",))


def parse(body: bytes, features: int, labelled: bool, path: Path) -> tuple[Bits, NDArray[np.int64]]:
    """(features, labels as written): each line ends in `features` single digits between commas.

    Sliced, not parsed: 415 million numbers of Texas100 would take minutes as text.
    """
    width = 2 * features - 1
    lines = body.replace(b'"', b"").split()
    x = np.empty((len(lines), features), np.uint8)
    y = np.zeros(len(lines), np.int64)
    for i, line in enumerate(lines):
        head, row = line[: max(len(line) - width, 0)], line[-width:]
        sound = len(row) == width and row[1::2] == b"," * (features - 1)
        if not sound or (not (head[:-1].isdigit() and head.endswith(b",")) if labelled else head):
            expected = f"{'a label and ' if labelled else ''}{features} digits between commas"
            raise damaged(path, f"has something else in line {i + 1} than {expected}")
        x[i] = np.frombuffer(row, np.uint8)[::2]
        if labelled:
            y[i] = int(head[:-1])
    x -= ord("0")  # what is below '0' wraps around and is caught with what is above '1'
    if not len(x) or x.max() > 1:
        raise damaged(path, "is not a table of 0 and 1")
    return x, y


def read_text(paths: tuple[Path, ...], label: str, table: Table) -> Dataset:
    if len(paths) == 1 and (paths[0].is_dir() or paths[0].suffix == ".tgz"):
        bodies = named(paths[0], *table.files) if table is not TEXAS else texas_members(paths[0])
    else:
        with reading(paths[0]):
            bodies = [path.read_bytes() for path in paths]
    x, y = parse(bodies[0], table.features, len(table.files) == 1, paths[0])
    if len(table.files) == 2:
        with reading(paths[-1]):
            y = np.array(bodies[1].split(), np.int64)
    return assemble(x, y - 1, None, table, paths[0])


def texas_members(path: Path) -> list[bytes]:
    """`feats` and `labels` of the 100-class folder: the archive has other class counts beside it."""
    inside = members(path, lambda name: name.endswith(("100/feats", "100/labels")))
    bodies = {name.rsplit("/", 1)[1]: body for name, body in inside.items()}
    if len(bodies) != 2:
        raise damaged(path, "has no texas/100/feats and texas/100/labels inside")
    return [bodies["feats"], bodies["labels"]]


def read_npz(paths: tuple[Path, ...], label: str, table: Table) -> Dataset:
    (path,) = paths
    content: dict[str, NDArray[Any]] = arrays(path)
    if "x_bits" in content:
        content["x"] = np.unpackbits(content["x_bits"], axis=1, count=table.features)
    for features, labels in (("features", "labels"), ("x", "y"), ("X", "Y")):
        if features in content and labels in content:
            x, y = content[features], content[labels]
            break
    else:
        raise damaged(path, f"has neither 'features' and 'labels' nor 'x' and 'y', but {', '.join(content)}")
    if y.ndim == 2 and y.shape[1] == table.classes:
        y = y.argmax(1)  # one-hot
    y = y.reshape(-1).astype(np.int64)
    if y.max(initial=0) == table.classes:
        y = y - 1  # published labels start at 1
    if x.shape != (len(y), table.features) or not np.isin(np.unique(x), (0, 1)).all():
        raise damaged(path, f"is not {len(y)} rows of {table.features} features that are 0 or 1")
    return assemble(x.astype(np.uint8), y, content.get("is_test"), table, path)


def assemble(
    x: NDArray[np.uint8], y: NDArray[np.int64], test: NDArray[Any] | None, table: Table, path: Path
) -> Dataset:
    if len(x) != len(y):
        raise damaged(path, f"has {len(x)} rows but {len(y)} labels")
    held = held_out(y, table.key) if test is None else test.astype(np.bool_)
    return Dataset(table.name, x[~held], y[~held], x[held], y[held], numbered(table.classes), kind="binary")


def forms(table: Table, archive: str, sha256: str = "") -> tuple[Form, ...]:
    github = "https://github.com/privacytrustlab/datasets/raw/master/"
    text, npz = partial(read_text, table=table), partial(read_npz, table=table)
    places = (table.name, "") if table is not TEXAS else (table.name, "texas/100", "")
    return (
        Form((WantedFile(archive, (github + archive,)),), text, (table.name, "")),
        Form(tuple(WantedFile(file) for file in table.files), text, places),
        Form((WantedFile(f"{table.name}.npz", sha256=sha256),), npz, ("", table.name)),
        Form((WantedFile("data_complete.npz"),), npz, (table.name,)),
    )
