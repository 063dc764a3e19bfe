"""Columns that look like something else than they are: nothing is merged, cut into categories or numbered in silence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from covey import CoveyError, Experiment, Federation, run
from covey.cli.main import main
from covey.data.own.encoding import encode
from covey.data.own.given import reading_of
from covey.data.own.sheet import of_frame

pd = pytest.importorskip("pandas")
N = 48


def frame(**more: Any) -> Any:
    rng = np.random.default_rng(5)
    age = rng.normal(50, 10, N).round(1)
    columns = {"age": age, "bp": rng.integers(90, 180, N), "site": np.array([3, 7, 19])[np.arange(N) % 3]}
    return pd.DataFrame({**columns, "ill": np.where(age > 50, "sehr krank", "gesund ✓"), **more})


def read(table: Any, path: Path, **rules: Any) -> Federation:
    """By way of a file, as its name says."""
    if path.suffix == ".parquet":
        table.to_parquet(path)
    else:
        table.to_csv(path, index=False)
    return Federation.from_path(str(path), **{"label": "ill", "client": "site", **rules})


@pytest.mark.parametrize("form", ["csv", "parquet", "frame"])
def test_large_numbers_of_clients_stay_apart(form: str, tmp_path: Path) -> None:
    table = frame()
    table["site"] = 2**53 + np.arange(N) % 4  # as numbers of 64 bits with a fraction, two and two would be one
    made = (
        Federation.from_frame(table, label="ill", client="site")
        if form == "frame"
        else read(table, tmp_path / f"t.{form}")
    )
    assert made.names == tuple(str(2**53 + i) for i in range(4))


@pytest.mark.parametrize("form", ["parquet", "frame"])
def test_numbers_that_are_texts_by_their_type_are_numbers(form: str, tmp_path: Path) -> None:
    table = frame().astype({"bp": str})
    made = (
        Federation.from_frame(table, label="ill", client="site")
        if form == "frame"
        else read(table, tmp_path / "t.parquet")
    )
    assert np.array_equal(made.dataset.x_train, read(frame(), tmp_path / "t.csv").dataset.x_train)
    named = Federation.from_frame(table, label="ill", client="site", categories=["bp"])
    assert named.dataset.x_train.shape[1] == 1 + table.bp.nunique()


@pytest.mark.parametrize("form", ["arrow", "frame"])
def test_numbers_that_are_categories_by_their_type_are_one_hot(form: str) -> None:
    table = frame(stage=pd.Categorical(np.arange(N) % 4))
    given = table if form == "frame" else pytest.importorskip("pyarrow").Table.from_pandas(table, preserve_index=False)
    made = Federation.from_frame(given, label="ill", client="site")
    assert made.dataset.x_train.shape[1] == 2 + 4


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ([f"{i},5" for i in range(N)], "column 'z' holds numbers in a spelling that is not read \\(such as '0,5'\\)"),
        ([f"1,{i:03}.50" for i in range(N)], "such as '1,000.50'\\): write them like 1234.5"),
        ([f"{i} %" for i in range(N)], "such as '0 %'"),
        ([f"€ {i}" for i in range(N)], "such as '€ 0'"),
        (
            [f"2020-01-{i % 28 + 1:02}" for i in range(N)],
            "holds dates or times \\(such as '2020-01-01'\\): turn them into",
        ),
        ([f"{i % 28 + 1}.12.1999" for i in range(N)], "dates or times"),
        ([f"{i % 24}:30" for i in range(N)], "dates or times"),
        ([f"came on day {i}" for i in range(N)], "column 'z' holds 48 different texts in 48 rows"),
    ],
)
def test_what_is_no_name_becomes_no_category(values: list[str], says: str) -> None:
    with pytest.raises(CoveyError, match=says):
        Federation.from_frame(frame(z=values), label="ill", client="site")
    listed = Federation.from_frame(frame(z=values), label="ill", client="site", categories=["z"])
    assert listed.dataset.x_train.shape[1] == 2 + len(set(values))


def test_labels_in_a_spelling_that_is_not_read_are_no_classes() -> None:
    priced = frame(ill=[f"{i},5" for i in range(N)])
    with pytest.raises(CoveyError, match="the label column 'ill' holds numbers in a spelling that is not read"):
        Federation.from_frame(priced, label="ill", client="site")
    fractions = Federation.from_frame(frame(ill=[f"{i}.5" for i in range(N)]), label="ill", client="site")
    assert fractions.dataset.task == "numbers"


def test_ranges_and_codes_stay_categories() -> None:
    for values in (["10-19", "20-29", "A1"], ["1a", "2b", "3c"], ["I", "II", "III"]):
        made = Federation.from_frame(frame(z=[values[i % 3] for i in range(N)]), label="ill", client="site")
        assert made.dataset.x_train.shape[1] == 2 + 3


def test_lists_and_items_that_fail_are_said() -> None:
    with pytest.raises(CoveyError, match="column 'z' holds values that are neither numbers nor texts"):
        Federation.from_frame(frame(z=[[1]] * N), label="ill", client="site")

    class Broken:
        def __len__(self) -> int:
            return 3

        def __getitem__(self, i: int) -> Any:
            raise RuntimeError("no such scan")

    with pytest.raises(CoveyError, match=r"item 0 cannot be read .RuntimeError: no such scan.: correct"):
        Federation.from_torch(Broken())


def test_clients_are_named_as_the_data_name_them(tmp_path: Path, capsys: Any, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    table = frame(ill=np.where(frame().age > 50, 2, 1))  # classes 1 and 2, which are no places from 0
    table["site"] = np.arange(N) % 3 + 1  # hospitals 1, 2 and 3
    fewer = Experiment.of(algorithm="local", clusters=1, model="softmax", training={"rounds": 1}, engine={"workers": 1})
    hospitals = read(table, tmp_path / "t.csv")
    result = run(fewer, federation=hospitals, quiet=True)
    models = result.trained()
    for number, name in enumerate(("1", "2", "3")):
        own = models.kept.models[models.kept.rows[number]]
        for client in (name, int(name)):
            assert bool((models.choose(client=client)[0][0] == own).all())
    with pytest.raises(CoveyError, match="there is no client '0': the data name 1, 2, 3"):
        result.predict(table, client=0)
    assert models.targets([1, 2, 1]).tolist() == [0, 1, 0]
    with pytest.raises(CoveyError, match="label '0' is none of 1, 2"):
        models.targets([0, 1])

    options = ["--set", "data.label=ill", "--set", "data.client=site", "--set", "clusters=2", "--set", "clients=3"]
    more = ["--set", "model=softmax", "--set", "training.rounds=1", "--set", "engine.workers=1", "--out", "kept"]
    assert main(["run", "t.csv", *options, *more]) == 0
    table.drop(columns="site").to_csv("known.csv", index=False)
    table.assign(ill=None).to_csv("new.csv", index=False)  # the column to predict may be there, and empty
    assert main(["predict", "kept", "new.csv", "--labelled", "known.csv", "--out", "said.csv"]) == 0
    assert set(pd.read_csv("said.csv").prediction) <= {1, 2}
    assert main(["predict", "kept", "new.csv", "--client", "4"]) == 2
    assert "there is no client '4': the data name 1, 2, 3" in capsys.readouterr().err


def test_arrays_that_want_scaling_are_pointed_out(tmp_path: Path) -> None:
    """Pictures of 16 bits, say: nothing is scaled in silence, and nothing fails in silence."""
    depths = np.random.default_rng(2).integers(0, 65_000, (N, 4, 4)).astype(np.uint16)
    np.savez(tmp_path / "deep.npz", x=depths, y=np.arange(N) % 2)
    said = reading_of(str(tmp_path / "deep.npz"), {}).said
    assert any("taken as they are" in line and f"{depths.max():,}" in line for line in said)
    np.savez(tmp_path / "small.npz", x=depths / 65_000, y=np.arange(N) % 2)
    assert not any("taken as they are" in line for line in reading_of(str(tmp_path / "small.npz"), {}).said)


def test_places_that_nearly_hold_samples(tmp_path: Path) -> None:
    np.savez(tmp_path / "half.npz", x_train=np.zeros((4, 2)), y_train=np.arange(4) % 2)
    with pytest.raises(CoveyError, match="has no array x, it holds x_train, y_train"):
        Federation.from_path(str(tmp_path / "half.npz"))
    pictures = tmp_path / "pictures"
    for name in ("cat", "dog", "bird"):
        (pictures / name).mkdir(parents=True)
    Image.fromarray(np.zeros((8, 8), np.uint8)).save(pictures / "cat" / "1.png")
    Image.fromarray(np.zeros((8, 8), np.uint8)).save(pictures / "dog" / "1.png")
    with pytest.raises(CoveyError, match=r"bird is empty, .*cat holds images of a class"):
        Federation.from_path(str(pictures))
    wide = frame(**{f"c{i}": 1.0 for i in range(20)}).rename(columns={"ill": "num"})
    with pytest.raises(CoveyError, match=r"say data.label = one of age, .*c19"):
        read(wide[[c for c in wide if c != "num"] + ["num"]], tmp_path / "wide.csv", label="")


def test_truth_is_read_however_it_is_written(tmp_path: Path) -> None:
    """Trained from a CSV and asked about a frame, or the other way round, or by somebody whose program writes TRUE."""
    truth = np.arange(N) % 3 == 0
    texts, numbers = frame(smoker=truth.astype(str)), frame(smoker=truth)
    for given in (texts, numbers):
        features = Federation.from_frame(given, label="ill", client="site").dataset.columns
        everything = np.ones(N, np.bool_)
        read_as = [
            encode(of_frame(frame(smoker=values)), features, everything)
            for values in (truth, truth.astype(str), [str(t).upper() for t in truth], truth.astype(int))
        ]
        assert all(np.array_equal(x, read_as[0]) for x in read_as)
        with pytest.raises(CoveyError, match="smoker"):
            encode(of_frame(frame(smoker=["maybe", "True"] * (N // 2))), features, everything)
