"""How a run of a table ended: finished, or diverged, which is a result too and no hole in the table.

A run that ended in values that are not finite is kept (`diverged.json` in its folder), packed, and not tried again. One rule for
tables that have a place for it (`Options.tried`): its seed has no figure, the cell shows the mean of the others and how many
diverged, a contrast pairs the seeds that all of its cells have, and whatever these say is *undecided*: the seeds that went well are
a selection, which flatters the method that diverges. Tables without a place for it (`Options.run`) are refused.
"""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar

import numpy as np
import torch

from covey import files
from covey.engines.prepare import device_of, prepare
from covey.engines.settle import data_line, settle
from covey.errors import CoveyError, Damaged, NotFinite, Unavailable
from covey.experiment.experiment import Experiment
from covey.learn.kernels.kernels import taken
from covey.results.folder import RunFolder
from covey.results.provenance import MODEL, Sitting, ended, sitting
from covey.rounds.completion import complete

DIVERGED = "diverged.json"
RECORDED = {"round", "accuracy", "seconds"}  # by every record of any version, and by every result:
TOLD = {"accuracy": dict, "attacks": dict, "bytes": dict, "rounds": int, "seconds": dict}


@dataclass(frozen=True)
class Outcome:
    """A finished run as its folder tells it: result.json, and one record per round."""

    stands_in: ClassVar[bool] = False  # for a run that is not there: `rehearsal.py`

    result: dict[str, Any]
    records: list[dict[str, Any]]

    @classmethod
    def of(cls, folder: RunFolder) -> Outcome:
        """Refused where it is damaged, which says nothing about the run: no table may take it for one that cannot be had."""
        try:
            result, records = folder.result_json(), folder.records()
            _refuse_damaged(folder, result, records)
        except Damaged as e:
            raise Unavailable(
                f"{e.found}: remove the folder {folder.path}, and the same command computes this run again"
            ) from e
        return cls(result, records)

    def accuracy(self, round: int | None = None, metric: str = "average_cluster") -> float:
        """At the last evaluated round, or at the last one up to `round`."""
        evaluated = [r for r in self.records if r["accuracy"] and (round is None or r["round"] <= round)]
        return float(evaluated[-1]["accuracy"][metric])

    def curve(self, metric: str = "average_cluster") -> dict[int, float]:
        return {r["round"]: float(r["accuracy"][metric]) for r in self.records if r["accuracy"]}

    def attack(self, name: str) -> dict[str, Any]:
        if name not in self.result["attacks"]:
            raise CoveyError(
                f"a stored run has no finding of attack '{name}': delete it from the output folder and run again"
            )
        finding: dict[str, Any] = self.result["attacks"][name]
        return finding

    @property
    def sittings(self) -> list[Sitting]:
        """What computed it, and which model; none of runs from before this was kept."""
        known = {MODEL: self.result["model"]} if self.result.get("model") else {}
        return [one | known for one in self.result.get("provenance") or []]

    def seconds(self, phase: str) -> float:
        """Per round."""
        return float(np.mean([r["seconds"].get(phase, 0.0) for r in self.records]))

    @property
    def spent(self) -> float:
        """Seconds in all."""
        return float(sum(self.result.get("seconds", {}).values()))


def _refuse_damaged(folder: RunFolder, result: Mapping[str, Any], records: Sequence[Mapping[str, Any]]) -> None:
    """What is read as JSON may still be another's, or cut off."""
    odd = [name for name, kind in TOLD.items() if not isinstance(result.get(name), kind)]
    if odd:
        raise Damaged(f"{folder.result} is damaged (it does not tell {', '.join(odd)})")
    sittings = result.get("provenance")
    if not isinstance(sittings, list | None) or not all(isinstance(one, dict) for one in sittings or ()):
        raise Damaged(f"{folder.result} is damaged (its provenance is no list of sittings)")
    records = list(itertools.takewhile(lambda record: record.keys() >= RECORDED, records))
    if len(records) < result["rounds"]:
        raise Damaged(f"{folder.metrics} is damaged ({len(records)} of {result['rounds']} rounds can be read)")


@dataclass(frozen=True)
class Diverged:
    """A run that ended in values that are not finite."""

    why: str
    seed: int
    rounds: int | None = None  # that it finished before; None: not recorded
    spent: float = 0.0  # seconds; 0: not recorded
    sittings: list[Sitting] = field(default_factory=list)


Ended = Outcome | Diverged


def read(folder: RunFolder) -> Ended | None:
    """How the run in this folder ended; None: it has not."""
    if folder.finished:
        return Outcome.of(folder)
    path = folder.path / DIVERGED
    if not path.is_file():
        return None
    try:
        return Diverged(**json.loads(path.read_text(encoding="utf-8")))
    except (TypeError, ValueError) as e:
        raise Unavailable(f"{path} is damaged ({e}): remove it, and the run is tried again") from e


def completed(experiment: Experiment, folder: RunFolder, quiet: bool, figures_only: bool = False) -> Ended:
    """Read back where it has ended, resumed where it was interrupted, else run."""
    known = read(folder)
    if known is not None:
        return known
    begin = time.perf_counter()
    try:
        return Outcome.of(complete(experiment, folder, quiet=quiet, figures_only=figures_only))
    except NotFinite as e:
        seconds = time.perf_counter() - begin
        diverged = Diverged(str(e), experiment.seed, len(folder.records()), seconds, [_sitting(experiment)])
        files.write_json(folder.path / DIVERGED, asdict(diverged))
        return diverged


def _sitting(experiment: Experiment) -> Sitting:
    """Of a run that broke off before it wrote its own."""
    settled, federation = settle(experiment, None)
    _, network, _ = prepare(settled, federation)
    device, engine = device_of(experiment), experiment.engine
    kernel, data = taken(engine.kernel, network, torch.device(device)), data_line(settled, federation)
    return ended([sitting(device, kernel, engine.computes_in, 1, data) | {MODEL: network.name}])[0]


def finished(runs: Sequence[Ended]) -> list[Outcome]:
    return [run for run in runs if isinstance(run, Outcome)]


def figures(runs: Sequence[Ended], of: Callable[[Outcome], float]) -> list[float | None]:
    """One for each seed; None where the run diverged."""
    return [of(run) if isinstance(run, Outcome) else None for run in runs]


def said(row: str, runs: Sequence[Ended]) -> list[str]:
    """A note on a row whose runs did not all finish."""
    lost = [run for run in runs if isinstance(run, Diverged)]
    if not lost:
        return []
    seeds = ", ".join(str(run.seed) for run in lost)
    return [
        f"{row} diverged in {len(lost)} of {len(runs)} seeds (seed {seeds}: {lost[0].why}). Its figures are means of the "
        "others alone, and no sentence is decided by them."
    ]
