"""Loggers: what they are told of, what TensorBoard's and MLflow's own readers find, and one sentence where neither is there."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from covey import Experiment, run
from covey.errors import CoveyError
from covey.loggers import MLflow, TensorBoard, named, scalars, verdicts

SMALL: dict[str, Any] = {
    "clients": 4,
    "clusters": 2,
    "training": {"rounds": 3, "epochs": 1, "batch_size": 10, "lr": 0.1},
    "engine": {"workers": 1, "checkpoint_every": 1},
    "attacks": ["a1"],
}


class Witness:
    """Notes all that it is told."""

    def __init__(self, stop: int = 0, fail: int = 0) -> None:
        self.told: list[str] = []
        self.stop, self.fail = stop, fail

    def begin(self, experiment: Experiment, done: int) -> None:
        self.told.append(f"begin {experiment.seed} after {done}")

    def __call__(self, record: dict[str, Any], state: Any) -> None:
        self.told.append(f"round {record['round']}")
        if record["round"] == self.stop:
            raise StopIteration
        if record["round"] == self.fail:
            raise KeyboardInterrupt

    def end(self, result: Any) -> None:
        self.told.append("broken off" if result is None else f"end of {result.rounds}")


def test_a_run_tells_of_its_beginning_its_rounds_and_its_end() -> None:
    witness = Witness()
    run(Experiment.of(SMALL, seed=7), callbacks=[witness, lambda record, state: None], quiet=True)
    assert witness.told == ["begin 7 after 0", "round 1", "round 2", "round 3", "end of 3"]


def test_a_callback_that_has_seen_enough_still_hears_the_end() -> None:
    witness = Witness(stop=2)
    run(Experiment.of(SMALL), callbacks=[witness], quiet=True)
    assert witness.told == ["begin 0 after 0", "round 1", "round 2", "end of 2"]


def test_a_run_that_breaks_off_says_so_and_a_resumed_one_where_it_goes_on(tmp_path: Path) -> None:
    witness = Witness(fail=2)
    with pytest.raises(KeyboardInterrupt):
        run(Experiment.of(SMALL), out=tmp_path, callbacks=[witness], quiet=True)
    witness.fail = 0
    run(Experiment.of(SMALL), out=tmp_path, callbacks=[witness], resume=True, quiet=True)
    assert witness.told[2:] == ["round 2", "broken off", "begin 0 after 2", "round 3", "end of 3"]


def test_every_seed_is_a_run() -> None:
    witness = Witness()
    run(Experiment.of(SMALL, seeds=2, training={"rounds": 1}), callbacks=[witness], quiet=True)
    assert witness.told == ["begin 0 after 0", "round 1", "end of 1", "begin 1 after 0", "round 1", "end of 1"]


def test_numbers_by_hand() -> None:
    record = {
        "round": 3,
        "participants": 4,
        "dropped": 0,
        "accuracy": {"average_cluster": 0.5, "per_cluster": [0.25, 0.75], "global": None},
        "clustering": None,
        "bytes": {"up": 10.0, "down": 20.0},
        "seconds": {"train": 1.5},
        "clusters": [0, 1],
        "extra": {"condition": 3, "mingled": [[1]], "noise gain": float("inf")},
    }
    assert scalars(record) == {
        "participants": 4.0,
        "dropped": 0.0,
        "accuracy/average_cluster": 0.5,
        "accuracy/cluster_0": 0.25,
        "accuracy/cluster_1": 0.75,
        "bytes/up": 10.0,
        "bytes/down": 20.0,
        "seconds/train": 1.5,
        "extra/condition": 3.0,
    }
    assert scalars({"round": 1, "accuracy": None}) == {}


@pytest.mark.parametrize("extra", ["tensorboard", "mlflow"])
def test_what_is_not_installed_is_one_sentence(extra: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, extra, None)  # as Python marks a module that cannot be imported
    with pytest.raises(CoveyError, match=rf"^{extra} is not installed: `pip install 'covey\[{extra}\]'` adds it$"):
        named([extra], tmp_path)


def test_an_unknown_logger_gets_the_nearest_name(tmp_path: Path) -> None:
    with pytest.raises(CoveyError, match="unknown logger 'tensorbord', did you mean 'tensorboard'"):
        named(["tensorbord"], tmp_path)


def events(folder: Path) -> Any:
    reading = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    found = reading.EventAccumulator(str(folder), size_guidance={"scalars": 0, "tensors": 0})
    found.Reload()
    return found


def test_tensorboard_reads_back_what_a_run_recorded(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="tensorboard is not installed: pip install 'covey[tensorboard]'")
    result = run(Experiment.of(SMALL), callbacks=[TensorBoard(tmp_path)], quiet=True)
    found = events(tmp_path / "ifca-digits-seed0")
    tags = found.Tags()
    for record in result.records:
        for name, value in scalars(record).items():
            (event,) = (e for e in found.Scalars(name) if e.step == record["round"])
            assert event.value == pytest.approx(value, rel=1e-6)
    for name, value in verdicts(result).items():
        (event,) = found.Scalars(name)
        assert (event.step, event.value) == (3, pytest.approx(value, rel=1e-6))
    assert {"attacks/a1/value", "attacks/a1/chance"} <= set(tags["scalars"])
    (text,) = found.Tensors("experiment/text_summary")
    assert b'name = "ifca"' in text.tensor_proto.string_val[0]


def test_tensorboard_forgets_the_rounds_that_a_resumed_run_repeats(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="tensorboard is not installed: pip install 'covey[tensorboard]'")
    board = TensorBoard(tmp_path / "logs")
    run(Experiment.of(SMALL), callbacks=[board], quiet=True)
    board.begin(Experiment.of(SMALL), 1)  # from the checkpoint of round 1: rounds 2 and 3 come again
    board({"round": 2, "bytes": {"up": 123.0}}, None)
    board.end(None)
    found = events(tmp_path / "logs" / "ifca-digits-seed0").Scalars("bytes/up")
    assert [e.step for e in found] == [1, 2] and found[1].value == 123.0


@pytest.fixture(scope="module")
def empty_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """MLflow's tables, which it makes in a second and forty steps."""
    mlflow = pytest.importorskip("mlflow", reason="mlflow is not installed: pip install 'covey[mlflow]'")
    folder = tmp_path_factory.mktemp("mlflow")
    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(folder)
        mlflow.MlflowClient(f"sqlite:///{folder}/mlflow.db").search_experiments()
    return folder / "mlflow.db"


@pytest.fixture
def store(empty_store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    shutil.copy(empty_store, tmp_path / "mlflow.db")
    monkeypatch.chdir(tmp_path)
    return f"sqlite:///{tmp_path}/mlflow.db"


def test_mlflow_reads_back_what_a_run_recorded(store: str, tmp_path: Path) -> None:
    from mlflow import MlflowClient

    result = run(Experiment.of(SMALL), out=tmp_path / "run", callbacks=[MLflow(store)], quiet=True)
    client = MlflowClient(store)
    (found,) = client.search_runs([client.get_experiment_by_name("covey").experiment_id])
    assert (found.info.run_name, found.info.status) == ("ifca-digits-seed0", "FINISHED")
    assert (found.data.params["algorithm.name"], found.data.params["training.rounds"]) == ("ifca", "3")
    history = client.get_metric_history(found.info.run_id, "accuracy/average_cluster")
    assert [(m.step, m.value) for m in history] == [
        (r["round"], pytest.approx(r["accuracy"]["average_cluster"])) for r in result.records
    ]
    assert found.data.metrics["attacks/a1/value"] == pytest.approx(result.attacks["a1"]["value"])
    kept = {item.path for item in client.list_artifacts(found.info.run_id)}
    assert kept == {"config.toml", "result.json", "report.html"}


def test_mlflow_goes_on_where_a_run_broke_off(store: str, tmp_path: Path) -> None:
    from mlflow import MlflowClient

    with pytest.raises(KeyboardInterrupt):
        run(Experiment.of(SMALL), out=tmp_path / "run", callbacks=[MLflow(store), Witness(fail=2)], quiet=True)
    client = MlflowClient(store)
    place = [client.get_experiment_by_name("covey").experiment_id]
    (broken,) = client.search_runs(place)
    assert broken.info.status == "KILLED"
    run(Experiment.of(SMALL), out=tmp_path / "run", callbacks=[MLflow(store)], resume=True, quiet=True)
    (found,) = client.search_runs(place)
    assert (found.info.run_id, found.info.status) == (broken.info.run_id, "FINISHED")
    assert [m.step for m in client.get_metric_history(found.info.run_id, "bytes/up")] == [1, 2, 3]
    run(Experiment.of(SMALL), out=tmp_path / "again", callbacks=[MLflow(store)], quiet=True)
    assert len(client.search_runs(place)) == 2  # a run that begins anew is another one


def test_a_server_that_goes_away_costs_the_log_and_not_the_run(
    store: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from mlflow import MlflowClient
    from mlflow.exceptions import MlflowException

    real = MlflowClient.log_batch

    def failing(self: Any, run_id: str, metrics: Any = (), params: Any = ()) -> None:
        if metrics and metrics[0].step == 2:
            raise MlflowException("the server is\ngone")
        real(self, run_id, metrics=metrics, params=params)

    monkeypatch.setattr(MlflowClient, "log_batch", failing)
    result = run(Experiment.of(SMALL), callbacks=[MLflow(store)], quiet=True)
    assert result.rounds == 3
    assert capsys.readouterr().err.count("covey: MLflow is no longer written to: the server is") == 1
    with pytest.raises(CoveyError, match="MLflow at nowhere://x cannot be used"):
        MLflow("nowhere://x").begin(Experiment.of(SMALL), 0)
