"""A silo's folder: every form gives the same samples, and what does not fit is refused with the file and the fix."""

from __future__ import annotations

import io
import struct
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from PIL import Image

from covey import Experiment
from covey.cli.main import commands
from covey.data.own import encoding, tables
from covey.data.own.silo import read_folder, read_part
from covey.deploy.export import export
from covey.engines.settle import cut
from covey.errors import CoveyError
from covey.experiment.deployment import Silos

GREY = Silos(shape=(2, 3), classes=("cat", "dog", "owl"))
COLOUR = Silos(shape=(2, 3, 3), classes=("cat", "dog", "owl"))
REAL = Silos(shape=(2,), kind="real", classes=("no", "yes"))
BINARY = Silos(shape=(2,), kind="binary", classes=("no", "yes"))
TOKENS = Silos(shape=(3,), kind="tokens", classes=("bad", "good"), vocabulary=5)

X = np.arange(24, dtype=np.uint8).reshape(4, 2, 3) * 10
Y = np.array([0, 1, 2, 1])


def npz(path: Path, x: Any = X, y: Any = Y) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez(path, x=x, y=y)
    return path.parent


def table(path: Path, x: Any = X, y: Any = Y, classes: tuple[str, ...] = GREY.classes) -> Path:
    """The label in the middle, by name."""
    path.parent.mkdir(parents=True, exist_ok=True)
    flat = np.asarray(x).reshape(len(x), -1)
    lines = [",".join(["a", "label", *(f"v{i}" for i in range(flat.shape[1] - 1))])]
    lines += [",".join([str(row[0]), classes[label], *map(str, row[1:])]) for row, label in zip(flat, y)]
    path.write_text("\n".join(lines) + "\n")
    return path.parent


def pictures(folder: Path, x: Any = X, y: Any = Y, classes: tuple[str, ...] = GREY.classes) -> Path:
    for i, (image, label) in enumerate(zip(x, y)):
        (folder / classes[label]).mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(folder / classes[label] / f"{i}.png")
    return folder


# ---------------------------------------------------------------- what is read


def test_every_form_gives_the_same_samples(tmp_path: Path) -> None:
    npz(tmp_path / "npz" / "train.npz"), npz(tmp_path / "npz" / "test.npz", X[:2], Y[:2])
    table(tmp_path / "csv" / "train.csv"), table(tmp_path / "csv" / "test.csv", X[:2], Y[:2])
    pictures(tmp_path / "png" / "train"), pictures(tmp_path / "png" / "test", X[:2], Y[:2])
    order = np.argsort(Y, kind="stable")  # images come class by class
    for form, rows in (("npz", slice(None)), ("csv", slice(None)), ("png", order)):
        x, y, x_test, y_test = read_folder(tmp_path / form, GREY)
        assert x.dtype == np.uint8 and y.dtype == np.int64
        np.testing.assert_array_equal(x, X[rows])
        np.testing.assert_array_equal(y, Y[rows])
        np.testing.assert_array_equal(x_test, X[:2])
        np.testing.assert_array_equal(y_test, Y[:2])


def test_labels_are_names_or_numbers(tmp_path: Path) -> None:
    npz(tmp_path / "a" / "data.npz", y=np.array(["cat", "dog", "owl", "dog"]))
    (tmp_path / "b").mkdir()
    rows = "\n".join(f"{y},{','.join(map(str, x.ravel()))}" for x, y in zip(X, Y))
    (tmp_path / "b" / "data.csv").write_text("\ufefflabel,a,b,c,d,e,f\n" + rows, encoding="utf-8")
    for name in "ab":
        x, y = read_part(tmp_path / name, GREY)
        assert y.tolist() == Y.tolist() and (x == X).all()


def test_each_kind_is_kept_in_its_own_type(tmp_path: Path) -> None:
    for kind, x, type_ in (
        (REAL, np.array([[0.5, -2e9], [1, 2]]), np.float32),
        (BINARY, np.array([[0, 1.0], [1, 1]]), np.uint8),
        (BINARY, np.array([[False, True], [True, True]]), np.uint8),
        (TOKENS, np.array([[0, 4, 1], [2, 2, 2]]), np.int32),
    ):
        got, _ = read_part(npz(tmp_path / f"{kind.kind}{x.dtype}" / "data.npz", x, [0, 1]), kind)
        assert got.dtype == type_
        np.testing.assert_array_equal(got, x.astype(type_))


def test_colour_images_and_class_folders_without_a_part(tmp_path: Path) -> None:
    x = np.random.default_rng(0).integers(0, 256, (3, 2, 3, 3), dtype=np.uint8)
    got, y = read_part(pictures(tmp_path, x, [2, 0, 0]), COLOUR)
    assert y.tolist() == [0, 0, 2]
    np.testing.assert_array_equal(got, x[[1, 2, 0]])
    grey, _ = read_part(pictures(tmp_path / "grey", np.repeat(X[..., None], 3, 3), Y), GREY)  # grey, saved as RGB
    np.testing.assert_array_equal(grey, X[np.argsort(Y, kind="stable")])


def test_a_tenth_is_held_out_where_there_is_no_test_part(tmp_path: Path) -> None:
    y = np.repeat([0, 1], [60, 40])
    x = np.arange(100)[:, None] * np.ones((1, 2))
    for name in ("data", "train"):
        x_train, y_train, x_test, y_test = read_folder(npz(tmp_path / name / f"{name}.npz", x, y), REAL)
        assert np.bincount(y_test).tolist() == [6, 4] and np.bincount(y_train).tolist() == [54, 36]
        assert sorted([*x_train[:, 0], *x_test[:, 0]]) == list(range(100))
        again = read_folder(tmp_path / name, REAL)
        np.testing.assert_array_equal(again[2], x_test)
    few = read_folder(npz(tmp_path / "few" / "data.npz", x[:3], y[:3]), REAL)
    assert (len(few[1]), len(few[3])) == (2, 1)
    one = read_folder(npz(tmp_path / "one" / "data.npz", x[:1], y[:1]), REAL)
    assert (len(one[1]), len(one[3])) == (1, 0)


@given(arrays.arrays(np.float32, (3, 2), elements=st.floats(width=32, allow_nan=False, allow_infinity=False)))
@settings(max_examples=25, deadline=None)
def test_numbers_survive_a_csv(tmp_path_factory: pytest.TempPathFactory, x: np.ndarray[Any, Any]) -> None:
    path = tmp_path_factory.mktemp("csv")
    text = "\n".join(f"{a!r},yes,{b!r}" for a, b in x.tolist())
    (path / "data.csv").write_text("a,label,b\n" + text)
    np.testing.assert_array_equal(read_part(path, REAL)[0], x)


# ---------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("x", "y", "agreed", "says"),
    [
        (X[:, :1], Y, GREY, r"x of shape \[4, 1, 3\], agreed are samples of \[2, 3\]"),
        (X, Y[:3], GREY, "4 samples and y of shape"),
        (X, [0, 1, 2, 3], GREY, "the label 3, agreed are the classes 0 to 2"),
        (X, [0, 1, -1, 0], GREY, "the label -1"),
        (X, ["cat", "dog", "owl", "own"], GREY, "unknown class 'own'.*did you mean 'owl'"),
        (X, Y * 1.0, GREY, "y of float64"),
        (X[:0], Y[:0], GREY, "is empty"),
        (X / 255, Y, GREY, r"first in sample 0.*multiplied by 255"),
        (X.astype(int) + 100, Y, GREY, "from 0 to 255"),
        (X.reshape(4, 6) / 7, Y, Silos(shape=(6,), classes=GREY.classes), "silos.kind = 'real'"),
        (X[:, 0, 0] + 1j, Y, GREY, "x of shape"),
        ([[0.0, np.nan]], [0], REAL, r"not finite numbers \(first in sample 0\)"),
        ([[0.0, 1], [np.inf, 1]], [0, 1], REAL, r"first in sample 1"),
        ([[0, 2]], [0], BINARY, "from 0 to 1"),
        ([[0, 4, 5]], [0], TOKENS, "from 0 to 4"),
        ([["a", "b"]], [0], REAL, "expected numbers"),
    ],
)
def test_arrays_that_do_not_fit(x: Any, y: Any, agreed: Silos, says: str, tmp_path: Path) -> None:
    npz(tmp_path / "data.npz", np.asarray(x), np.asarray(y))
    with pytest.raises(CoveyError, match=says) as caught:
        read_folder(tmp_path, agreed)
    assert "data.npz" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "is empty: its first line must name the columns"),
        ("a,b\n1,2\n", "0 columns called 'label'"),
        ("label,label,a\n", "2 columns called 'label'"),
        ("label,a\nno,1\n", r"1 columns beside 'label', a sample of shape \[2\] has 2"),
        ("label,a,b\n", "is empty"),
        ("label,a,b\nno,1\n", "line 2: 2 fields, the first line has 3"),
        ("label,a,b\nno,1,2\nno,1,x\n", "line 3: 'x' is no number"),
        ("label,a,b\nno,1,2\n\nmaybe,1,2\n", "line 4: has the unknown class 'maybe'"),
        ("label,a,b\n-1,1,2\n", "unknown class '-1'"),
        ("label,a,b\n²,1,2\n", "unknown class"),
        ("label,a,b\nno,nan,2\n", "line 2: column 'a' has no value"),
        ("label,a,b\nno,inf,2\n", "line 2: column 'a' is inf, no finite number"),
    ],
)
def test_tables_that_do_not_fit(text: str, says: str, tmp_path: Path) -> None:
    (tmp_path / "data.csv").write_text(text, encoding="utf-8")
    with pytest.raises(CoveyError, match=says) as caught:
        read_folder(tmp_path, REAL)
    assert "data.csv" in str(caught.value)


def test_images_that_do_not_fit(tmp_path: Path) -> None:
    file = pictures(tmp_path / "data") / "dog" / "1.png"
    for image, says in (
        (Image.new("L", (2, 3)), "is 2×3 pixels .* agreed are 3×2: resize it"),
        (Image.new("RGB", (3, 2), (1, 2, 3)), "is in colour"),
        (Image.new("RGBA", (3, 2)), "has the mode RGBA"),
        (Image.new("I;16", (3, 2)), "has the mode I;16"),
    ):
        image.save(file)
        with pytest.raises(CoveyError, match=says) as caught:
            read_folder(tmp_path, GREY)
        assert str(file) in str(caught.value)
    file.write_bytes(b"GIF89a")
    with pytest.raises(CoveyError, match="cannot be read"):
        read_folder(tmp_path, GREY)
    file.rename(file.with_suffix(".txt"))
    with pytest.raises(CoveyError, match=r"is no \.png or \.jpg"):
        read_folder(tmp_path, GREY)
    file.with_suffix(".txt").unlink()
    (tmp_path / "data" / "doge").mkdir()
    with pytest.raises(CoveyError, match=r"doge is named after no agreed class.*did you mean 'dog'"):
        read_folder(tmp_path, GREY)
    with pytest.raises(CoveyError, match="agreed are real samples"):
        read_folder(tmp_path, REAL)


def test_folders_that_do_not_fit(tmp_path: Path) -> None:
    with pytest.raises(CoveyError, match="holds no samples"):
        read_folder(tmp_path, GREY)
    with pytest.raises(CoveyError, match="is no folder"):
        read_folder(tmp_path / "absent", GREY)
    npz(tmp_path / "test.npz")
    with pytest.raises(CoveyError, match="nothing to train on"):
        read_folder(tmp_path, GREY)
    npz(tmp_path / "train.npz"), table(tmp_path / "train.csv")
    with pytest.raises(CoveyError, match=r"train\.npz and train\.csv: keep one"):
        read_folder(tmp_path, GREY)
    (tmp_path / "empty" / "data").mkdir(parents=True)
    with pytest.raises(CoveyError, match="is empty: put images"):
        read_folder(tmp_path / "empty", GREY)


# ---------------------------------------------------------------- files that mean harm


def forged(path: Path, header: str, body: bytes = b"") -> Path:
    """An .npz whose x claims what the header says."""
    padded = header.encode() + b" " * (-(len(header) + 11) % 64) + b"\n"
    member = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(padded)) + padded + body
    labels = io.BytesIO()
    np.save(labels, Y)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x.npy", member)
        archive.writestr("y.npy", labels.getvalue())
    return path.parent


def test_an_array_that_claims_more_than_there_is_room_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    forged(tmp_path / "data.npz", "{'descr': '|u1', 'fortran_order': False, 'shape': (10000000000000, 2, 3), }")
    monkeypatch.setattr(np, "load", lambda *_, **__: pytest.fail("memory was taken"))
    with pytest.raises(CoveyError, match=r"claims .* GiB"):
        read_folder(tmp_path, GREY)


def test_an_array_that_is_shorter_than_it_claims(tmp_path: Path) -> None:
    forged(tmp_path / "data.npz", "{'descr': '|u1', 'fortran_order': False, 'shape': (4, 2, 3), }", b"12345")
    with pytest.raises(CoveyError, match="cannot be read"):
        read_folder(tmp_path, GREY)


def test_nothing_is_unpickled(tmp_path: Path) -> None:
    class Trap:
        def __reduce__(self) -> Any:
            return pytest.fail, ("it was unpickled",)

    np.savez(tmp_path / "data.npz", x=np.array([Trap()] * 4, object), y=Y)
    with pytest.raises(CoveyError, match="never unpickled"):
        read_folder(tmp_path, GREY)


def test_a_table_of_more_rows_than_there_is_room_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = table(tmp_path / "data.csv") / "data.csv"
    monkeypatch.setattr(encoding, "room", lambda: 4 * 6 * 3)
    with pytest.raises(CoveyError, match="more than the 3 samples"):
        read_folder(tmp_path, GREY)
    monkeypatch.setattr(tables, "room", lambda: file.stat().st_size - 1)
    with pytest.raises(CoveyError, match="is the most that is read here"):
        read_folder(tmp_path, GREY)


@pytest.mark.parametrize(("side", "says"), [(60_000, "far larger than 3×2"), (11_000, "is 11000×11000 pixels")])
def test_an_image_of_a_claimed_giant_is_not_decoded(
    side: int, says: str, tmp_path: Path, recwarn: pytest.WarningsRecorder
) -> None:
    file = pictures(tmp_path / "data") / "dog" / "1.png"
    data = bytearray(file.read_bytes())
    data[16:24] = struct.pack(">II", side, side)
    data[29:33] = struct.pack(">I", zlib.crc32(data[12:29]))  # of the header, which is right again then
    file.write_bytes(data)
    with pytest.raises(CoveyError, match=says):
        read_folder(tmp_path, GREY)
    assert not recwarn.list


@pytest.mark.parametrize("cut_at", [0, 30, 200])
def test_broken_files(cut_at: int, tmp_path: Path) -> None:
    npz(tmp_path / "data.npz")
    (tmp_path / "data.npz").write_bytes((tmp_path / "data.npz").read_bytes()[:cut_at])
    with pytest.raises(CoveyError, match=r"data\.npz cannot be read"):
        read_folder(tmp_path, GREY)


# ---------------------------------------------------------------- export


def test_exported_folders_hold_the_simulations_samples(tmp_path: Path) -> None:
    experiment = Experiment.of(dataset="digits", clients=5, clusters=2, partition={"name": "label_sets"})
    federation, names = cut(experiment), ["north", "south", "west"]
    data = federation.dataset
    agreed = Silos(shape=data.x_train.shape[1:], kind=data.kind, classes=data.classes)
    assert export(experiment, tmp_path, names) == [tmp_path / n for n in names]
    for i, name in enumerate(names):
        x, y, x_test, y_test = read_folder(tmp_path / name, agreed)
        np.testing.assert_array_equal(x, data.x_train[federation.clients[i]])
        np.testing.assert_array_equal(y, data.y_train[federation.clients[i]])
        share = np.bincount(y_test, minlength=len(data.classes)) / len(y_test)
        np.testing.assert_allclose(share, federation.distributions[i], atol=1 / len(y_test))
        assert len(x_test) == len(y_test) > 50
    with pytest.raises(CoveyError, match="is there already"):
        export(experiment, tmp_path, ["east", "north"])
    assert not (tmp_path / "east").exists()
    with pytest.raises(CoveyError, match="6 silos for 5 clients"):
        export(experiment, tmp_path, [str(i) for i in range(6)])


def test_the_command_exports_all_clients(tmp_path: Path) -> None:
    asked = [
        "data",
        "export",
        "ifca-digits",
        "--out",
        str(tmp_path / "data"),
        "--set",
        "clients=4",
        "--set",
        "clusters=2",
    ]
    answer = CliRunner().invoke(commands(), asked)
    assert answer.exit_code == 0, answer.output
    assert sorted(p.name for p in (tmp_path / "data").iterdir()) == [f"silo-{i}" for i in range(4)]
