"""Fingerprints: by which a run knows its data again.

A fingerprint is a SHA-256 over what decides a run: the bytes, shapes and types of the arrays, the names of the classes, the
kind, the task, whose each row is. Not over the name, notes, or where the data lie. Large arrays, memory-mapped ones too, are
hashed in pieces by several threads; the same bytes give the same fingerprint whatever the machine.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from covey.data.dataset import Dataset
from covey.data.federation import Federation

PIECE = 16 * 2**20  # bytes
WORDS = {  # the parts of a fingerprint, in words for a refusal
    "x_train": "the training samples",
    "y_train": "the training labels",
    "x_test": "the test samples",
    "y_test": "the test labels",
    "meaning": "the classes, the kind or the task",
    "owners": "whose each row is",
    "split": "which rows each client holds",
}

_KEPT = "_fingerprint_parts"  # on a dataset, beside its fields


def parts(dataset: Dataset) -> dict[str, str]:
    """A digest of each part that can differ by itself; computed once of arrays that nobody can write to."""
    known = vars(dataset).get(_KEPT)
    if known is not None:
        return dict(known)
    meaning = [dataset.kind, dataset.task, list(dataset.classes), list(dataset.vocabulary), list(dataset.holders)]
    owners = [a for a in (dataset.owners, dataset.test_owners) if a is not None]
    attributes = [dataset.attributes[name] for name in sorted(dataset.attributes)]
    digests = {name: digest(getattr(dataset, name)) for name in ("x_train", "y_train", "x_test", "y_test")}
    digests["meaning"] = _of_text([*meaning, sorted(dataset.attributes), [digest(a) for a in attributes]])
    if owners:
        digests["owners"] = _of_text([digest(a) for a in owners])
    if all(_fixed(a) for a in (dataset.x_train, dataset.y_train, dataset.x_test, dataset.y_test)):
        vars(dataset)[_KEPT] = dict(digests)
    return dict(digests)


def federation_parts(federation: Federation) -> dict[str, str]:
    """The same with the split: who holds which rows, and is tested on what."""
    lengths, rows = federation.holdings.sizes, federation.holdings.rows
    public = np.concatenate([*federation.public, np.zeros(0, np.int64)]).astype(np.int64)
    shown = np.array([len(p) for p in federation.public], np.int64)
    split: list[NDArray[Any]] = [lengths, rows, shown, public, federation.test_groups]
    split += [] if federation.clusters is None else [federation.clusters]
    for phase in federation.phases:
        held = np.concatenate([np.array([phase.first, *map(len, phase.clients)], np.int64), *phase.clients])
        split += [held.astype(np.int64), *([] if phase.clusters is None else [phase.clusters]), phase.distributions]
    tested = "" if _own_rows_only(federation) else digest(federation.distributions)
    return parts(federation.dataset) | {"split": _of_text([*(digest(a) for a in split), tested])}


def fingerprint(of: Mapping[str, str]) -> str:
    """One short text for all parts."""
    return "sha256:" + _of_text(dict(of))[:32]


def difference(before: Mapping[str, str], now: Mapping[str, str]) -> str:
    """What differs, in words; empty: nothing."""
    changed = [WORDS.get(name, name) for name in WORDS if before.get(name, "") != now.get(name, "")]
    return ", ".join(changed)


def digest(array: NDArray[Any]) -> str:
    """SHA-256 over type, shape and the digests of pieces."""
    array = np.asarray(array)
    head = f"{array.dtype.str} {array.shape}"
    flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8) if array.size else np.zeros(0, np.uint8)
    pieces = [flat[at : at + PIECE] for at in range(0, max(len(flat), 1), PIECE)]
    if len(pieces) == 1:
        digests = [_sha256(pieces[0])]
    else:
        with ThreadPoolExecutor(4) as threads:  # hashing leaves Python's lock
            digests = list(threads.map(_sha256, pieces))
    return hashlib.sha256(head.encode() + b"".join(digests)).hexdigest()


def _sha256(piece: NDArray[np.uint8]) -> bytes:
    return hashlib.sha256(piece.data).digest()


def _of_text(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def _own_rows_only(federation: Federation) -> bool:
    """Whether every client is tested on a group of its own: the identity, which for many clients is large to hash."""
    return len(federation.distributions) > 1000 and federation.tested_apart


def _fixed(array: NDArray[Any]) -> bool:
    """Whether nobody can write to an array, nor to what it is a view of."""
    base: Any = array
    while isinstance(base, np.ndarray):
        if base.flags.writeable:
            return False
        base = base.base
    return base is None  # a mapped file may change
