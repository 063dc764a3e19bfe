"""A deployment in one process, for tests: real keys, letters, silos and coordinator; letters travel `InProcess`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from covey import Experiment, run
from covey.deploy import keys
from covey.deploy.agreed import samples_and_columns_at
from covey.deploy.coordinator import Coordinator
from covey.deploy.export import export
from covey.deploy.second_server import SecondServer
from covey.deploy.silo import Silo
from covey.deploy.transport import InProcess

NAMES = ["north", "south", "west", "east"]
MANY = [*NAMES, "hill", "lake", "moor", "dale", "cape", "isle"]  # where more silos than four are wanted
MANY += [f"ward-{number}" for number in range(len(MANY), 50)]


class Deployment:
    """Keys, data and parties of an experiment in a folder."""

    def __init__(self, folder: Path, experiment: Experiment, silos: int | None = None) -> None:
        names = MANY[: silos or experiment.clients]
        keys.make(experiment, names, ["localhost"], folder / "keys")
        export(experiment, folder / "data", names)
        self._open(folder, experiment, names)

    @classmethod
    def opened(cls, folder: Path, experiment: Experiment) -> Deployment:
        """Of a folder that has keys and data already."""
        deployment = cls.__new__(cls)
        deployment._open(folder, experiment, MANY[: experiment.clients])
        return deployment

    def _open(self, folder: Path, experiment: Experiment, names: list[str]) -> None:
        self.folder, self.experiment, self.names = folder, experiment, names
        self.said: list[str] = []
        self.parties: dict[str, Any] = {name: self.silo(name) for name in self.names}
        for name in getattr(experiment.algorithm, "further", ()):
            party, agreed = keys.load(folder / "keys" / name)
            self.parties[name] = SecondServer(party, agreed, folder / name, say=self.said.append)
        self.office = InProcess({name: self._handler(name) for name in self.parties})

    def silo(self, name: str, state: Path | None = None) -> Silo:
        at = self.folder / "keys" / "silos" / name
        party, agreed = keys.load(at)
        samples, columns = samples_and_columns_at(self.folder / "data" / name, agreed)
        state = state or self.folder / "state" / name
        return Silo(party, agreed, samples, state, columns=columns, share_accuracy=True, say=self.said.append, keys=at)

    def coordinator(self) -> Coordinator:
        party, agreed = keys.load(self.folder / "keys" / "server")
        return Coordinator(party, agreed, self.office, self.folder / "run", say=self.said.append)

    def _handler(self, name: str) -> Callable[[bytes], bytes]:
        return lambda data: bytes(self.parties[name].handle(data))


def rehearsal(algorithm: Any, **more: Any) -> Experiment:
    """A small experiment whose deployed and simulated runs can be compared."""
    if algorithm == "mingledpie":  # with two clusters T = 2 would show both of them always
        algorithm = {"name": "mingledpie", "threshold": 1}
    table = {
        "dataset": "digits",
        "clients": 4,
        "clusters": 2,
        "partition": {"name": "label_sets", "public": 40},
        "training": {"rounds": 3, "epochs": 1},
        "algorithm": algorithm,
        "deployment": {"rehearsal": True, "report_accuracy": True},
    }
    return Experiment.of(table, **more)


def simulated(experiment: Experiment) -> tuple[Any, dict[int, Any]]:
    """(the simulation's result, what each client would predict with at its end)."""
    uses: dict[int, Any] = {}
    algorithm = experiment.algorithm

    class Watched(type(algorithm)):  # type: ignore[misc]
        def use(self, me: Any, message: Any) -> Any:
            uses[me.id] = yield from super().use(me, message)
            return uses[me.id]

    watched = Watched(**{f.name: getattr(algorithm, f.name) for f in fields(algorithm)})
    engine = replace(experiment.engine, workers=1)
    return run(replace(experiment, algorithm=watched, engine=engine), quiet=True), uses
