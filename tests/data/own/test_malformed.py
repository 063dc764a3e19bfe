"""Bad data: every one gives a sentence that says where it is and what to do, and none a traceback or a silent result."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from covey import CoveyError, Dataset, Experiment, Federation, run

N = 40
X = np.random.default_rng(1).normal(size=(N, 3)).astype(np.float32)
Y = np.arange(N) % 2
WHOSE = np.repeat(["north", "south"], N // 2)


def spoilt(array: Any, at: Any, value: Any) -> Any:
    changed = np.array(array, dtype=object if isinstance(value, str) or value is None else None)
    changed[at] = value
    return changed


ARRAYS: list[tuple[str, Callable[[], Any], str]] = [
    (
        "NaN",
        lambda: Federation.from_arrays(spoilt(X, (7, 2), np.nan), Y),
        r"row \d+, column 2 is nan, no finite number: correct",
    ),
    (
        "infinity",
        lambda: Federation.from_arrays(spoilt(X, (0, 1), np.inf), Y, clients=WHOSE),
        "column 1 is inf, no finite",
    ),
    (
        "texts in x",
        lambda: Federation.from_arrays([["a", "b"]] * 4, [0, 1, 0, 1]),
        "samples of <U1, expected numbers: encode",
    ),
    ("flat x", lambda: Federation.from_arrays(X[:, 0], Y), r"shape \[40\], expected \[rows, …\]: reshape"),
    ("short y", lambda: Federation.from_arrays(X, Y[:5]), "40 samples and 5 labels: give one label per sample"),
    ("no rows", lambda: Federation.from_arrays(X[:0], Y[:0]), "has no rows: give at least two"),
    ("one row", lambda: Federation.from_arrays(X[:1], Y[:1]), "there is 1 row"),
    ("one class", lambda: Federation.from_arrays(X, Y * 0), "has 1 class: a model needs at least 2"),
    (
        "one class trained",
        lambda: Federation.from_arrays(X, Y * 0, test=(X, Y)),
        "40 training samples .* are of class '0'",
    ),
    (
        "half a class",
        lambda: Federation.from_arrays(X, spoilt(Y * 1.0, 3, np.nan), task="classes"),
        "row 3: the label is nan",
    ),
    (
        "label None",
        lambda: Federation.from_arrays(X, spoilt(Y, 4, None)),
        "row 4: the label is None, expected the name",
    ),
    (
        "label range",
        lambda: Federation.from_arrays(X, spoilt(Y, 9, 5), classes=["no", "yes"]),
        "row 9: the label is 5, there are",
    ),
    (
        "label name",
        lambda: Federation.from_arrays(X, spoilt(Y.astype(str), 9, "x"), classes=["0", "1"]),
        "row 9: the label is 'x'",
    ),
    ("matrix of labels", lambda: Federation.from_arrays(X, np.ones((N, 2, 2))), r"shape \[40, 2, 2\]"),
    (
        "labels not 0/1",
        lambda: Federation.from_arrays(X, X[:, :2], task="labels"),
        r"row \d+, column 0 is .*: a label applies",
    ),
    (
        "NaN number",
        lambda: Federation.from_arrays(X, spoilt(X[:, 0], 3, np.nan), task="numbers"),
        "y_train.*nan, no finite number",
    ),
    ("short clients", lambda: Federation.from_arrays(X, Y, clients=WHOSE[:9]), r"40 rows and clients of shape \[9\]"),
    (
        "client None",
        lambda: Federation.from_arrays(X, Y, clients=spoilt(WHOSE, 3, None)),
        "row 3: the client is None, expected",
    ),
    (
        "lone row",
        lambda: Federation.from_arrays(X, Y, clients=["east", *WHOSE[1:]]),
        "client 'east' has 1 row, too few to train and",
    ),
    (
        "untested",
        lambda: Federation.from_arrays(X, Y, clients=WHOSE, test=np.arange(N) < 5),
        "'south' has 20 training and 0 test",
    ),
    (
        "all test",
        lambda: Federation.from_arrays(X, Y, test=np.ones(N, bool)),
        "all of the 40 rows are for testing: mark some",
    ),
    ("odd mask", lambda: Federation.from_arrays(X, Y, test=np.arange(3)), "int64 and shape .*: give a share, a mask"),
    ("share", lambda: Federation.from_arrays(X, Y, test=1.5), "data.test is 1.5: a share between 0 and 1"),
    (
        "other shape",
        lambda: Federation.from_arrays(X, Y, test=(X[:, :2], Y)),
        r"samples of shape \[2\], .* of \[3\]: make them alike",
    ),
    ("kind", lambda: Federation.from_arrays(X, Y, kind="imag"), "kind is 'imag'.*did you mean 'image'"),
    (
        "binary of numbers",
        lambda: Federation.from_arrays(X, Y, kind="binary"),
        "fractions, kind 'binary' is of whole numbers",
    ),
    (
        "float pixels",
        lambda: Federation.from_arrays(X.astype(float), Y, kind="image"),
        "float64, kind 'image' is kept as uint8",
    ),
    (
        "negative token",
        lambda: Federation.from_arrays(-np.ones((N, 3), int), Y, kind="tokens"),
        "is -1, which kind 'tokens' cannot",
    ),
    ("two names alike", lambda: Federation.from_arrays(X, Y, classes=["a", "a"]), "two classes called 'a'"),
    ("ragged", lambda: Federation.from_arrays([[1, 2], [3]], [0, 1]), "is no array .*: give rows of one length"),
]


@pytest.mark.parametrize(("make", "says"), [(m, s) for _, m, s in ARRAYS], ids=[n for n, _, _ in ARRAYS])
def test_arrays(make: Callable[[], Any], says: str) -> None:
    with pytest.raises(CoveyError, match=says) as caught:
        make()
    assert "\n" not in str(caught.value)


# ---------------------------------------------------------------- federations by hand


def by_hand(**changed: Any) -> Federation:
    whole = Federation.from_arrays(X, Y, clients=WHOSE)
    return replace(whole, **changed)


DATA = Federation.from_arrays(X, Y, clients=WHOSE).dataset
ROWS = np.arange(len(DATA.y_train))
BY_HAND: list[tuple[str, Callable[[], Any], str]] = [
    ("no federation", lambda: {"clients": 3}, "federation is a dict: make one with covey.Federation.from_arrays"),
    (
        "an empty client",
        lambda: by_hand(clients=(ROWS, ROWS[:0])),
        r"client 1 \('south'\) has no training rows: give it some",
    ),
    (
        "a row twice",
        lambda: by_hand(clients=(ROWS[:9], ROWS[8:])),
        r"row 8 is held by client 0 \('north'\) and client 1",
    ),
    (
        "a row that is not there",
        lambda: by_hand(clients=(ROWS[:9], ROWS[9:] + 9)),
        r"holds row \d+, there are the rows 0 to 35",
    ),
    ("rows as floats", lambda: by_hand(clients=(ROWS[:9] * 1.0, ROWS[9:])), "are no array of whole numbers"),
    ("clusters", lambda: by_hand(clusters=np.zeros(3, int)), r"clusters has shape \[3\], there are 2 clients"),
    ("distributions", lambda: by_hand(distributions=np.ones((3, 2))), r"expected \[2, groups\]: one row per client"),
    ("shares", lambda: by_hand(distributions=np.ones((2, 2))), r"client 0 \('north'\) sums to 2: shares of 0 or more"),
    ("test groups", lambda: by_hand(test_groups=np.zeros(1, int)), "test_groups has shape"),
    (
        "nothing to test on",
        lambda: by_hand(test_groups=np.zeros(len(DATA.y_test), int)),
        r"client 1 \('south'\) has no test rows",
    ),
    ("names", lambda: by_hand(names=("a", "a")), "1 different names for 2 clients"),
    (
        "string labels",
        lambda: by_hand(dataset=replace(DATA, y_train=DATA.y_train.astype(str))),
        "y_train .* holds texts, expected whole",
    ),
    (
        "label range",
        lambda: by_hand(dataset=replace(DATA, y_test=DATA.y_test + 1)),
        r"y_test .*, row \d is 2, there are the classes 0 to 1",
    ),
    (
        "NaN",
        lambda: by_hand(dataset=replace(DATA, x_train=DATA.x_train * np.nan)),
        "x_train .* row 0, column 0 is nan, no finite",
    ),
    ("lists", lambda: by_hand(dataset=replace(DATA, x_test=DATA.x_test.tolist())), "are a list: give numpy arrays"),
    ("kind", lambda: by_hand(dataset=replace(DATA, kind="sound")), "has kind 'sound': choose one of image"),
    ("task", lambda: by_hand(dataset=replace(DATA, task="ranks")), "has task 'ranks'"),
    ("no dataset", lambda: by_hand(dataset=None), "dataset is a NoneType"),
]


@pytest.mark.parametrize(("make", "says"), [(m, s) for _, m, s in BY_HAND], ids=[n for n, _, _ in BY_HAND])
def test_federations_by_hand_are_refused_before_anything_trains(make: Callable[[], Any], says: str) -> None:
    experiment = Experiment.of(algorithm="fedavg", clusters=1, model="softmax", training={"rounds": 1})
    with pytest.raises(CoveyError, match=says) as caught:
        run(experiment, federation=make(), quiet=True)
    assert "training.lr" not in str(caught.value) and "\n" not in str(caught.value)


# ---------------------------------------------------------------- files


LINES = [f"{i % 2},{i * 0.5},{'uvw'[i % 3]},{'ab'[i % 2]}" for i in range(20)]
TABLES: list[tuple[str, str, dict[str, Any], str]] = [
    ("empty", "", {}, "is empty: its first line must name the columns"),
    ("header alone", "label,a\n", {}, "has no rows"),
    ("no label", "a,b\n1,2\n", {}, "no column called label, target, class or y: say data.label = one of a, b"),
    ("two labels", "label,y,a\n1,2,3\n", {}, "has the columns label and y: say which is meant with data.label"),
    ("unknown label", "label,a\n0,1\n", {"label": "lable"}, r"no column 'lable' \(data.label\), did you mean 'label'"),
    ("a name twice", "label,a,a\n0,1,2\n", {}, "2 columns called 'a'"),
    ("a short line", "label,a,b\n0,1,2\n1,2\n", {}, "line 3: 2 fields, the first line has 3: correct that line"),
    ("a long line", "label,a\n0,1\n1,2,3\n", {}, "line 3: 3 fields"),
    (
        "text in numbers",
        "label,a\n" + "0,1\n1,2\n" * 9 + "1,much\n",
        {},
        "line 20: column 'a' has 'much' among numbers",
    ),
    ("a label missing", "label,a\n0,1\n,2\n1,3\n", {}, "line 3: the label column 'label' has no value"),
    ("a client missing", "label,a,client\n0,1,x\n1,2,\n", {}, "line 3: the client column 'client' has no value"),
    (
        "names everywhere",
        "label,a\n" + "".join(f"{i % 2},n{i}\n" for i in range(200)),
        {},
        "holds 200 different texts in 200 rows",
    ),
    ("a value missing", "label,a\n0,1\n1,\n0,3\n", {"missing": "refuse"}, "line 3: column 'a' has no value: fill it"),
    ("a column missing", "label,a,b\n0,1,\n1,2,\n", {}, "column 'b' has no value at all: leave it out"),
    ("infinite", "label,a\n0,1\n1,inf\n", {}, "line 3: column 'a' is infinite"),
    (
        "too large",
        "label,a\n0,1\n1,1e300\n0,2\n",
        {"standardise": "none"},
        "line 3: column 'a' is .*, no finite number of 32 bits",
    ),
    ("nothing but a label", "label\n0\n1\n", {}, "has no column beside the label: add features"),
    (
        "many whole numbers",
        "y,a\n" + "".join(f"{i},1\n" for i in range(200)),
        {},
        "200 different whole numbers: say data.task",
    ),
    ("odd test words", "label,a,split\n0,1,train\n1,2,perhaps\n", {}, "line 3: the test column 'split' has 'perhaps'"),
    ("one class", "label,a\n0,1\n0,2\n", {}, "has 1 class: a model needs at least 2"),
    ("one role twice", "label,a\n0,1\n1,2\n", {"label": "a", "drop": ["a"]}, "column 'a' is named twice"),
    ("not UTF-8", "label,a\n0,\xe9\n1,b\n", {}, "is not written in UTF-8"),
]


@pytest.mark.parametrize(("text", "rules", "says"), [t[1:] for t in TABLES], ids=[t[0] for t in TABLES])
def test_tables(text: str, rules: dict[str, Any], says: str, tmp_path: Path) -> None:
    path = tmp_path / "own.csv"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(CoveyError, match=says) as caught:
        Federation.from_path(str(path), **rules)
    assert "\n" not in str(caught.value) and "own" in str(caught.value)


def test_folders(tmp_path: Path) -> None:
    def refused(place: Path, says: str) -> None:
        with pytest.raises(CoveyError, match=says):
            Federation.from_path(str(place))

    refused(tmp_path / "absent", "there is no file or folder .*absent")
    refused(tmp_path, "holds no samples in a known form: expected a .csv")
    (tmp_path / "notes.txt").write_text("hello")
    refused(tmp_path / "notes.txt", "is no table or arrays that covey reads")
    (tmp_path / "notes.txt").unlink()
    for client, header in (("a", "label,x"), ("b", "label,z")):
        (tmp_path / client).mkdir()
        (tmp_path / client / "data.csv").write_text(header + "\n0,1\n1,2\n")
    refused(tmp_path, "has no column 'x'.*give all tables the same columns|has no column 'z'")
    (tmp_path / "b" / "data.csv").unlink()
    refused(tmp_path, "b is the folder of a client but holds no samples")
    np.savez(tmp_path / "b" / "data.npz", x=X, y=Y)
    refused(tmp_path, "is a table and .* is not: give all parts in one form")
    np.savez(tmp_path / "only.npz", x=X)
    refused(tmp_path / "only.npz", "has no array y, it holds x: write it with numpy.savez")
    (tmp_path / "broken.npz").write_bytes(b"PK\x03\x04 nothing")
    refused(tmp_path / "broken.npz", "cannot be read")
    (tmp_path / "broken.parquet").write_bytes(b"PAR1 nothing")
    refused(tmp_path / "broken.parquet", "cannot be read .*: write it again")


def test_images(tmp_path: Path) -> None:
    for i in range(8):
        folder = tmp_path / ("cat" if i % 2 else "dog")
        folder.mkdir(exist_ok=True)
        Image.fromarray(np.full((4, 5), 10 * i, np.uint8)).save(folder / f"{i}.png")
    assert Federation.from_path(str(tmp_path)).dataset.classes == ("cat", "dog")
    odd = tmp_path / "cat" / "9.png"
    for image, says in ((Image.new("L", (9, 9)), "9×9 pixels"), (Image.new("RGBA", (5, 4)), "mode RGBA")):
        image.save(odd)
        with pytest.raises(CoveyError, match=says) as caught:
            Federation.from_path(str(tmp_path))
        assert str(odd) in str(caught.value)
    odd.write_bytes(b"no image")
    with pytest.raises(CoveyError, match=r"9\.png cannot be read"):
        Federation.from_path(str(tmp_path))


def test_a_dataset_without_clients_needs_a_partition_that_can_cut_it() -> None:
    federation = Federation.from_arrays(X, X[:, :1] * 3, task="numbers")
    assert isinstance(federation.dataset, Dataset) and federation.clients == ()
    with pytest.raises(CoveyError, match="'label_sets' cuts by class, the task of own data is 'numbers': choose"):
        run(Experiment.of(), federation=federation, quiet=True)
    with pytest.raises(CoveyError, match=r"names no clients: say data\.client"):
        run(Experiment.of(partition="natural"), federation=federation, quiet=True)
