"""How a run ends without its attackers: what attacks on others' models are compared with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from covey.algorithms.contract import Predictor
from covey.attacks.declaration import declaration
from covey.data.federation import Federation
from covey.errors import CoveyError
from covey.experiment.experiment import Experiment
from covey.results.folder import RunFolder, hash_of

Ends = dict[int, Predictor]
_latest: dict[
    str, Ends
] = {}  # the run without attackers -> how it ended; one, since all attacks on a seed are compared with it


def unharmed_ends(
    experiment: Experiment, federation: Federation | None, folder: RunFolder | None, run: Callable[..., Any]
) -> Ends:
    """What clients predict with in the end of the same run without attackers: read from a run beside this one that nobody
    disturbed, as an audit has it, else run.
    """
    alone = replace(experiment, attacks=(), seeds=1, out="")
    name = hash_of(alone)
    if name not in _latest:
        named = folder is not None and folder.path.name == hash_of(experiment)  # among runs that are kept to be shared
        ends = _beside(folder, name) if folder and named else None
        if ends is None:
            models = run(alone, federation=federation, quiet=True).models
            ends = {} if models is None else models.predictors()
        _latest.clear()
        _latest[name] = ends
    return _latest[name]


def _beside(folder: RunFolder, name: str) -> Ends | None:
    for path in sorted(folder.path.parent.iterdir()):
        other = RunFolder(path)
        if path == folder.path or not (other.finished and other.models.is_file()):
            continue
        try:
            watched, scored = other.experiment(), set(other.result_json().get("attacks", {}))
            passive = not any(declaration(attack).active for attack in watched.attacks)
            listed = scored <= {attack.name for attack in watched.attacks}  # nobody brought one along
            if passive and listed and hash_of(replace(watched, attacks=(), seeds=1, out="")) == name:
                return other.read_models().predictors()
        except CoveyError:  # somebody else's folder
            continue
    return None
