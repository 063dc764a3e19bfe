"""LEAF's federations as its scripts write them: FEMNIST (a client is a writer) and Shakespeare (a client is a role in a play).

Caldas et al.: LEAF, a benchmark for federated settings, 2018. `preprocess.sh` leaves folders `train` and `test` with JSON
files, each with `users` and `user_data`: user -> lists x and y. covey reads these; it neither downloads nor cuts anything.
Where the same users stand in both (`-t sample`), each is tested on its own rows, and users in one of the two only are left out;
where the test users are others (`-t user`), the test rows are everybody's. FEMNIST's pixels are as LEAF has them, dark ink on
white, as bytes. Of Shakespeare a sample is 80 letters and the label the next one; letters that LEAF's alphabet lacks are
unknown as inputs and refused as labels.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from covey.data.dataset import Dataset
from covey.data.sources.class_names import DIGITS
from covey.data.sources.files import Form, Source, WantedFile, damaged, reading

LETTERS = "\n !\"&'(),-.0123456789:;>?ABCDEFGHIJKLMNOPQRSTUVWXYZ[]abcdefghijklmnopqrstuvwxyz}"
SIGNS = (*DIGITS, *"ABCDEFGHIJKLMNOPQRSTUVWXYZ", *"abcdefghijklmnopqrstuvwxyz")
FIRST = 2  # token ids: 0 is padding, 1 a letter that is not in the alphabet
LENGTH = 80
Encode = Callable[[Path, str, Any, Any], tuple[NDArray[Any], NDArray[np.int64]]]  # (folder, user, x, y) -> arrays
Users = dict[str, tuple[NDArray[Any], NDArray[np.int64]]]


def users_in(folder: Path, encode: Encode) -> Users:
    """User -> samples and labels, over all JSON files of a folder."""
    files = sorted(folder.glob("*.json")) if folder.is_dir() else [folder]
    if not files:
        raise damaged(folder, "holds no .json file of LEAF's")
    users: Users = {}
    for file in files:
        with reading(file):
            content = json.loads(file.read_text(encoding="utf-8"))
            if not isinstance(content, dict) or not isinstance(content.get("user_data"), dict):
                raise damaged(file, "is not LEAF's JSON: it has no 'user_data'")
            for user, own in content["user_data"].items():
                x, y = own["x"], own["y"]
                if len(x) != len(y):
                    raise damaged(file, f"has {len(x)} samples and {len(y)} labels of user '{user}'")
                if user in users:
                    raise damaged(file, f"has user '{user}', who stands in another file of the folder already")
                if len(y):
                    users[user] = encode(file, user, x, y)
    return users


def pictures(file: Path, user: str, x: Sequence[Any], y: Sequence[Any]) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """784 numbers from 0 to 1 each, and the number of the sign."""
    grey, labels = np.asarray(x, np.float64), np.asarray(y, np.int64)
    if grey.shape != (len(y), 784) or not (np.isfinite(grey).all() and grey.min() >= 0 and grey.max() <= 1):
        raise damaged(file, f"has samples of user '{user}' that are not 784 numbers from 0 to 1")
    return np.rint(255 * grey).astype(np.uint8).reshape(-1, 28, 28), labels


def letters(file: Path, user: str, x: Sequence[Any], y: Sequence[Any]) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Texts of 80 letters, and the next letter of each."""
    number = {letter: i for i, letter in enumerate(LETTERS)}
    wrong = [text for text in x if not isinstance(text, str) or len(text) != LENGTH]
    strange = [letter for letter in y if letter not in number]
    if wrong or strange:
        what = (
            f"a sample that is not {LENGTH} letters"
            if wrong
            else f"the label {strange[0]!r}, which is no letter of LEAF's"
        )
        raise damaged(file, f"has, of user '{user}', {what}")
    ids = [[number.get(letter, 1 - FIRST) + FIRST for letter in text] for text in x]
    return np.array(ids, np.int32), np.array([number[letter] for letter in y], np.int64)


def read(paths: tuple[Path, ...], label: str, name: str, encode: Encode, about: dict[str, Any]) -> Dataset:
    train, test = (users_in(path, encode) for path in paths)
    both = [user for user in sorted(train) if user in test]
    own = both or sorted(train)  # nobody in both: the test users are others
    if not own or not test:
        raise damaged(paths[0], "and its neighbour 'test' hold no users with samples")
    tested = own if both else sorted(test)
    left_out = len(set(train) | set(test)) - len(own) if both else 0

    def joined(users: Users, names: Sequence[str], part: int) -> NDArray[Any]:
        return np.concatenate([users[user][part] for user in names])

    def owners(users: Users) -> NDArray[np.int64]:
        return np.repeat(np.arange(len(own)), [len(users[user][1]) for user in own])

    return Dataset(
        name,
        joined(train, own, 0),
        joined(train, own, 1),
        joined(test, tested, 0),
        joined(test, tested, 1),
        **about,
        owners=owners(train),
        test_owners=owners(test) if both else None,
        holders=tuple(own),
        note=f"{left_out} users with a training or a test part only are left out" if left_out else "",
    )


def forms(name: str, encode: Encode, about: dict[str, Any]) -> tuple[Form, ...]:
    reader = partial(read, name=name, encode=encode, about=about)
    places = (f"{name}/data", name, f"leaf/{name}/data", f"leaf/data/{name}/data")
    return (Form((WantedFile("train"), WantedFile("test")), reader, places),)


GET = "https://github.com/TalwalkarLab/leaf (its preprocess.sh writes data/train and data/test)"
FEMNIST = Source(
    name="femnist",
    label="FEMNIST",
    title="LEAF's FEMNIST: signs by their writers, JSON as LEAF writes it",
    kind="image",
    classes=62,
    licence="public domain in the US (NIST); LEAF BSD-2-Clause",
    forms=forms("femnist", pictures, {"classes": SIGNS}),
    shape=(28, 28),
    by_hand=GET,
    has_clients=True,
)
SHAKESPEARE = Source(
    name="shakespeare",
    label="Shakespeare",
    title="LEAF's Shakespeare: the next letter by role, JSON as LEAF writes it",
    kind="tokens",
    classes=len(LETTERS),
    licence="public domain (Project Gutenberg); LEAF BSD-2-Clause",
    forms=forms(
        "shakespeare",
        letters,
        {"classes": tuple(LETTERS), "kind": "tokens", "vocabulary": ("<padding>", "<unknown>", *LETTERS)},
    ),
    shape=(LENGTH,),
    by_hand=GET,
    has_clients=True,
)
