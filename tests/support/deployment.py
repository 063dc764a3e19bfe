"""A deployment in one process, for tests: real keys, letters, silos and coordinator; only the post office is a dictionary."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from covey import Experiment, run
from covey.deploy import keys
from covey.deploy.agreed import samples_at
from covey.deploy.coordinator import Coordinator
from covey.deploy.export import export
from covey.deploy.second_server import SecondServer
from covey.deploy.silo import Silo
from covey.errors import CoveyError

NAMES = ["north", "south", "west", "east"]


class Office:
    """Delivers a letter when its answer is asked for. `tamper` may change an answer on its way."""

    authenticated = True

    def __init__(self, handlers: dict[str, Callable[[bytes], bytes]]) -> None:
        self.handlers = handlers
        self.nodes = {name: n for n, name in enumerate(handlers)}
        self.away: set[str] = set()
        self.tamper: Callable[[str, bytes, bytes], bytes | None] = lambda name, call, answer: answer
        self._waiting: dict[str, tuple[str, bytes]] = {}
        self._sent = 0

    def admit(self, name: str, public: bytes) -> None:
        pass

    def present(self) -> set[int]:
        return {n for name, n in self.nodes.items() if name not in self.away}

    def begun(self) -> set[int]:
        return set()

    def undelivered(self) -> set[str]:
        return set()

    def wait(self, seconds: float) -> None:
        time.sleep(min(seconds, 0.1))  # nothing rings here

    def send(self, node: int, data: bytes, seconds: float) -> str:
        self._sent += 1
        (name,) = (n for n, i in self.nodes.items() if i == node)
        self._waiting[str(self._sent)] = (name, data)
        return str(self._sent)

    def receive(self, ids: list[str]) -> Iterator[tuple[str, bytes | None]]:
        for id in ids:
            name, data = self._waiting[id]
            if name in self.away:
                continue
            try:
                answer: bytes | None = self.tamper(name, data, self.handlers[name](data))
            except CoveyError:
                answer = None
            yield id, answer


class Deployment:
    """Keys, data and parties of an experiment in a folder."""

    def __init__(self, folder: Path, experiment: Experiment, silos: int | None = None) -> None:
        names = NAMES[: silos or experiment.clients]
        keys.make(experiment, names, ["localhost"], folder / "keys")
        export(experiment, folder / "data", names)
        self._open(folder, experiment, names)

    @classmethod
    def opened(cls, folder: Path, experiment: Experiment) -> Deployment:
        """Of a folder that has keys and data already."""
        deployment = cls.__new__(cls)
        deployment._open(folder, experiment, NAMES[: experiment.clients])
        return deployment

    def _open(self, folder: Path, experiment: Experiment, names: list[str]) -> None:
        self.folder, self.experiment, self.names = folder, experiment, names
        self.said: list[str] = []
        self.parties: dict[str, Any] = {name: self.silo(name) for name in self.names}
        for name in getattr(experiment.algorithm, "further", ()):
            party, agreed = keys.load(folder / "keys" / name)
            self.parties[name] = SecondServer(party, agreed, folder / name, say=self.said.append)
        self.office = Office({name: self._handler(name) for name in self.parties})

    def silo(self, name: str, state: Path | None = None) -> Silo:
        at = self.folder / "keys" / "silos" / name
        party, agreed = keys.load(at)
        samples = samples_at(self.folder / "data" / name, agreed)
        state = state or self.folder / "state" / name
        return Silo(party, agreed, samples, state, share_accuracy=True, say=self.said.append, keys=at)

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
