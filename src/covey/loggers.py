"""Rounds on other people's dashboards: TensorBoard (`pip install covey[tensorboard]`) and MLflow (`pip install covey[mlflow]`).

    run(experiment, callbacks=[TensorBoard("logs")])
    covey run ifca-digits --log tensorboard --log mlflow

A logger is a callback that also wants to know when a run begins and ends. It gets the figures of metrics.jsonl and result.json and
computes none of its own. Neither package is imported before a logger is made.
"""

from __future__ import annotations

import hashlib
import importlib
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from covey.errors import CoveyError, nearest
from covey.experiment.experiment import Experiment
from covey.files import number
from covey.results.folder import RunFolder
from covey.rounds.result import Result


def scalars(record: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of a round by name: `accuracy/average_cluster`, `metrics/loss/worst`, `bytes/up`, `seconds/train`."""
    values = dict(_numbers("", {k: record.get(k) for k in ("participants", "dropped")}))
    for part in ("accuracy", "clustering", "bytes", "seconds", "extra"):
        values |= dict(_numbers(f"{part}/", record.get(part) or {}))
    for name, figures in (record.get("metrics") or {}).items():
        values |= dict(_numbers(f"metrics/{name}/", figures))
    for cluster, accuracy in enumerate((record.get("accuracy") or {}).get("per_cluster") or ()):
        values |= dict(_numbers("accuracy/", {f"cluster_{cluster}": accuracy}))
    return values


def verdicts(result: Result) -> dict[str, float]:
    """What only the end knows: every attack's score beside chance and controls, and what the ledger adds up to."""
    values: dict[str, float] = {}
    for name, attack in result.attacks.items():
        values |= dict(_numbers(f"attacks/{name}/", {k: attack.get(k) for k in ("value", "chance", "low", "high")}))
        values |= dict(_numbers(f"attacks/{name}/control_", attack.get("controls") or {}))
    for mechanism, entry in result.privacy.items():
        values |= dict(_numbers(f"privacy/{mechanism}/", {k: entry.get(k) for k in ("epsilon", "delta")}))
    return values


def _numbers(prefix: str, values: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    for name, value in values.items():
        if (size := number(value)) is not None:
            yield prefix + name.replace(" ", "_"), size


def title(experiment: Experiment) -> str:
    """Of a run among others: `ifca-digits-seed0`."""
    return f"{experiment.algorithm.name}-{experiment.stem}-seed{experiment.seed}"


@dataclass
class TensorBoard:
    """Event files in `folder/<algorithm>-<dataset>-seed<seed>`, for `tensorboard --logdir folder`.

    A run that is repeated or resumed writes over its later rounds: the first event tells readers to forget them.
    """

    folder: str | Path
    _writer: Any = field(default=None, init=False, repr=False)
    _last: int = field(default=0, init=False, repr=False)

    def __post_init__(self) -> None:
        _needs("tensorboard", "tensorboard.summary.writer.event_file_writer")

    def begin(self, experiment: Experiment, done: int) -> None:
        from tensorboard.compat.proto.event_pb2 import Event, SessionLog
        from tensorboard.compat.proto.summary_pb2 import Summary, SummaryMetadata
        from tensorboard.compat.proto.tensor_pb2 import TensorProto
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        self._writer, self._last = EventFileWriter(str(Path(self.folder) / title(experiment))), done
        start = SessionLog(status=SessionLog.START)
        self._writer.add_event(Event(wall_time=time.time(), step=done + 1, session_log=start))
        text = TensorProto(dtype="DT_STRING", string_val=[f"```toml\n{experiment.toml()}```".encode()])
        kind = SummaryMetadata(plugin_data=SummaryMetadata.PluginData(plugin_name="text"))
        value = Summary.Value(tag="experiment/text_summary", metadata=kind, tensor=text)
        self._writer.add_event(Event(wall_time=time.time(), step=done + 1, summary=Summary(value=[value])))

    def __call__(self, record: dict[str, Any], state: Any) -> None:
        self._last = int(record["round"])
        self._add(scalars(record))

    def end(self, result: Result | None) -> None:
        if result is not None:
            self._add(verdicts(result))
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def _add(self, values: Mapping[str, float]) -> None:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary

        summary = Summary(value=[Summary.Value(tag=name, simple_value=value) for name, value in values.items()])
        self._writer.add_event(Event(wall_time=time.time(), step=self._last, summary=summary))
        self._writer.flush()


@dataclass
class MLflow:
    """A run of the MLflow experiment `name`, with the configuration as parameters and the report as an artifact.

    `uri` is the tracking server's or store's; without one MLFLOW_TRACKING_URI counts, else MLflow's own choice. A resumed run goes
    on in the MLflow run that its beginning left unfinished. A server that cannot be reached at the beginning is an error; one that
    goes away later costs the log, never the run.
    """

    uri: str = ""
    name: str = "covey"
    _client: Any = field(default=None, init=False, repr=False)
    _run: str = field(default="", init=False, repr=False)
    _last: int = field(default=0, init=False, repr=False)
    _lost: bool = field(default=False, init=False, repr=False)

    def __post_init__(self) -> None:
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # what covey adds must not report on its user
        _needs("mlflow", "mlflow")

    def begin(self, experiment: Experiment, done: int) -> None:
        from mlflow.exceptions import MlflowException

        try:
            self._open(experiment, done)
        except MlflowException as e:
            where = self.uri or os.environ.get("MLFLOW_TRACKING_URI", "its usual place")
            raise CoveyError(f"MLflow at {where} cannot be used: {str(e).splitlines()[0][:200]}") from e

    def _open(self, experiment: Experiment, done: int) -> None:
        from mlflow import MlflowClient
        from mlflow.entities import Param, RunStatus

        self._client, self._lost = MlflowClient(tracking_uri=self.uri or None), False
        known = self._client.get_experiment_by_name(self.name)
        place = known.experiment_id if known else self._client.create_experiment(self.name)
        digest = hashlib.sha256(experiment.toml().encode()).hexdigest()[:16]
        self._last, self._run = done, self._unfinished(place, digest) if done else ""
        if self._run:
            self._client.update_run(self._run, status=RunStatus.to_string(RunStatus.RUNNING))
            return
        tags = {"covey.configuration": digest}
        self._run = self._client.create_run(place, run_name=title(experiment), tags=tags).info.run_id
        flat = list(_flat("", experiment.table()))
        for i in range(0, len(flat), 100):  # as many as a server takes at once
            self._client.log_batch(self._run, params=[Param(k, v[:6000]) for k, v in flat[i : i + 100]])
        self._client.log_text(self._run, experiment.toml(), "config.toml")

    def __call__(self, record: dict[str, Any], state: Any) -> None:
        self._last = int(record["round"])
        self._add(scalars(record))

    def end(self, result: Result | None) -> None:
        if result is not None:
            self._add(verdicts(result))
            self._try(lambda: self._client.log_dict(self._run, result.json(), "result.json"))
            report = RunFolder(result.folder).report if result.folder else None
            if report is not None and report.is_file():
                self._try(lambda: self._client.log_artifact(self._run, str(report)))
        status = "FINISHED" if result is not None else "KILLED"
        self._try(lambda: self._client.set_terminated(self._run, status=status))

    def _add(self, values: Mapping[str, float]) -> None:
        from mlflow.entities import Metric

        now = int(1000 * time.time())
        metrics = [Metric(name, value, now, self._last) for name, value in values.items()]
        for i in range(0, len(metrics), 1000):  # as many as a server takes at once
            batch = metrics[i : i + 1000]
            self._try(lambda batch=batch: self._client.log_batch(self._run, metrics=batch))  # type: ignore[misc]

    def _try(self, send: Callable[[], Any]) -> None:
        from mlflow.exceptions import MlflowException

        if self._lost:
            return
        try:
            send()
        except (MlflowException, OSError) as e:
            self._lost = True
            print(f"covey: MLflow is no longer written to: {str(e).splitlines()[0][:200]}", file=sys.stderr)

    def _unfinished(self, place: str, digest: str) -> str:
        wanted = f"tags.`covey.configuration` = '{digest}' and attributes.status != 'FINISHED'"
        runs = self._client.search_runs([place], wanted, max_results=1)  # the latest comes first
        return str(runs[0].info.run_id) if runs else ""


def _flat(prefix: str, table: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from _flat(f"{prefix}{key}.", value)
        else:
            yield f"{prefix}{key}", str(value)


def _needs(extra: str, module: str) -> Any:
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as e:
        raise CoveyError(f"{extra} is not installed: `pip install 'covey[{extra}]'` adds it") from e


LOGGERS: dict[str, Callable[[Path], Any]] = {
    "tensorboard": lambda folder: TensorBoard(folder / "tensorboard"),
    "mlflow": lambda folder: MLflow(),
}


def named(names: list[str], folder: Path) -> list[Any]:
    """The loggers of `--log`, for a run in this folder."""
    for name in names:
        if name not in LOGGERS:
            raise CoveyError(f"unknown logger '{name}'{nearest(name, list(LOGGERS))}")
    return [LOGGERS[name](folder) for name in dict.fromkeys(names)]
