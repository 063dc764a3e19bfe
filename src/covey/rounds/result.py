"""What a run ends with: `Result` in Python, `result.json` (schema 1) on disk, `report.html` to look at."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from torch import nn

from covey.attacks.contract import Finding
from covey.errors import CoveyError, Damaged
from covey.experiment.experiment import Experiment
from covey.files import number
from covey.measures import LEADS
from covey.metrics.metric import facts
from covey.results.contents import dig, fields
from covey.results.declared import declare
from covey.results.figures import Figures
from covey.results.folder import RunFolder
from covey.results.frame import frame
from covey.results.models import Models
from covey.results.provenance import Sitting, ended, versions
from covey.rounds.record import Spend
from covey.statistics import deviation


@dataclass(frozen=True)
class Result(Figures):
    """The figures of a run, which a notebook shows as its report, and its models."""

    def trained(self) -> Models:
        """What its clients predict with."""
        if self.models is None and self.folder is None:
            raise CoveyError("this result has no models: those of several seeds are in their folders (run with `out`)")
        return self.models or RunFolder(cast(Path, self.folder)).read_models()

    def module(self, cluster: int | None = None, client: int | str | None = None) -> nn.Module:
        """A torch module with the weights of a cluster's or a client's model; of the only one where there is one."""
        return self.trained().module(cluster, client)

    def predict(self, x: Any, **which: Any) -> list[Any]:
        """The class (labels, numbers) of each sample. `which`: client=…, cluster=…, or labelled=(samples, labels) of somebody new.

        Where several models are kept and nothing says which, covey refuses to guess; see docs/results_out.md.
        """
        return self.trained().predict(x, **which)

    def probabilities(self, x: Any, **which: Any) -> NDArray[np.float32]:
        """[n, outputs] of samples: probabilities of classes or labels, or the numbers; `which` as for `predict`."""
        return self.trained().probabilities(x, **which)

    def frame(self) -> Any:
        """All that the rounds recorded as a long pandas frame: round, metric, scope, id, value."""
        return frame(self.records, self._class_names())

    def _class_names(self) -> list[str]:
        if self.models is not None:
            return self.models.kept.classes
        return (
            [] if self.folder is None else [str(c) for c in RunFolder(self.folder).read().federation.get("classes", [])]
        )

    def __str__(self) -> str:
        """What a run in the terminal ends with; its repr has every figure."""
        from covey.report.terminal import closing_lines

        return "\n".join(closing_lines(self))

    def _repr_html_(self) -> str | None:
        """A notebook that ends a cell with a result shows its report."""
        try:
            from covey.report.notebook import inline

            return inline(self)
        except ImportError:  # no jinja2 on a bare GPU machine: its repr then
            return None


def summarise(
    experiment: Experiment,
    records: list[dict[str, Any]],
    findings: list[Finding],
    spends: list[Spend],
    seconds: dict[str, float],
    state: Any,
    folder: RunFolder | None,
    command: str,
    stand_in: str,
    data: dict[str, Any] | None = None,
    models: Models | None = None,
    sittings: Sequence[Sitting] = (),
    start: str = "",
    figures_only: bool = False,
) -> Result:
    """The result of a finished run; with a folder also its files, or its figures only."""
    evaluated = [r for r in records if r["accuracy"]]
    measured = [r for r in records if r.get("metrics")]
    total: dict[str, float] = defaultdict(float, seconds)
    for record in records:
        for phase, s in record["seconds"].items():
            total[phase] += s
    target = experiment.training.target
    hits = [r["round"] for r in evaluated if target and r["accuracy"][experiment.training.target_metric] >= target]
    result = Result(
        accuracy=evaluated[-1]["accuracy"] if evaluated else {},
        rounds=len(records),
        rounds_to_target=hits[0] if hits else None,
        seconds={phase: s for phase, s in total.items() if s > 0},
        bytes={way: float(np.mean([r["bytes"][way] for r in records])) for way in ("up", "down")},
        clustering=records[-1]["clustering"],
        attacks={f.attack: f.json() for f in findings},
        privacy=priced(spends),
        seed=experiment.seed,
        versions=versions(),
        provenance=ended(sittings),
        start=start,
        algorithm=experiment.algorithm.name,
        dataset=experiment.data_name,
        data={k: v for k, v in (data or {}).items() if k != "parts"},
        stand_in=stand_in,
        model=str(experiment.model),
        encryption=experiment.encryption,
        defence=experiment.defence.name if experiment.defence else "none",
        compression=experiment.compression.name if experiment.compression else "none",
        command=command,
        declared=declare(experiment, state),
        metrics=_declared(experiment.evaluation.metrics, measured[-1]["metrics"]) if measured else {},
        classes=measured[-1].get("classes", {}) if measured else {},
        records=records,
        state=state,
        models=models,
        findings=findings,
        folder=folder.path if folder else None,
    )
    if folder and models is not None:
        folder.write_models(models)
    _write(result, figures_only)
    return result


def summarise_seeds(
    results: list[Result], folder: RunFolder | None, command: str, figures_only: bool = False
) -> Result:
    """The first seed's result with mean accuracies in place of its own, and mean ± std of all its figures under `seeds`."""
    if len(results) == 1:
        return _in(folder, replace(results[0], command=command), figures_only)
    flat = [numbers(r.json(), "") for r in results]
    names = [n for n in flat[0] if all(n in f for f in flat)]
    mean = {n: float(np.mean([f[n] for f in flat])) for n in names}
    std = {n: deviation([f[n] for f in flat]) for n in names}
    first = results[0]
    accuracy = (
        {
            k: mean[f"accuracy.{k}"]
            for k in ("average_cluster", "client_mean", "global", "training")
            if f"accuracy.{k}" in mean
        }
        if first.accuracy
        else {}
    )
    if accuracy:
        per_cluster = [r.accuracy["per_cluster"] for r in results]
        same = len({len(p) for p in per_cluster}) == 1
        accuracy["per_cluster"] = np.mean(per_cluster, axis=0).tolist() if same else per_cluster[0]
        accuracy |= {k: v for k, v in first.accuracy.items() if k == LEADS}
    metrics = {name: _mean_of(entry, f"metrics.{name}", mean) for name, entry in first.metrics.items()}
    seeds = {"n": len(results), "mean": mean, "std": std}
    whole = replace(first, accuracy=accuracy, metrics=metrics, seeds=seeds, command=command, models=None)
    return _in(folder, whole, figures_only)


def _mean_of(entry: dict[str, Any], path: str, mean: dict[str, float]) -> dict[str, Any]:
    """A metric's figures, each the mean over seeds; lists of clusters are left out, whose order may differ."""
    return {k: mean.get(f"{path}.{k}", v) for k, v in entry.items() if not isinstance(v, list)}


def _declared(asked: Sequence[str], metrics: dict[str, Any]) -> dict[str, Any]:
    """A round's metrics without each client's value (metrics.jsonl has them), and with what the metrics say of themselves."""
    return {
        name: {k: v for k, v in entry.items() if k != "clients"} | facts(asked, name) for name, entry in metrics.items()
    }


def _in(folder: RunFolder | None, result: Result, figures_only: bool) -> Result:
    placed = replace(result, folder=folder.path if folder else None)
    if folder:
        folder.write_records(placed.records)
    _write(placed, figures_only)
    return placed


def read_result(folder: RunFolder) -> Result:
    """A finished run as its folder has it: without the final state and with its attacks as result.json tells them."""
    content = folder.result_json()
    known = {f.name for f in dataclasses.fields(Result)}
    try:
        return Result(**{k: v for k, v in content.items() if k in known}, records=folder.records(), folder=folder.path)
    except TypeError as e:
        found = f"{folder.result} is damaged (figures are missing)"
        raise Damaged(f"{found}: remove it and run again", found) from e


def is_complete(experiment: Experiment, folder: RunFolder) -> bool:
    """Whether a finished run has all that is asked for: every seed, all rounds or the target before, each attack's finding.

    Else there is something to go on with: a run may have been stopped by a callback, or an attack may have had no finding.
    """
    if not folder.finished:
        return False
    try:
        result = read_result(folder)
    except Damaged:  # what is there to go on from may make it anew
        return False
    told, training = result.json(), experiment.training
    whole = number(told.get("rounds")) or 0
    reached = number(dig(told, "accuracy", training.target_metric)) or 0.0
    enough = whole >= training.rounds or (whole > 0 and 0 < training.target <= reached)
    seeds = dig(told, "seeds", "n") or 1
    found = {a.name for a in experiment.attacks} <= fields(told.get("attacks")).keys()
    return enough and seeds == experiment.seeds and found and len(result.records) >= whole


def _write(result: Result, figures_only: bool) -> None:
    if result.folder is None:
        return
    RunFolder(result.folder).write_result(result.json())
    if figures_only:
        return
    try:
        from covey.report.page import write_report

        write_report(result.folder)  # imports jinja2 only here
    except ImportError:  # jinja2 is not there on a bare GPU machine; the figures are
        return


def priced(spends: list[Spend], delta: float | None = None) -> dict[str, Any]:
    """The ledger of a run; `delta` overrides the δ that its events carry."""
    if not spends:
        return {}
    from covey.ledger.pricing import price

    try:
        return price(spends, delta)
    except ImportError as absent:  # a bare GPU machine has no accountant: no figure is better than a home-made one
        return {"unpriced": {"events": len(spends), "why": f"{absent.name} is not installed here"}}


def numbers(value: Any, path: str) -> dict[str, float]:
    """Every number of a tree, by its dotted path."""
    if isinstance(value, dict):
        inner = [
            numbers(v, f"{path}.{k}" if path else str(k))
            for k, v in value.items()
            if k not in ("versions", "details", "declared", "provenance")
        ]
        return {k: v for part in inner for k, v in part.items()}
    return {path: float(value)} if isinstance(value, int | float) and not isinstance(value, bool) else {}
