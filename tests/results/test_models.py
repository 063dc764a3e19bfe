"""Results leave a run: models as modules, files and predictions; records as a frame; comparisons as tables."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import numpy as np
import pytest
import torch

from covey import Experiment, run
from covey.cli.main import main
from covey.data.sources.load import load
from covey.errors import CoveyError
from covey.results.folder import RunFolder
from covey.results.models import KeptModels, Models, keep
from covey.rounds.loop import Result
from covey.rounds.result import read_result

DIGITS = load("digits")


def small(algorithm: str = "ifca", **more: object) -> Experiment:
    table = {
        "algorithm": algorithm,
        "model": "softmax",
        "clients": 4,
        "clusters": 2,
        "partition": {"name": "label_sets", "public": 40},
        "training": {"rounds": 2, "epochs": 2, "lr": 0.3},
        "engine": {"workers": 1},
    }
    return Experiment.of(table, **more)


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> Result:
    return run(small(), out=tmp_path_factory.mktemp("runs") / "ifca", quiet=True)


@pytest.fixture(scope="module")
def again(result: Result) -> Result:
    assert result.folder is not None
    return read_result(RunFolder(result.folder))


def test_a_known_client_predicts_with_the_model_that_it_uses(result: Result, again: Result) -> None:
    models = result.trained()
    row = models.kept.rows[3]
    state = result.state.models[row]
    assert torch.equal(models.kept.models[row], state)
    module = again.module(client=3)
    x = torch.from_numpy(DIGITS.x_test[:20] / np.float32(255))
    with torch.no_grad():
        expected = module(x).softmax(1).numpy()
    assert again.probabilities(DIGITS.x_test[:20], client=3) == pytest.approx(expected, abs=1e-5)
    assert again.predict(DIGITS.x_test[:20], client=3) == [DIGITS.classes[c] for c in expected.argmax(1)]


def test_somebody_new_gets_the_cluster_that_fits_labelled_samples(again: Result) -> None:
    models = again.trained()
    for cluster in (0, 1):
        said = [int(c) for c in models.predict(DIGITS.x_test[:100], cluster=cluster)]
        own = np.isin(DIGITS.y_test, np.unique(said))
        x, y = DIGITS.x_test[own][:50], DIGITS.y_test[own][:50]
        assert models.nearest(x, y) == models.nearest(x, [DIGITS.classes[c] for c in y]) == cluster
        assert again.predict(x, labelled=(x, y)) == again.predict(x, cluster=cluster)


def test_nothing_is_guessed(again: Result) -> None:
    x = DIGITS.x_test[:2]
    for which, words in (
        ({}, "which model\\? kept are clusters 0 to 1: name a client or a cluster"),
        ({"cluster": 5}, "there is no cluster 5"),
        ({"client": 99}, "client 99 has no model"),
        ({"client": 0, "cluster": 0}, "both a client and a cluster"),
        ({"cluster": 0, "labelled": (x, [1, 2])}, "name neither"),
        ({"labelled": (x, [1])}, "2 labelled samples came with 1 labels"),
        ({"labelled": (x, ["cat", "dog"])}, "label 'cat' is none of"),
    ):
        with pytest.raises(CoveyError, match=words):
            again.predict(x, **which)


@pytest.mark.parametrize(
    ("x", "words"),
    [
        (DIGITS.x_test[0], "reads \\[n, 8, 8\\]"),
        (np.zeros((0, 8, 8)), "at least one"),
        (np.full((1, 8, 8), np.nan, np.float32), "sample 0 holds a number"),
        (np.full((1, 8, 8), 200.0), "pixels up to 200"),
        (np.full((1, 8, 8), "a"), "the model reads numbers"),
    ],
)
def test_samples_that_the_model_cannot_read_are_refused(again: Result, x: np.ndarray, words: str) -> None:
    with pytest.raises(CoveyError, match=words):
        again.predict(x, cluster=0)


def test_a_mixture_predicts_as_it_was_evaluated() -> None:
    result = run(small("fedem", start={"common": False}), quiet=True)
    models = result.trained()
    assert models.kept.mixtures.keys() == {0, 1, 2, 3} and models.kept.clusters == 2
    weights = models.kept.mixtures[1]["weights"]
    by_hand = sum(float(w) * models.probabilities(DIGITS.x_test[:9], cluster=j) for j, w in enumerate(weights))
    assert result.probabilities(DIGITS.x_test[:9], client=1) == pytest.approx(by_hand, abs=1e-6)
    with pytest.raises(CoveyError, match="mixture of 2 models: take a cluster's"):
        result.module(client=1)


def test_models_that_clients_have_to_themselves_are_kept_unless_they_are_too_many(monkeypatch) -> None:
    result = run(small("local"), quiet=True)
    assert result.trained().kept.clusters == 0 and len(result.trained().kept.models) == 4
    network, kept = result.trained().network, result.trained().kept
    monkeypatch.setattr("covey.results.models.MOST_BYTES", 3 * 4 * network.d)
    from covey.algorithms.contract import Predictor

    few = keep([(i, Predictor(m[None], None)) for i, m in enumerate(kept.models)], network, kept.classes)
    assert few.left_out == 4 and len(few.models) == 0
    with pytest.raises(CoveyError, match="not the 4 clients' own"):
        Models(few, network).choose(client=1)


def test_equal_models_of_different_clusters_stay_apart() -> None:
    from covey.algorithms.contract import Predictor

    network = run(small("fedavg", training={"rounds": 1}), quiet=True).trained().network
    same = torch.zeros(3, network.d)
    kept: KeptModels = keep([(0, Predictor(same, 2)), (1, Predictor(same.clone(), 0))], network, "ab")
    assert kept.clusters == 3 and kept.rows == {0: 2, 1: 0}


def test_records_are_a_frame(again: Result) -> None:
    frame = again.frame()
    assert list(frame.columns) == ["round", "metric", "scope", "id", "value"]
    last = frame[(frame["round"] == 2) & (frame["metric"] == "accuracy")]
    own = last[last["scope"] == "client"].set_index("id")["value"]
    assert own.mean() == pytest.approx(again.accuracy["client_mean"], abs=1e-5) and len(own) == 4
    clusters = last[last["scope"] == "cluster"]["value"].tolist()
    assert clusters == pytest.approx(again.accuracy["per_cluster"])
    recall = frame[(frame["metric"] == "recall") & (frame["scope"] == "class") & (frame["round"] == 2)]
    assert set(recall["id"]) <= set(DIGITS.classes) and len(recall) == 10


@pytest.mark.parametrize("form", ["safetensors", "state_dict", pytest.param("onnx", marks=pytest.mark.slow)])
def test_exported_files_say_what_the_run_says(again: Result, form: str, tmp_path: Path, capsys) -> None:
    assert main(["export", str(again.folder), "--to", form, "--out", str(tmp_path)]) == 0
    paths = [Path(line) for line in capsys.readouterr().out.split()]
    assert [p.stem for p in paths] == ["cluster-0", "cluster-1"]
    about = json.loads((tmp_path / "export.json").read_text())
    assert about["outputs"] == list(DIGITS.classes) and about["clients"]["3"] == again.trained().kept.rows[3]
    x = torch.from_numpy(DIGITS.x_test[:7] / np.float32(255))
    expected = again.module(cluster=1)(x).detach().numpy()
    if form == "onnx":
        runtime = pytest.importorskip("onnxruntime")
        given = runtime.InferenceSession(str(paths[1])).run(None, {"x": x.numpy()})[0]
    else:
        module = again.module(cluster=0)
        held = torch.load(paths[1]) if form == "state_dict" else _safetensors(paths[1])
        module.load_state_dict(held)
        given = module(x).detach().numpy()
    assert given == pytest.approx(expected, abs=1e-5)


def _safetensors(path: Path) -> dict[str, torch.Tensor]:
    return pytest.importorskip("safetensors.torch").load_file(path)


def test_what_cannot_be_exported_is_said_in_a_sentence(again: Result, tmp_path: Path, capsys) -> None:
    folder = str(again.folder)
    coordinator = tmp_path / "coordinator"
    coordinator.mkdir()
    (coordinator / "result.json").write_bytes((again.folder / "result.json").read_bytes())
    (coordinator / "status.json").write_text("{}")
    for words, sentence in (
        ([str(coordinator)], "a coordinator keeps no models to predict with, its silos do"),
        ([folder, "--to", "tflite"], "cannot be exported to 'tflite'"),
        ([folder, "--cluster", "9"], "there is no cluster 9"),
        ([str(tmp_path)], "holds no models.bin"),
        ([str(tmp_path / "none")], "is no folder"),
    ):
        assert main(["export", *words]) == 2
        assert sentence in capsys.readouterr().err


def test_predict_reads_files_and_writes_lines(again: Result, tmp_path: Path, capsys) -> None:
    folder = str(again.folder)
    np.savez(tmp_path / "new.npz", x=DIGITS.x_test[:3])
    rows = "\n".join(",".join(map(str, row.reshape(-1))) for row in DIGITS.x_test[:3])
    (tmp_path / "new.csv").write_text(",".join(f"p{i}" for i in range(64)) + "\n" + rows)
    outputs = []
    for name in ("new.npz", "new.csv"):
        assert main(["predict", folder, str(tmp_path / name), "--cluster", "1"]) == 0
        outputs.append(capsys.readouterr().out)
    assert outputs[0] == outputs[1]
    lines = list(csv.DictReader(io.StringIO(outputs[0])))
    assert [line["prediction"] for line in lines] == again.predict(DIGITS.x_test[:3], cluster=1)
    np.savez(tmp_path / "labelled.npz", x=DIGITS.x_test[:40], y=DIGITS.y_test[:40])
    labelled = ["--labelled", str(tmp_path / "labelled.npz"), "--out", str(tmp_path / "said.csv")]
    assert main(["predict", folder, str(tmp_path / "new.npz"), *labelled]) == 0
    assert "fits the labelled samples best" in capsys.readouterr().err
    assert len((tmp_path / "said.csv").read_text().splitlines()) == 4


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.txt", b"", "no kind that is read"),
        ("a.npz", b"no zip", "cannot be read as arrays"),
        ("a.csv", b"a,b\n", "no row under its header"),
        ("a.csv", b"a,b\n1\n", "line 2: 1 fields, the first line has 2"),
        ("a.csv", b"a,b\n1,x\n", "line 2: 'x' is no number"),
    ],
)
def test_files_that_hold_no_samples_are_refused(again: Result, tmp_path: Path, capsys, name, content, words) -> None:
    (tmp_path / name).write_bytes(content)
    assert main(["predict", str(again.folder), str(tmp_path / name), "--cluster", "0"]) == 2
    assert words in capsys.readouterr().err


def test_a_table_is_read_as_the_training_table_was(tmp_path: Path, capsys) -> None:
    rng = np.random.default_rng(0)
    age, sex = rng.normal(60, 15, 200), rng.choice(["f", "m"], 200)
    ill = np.where((age > 60) ^ (sex == "f"), "ill", "well")
    rows = "".join(f"{a:.1f},{s},{c},{i}\n" for a, s, c, i in zip(age, sex, ["north", "south"] * 100, ill))
    (tmp_path / "patients.csv").write_text("age,sex,hospital,label\n" + rows)
    table = {"dataset": str(tmp_path / "patients.csv"), "data": {"client": "hospital"}, "clients": 2, "clusters": 1}
    training = {"rounds": 4, "epochs": 5, "lr": 0.1}
    result = run(
        small("fedavg", **table, partition="natural", model="mlp", training=training), out=tmp_path / "run", quiet=True
    )
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"sex": sex, "age": np.round(age, 1), "unrelated": 1})  # other order, one column more
    said = result.predict(frame)
    assert np.mean(np.array(said) == ill) > 0.8
    (tmp_path / "new.csv").write_text("sex,age\nf,40\nm,40\n")
    assert main(["predict", str(tmp_path / "run"), str(tmp_path / "new.csv")]) == 0
    lines = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [line["prediction"] for line in lines] == result.predict(
        pandas.DataFrame({"age": [40, 40], "sex": ["f", "m"]})
    )
    for text, words in (
        ("sex,age\nx,4\n", "column 'sex' has the value 'x'"),
        ("age\n4\n", "no column 'sex', which was agreed on: add it to age"),
    ):
        (tmp_path / "bad.csv").write_text(text)
        assert main(["predict", str(tmp_path / "run"), str(tmp_path / "bad.csv")]) == 2
        assert words in capsys.readouterr().err


def test_a_run_of_several_seeds_points_to_their_folders(tmp_path: Path) -> None:
    both = run(small(seeds=2, training={"rounds": 1}), out=tmp_path, quiet=True)
    with pytest.raises(CoveyError, match=r"each seed has its own: give .*seed-0"):
        both.trained()
    assert RunFolder(tmp_path).seed(0).read_models().kept.clusters == 2


def test_runs_are_compared_as_tables(again: Result, tmp_path: Path, capsys) -> None:
    run(small("fedavg", training={"rounds": 1}), out=tmp_path / "100%_{fedavg}", quiet=True)
    folders = [str(again.folder), str(tmp_path / "100%_{fedavg}")]
    assert main(["compare", *folders, "--format", "csv"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [row["run"] for row in rows] == ["IFCA", "FedAvg"]
    assert float(rows[0]["Clients' own data"]) == again.accuracy["client_mean"]
    assert float(rows[0]["Worst client"]) == again.metrics["accuracy"]["worst"]
    assert main(["compare", folders[1], folders[1], "--format", "latex"]) == 0
    text = capsys.readouterr().out
    assert r"100\%\_\{fedavg\}" in text and text.startswith(r"\begin{tabular}{l") and r"\bottomrule" in text
    assert main(["compare", *folders, "--format", "markdown", "--out", str(tmp_path / "t.md")]) == 0
    assert (tmp_path / "t.md").read_text().count("\n") == 4
    assert main(["compare", *folders, "--format", "word"]) == 2
