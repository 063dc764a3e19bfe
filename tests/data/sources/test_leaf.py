"""LEAF's JSON and FLamby's heart files, in tiny copies written by hand."""

import json
from pathlib import Path

import numpy as np
import pytest

from covey import Experiment, run
from covey.data.sources.load import load
from covey.data.sources.silos.leaf import LETTERS
from covey.errors import CoveyError


def write(folder: Path, users: dict[str, tuple[list[object], list[object]]]) -> None:
    folder.mkdir(parents=True)
    for i, (user, (x, y)) in enumerate(users.items()):  # a file each: LEAF cuts them, too
        content = {"users": [user], "num_samples": [len(y)], "user_data": {user: {"x": x, "y": y}}}
        (folder / f"all_data_{i}.json").write_text(json.dumps(content))


def sign(value: float) -> list[float]:
    return [value] * 784


def test_writers_are_clients_and_those_with_one_part_are_left_out(tmp_path: Path) -> None:
    home = tmp_path / "femnist" / "data"
    write(
        home / "train", {"w2": ([sign(0.0), sign(1.0)], [0, 61]), "w1": ([sign(0.5)], [10]), "w3": ([sign(0.5)], [3])}
    )
    write(home / "test", {"w1": ([sign(1.0)], [36]), "w2": ([sign(0.0)], [0]), "w4": ([sign(0.0)], [1])})
    data = load("femnist", tmp_path)
    assert data.holders == ("w1", "w2") and "2 users" in data.note
    assert data.x_train.dtype == np.uint8 and data.x_train[:, 0, 0].tolist() == [128, 0, 255]
    assert data.y_train.tolist() == [10, 0, 61] and [data.classes[y] for y in (10, 36, 61)] == ["A", "a", "z"]
    assert data.owners is not None and data.owners.tolist() == [0, 1, 1]
    assert data.test_owners is not None and data.test_owners.tolist() == [0, 1] and data.y_test.tolist() == [36, 0]


def test_other_users_test_everybody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "leaf" / "femnist" / "data"
    write(home / "train", {f"w{i}": ([sign(i / 4), sign(1 - i / 4)], [0, 1]) for i in range(3)})
    write(home / "test", {"other": ([sign(0.0), sign(1.0)], [0, 1])})
    data = load("femnist", tmp_path)
    assert data.test_owners is None and len(data.holders) == 3
    monkeypatch.setenv("COVEY_DATA", str(tmp_path))
    table = {"dataset": "femnist", "algorithm": "fedavg", "model": "softmax", "clusters": 1, "training": {"rounds": 1}}
    assert run(Experiment.of(table, engine={"workers": 1}), quiet=True).records[0]["participants"] == 3


def test_letters_and_the_next_one(tmp_path: Path) -> None:
    home = tmp_path / "shakespeare"
    play = "".join(LETTERS[i % 80] for i in range(79)) + "é"
    write(home / "train", {"HAMLET": ([play], ["o"])})
    write(home / "test", {"HAMLET": (["a" * 80], ["b"])})
    data = load("shakespeare", tmp_path)
    assert len(LETTERS) == len(set(LETTERS)) == len(data.classes) == 80
    assert data.x_train[0, :3].tolist() == [2, 3, 4] and data.x_train[0, -1] == 1  # é is unknown
    assert data.classes[data.y_train[0]] == "o" and data.vocabulary[data.x_test[0, 0]] == "a"


@pytest.mark.parametrize(
    ("user", "said"),
    [
        ((["a" * 79], ["b"]), "80 letters"),
        ((["a" * 80], ["é"]), "no letter"),
        ((["a" * 80], []), "1 samples and 0 labels"),
    ],
)
def test_what_is_not_leafs_is_one_sentence(tmp_path: Path, user: tuple[list[object], list[object]], said: str) -> None:
    write(tmp_path / "shakespeare" / "train", {"HAMLET": user})
    write(tmp_path / "shakespeare" / "test", {"HAMLET": (["a" * 80], ["b"])})
    with pytest.raises(CoveyError, match=said):
        load("shakespeare", tmp_path)


def test_a_file_that_is_no_leaf_and_an_empty_folder(tmp_path: Path) -> None:
    for part in ("train", "test"):
        (tmp_path / "femnist" / part).mkdir(parents=True)
    with pytest.raises(CoveyError, match=r"no \.json"):
        load("femnist", tmp_path)
    (tmp_path / "femnist" / "train" / "a.json").write_text("[1]")
    with pytest.raises(CoveyError, match="user_data"):
        load("femnist", tmp_path)


def test_flambys_hospitals(tmp_path: Path) -> None:
    row = "63.0,1.0,{cp},145.0,{chol},1.0,2.0,150.0,0.0,2.3,3.0,?,6.0,{num}"
    for name in ("cleveland", "hungarian", "switzerland", "va"):
        lines = [row.format(cp=1 + i % 4, chol=200 + i, num=i % 5) for i in range(9)] + [
            row.format(cp=1, chol="?", num=0)
        ]
        (tmp_path / f"processed.{name}.data").write_text("\n".join(lines))
    data = load("flamby_heart", tmp_path)
    assert data.holders == ("cleveland", "hungarian", "switzerland", "va")
    assert len(data.y_train) + len(data.y_test) == 36  # a gap in ca does not count, one in chol does
    outputs = [output for feature in data.columns for output in feature.outputs]
    assert "cp = 4" in outputs and "restecg = 2" in outputs and "chol" in outputs
    assert data.y_train.sum() + data.y_test.sum() == 4 * 7  # diagnoses 1 to 4 are ill
    (tmp_path / "processed.va.data").write_text("1,2,3")
    with pytest.raises(CoveyError, match="3 values in line 1"):
        load("flamby_heart", tmp_path)
