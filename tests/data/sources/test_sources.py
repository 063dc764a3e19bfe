"""Readers of published and packed files, on files made here byte by byte; the real ones where they are at hand."""

import functools
import gzip
import io
import json
import os
import pickle
import struct
import tarfile
import zipfile

import numpy as np
import pytest

from covey.data.partitions.property_split import PropertySplit
from covey.data.sources import SOURCES, cifar, faces, generated, idx, packed, store, tabular, text
from covey.data.sources.catalogue import digits
from covey.data.sources.files import data_folder, held_out
from covey.data.sources.load import load
from covey.errors import CoveyError

rng = np.random.default_rng(0)
real = pytest.mark.skipif(not os.environ.get("COVEY_DATA"), reason="COVEY_DATA does not name a folder with datasets")


def idx_bytes(array):
    return bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


def tar_of(path, files):
    with tarfile.open(path, "w:gz", compresslevel=1) as tar:
        for name, body in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(body)
            tar.addfile(entry, io.BytesIO(body))
    return path


# ---------------------------------------------------------------------- idx


@pytest.mark.parametrize("compress", [bytes, gzip.compress])
def test_idx_arrays_come_back(tmp_path, compress):
    array = rng.integers(0, 256, (5, 3, 4), np.uint8)
    assert np.array_equal(idx.decode(compress(idx_bytes(array)), tmp_path), array)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda b: b[:-1], "59 values where its header says"),
        (lambda b: b + b"x", "61 values"),
        (lambda b: b"\0\0\x0d" + b[3:], "not an idx file"),
        (lambda b: b"", "not an idx file"),
        (lambda b: gzip.compress(b)[:-12], "cannot be decoded"),
    ],
)
def test_broken_idx_is_refused_by_name(tmp_path, spoil, message):
    body = spoil(idx_bytes(np.zeros((5, 3, 4), np.uint8)))
    with pytest.raises(CoveyError, match=message) as refusal:
        idx.decode(body, tmp_path / "train-images")
    assert "train-images" in str(refusal.value)


def write_mnist(folder, rows=60_000, gz=False):
    folder.mkdir(parents=True)
    y = np.arange(rows) % 10
    for part, array in {
        "train-images-idx3-ubyte": np.zeros((rows, 28, 28)),
        "train-labels-idx1-ubyte": y,
        "t10k-images-idx3-ubyte": np.full((10_000, 28, 28), 7),
        "t10k-labels-idx1-ubyte": y[:10_000],
    }.items():
        body = idx_bytes(array.astype(np.uint8))
        (folder / (part + ".gz" * gz)).write_bytes(gzip.compress(body, 1) if gz else body)


@pytest.mark.parametrize(("place", "gz"), [("mnist", True), ("MNIST/raw", False)])
def test_mnist_from_idx_files(tmp_path, place, gz):
    write_mnist(tmp_path / place, gz=gz)
    data = load("mnist", tmp_path)
    assert data.x_train.shape == (60_000, 28, 28) and data.x_train.dtype == np.uint8
    assert data.y_train.dtype == np.int64 and data.y_test[13] == 3 and data.x_test.min() == 7
    assert load("mnist", tmp_path) is data  # decoded once
    with pytest.raises(ValueError, match="read-only"):
        data.x_train[0] = 1


def test_wrong_number_of_images_is_refused(tmp_path):
    write_mnist(tmp_path / "mnist", rows=59_999)
    with pytest.raises(CoveyError, match=r"59999 training and 10000 test samples instead of \(60000, 10000\)"):
        load("mnist", tmp_path)


def test_mnist_files_beside_each_other_are_not_taken_for_fashion(tmp_path):
    write_mnist(tmp_path / "loose")
    with pytest.raises(CoveyError, match="fashion_mnist is not here"):
        load("fashion_mnist", tmp_path / "loose")


def test_emnist_is_turned_upright(tmp_path):
    x = rng.integers(0, 256, (4, 28, 28), np.uint8)
    bodies = [x, np.arange(4), x[:2], np.arange(2)]
    with zipfile.ZipFile(tmp_path / "gzip.zip", "w") as archive:
        for part, array in zip(idx.EMNIST_PARTS, bodies):
            archive.writestr(f"gzip/{part}.gz", gzip.compress(idx_bytes(array.astype(np.uint8))))
    data = idx.read((tmp_path / "gzip.zip",), "", "emnist", ("a",) * 47, transposed=True)
    assert np.array_equal(data.x_train[1], x[1].T)
    assert data.y_test.tolist() == [0, 1]


# -------------------------------------------------------------------- cifar


def planes(rows):
    return rng.integers(0, 256, (rows, 3072), np.uint8)


def test_cifar_binary_archive_and_folder(tmp_path):
    x, y = planes(12), np.arange(12, dtype=np.uint8) % 10
    records = [bytes([y[i]]) + x[i].tobytes() for i in range(12)]
    names = [f"data_batch_{b}.bin" for b in range(1, 6)] + ["test_batch.bin"]
    files = {f"cifar-10-batches-bin/{n}": b"".join(records[2 * i : 2 * i + 2]) for i, n in enumerate(names)}
    archive = tar_of(tmp_path / "a.tar.gz", files)
    for name, body in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(body)
    for path in (archive, tmp_path / "cifar-10-batches-bin"):
        data = cifar.read_binary((path,), "", "cifar10")
        assert data.x_train.shape == (10, 32, 32, 3) and data.y_test.tolist() == [0, 1]
        assert data.x_train[3, 5, 6].tolist() == [x[3, c * 1024 + 5 * 32 + 6] for c in range(3)]


def test_cifar100_takes_the_fine_label(tmp_path):
    body = bytes([3, 77]) + planes(1).tobytes()
    data = cifar.read_binary(
        (tar_of(tmp_path / "a.tgz", {"x/train.bin": body * 2, "x/test.bin": body}),), "", "cifar100"
    )
    assert data.y_train.tolist() == [77, 77] and len(data.classes) == 100
    with pytest.raises(CoveyError, match=r"has no test.bin"):
        cifar.read_binary((tar_of(tmp_path / "b.tgz", {"x/train.bin": body}),), "", "cifar100")
    with pytest.raises(CoveyError, match="multiple of 3074"):
        cifar.read_binary((tar_of(tmp_path / "c.tgz", {"train.bin": body[:-1], "test.bin": body}),), "", "cifar100")


@pytest.mark.parametrize("protocol", [2, 4])
def test_cifar_python_archive(tmp_path, protocol):
    x = planes(3)
    body = pickle.dumps({b"data": x, b"fine_labels": [5, 6, 99]}, protocol)
    archive = tar_of(tmp_path / "p.tgz", {"c/train": body, "c/test": body})
    data = cifar.read_python((archive,), "", "cifar100")
    assert data.y_train.tolist() == [5, 6, 99]
    assert np.array_equal(data.x_test, cifar.images(x))


def test_a_pickle_that_asks_for_code_is_refused(tmp_path):
    class Evil:
        def __reduce__(self):
            return (os.system, (f"touch {tmp_path / 'ran'}",))

    body = pickle.dumps({b"data": Evil(), b"fine_labels": []})
    with pytest.raises(CoveyError, match=r"asks for posix.system"):
        cifar.read_python((tar_of(tmp_path / "p.tgz", {"train": body, "test": body}),), "", "cifar100")
    assert not (tmp_path / "ran").exists()


def test_truncated_archive_names_the_file(tmp_path):
    path = tar_of(tmp_path / "cifar-10-binary.tar.gz", {"test_batch.bin": planes(50).tobytes()})
    path.write_bytes(path.read_bytes()[:5000])
    with pytest.raises(CoveyError, match=r"cifar-10-binary.tar.gz cannot be decoded"):
        load("cifar10", tmp_path)


# ------------------------------------------------------------------- packed


def test_differences_are_undone():
    x = rng.integers(0, 256, (3, 6, 5), np.uint8)
    d = np.diff(np.diff(x, axis=-1, prepend=np.uint8(0)), axis=-2, prepend=np.uint8(0))
    assert np.array_equal(packed.restored(d), x)


def test_colour_is_lossless():
    x = rng.integers(0, 256, (4, 6, 5, 3), np.uint8)
    r, g, b = np.moveaxis(x, -1, 0)
    stored = np.stack([r - g, g, b - g])
    d = np.diff(np.diff(stored, axis=-1, prepend=np.uint8(0)), axis=-2, prepend=np.uint8(0))
    assert np.array_equal(packed.colour(d), x)


def test_photographs_of_grey_are_grey():
    luma = np.zeros((300, 5, 5), np.uint8)
    luma[:, 0, 0] = 90  # a constant image as differences
    chroma = np.zeros((2, 300, 3, 3), np.uint8)
    chroma[:, :, 0, 0] = 128
    assert (packed.photographs(luma, chroma) == 90).all()


def test_plain_npz_is_read_and_a_wrong_one_refused(tmp_path):
    parts = {"x_train": np.zeros((60_000, 28, 28), np.uint8), "y_train": np.zeros(60_000, np.uint8)}
    parts |= {"x_test": np.zeros((10_000, 28, 28), np.uint8), "y_test": np.full(10_000, 9, np.uint8)}
    np.savez(tmp_path / "mnist.npz", **parts)
    assert load("mnist", tmp_path).y_test.tolist() == [9] * 10_000
    for change, message in [
        ({"y_test": np.full(10_000, 10)}, "labels 0 to 10 for 10 classes"),
        ({"x_train": np.zeros((60_000, 14, 14), np.uint8)}, r"shape \(14, 14\) instead of \(28, 28\)"),
        ({"x_test": np.zeros((10_000, 28, 28), np.float32)}, "type"),
        ({"y_train": np.zeros(5)}, "60000 . 10000 samples"),
        ({"y_train": np.array([None] * 5)}, "cannot be decoded"),  # would need unpickling
    ]:
        bad = tmp_path / "bad"
        bad.mkdir(exist_ok=True)
        np.savez(bad / "mnist.npz", **parts | change)
        os.utime(bad / "mnist.npz", ns=(0, hash(message) % 10**9))
        with pytest.raises(CoveyError, match=message):
            load("mnist", bad)
    np.savez(tmp_path / "bad" / "mnist.npz", x_train=parts["x_train"])
    with pytest.raises(CoveyError, match="has no array 'x_test'"):
        load("mnist", tmp_path / "bad")
    body = (tmp_path / "mnist.npz").read_bytes()
    (tmp_path / "bad" / "mnist.npz").write_bytes(body[: len(body) // 2])
    with pytest.raises(CoveyError, match=r"mnist.npz cannot be decoded"):
        load("mnist", tmp_path / "bad")


# ------------------------------------------------------------------ tabular


def test_purchase_text_and_npz_agree(tmp_path):
    x = rng.integers(0, 2, (300, 600), np.uint8)
    y = rng.permutation(np.arange(300) % 100)
    lines = "".join(f"{label + 1},{','.join(map(str, row))}\n" for row, label in zip(x.tolist(), y))
    for name in "text", "npz", "onehot":
        (tmp_path / name).mkdir()
    tar_of(tmp_path / "text" / "dataset_purchase.tgz", {"dataset_purchase": lines.encode()})
    np.savez(tmp_path / "npz" / "purchase100.npz", features=x, labels=y + 1)
    np.savez(tmp_path / "onehot" / "purchase100.npz", features=x.astype(float), labels=np.eye(100)[y])
    read = [load("purchase100", tmp_path / name) for name in ("text", "npz", "onehot")]
    for data in read:
        assert data.kind == "binary" and data.x_train.dtype == np.uint8
        assert np.array_equal(np.sort(np.concatenate([data.y_train, data.y_test])), np.sort(y))
        assert np.array_equal(data.x_test, read[0].x_test) and np.array_equal(data.y_train, read[0].y_train)
    assert np.array_equal(read[0].x_train, x[~held_out(y, tabular.PURCHASE.key)])


def test_texas_takes_the_hundred_class_folder(tmp_path):
    x = rng.integers(0, 2, (50, 6169), np.uint8)
    feats = "\n".join(",".join(map(str, row)) for row in x.tolist()).encode()
    labels = "\n".join(str(1 + i // 5) for i in range(50)).encode()
    tar_of(
        tmp_path / "dataset_texas.tgz",
        {"texas/100/feats": feats, "texas/100/labels": labels, "texas/10/feats": b"0", "texas/10/labels": b"1"},
    )
    data = load("texas100", tmp_path)
    assert data.x_train.shape == (40, 6169) and data.y_train.max() == 9


def test_location_lines_may_be_quoted(tmp_path):
    row = ",".join("1" * 446)
    body = "".join(f'"{i % 30 + 1}",{row}\n' for i in range(150)).encode()
    x, y = tabular.parse(body, 446, True, tmp_path)
    assert x.all() and y.tolist() == [i % 30 + 1 for i in range(150)]


@pytest.mark.parametrize("line", [b"1,0,1", b"1,0,1,0,1", b"x,0,1,1", b"1,0,2,0", b"1,0;1,0", b"1,0,/,0", b""])
def test_a_line_that_is_no_row_is_refused(tmp_path, line):
    good = b"1,0,1,1\n" if line else b""
    with pytest.raises(CoveyError, match=r"bangkok (has something else in line 2|is not a table of 0 and 1)"):
        tabular.parse(good + line, 3, True, tmp_path / "bangkok")


# -------------------------------------------------------------------- faces


def jpeg(colour, size):
    from PIL import Image

    stream = io.BytesIO()
    Image.new("RGB", size, colour).save(stream, "JPEG")
    return stream.getvalue()


def test_lfw_from_photographs_and_attribute_scores(tmp_path):
    columns = ["Male", "Asian", "White", "Black", "Indian", "Eyeglasses", "Sunglasses", "Smiling"]
    rows = [
        ("Ann Lee", 1, [-1, 2, 0, -1, -2, -1, -1, 1]),
        ("Bob Ray", 1, [1, -2, 0, 3, -2, -1, 1, -1]),
        ("Bob Ray", 2, [1, -2, 3, 1, -2, 1, -1, -1]),
        ("Not Here", 1, [1, -2, 3, 1, -2, 1, -1, -1]),
    ]
    table = "# scores\n#\tperson\timagenum\t" + "\t".join(columns) + "\n"
    table += "".join("\t".join([n, str(i), *map(str, s)]) + "\n" for n, i, s in rows * 10)
    (tmp_path / "lfw_attributes.txt").write_text(table)
    names = ["Ann_Lee/Ann_Lee_0001", "Bob_Ray/Bob_Ray_0001", "Bob_Ray/Bob_Ray_0002"]
    tar_of(
        tmp_path / "lfw-funneled.tgz",
        {f"lfw_funneled/{n}.jpg": jpeg((50 * i, 0, 0), (250, 250)) for i, n in enumerate(names)},
    )
    data = load("lfw:race", tmp_path)
    assert data.name == "lfw:race" and data.x_train.shape[1:] == (62, 47, 3)
    assert len(data.y_train) + len(data.y_test) == 30  # the missing photograph is not invented
    assert [data.classes[i] for i in np.unique(data.y_train)] == ["white", "black", "asian"]
    reds = {int(r): c for r, c in zip(data.x_train[:, 30, 20, 0], data.y_train)}
    assert [data.classes[reds[r]] for r in sorted(reds)] == ["asian", "black", "white"]
    assert data.attributes["sunglasses"][data.y_train == 1].all()
    assert "classifiers" in data.note


def test_utkface_from_file_names(tmp_path):
    folder = tmp_path / "UTKFace"
    folder.mkdir()
    for i in range(20):
        (folder / f"{20 + i}_{i % 2}_{i % 5}_2017{i:04d}.jpg.chip.jpg").write_bytes(jpeg((9, 9, 9), (200, 200)))
    (folder / "39_1_20170116174525125.jpg.chip.jpg").write_bytes(b"a name without a race")
    data = load("utkface:gender", tmp_path)
    assert data.x_train.shape == (16, 32, 32, 3) and data.classes == ("female", "male")
    even = data.attributes["age"] % 2 == 0
    assert (data.y_train[even] == 1).all() and (data.y_train[~even] == 0).all()  # 0 is male in a name, 1 here


# --------------------------------------------------------------------- text


def test_tokens_and_encoding_by_hand():
    assert text.tokens("Don't go!  5 STARS, really...") == ["don't", "go", "!", "5", "stars", ",", "really"] + ["."] * 3
    words = text.vocabulary([["b", "a", "b"], ["c", "a", "b"]], size=4)
    assert words == ("<padding>", "<unknown>", "b", "a")
    assert text.encode([["a", "c", "b", "b"], ["b"]], words, 3).tolist() == [[3, 1, 2], [2, 0, 0]]


def test_yelp_lines_keep_the_most_prolific_authors(tmp_path):
    lines = [
        json.dumps({"user_id": f"u{u}", "stars": float(1 + n % 5), "text": f"word{u} fine", "review_id": "r"})
        for u in range(14)
        for n in range(5 * (15 - u))
    ]
    (tmp_path / "review.json").write_text("\n".join(lines))
    data = load("yelp", tmp_path)
    assert data.kind == "tokens" and data.x_train.dtype == np.int32
    assert set(np.unique(data.attributes["author"])) == set(range(1, 11))
    assert "9" in data.vocabulary and "10" not in data.vocabulary  # authors u0 to u9 of fourteen
    for bad in ('{"user_id": "u", "stars": 9, "text": "x"}', '{"user_id": "u"}', "{", "[1]"):
        (tmp_path / "review.json").write_text(bad)
        with pytest.raises(CoveyError, match=r"review.json cannot be decoded"):
            text.read((tmp_path / "review.json",), "")


# ------------------------------------------------- embedded and generated


def test_digits_split_is_fixed_and_stratified():
    data = load("digits")
    assert (data.x_train.shape, len(data.y_test)) == ((1438, 8, 8), 359)
    assert data.x_train.max() == 255 and data.x_train.dtype == np.uint8
    assert np.array_equal(digits().y_test, data.y_test)
    assert np.ptp(np.bincount(data.y_test)) <= 3


@pytest.mark.parametrize("name", ["purchase100-like", "texas100-like", "yelp-like"])
def test_stand_ins_say_that_they_are(name):
    data = load(name)
    assert data.name == name and "generated stand-in" in data.stand_in
    assert data.x_train.shape[1:] == SOURCES[name].shape and data.kind == SOURCES[name].kind
    assert len(data.classes) == SOURCES[name].classes == len(np.unique(data.y_train))


def test_stand_in_tables_can_be_learnt_but_not_at_once():
    data = generated.table_like("x-like", 3000, 200, 10, rate=0.2, spread=0.5, key=1)
    means = np.stack([data.x_train[data.y_train == c].mean(0) for c in range(10)])
    nearest_mean = ((data.x_test[:, None] - means) ** 2).sum(-1).argmin(1)
    assert 0.5 < (nearest_mean == data.y_test).mean() < 1.0


def test_planted_authors_show_in_their_words_and_serve_as_a_property():
    data = load("yelp-like")
    author = data.attributes["author"]
    has = {word: (data.x_train == i).any(1) for i, word in enumerate(data.vocabulary) if word.isalpha()}
    best = max(has, key=lambda w: has[w][author == 1].mean() - has[w][author != 1].mean())
    assert has[best][author == 1].mean() > 0.5 > 0.2 > has[best][author != 1].mean()
    fed = PropertySplit(attribute="author", value=2).make(data, 5, 1, 0)
    assert (author[fed.notes["victim_property"]] == 2).all()


# ------------------------------------------------------------ by name, folder


def test_unknown_names_and_labels():
    for name, message in [
        ("minst", "did you mean 'mnist'"),
        ("lfw:gendr", "did you mean 'gender'"),
        ("mnist:smile", "write 'mnist'"),
    ]:
        with pytest.raises(CoveyError, match=message):
            load(name)


def test_missing_data_says_what_was_looked_for_and_how_to_get_it(tmp_path):
    with pytest.raises(CoveyError) as refusal:
        load("cifar10", tmp_path)
    for part in ("cifar-10-binary.tar.gz", "cifar10.npz", str(tmp_path), "covey data get cifar10", "COVEY_DATA"):
        assert part in str(refusal.value)
    assert str(refusal.value).startswith("cifar10 is not here: `covey data get cifar10` fetches it")  # names come after
    with pytest.raises(CoveyError, match=r"no public mirror: get it from https://www.yelp.com"):
        load("yelp", tmp_path)


def test_folder_is_the_argument_then_the_variable_then_the_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("COVEY_DATA", raising=False)
    assert data_folder() == tmp_path / "cache" / "covey"
    monkeypatch.setenv("COVEY_DATA", str(tmp_path / "there"))
    assert data_folder() == tmp_path / "there"
    assert data_folder(tmp_path) == tmp_path
    monkeypatch.delenv("COVEY_DATA")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "/home/somebody")
    assert str(data_folder()) == "/home/somebody/.cache/covey"


def test_a_changed_file_is_read_again(tmp_path):
    for value, moment in ((0, 1), (1, 2)):
        np.savez(tmp_path / "location30.npz", x=np.full((90, 446), value), y=np.arange(90) % 30)
        os.utime(tmp_path / "location30.npz", ns=(moment, moment))
        assert load("location30", tmp_path).x_train.max() == value


def test_held_out_share_per_label():
    labels = rng.permutation(np.repeat([0, 1, 2], [100, 50, 10]))
    test = held_out(labels, key=3)
    assert np.bincount(labels[test]).tolist() == [20, 10, 2]
    assert np.array_equal(test, held_out(labels, key=3)) and not np.array_equal(test, held_out(labels, key=4))


# ---------------------------------------------------------------- real files

loaded = functools.cache(load)  # photographs take seconds to read


@real
@pytest.mark.data
@pytest.mark.parametrize(
    ("name", "rows", "classes"),
    [
        ("mnist", (60_000, 10_000), 10),
        ("emnist_bymerge47", (31_404, 7_847), 47),
        ("location30", (4_007, 1_003), 30),
        ("utkface:race", (3_600, 900), 5),
        pytest.param("lfw:smile", (9_556, 2_375), 2, marks=pytest.mark.slow),  # 12,000 photographs
    ],
)
def test_real_files(name, rows, classes):
    try:
        data = loaded(name)
    except CoveyError as absent:
        pytest.skip(str(absent))
    if "subset" in data.note or name.startswith(("mnist", "lfw", "location")):
        assert (len(data.y_train), len(data.y_test)) == rows
    assert len(data.classes) == classes
    assert set(np.unique(data.y_train)) == set(range(classes))
    assert all(len(column) == len(data.y_train) for column in data.attributes.values())


@real
@pytest.mark.data
@pytest.mark.slow
def test_real_faces_serve_the_property_split():
    try:
        data = loaded("lfw:smile")
    except CoveyError as absent:
        pytest.skip(str(absent))
    fed = PropertySplit(attribute="black").make(data, 5, 1, 0)
    assert (data.attributes["black"][fed.notes["victim_property"]] == 1).all()
    assert faces.CLASSES["smile"] == data.classes


def test_all_of_cifar10_in_one_file_is_preferred_to_a_part_of_it(tmp_path):
    x, y = np.zeros((60, 32, 32, 3), np.uint8), np.arange(60) % 10
    np.savez(tmp_path / "cifar10.npz", x_train=x[:20], y_train=y[:20], x_test=x[:10], y_test=y[:10])
    assert (
        load("cifar10", tmp_path).note.startswith("a subset: 30 of 60,000")
        and store.is_whole("cifar10", tmp_path) is False
    )
    np.savez(tmp_path / "cifar10_full.npz", x_train=x[:50], y_train=y[:50], x_test=x[50:], y_test=y[50:])
    with pytest.raises(CoveyError, match=r"cifar10_full\.npz has 50 training and 10 test samples instead of"):
        load("cifar10", tmp_path)
    assert store.is_whole("cifar10", tmp_path) is True and store.is_whole("cifar10", tmp_path / "none") is None
    form, paths = store.first_found(store.source_of("cifar10")[1], tmp_path)
    whole = form.read(paths, "")
    assert (whole.name, len(whole.y_train), len(whole.y_test), whole.note) == ("cifar10", 50, 10, "")
