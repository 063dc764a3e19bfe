"""What ran, as it declared itself: written into result.json, so that nothing of it has to be imported to show the run.

A folder may come from another machine. Of an older one, or of one that is still running, what it names is asked of the
registries; a class that only its path names (`package.module:Class`) is never imported here, and says nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from covey.algorithms import ALGORITHMS
from covey.algorithms.contract import counts_models, declaration, models_of
from covey.defences import DEFENCES
from covey.errors import CoveyError
from covey.experiment.experiment import Experiment
from covey.files import number
from covey.measures import Measure
from covey.names import Registry
from covey.results.contents import Json, Run, dig, fields


@dataclass(frozen=True)
class Declared:
    label: str = ""  # of the algorithm, as its authors write it; "": nobody says what ran
    trains: str = ""  # "one", "clusters", "own"; "": nobody says
    models: int | None = None  # None: nobody says
    measures: Mapping[str, Measure] = field(default_factory=dict)  # of the algorithm and the defence

    def shown(self, way: str) -> list[str]:
        """What is to be shown in this way."""
        return [key for key, measure in self.measures.items() if measure.shown == way]


def declare(experiment: Experiment, state: Any) -> Json:
    """What a finished run writes about what ran."""
    what = declaration(experiment.algorithm)
    measures = {**_measures(experiment.defence), **what.measures}
    return {
        "label": what.label,
        "trains": what.trains,
        "models": models_of(experiment.algorithm, state, experiment.clients, experiment.clusters),
        "measures": {key: _written(measure) for key, measure in measures.items()},
    }


def read(content: Mapping[str, Any]) -> Declared:
    """Back from `declare`, with patience for what another version wrote."""
    models = number(content.get("models"))
    measures = {str(key): one for key, entry in fields(content.get("measures")).items() if (one := _measure(entry))}
    return Declared(
        label=str(content.get("label") or ""),
        trains=str(content.get("trains") or ""),
        models=None if models is None else int(models),
        measures=measures,
    )


def declared(run: Run) -> Declared:
    """What a run's folder says, else what the registries say about the names in it."""
    if content := fields(run.result.get("declared")):
        return read(content)
    name, defence = run.word("algorithm"), run.word("defence")
    what = _registered(ALGORITHMS, name)
    noise = _measures(_registered(DEFENCES, defence))
    if name is None or what is None:
        return Declared(ALGORITHMS.label(name) if name else "", measures=noise)
    try:
        facts = declaration(what)
    except CoveyError:  # an installed package declares it wrongly: its old folders are shown all the same
        return Declared(ALGORITHMS.label(name), measures=noise)
    return Declared(facts.label, facts.trains, _models(what, run), {**noise, **facts.measures})


def _models(what: Any, run: Run) -> int | None:
    """As many as the configuration says, where the algorithm itself would not count them in its final state."""
    if counts_models(what):
        return None
    if (trains := declaration(what).trains) in ("one", "own"):
        return 1 if trains == "one" else run.clients
    clusters = number(dig(run.config, "clusters"))
    return None if clusters is None else int(clusters)


def _registered(registry: Registry, name: str | None) -> Any:
    try:
        return registry.installed(name) if name else None
    except CoveyError:
        return None


def _measures(owner: Any) -> Mapping[str, Measure]:
    return getattr(owner, "measures", None) or {}


def _written(measure: Measure) -> Json:
    """Only what is not as usual."""
    usual = asdict(Measure(""))
    return {key: value for key, value in asdict(measure).items() if value != usual[key]}


def _measure(entry: Any) -> Measure | None:
    content = fields(entry)
    alarm, axes = number(content.get("alarm")), content.get("axes")
    values: dict[str, Any] = {
        k: str(content[k]) for k in ("title", "unit", "words", "shown", "beside", "warning") if k in content
    }
    values |= {"secret": True} if content.get("secret") is True else {}
    values |= {} if alarm is None else {"alarm": alarm}
    values |= {"axes": (str(axes[0]), str(axes[1]))} if isinstance(axes, list) and len(axes) == 2 else {}
    try:
        return Measure(**{"title": "", **values})
    except CoveyError:  # a way of showing that this version does not know
        return None
