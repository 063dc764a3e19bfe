"""What a run says beside accuracy: on data of which 97 % is one class, of clients that fare worse, by a metric of one's own."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from covey import Experiment, run
from covey.data.dataset import Dataset
from covey.data.federation import Federation
from covey.engines.evaluation import RoundScores, Score, Scores, accuracies
from covey.engines.settle import cut
from covey.errors import CoveyError
from covey.report.comparison import lede
from covey.report.format import percent
from covey.report.sections.summary import main_accuracy
from covey.report.terminal import closing_lines
from covey.results.folder import RunFolder
from covey.results.follow import leading
from covey.rounds.loop import Result
from covey.rounds.result import read_result


def rare(clients: int = 4, share: float = 0.03) -> Federation:
    """Noise, of which a few samples carry the other label; client 0 has more of them than the others."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(400, 5)).astype(np.float32), (rng.random(400) < share).astype(np.int64)
    data = Dataset("rare", x[:200], y[:200], x[200:], y[200:], ("healthy", "ill"), kind="real")
    rows = tuple(np.arange(200)[i::clients] for i in range(clients))
    ill = np.full(clients, share)
    ill[0] = 0.3
    return Federation(data, rows, None, data.y_test, np.stack([1 - ill, ill], axis=1))


def missed(outputs: np.ndarray, targets: np.ndarray, weights: np.ndarray) -> float:
    """Share of the ill that are not recognised, and never counted as anything else."""
    assert outputs.shape == (len(targets), 2) and outputs.sum(1) == pytest.approx(1, abs=1e-5)
    assert (weights > 0).all() and weights.sum() == pytest.approx(1)
    ill = targets == 1
    return float((weights * ill * (outputs.argmax(1) == 0)).sum() / (weights * ill).sum())


def table(**changed: object) -> dict[str, object]:
    training = {"rounds": 2, "epochs": 5, "batch_size": 10, "lr": 0.3}
    base = {"algorithm": "fedavg", "clients": 4, "clusters": 1, "model": "softmax", "training": training}
    return base | {"engine": {"workers": 1}} | changed


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> Result:
    asked = {"evaluation": {"metrics": ["f1", "auc", f"{__name__}:missed"]}}
    out = tmp_path_factory.mktemp("rare")
    return run(Experiment.of(table(**asked)), federation=rare(), out=out, quiet=True)


def test_accuracy_does_not_hide_the_rare_class(result: Result) -> None:
    assert result.accuracy["client_mean"] > 0.85
    assert result.metrics["balanced_accuracy"]["mean"] < 0.65
    assert result.classes["uneven"] and len(result.classes["recall"]) == 2
    text = "\n".join(closing_lines(result))
    assert "balanced_accuracy" in text and "classes are uneven" in text


def test_every_client_and_every_class_is_on_record(result: Result) -> None:
    for record in result.records:
        accuracy = record["metrics"]["accuracy"]
        assert len(accuracy["clients"]) == 4
        assert accuracy["mean"] == pytest.approx(record["accuracy"]["client_mean"])
        assert accuracy["worst"] == pytest.approx(min(accuracy["clients"]), abs=1e-6)
    worst = result.metrics["accuracy"]
    assert worst["gap"] == pytest.approx(worst["best"] - worst["worst"]) and worst["gap"] > 0.1


def test_an_own_metric_stands_with_the_others(result: Result) -> None:
    own = result.metrics["missed"]
    recall = result.classes["recall"][1]
    assert own["mean"] == pytest.approx(1 - recall, abs=1e-5)  # all clients use one model on the same test samples
    assert own["title"].startswith("Share of the ill") and not own["as_share"]
    assert "missed" in "\n".join(closing_lines(result))


def test_the_folder_reads_back_what_the_run_said(result: Result) -> None:
    assert result.folder is not None
    again = read_result(RunFolder(result.folder))
    assert again.metrics == json.loads(json.dumps(result.metrics)) and again.classes == result.classes


def test_seeds_have_a_mean_and_a_deviation_of_every_metric() -> None:
    both = run(Experiment.of(table(seeds=2)), federation=rare(), quiet=True)
    assert both.seeds is not None
    assert both.metrics["loss"]["worst"] == both.seeds["mean"]["metrics.loss.worst"]
    assert "metrics.balanced_accuracy.mean" in both.seeds["std"]


def test_what_is_no_metric_is_refused_before_the_first_round(tmp_path: Path) -> None:
    for name, words in (("acuracy", "did you mean"), ("os:sep", "expected a function"), ("nowhere:f", "no module")):
        with pytest.raises(CoveyError, match=words):
            Experiment.of(table(evaluation={"metrics": [name]}))
    with pytest.raises(CoveyError, match="'rmse', which is for numbers"):
        run(Experiment.of(table(evaluation={"metrics": ["rmse"]})), federation=rare(), quiet=True)


def broken(outputs: np.ndarray, targets: np.ndarray, weights: np.ndarray) -> float:
    raise ZeroDivisionError("no ill patients")


def test_a_metric_that_fails_says_which_one_and_why() -> None:
    asked = {"evaluation": {"metrics": [f"{__name__}:broken"]}}
    with pytest.raises(CoveyError, match="metric 'broken' failed with ZeroDivisionError: no ill patients"):
        run(Experiment.of(table(**asked)), federation=rare(), quiet=True)


def own(y: np.ndarray, task: str) -> Federation:
    x = np.random.default_rng(1).normal(size=(len(y), 3)).astype(np.float32)
    return Federation.from_arrays(x, y, clients=np.arange(len(y)) % 3, task=task)


def test_predicted_numbers_have_errors_and_no_accuracy(tmp_path: Path) -> None:
    y = np.random.default_rng(2).normal(5, 2, size=(90, 2)).astype(np.float32)
    experiment = Experiment.of(table(clients=3))
    result = run(experiment, federation=own(y, "numbers"), out=tmp_path, quiet=True)
    assert result.accuracy == {} and set(result.metrics) == {"loss", "rmse", "mae"}
    assert result.metrics["rmse"]["worst"] >= result.metrics["rmse"]["mean"] > result.metrics["mae"]["mean"] > 0
    text = "\n".join(closing_lines(result))
    assert "rmse" in text and "which have no accuracy" in text
    page = (tmp_path / "report.html").read_text()
    assert "RMSE" in page and "Each output" in page and result.json()["accuracy"] == {}
    with pytest.raises(CoveyError, match="is an accuracy, and this data's targets are numbers"):
        run(Experiment.of(table(clients=3), training={"target": 0.5}), federation=own(y, "numbers"), quiet=True)
    both = run(Experiment.of(table(clients=3, seeds=2)), federation=own(y, "numbers"), quiet=True)
    assert both.accuracy == {} and both.seeds is not None and "metrics.rmse.mean" in both.seeds["std"]


def test_several_labels_are_right_together_or_each() -> None:
    y = (np.random.default_rng(3).random((90, 2)) < 0.5).astype(np.float32)
    asked = {"evaluation": {"metrics": ["auc"]}}
    result = run(Experiment.of(table(clients=3, **asked)), federation=own(y, "labels"), quiet=True)
    assert result.accuracy["client_mean"] <= min(result.metrics["balanced_accuracy"]["best"], 1.0)
    assert set(result.metrics) == {"accuracy", "balanced_accuracy", "f1", "loss", "auc"}
    assert "classes are uneven" not in "\n".join(closing_lines(result))


def test_without_true_clusters_the_clients_mean_leads_everywhere(tmp_path: Path) -> None:
    table = {
        "dataset": "heart",
        "partition": {"name": "natural", "drawn": True},
        "clusters": 3,
        "model": "softmax",
        "start": {"common": False},
        "training": {"rounds": 2, "epochs": 1, "batch_size": 16, "lr": 0.1},
        "engine": {"workers": 1},
    }
    result = run(Experiment.of(table, seeds=2), out=tmp_path / "run", quiet=True)
    own = result.accuracy["client_mean"]
    assert result.accuracy["leads"] == "client_mean" and result.seeds is not None
    lines = closing_lines(result)
    assert f"{percent(own)} ± {percent(result.seeds['std']['accuracy.client_mean'])}" in lines[0]
    assert "mean over clients" in lines[0]
    apart = replace(
        result, accuracy={**result.accuracy, "average_cluster": own - 0.1}
    )  # it is told where it is another number
    assert f"{percent(own - 0.1)} is average over clusters" in closing_lines(apart)[1]
    folder = RunFolder(tmp_path / "run")
    assert leading(folder.result_json()) == own and main_accuracy(folder.read()) == (
        own,
        "mean over clients, each on its own distribution",
    )
    assert "Clients&#39; own data" in comparison_headline(folder) or "Clients' own data" in comparison_headline(folder)

    # With true clusters, and in results from before this was said, it is the clusters' mean.
    known = {"client_mean": 0.5, "average_cluster": 0.6, "global": 0.4}
    assert leading({"accuracy": known}) == 0.6 and leading({"accuracy": {**known, "leads": "client_mean"}}) == 0.5
    assert leading({"accuracy": {**known, "leads": "something else"}}) == 0.6


def comparison_headline(folder: RunFolder) -> str:
    return lede([folder.read(), folder.read()])[0]


def score(client: int, own: float, index: int) -> Score:
    return Score(client, own, own / 2, index, [own, own], {"accuracy": own}, torch.tensor([own, 1.0]))


def test_figures_of_clients_as_one_are_looked_at_last() -> None:
    """They may still be under way from a GPU; who is with whom is known before."""
    looked: list[int] = []

    def figures(kind: int) -> Score:
        looked.append(kind)
        return score(7, (0.5, 0.75)[kind], kind)

    scores = RoundScores(None)
    scores.add(Scores(np.array([1, 2, 5]), np.array([0, 1, 0]), [0, 1], figures))
    grouped = scores.grouped()
    assert grouped.clients == [1, 2, 5]
    assert [places.tolist() for places in grouped.members if not isinstance(places, slice)] == [[0, 2], [1]]
    assert not looked
    assert scores.own.tolist() == [0.5, 0.75, 0.5]
    assert {cluster: totals.tolist() for cluster, totals in scores.totals.items()} == {0: [1.0, 2.0], 1: [0.75, 1.0]}
    assert looked == [0, 1]  # once


def test_clients_as_one_and_alone_are_scored_side_by_side() -> None:
    scores = RoundScores(None)
    scores.add(score(0, 0.25, 0))
    scores.add(Scores(np.array([1, 2]), np.array([0, 0]), [1], lambda kind: score(1, 0.5, 1)))
    scores.add(score(3, 1.0, 0))
    assert scores.own_by_client() == {0: 0.25, 1: 0.5, 2: 0.5, 3: 1.0}
    assert scores.clusters.tolist() == [0, 1, 1, 0]
    assert {cluster: totals.tolist() for cluster, totals in scores.totals.items()} == {0: [1.25, 2.0], 1: [1.0, 2.0]}
    record = accuracies(scores, scores.grouped(), intended=False)
    assert record["per_cluster"] == [pytest.approx(0.625), 0.5]


@pytest.mark.parametrize("algorithm", ["fedavg", "ifca", "fedem", "ditto"])  # one model, clusters, a mixture, own ones
def test_accuracy_on_training_samples_is_that_of_the_models_that_clients_end_with(algorithm: str) -> None:
    asked = table(algorithm=algorithm, clusters=1 if algorithm in ("fedavg", "ditto") else 2, partition="label_sets")
    experiment = Experiment.of(asked | {"dataset": "digits", "model": "fcnn", "seed": 3})
    silent = run(experiment, quiet=True)
    result = run(replace(experiment, evaluation=replace(experiment.evaluation, training=True)), quiet=True)
    federation = cut(experiment)
    data = federation.dataset
    right = [
        np.mean(np.array(result.predict(data.x_train[rows], client=i)) == np.array(data.classes)[data.y_train[rows]])
        for i, rows in enumerate(federation.clients)
    ]
    told = result.accuracy.pop("training")
    assert told == pytest.approx(np.mean(right), abs=1e-9) and told not in result.accuracy.values()
    assert result.accuracy == silent.accuracy and "training" not in result.records[0]["accuracy"]


def test_accuracy_on_training_samples_is_said_and_its_mean_over_seeds() -> None:
    asked = Experiment.of(table(dataset="digits", evaluation={"training": True}), seeds=2)
    result = run(asked, quiet=True)
    alone = [run(replace(asked, seed=seed, seeds=1), quiet=True).accuracy["training"] for seed in (0, 1)]
    assert result.accuracy["training"] == pytest.approx(np.mean(alone))
    assert f"{percent(np.mean(alone))} on the samples that clients train on" in "\n".join(closing_lines(result))


def test_numbers_have_no_accuracy_on_training_samples() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(60, 3)).astype(np.float32), rng.normal(size=60)
    federation = Federation.from_arrays(x, y, clients=np.arange(60) % 4, task="numbers")
    with pytest.raises(CoveyError, match=r"evaluation\.training asks for an accuracy"):
        run(Experiment.of(table(evaluation={"training": True})), federation=federation, quiet=True)
