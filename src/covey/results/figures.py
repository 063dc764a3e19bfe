"""The figures that a run ends with, as result.json (schema 1) has them and as pages and terminals show them."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from covey.attacks.finding import Finding
from covey.files import finite
from covey.results.models import Models


@dataclass(frozen=True)
class Figures:
    """The figures of result.json, plus the final state for those who go on in Python."""

    accuracy: dict[
        str, Any
    ]  # average_cluster, per_cluster, client_mean, global, if asked for training; {}: numbers were predicted, or no silo reports
    rounds: int
    rounds_to_target: int | None
    seconds: dict[str, float]  # by phase
    bytes: dict[str, float]  # up, down: per client and round
    clustering: dict[str, float] | None  # accuracy, ari, nmi against the true partition
    attacks: dict[str, dict[str, Any]]
    privacy: dict[str, Any]
    seed: int
    versions: dict[str, str]
    algorithm: str
    dataset: str
    stand_in: str
    model: str
    encryption: str
    defence: str
    command: str
    data: dict[str, Any] = field(default_factory=dict)  # name and fingerprint of the data
    declared: dict[str, Any] = field(default_factory=dict)  # what ran, in its own words: see `results.declared`
    start: str = ""  # what the models were told of the true clusters before the first round, where they were
    provenance: list[dict[str, Any]] = field(default_factory=list)  # what computed it: see `results.provenance`
    compression: str = "none"
    metrics: dict[str, Any] = field(default_factory=dict)  # name -> mean, worst, p10, gap, … over clients, at the end
    classes: dict[str, Any] = field(default_factory=dict)  # of each class at the end: share, recall, precision, f1
    seeds: dict[str, Any] | None = None
    records: list[dict[str, Any]] = field(default_factory=list, repr=False)  # one per round, as in metrics.jsonl
    state: Any = field(default=None, repr=False)
    models: Models | None = field(
        default=None, repr=False
    )  # what clients predict with; of a run that was read back: see its folder
    findings: list[Finding] = field(default_factory=list, repr=False)
    folder: Path | None = None

    def json(self) -> dict[str, Any]:
        """result.json's content; what is infinite or undefined is None there."""
        left_out = {"records", "state", "models", "findings", "folder"}
        return {"schema": 1} | {k: finite(v) for k, v in vars(self).items() if k not in left_out}
