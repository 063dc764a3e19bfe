"""Data of one's own: every form gives the same federation, rules do what they say, and runs know their data again."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from PIL import Image

from covey import CoveyError, Experiment, Federation, run
from covey.audit import audit
from covey.cli.main import commands
from covey.data.own.encoding import Feature
from covey.data.own.new import read_samples
from covey.data.own.rules import Rules
from covey.data.own.silo import read_folder, read_with_columns
from covey.data.sources.load import load
from covey.engines.settle import settle
from covey.errors import Unavailable
from covey.experiment.deployment import Silos
from covey.report.page import write_comparison
from covey.results.folder import RunFolder, hash_of
from covey.rounds.completion import complete
from covey.sweep.grid import sweep

pd = pytest.importorskip("pandas")
RNG = np.random.default_rng(3)
N = 60
TINY = {
    "algorithm": "fedavg",
    "clusters": 1,
    "model": "softmax",
    "training": {"rounds": 2, "lr": 0.1},
    "engine": {"workers": 1},
}


def frame() -> Any:
    age = RNG.integers(20, 80, N).astype(float)
    table = pd.DataFrame({"age": age, "sex": RNG.choice(["f", "m"], N), "site": np.repeat(["n", "s", "w"], 20)})
    table["ill"] = np.where(age + RNG.normal(0, 5, N) > 50, "yes", "no")
    table.loc[4, "age"] = np.nan
    return table


TABLE = frame()


def same(a: Federation, b: Federation) -> None:
    for name in ("x_train", "y_train", "x_test", "y_test"):
        np.testing.assert_array_equal(getattr(a.dataset, name), getattr(b.dataset, name))
    assert a.names == b.names and a.dataset.classes == b.dataset.classes
    assert [r.tolist() for r in a.clients] == [r.tolist() for r in b.clients]


# ---------------------------------------------------------------- forms


def test_a_frame_a_csv_a_parquet_and_folders_of_clients_are_one_federation(tmp_path: Path) -> None:
    told = {"label": "ill", "client": "site"}
    held = Federation.from_frame(TABLE, **told)
    TABLE.to_csv(tmp_path / "t.csv", index=False)
    TABLE.to_csv(tmp_path / "semicolon.csv", index=False, sep=";")
    TABLE.to_csv(tmp_path / "t.csv.gz", index=False)
    TABLE.to_parquet(tmp_path / "t.parquet")
    for name in ("t.csv", "semicolon.csv", "t.csv.gz", "t.parquet"):
        same(Federation.from_path(str(tmp_path / name), **told), held)
    same(Federation.from_frame(pytest.importorskip("pyarrow").Table.from_pandas(TABLE), **told), held)
    for site, rows in TABLE.groupby("site"):
        (tmp_path / "silos" / str(site)).mkdir(parents=True)
        rows.drop(columns="site").to_csv(tmp_path / "silos" / str(site) / "data.csv", index=False)
    same(Federation.from_path(str(tmp_path / "silos"), label="ill"), held)


def test_what_a_table_becomes() -> None:
    federation = Federation.from_frame(TABLE, "ill", "site")
    data = federation.dataset
    assert data.kind == "real" and data.classes == ("no", "yes") and federation.names == ("n", "s", "w")
    x = np.concatenate([data.x_train, data.x_test])
    assert x.shape == (N, 4)  # age, age missing, sex = f, sex = m
    assert x[:, 1].sum() == 1 and x[x[:, 1] == 1, 0] == 0  # a missing number is the mean
    assert (x[:, 2] + x[:, 3] == 1).all()
    assert data.x_train[:, 0].mean() == pytest.approx(0, abs=1e-6)
    own = Federation.from_frame(TABLE, "ill", "site", standardise="clients")
    for rows in own.clients:
        known = own.dataset.x_train[rows]
        assert known[known[:, 1] == 0, 0].mean() == pytest.approx(0, abs=1e-6)
    bare = Federation.from_frame(TABLE, "ill", "site", standardise="none", missing="mean")
    assert bare.dataset.x_train.shape[1] == 3 and bare.dataset.x_train[:, 0].max() > 50


def test_tests_are_held_back_per_client_and_clients_are_tested_on_their_own() -> None:
    federation = Federation.from_frame(TABLE, "ill", "site", test=0.25)
    assert [len(rows) for rows in federation.clients] == [15, 15, 15]
    assert np.bincount(federation.test_groups).tolist() == [5, 5, 5]
    assert (federation.distributions == np.eye(3)).all()
    marked = TABLE.assign(split=np.where(np.arange(N) % 3, "train", "test"))
    told = Federation.from_frame(marked, "ill", "site")
    assert len(told.dataset.y_test) == 20 and "column 'split' is the test" in told.dataset.note
    apart = Federation.from_frame(TABLE, "ill", "site", test=TABLE[::3])
    assert len(apart.dataset.y_test) == 20 and len(apart.dataset.y_train) == N
    with pytest.raises(CoveyError, match="client 'n' has 20 training and 0 test rows"):
        Federation.from_frame(TABLE, "ill", "site", test=TABLE[30:])


def test_tasks(tmp_path: Path) -> None:
    table = pd.DataFrame(
        {"a": RNG.normal(size=N), "price": RNG.normal(size=N), "wet": [0, 1] * 30, "cold": [1, 0, 0] * 20}
    )
    numbers = Federation.from_frame(table, "price").dataset
    assert numbers.task == "numbers" and numbers.y_train.dtype == np.float32 and numbers.y_train.shape[1:] == (1,)
    labels = Federation.from_frame(table, ["wet", "cold"]).dataset
    assert labels.task == "labels" and labels.classes == ("wet", "cold") and set(labels.y_train.ravel()) == {0.0, 1.0}
    cut, federation = settle(Experiment.of(TINY, partition="iid", clients=3), Federation.from_frame(table, "price"))
    assert federation.histogram().shape == (3, 1) and cut.dataset == "given:own data"


def test_arrays_images_and_maps(tmp_path: Path) -> None:
    x = RNG.integers(0, 256, (N, 6, 5), dtype=np.uint8)
    y = np.arange(N) % 3
    whose = np.repeat([10, 2, 7], 20)
    held = Federation.from_arrays(x, y, clients=whose, classes=["a", "b", "c"])
    assert held.names == ("2", "7", "10") and held.dataset.kind == "image"
    np.savez(tmp_path / "all.npz", x=x, y=np.array(["a", "b", "c"])[y], client=whose)
    same(Federation.from_path(str(tmp_path / "all.npz")), held)
    for i, image in enumerate(x):
        folder = tmp_path / "pictures" / "abc"[y[i]]
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(folder / f"{i:03}.png")
    pictures = Federation.from_path(str(tmp_path / "pictures"))
    assert pictures.dataset.x_train.shape[1:] == (6, 5) and pictures.clients == ()
    (tmp_path / "mapped").mkdir()
    train = np.arange(N) % 5 > 0
    for name, array in {"x": x, "y": y, "client": whose}.items():
        np.save(tmp_path / "mapped" / f"{name}_train.npy", array[train])
        np.save(tmp_path / "mapped" / f"{name}_test.npy", array[~train])
    mapped = Federation.from_path(str(tmp_path / "mapped"))
    assert isinstance(mapped.dataset.x_train, np.memmap) and mapped.names == held.names
    result = run(Experiment.of(TINY, dataset=str(tmp_path / "mapped")), quiet=True)
    assert result.dataset == "mapped" and 0 <= result.accuracy["client_mean"] <= 1


def test_torch_datasets_and_hugging_face() -> None:
    x, y = torch.rand(N, 1, 6, 5), torch.arange(N) % 2
    federation = Federation.from_torch(torch.utils.data.TensorDataset(x, y), clients=np.arange(N) % 4)
    assert federation.dataset.x_train.shape[1:] == (6, 5) and len(federation.clients) == 4
    datasets = pytest.importorskip("datasets")
    held = Federation.from_frame(TABLE, "ill", "site")
    same(Federation.from_huggingface(datasets.Dataset.from_pandas(TABLE), "ill", "site"), held)
    features = datasets.Features(
        {"image": datasets.Image(), "label": datasets.ClassLabel(names=["cat", "dog"]), "who": datasets.Value("string")}
    )
    rows = [{"image": Image.new("L", (4, 4), i), "label": i % 2, "who": "ab"[i // 10]} for i in range(20)]
    split = datasets.Dataset.from_list(rows, features=features)
    both = Federation.from_huggingface(datasets.DatasetDict(train=split, test=split), client="who")
    assert both.dataset.classes == ("cat", "dog") and both.dataset.x_train.shape == (20, 4, 4)
    assert both.names == ("a", "b") and (both.distributions == np.eye(2)).all()


def test_columns_that_no_rule_reads_can_be_left_out() -> None:
    odd = TABLE.assign(when=pd.Timestamp("2020-01-01"), bag=[{}] * N)
    for name, what in (("when", "dates or times"), ("bag", "neither numbers nor texts")):
        with pytest.raises(CoveyError, match=f"column '{name}' holds .*{what}.*leave it out with data.drop"):
            Federation.from_frame(odd, "ill", "site", drop=[other for other in ("when", "bag") if other != name])
    same(Federation.from_frame(odd, "ill", "site", drop=["when", "bag"]), Federation.from_frame(TABLE, "ill", "site"))


# ---------------------------------------------------------------- the same rules in a silo


def test_a_silo_reads_its_own_table_by_the_agreed_columns(tmp_path: Path) -> None:
    columns = [{"name": "age", "missing": True}, {"name": "sex", "values": ["f", "m"]}]
    silos = {"shape": [4], "kind": "real", "classes": ["no", "yes"], "columns": columns}
    experiment = Experiment.of(dataset="silos", silos=silos, data={"label": "ill"}, clients=3, clusters=1)
    assert Experiment.of(json.loads(json.dumps(experiment.table()))).silos == experiment.silos
    simulated = Federation.from_frame(TABLE, "ill", "site", standardise="clients", test=0.1)
    for i, (site, rows) in enumerate(TABLE.groupby("site")):
        (tmp_path / str(site)).mkdir()
        rows[["sex", "ill", "site", "age"]].to_csv(tmp_path / str(site) / "data.csv", index=False)
        x, y, x_test, y_test = read_folder(
            tmp_path / str(site), experiment.silos, experiment.data, experiment.silos.columns
        )
        assert (
            x.shape[1] == 4 and len(x) + len(x_test) == 20 and x[x[:, 1] == 0, 0].mean() == pytest.approx(0, abs=1e-6)
        )
        assert x.shape[1] == simulated.dataset.x_train.shape[1] and len(y) == len(x) and len(y_test) > 0, i
    agreed = Silos(**{**silos, "shape": (4,), "classes": ("no", "yes"), "columns": experiment.silos.columns})
    (tmp_path / "n" / "data.csv").write_text("ill,age,sex\nyes,3,x\n")
    with pytest.raises(CoveyError, match="line 2: column 'sex' has the value 'x', which is none of the 2 agreed"):
        read_folder(tmp_path / "n", agreed, Rules(label="ill"), agreed.columns)
    with pytest.raises(CoveyError, match="set shape = \\[4\\]"):
        Experiment.of(dataset="silos", silos={**silos, "shape": [3]}, clients=3, clusters=1)


def test_what_a_silo_read_says_how_to_read_one_more_row(tmp_path: Path) -> None:
    columns = (Feature("age"), Feature("sex", ("f", "m")))
    agreed = Silos(shape=(3,), kind="real", classes=("no", "yes"), columns=columns)
    rows = "ill,age,sex\nyes,30,m\nno,50,f\n"
    (tmp_path / "train.csv").write_text(rows)
    (tmp_path / "test.csv").write_text("ill,sex,age\nyes,m,70\n")
    (x, _, x_test, _), read = read_with_columns(tmp_path, agreed, Rules(label="ill"), columns)
    assert read[0] == Feature("age", mean=40.0, scale=10.0) and read[1] == columns[1]
    assert x[:, 0].tolist() == [-1.0, 1.0] and x_test.tolist() == [[3.0, 0.0, 1.0]]
    (tmp_path / "new.csv").write_text("age,sex\n70,m\n")
    assert read_samples(tmp_path / "new.csv", (3,), read)[0].tolist() == x_test.tolist()
    with pytest.raises(CoveyError, match="holds one row, and this run's clients standardised with their own"):
        read_samples(tmp_path / "new.csv", (3,), columns)
    (tmp_path / "test.csv").unlink()
    np.savez(tmp_path / "test.npz", x=x_test, y=np.array(["yes"]))
    with pytest.raises(CoveyError, match="not both tables"):
        read_with_columns(tmp_path, agreed, Rules(label="ill"), columns)


@pytest.mark.parametrize("standardise", ["all", "clients"])
def test_a_number_beyond_all_measure_is_named_and_makes_no_zeros_of_others(standardise: str, tmp_path: Path) -> None:
    huge = TABLE.copy()
    huge.loc[4, "age"] = 1e300
    huge.to_csv(tmp_path / "t.csv", index=False)
    with pytest.raises(CoveyError, match=r"t\.csv, line 6: column 'age' is 1e\+300, no finite number of 32 bits"):
        Federation.from_path(tmp_path / "t.csv", label="ill", client="site", standardise=standardise)


# ---------------------------------------------------------------- runs know their data


def test_a_run_on_a_path_refuses_other_data(tmp_path: Path) -> None:
    path = tmp_path / "ward.csv"
    TABLE.to_csv(path, index=False)
    experiment = Experiment.of(TINY, dataset=str(path), data={"label": "ill", "client": "site"})
    result = run(experiment, out=tmp_path / "run", quiet=True)
    stored = RunFolder(tmp_path / "run").experiment()
    assert (result.dataset, stored.clients, stored.dataset) == ("ward", 3, str(path.resolve()))
    assert stored.data.fingerprint.startswith("sha256:") and hash_of(stored) != hash_of(experiment)
    assert run(stored, out=tmp_path / "run", resume=True, quiet=True).accuracy == result.accuracy
    TABLE.assign(age=TABLE.age + np.arange(N)).to_csv(path, index=False)
    with pytest.raises(
        CoveyError, match="begun with other data: the training samples, the test samples of 'ward' differ"
    ):
        run(stored, out=tmp_path / "run", resume=True, quiet=True)
    told = CliRunner().invoke(commands(), ["audit", str(tmp_path / "run"), "--out", str(tmp_path / "audit")])
    assert told.exit_code and "other data: the training samples, the test samples of 'ward'" in str(told.exception)


def stopped(folder: Path) -> Path:
    """A copy of a run's folder as an interruption leaves it: what is finished is shown without its data."""
    copy = folder.with_name("stopped")
    shutil.copytree(folder, copy)
    (copy / "result.json").unlink()
    return copy


def test_a_run_on_a_name_that_means_other_data_here_is_neither_resumed_nor_audited_nor_read_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As CIFAR-10 may be a part of it on one machine, and all of it on another."""
    x, y = np.arange(60 * 3072).reshape(60, 32, 32, 3).astype(np.uint8), np.arange(60) % 10
    for place, rows in (("here", 40), ("there", 30)):
        (tmp_path / place).mkdir()
        np.savez(tmp_path / place / "cifar10.npz", x_train=x[:rows], y_train=y[:rows], x_test=x[40:], y_test=y[40:])
    table = TINY | {"dataset": "cifar10", "clients": 2}
    given = Experiment.of(table)
    folder = tmp_path / "run"
    monkeypatch.setenv("COVEY_DATA", str(tmp_path / "here"))
    run(given, out=folder, quiet=True)
    assert CliRunner().invoke(commands(), ["audit", str(folder), "--ledger"]).exit_code == 0
    sweep(table, ["training.lr=0.1"], out=tmp_path / "sweep", quiet=True)
    assert complete(given, RunFolder(folder), quiet=True).finished
    monkeypatch.setenv("COVEY_DATA", str(tmp_path / "there"))
    for words in (
        ["resume", str(stopped(folder))],
        *(["audit", str(folder), *more] for more in ([], ["--frontier"], ["--ledger"])),
    ):
        told = CliRunner().invoke(commands(), words)
        assert told.exit_code and "was begun with other data: the training samples" in str(told.exception)
    others = r"was made on other data \(cifar10: 40 training .*\) than there are here \(cifar10: 30 training"
    with pytest.raises(Unavailable, match=others):
        complete(given, RunFolder(folder), quiet=True)
    with pytest.raises(Unavailable, match=others):
        sweep(table, ["training.lr=0.1"], out=tmp_path / "sweep", quiet=True)
    sweep(
        table, ["training.lr=0.1"], out=tmp_path / "elsewhere", quiet=True
    )  # by processes that are told where data are now
    (made,) = [json.loads(path.read_text()) for path in (tmp_path / "elsewhere").glob("*/seed-0/result.json")]
    assert made["provenance"][0]["data"].startswith("cifar10: 30 training")
    monkeypatch.setenv("COVEY_DATA", str(tmp_path))  # which has none of it: what is finished can be read
    assert complete(given, RunFolder(folder), quiet=True).finished


def test_a_run_on_data_in_memory_says_so_and_needs_them_again(tmp_path: Path) -> None:
    federation = Federation.from_frame(TABLE, "ill", "site", name="ward")
    experiment = Experiment.of(TINY)  # whose dataset is digits
    result = run(experiment, federation=federation, out=tmp_path / "run", quiet=True)
    report = (tmp_path / "run" / "report.html").read_text()
    assert result.dataset == "ward" and "digits" not in report and "ward" in report
    assert (
        result.data["fingerprint"] == json.loads((tmp_path / "run" / "result.json").read_text())["data"]["fingerprint"]
    )
    told = CliRunner().invoke(commands(), ["resume", str(stopped(tmp_path / "run"))])
    assert told.exit_code and "'ward' were handed over in Python" in str(told.exception)
    with pytest.raises(CoveyError, match="begun with other data"):
        run(experiment, out=tmp_path / "run", resume=True, quiet=True)
    other = Federation.from_frame(TABLE.assign(age=1.0), "ill", "site", name="ward")
    with pytest.raises(CoveyError, match=r"begun with other data: .*the training samples"):
        run(experiment, federation=other, out=tmp_path / "run", resume=True, quiet=True)
    again = run(experiment, federation=federation, out=tmp_path / "run", resume=True, quiet=True)
    assert again.accuracy == result.accuracy
    with pytest.raises(CoveyError, match="handed over in Python"):
        audit(RunFolder(tmp_path / "run").experiment(), tmp_path / "audit", quiet=True)


def test_an_audit_is_of_the_data_that_it_is_given(tmp_path: Path) -> None:
    federation = Federation.from_frame(TABLE, "ill", "site", name="ward")
    experiment = Experiment.of(TINY, algorithm="local", training={"rounds": 1})
    matrix = audit(experiment, tmp_path, federation=federation, quiet=True)
    assert (matrix.dataset, matrix.clients) == ("ward", 3)
    runs = len(list((tmp_path / "runs").iterdir()))
    audit(experiment, tmp_path, federation=federation, quiet=True)
    assert len(list((tmp_path / "runs").iterdir())) == runs
    audit(experiment, tmp_path, federation=Federation.from_frame(TABLE[::-1], "ill", "site", name="ward"), quiet=True)
    assert len(list((tmp_path / "runs").iterdir())) == 2 * runs  # other data, other folders


def test_no_client_scores_zero_for_want_of_test_samples() -> None:
    federation = Federation.from_frame(TABLE, "ill", "site", test=0.25)
    with pytest.raises(
        CoveyError, match=r"evaluation\.samples = 2 leaves \d of 3 clients without a test sample, first client"
    ):
        run(Experiment.of(TINY, evaluation={"samples": 2}), federation=federation, quiet=True)


def test_runs_on_other_data_of_one_name_do_not_compare(tmp_path: Path) -> None:
    for name, table in (("a", TABLE), ("b", TABLE.assign(age=TABLE.age + np.arange(N)))):
        run(
            Experiment.of(TINY), federation=Federation.from_frame(table, "ill", "site"), out=tmp_path / name, quiet=True
        )
    page = write_comparison([tmp_path / "a", tmp_path / "b"], tmp_path / "c.html").read_text()
    assert "different data of one name (the training samples, the test samples)" in page
    page = write_comparison([tmp_path / "a", tmp_path / "a"], tmp_path / "c.html").read_text()
    assert "different data" not in page


# ---------------------------------------------------------------- hearts, and the command


def test_hearts_are_four_hospitals() -> None:
    data = load("heart")
    sizes = np.bincount(np.concatenate([data.owners, data.test_owners]))
    assert dict(zip(data.holders, sizes.tolist())) == {
        "Cleveland": 303,
        "Hungary": 294,
        "Switzerland": 123,
        "VA Long Beach": 200,
    }
    assert np.concatenate([data.y_train, data.y_test]).sum() == 509 and data.classes == ("no", "yes")
    assert Experiment.of(dataset="heart").partition.name == "natural"
    for hospital in range(4):
        assert np.abs(data.x_train[data.owners == hospital, 0].mean()) < 1e-5


def test_the_command_says_what_it_sees(tmp_path: Path) -> None:
    path = tmp_path / "ward.csv"
    TABLE.to_csv(path, index=False)
    asked = ["data", "check", str(path), "--set", "data.label=ill"]
    told = CliRunner().invoke(commands(), asked).output
    assert "numbers from" in told and "1 missing" in told and "column 'site' may say whose a row is" in told
    told = CliRunner().invoke(commands(), [*asked, "--set", "data.client=site"]).output
    assert "clients: 3, with training rows: n 18, s 18, w 18" in told
    assert f"covey run {path} --set data.label=ill --set data.client=site" in told and "[silos]" in told
