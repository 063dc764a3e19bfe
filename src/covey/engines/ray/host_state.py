"""What a host is made of, as plain data: for a host in a process that shares no memory with this one.

The experiment travels as its table, the setting and the keys as codec bytes, the federation as arrays. Objects (algorithm,
defence, an attacker in a client's place) travel as the name of their class and the table of their fields and are built anew
there; one that cannot be, such as a class of a notebook, is refused here, before anything runs.
"""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from covey import config
from covey.algorithms.contract import Setting
from covey.attacks.contract import parties
from covey.attacks.observe import Observers
from covey.data.dataset import Dataset
from covey.data.federation import Federation
from covey.data.holdings import Holdings
from covey.engines.hosts.host import Host
from covey.engines.prepare import arithmetic_of, device_of, make_host, network_of
from covey.errors import CoveyError
from covey.experiment.experiment import Experiment
from covey.learn.kernels.convolutions import narrow
from covey.learn.work import Plan
from covey.messages import decode, encode, to_device
from covey.names import MAIN, import_path, path_of

ELSEWHERE = "engine.name = 'ray'"  # the engine that needs parcels, as refusals name it


def pack(experiment: Experiment, setting: Setting, replaced: Mapping[int, Any], own_loops: bool = False) -> bytes:
    """All but the data and the keys. `own_loops`: see `Machine`; one answer for all machines, as far as they can."""
    plain = {k: v for k, v in experiment.table().items() if k not in ("algorithm", "defence", "partition", "attacks")}
    attackers = list({id(attack): attack for attack in replaced.values()}.values())
    for attack in attackers:
        _coalition(attack)
    values = {f.name: getattr(setting, f.name) for f in dataclasses.fields(setting)}
    return encode(
        {
            "experiment": plain,
            "folder": os.getcwd(),
            "algorithm": _described(getattr(experiment.algorithm, "stands_for", experiment.algorithm)),
            "defence": None if experiment.defence is None else _described(experiment.defence),
            "attackers": [_described(_fresh(attack)) for attack in attackers],
            "setting": values | {"plan": dataclasses.asdict(setting.plan)},
            "own_loops": own_loops,
        }
    )


def keys_for(keys: Mapping[str, Any], clients: Iterable[int], replaced: Mapping[int, Any]) -> bytes:
    """The key material that a host of these clients needs, and no other client's but those an attacker of theirs shares."""
    theirs = set(clients)
    for client, attack in replaced.items():
        if client in theirs:
            theirs |= _coalition(attack)
    own = {i: material for i, material in keys.get("own", {}).items() if i in theirs}
    return encode({**keys, "own": own} if "own" in keys else dict(keys))


def unpack(parcel: Any, keys: bytes, federation: Federation) -> Host:
    content = decode(parcel)
    _search(content["folder"])  # where the experiment's own dataset, model or encryption may lie
    algorithm, defence = _built(content["algorithm"]), _built(content["defence"])
    experiment = _at_work(Experiment.of(content["experiment"], algorithm=algorithm, defence=defence))
    values = to_device(content["setting"], device_of(experiment))
    setting = Setting(**values | {"plan": Plan(**values["plan"])})
    network = network_of(experiment, federation.dataset)
    clients = decode(keys)
    observers = Observers(
        [_built(a) for a in content["attackers"]],
        setting,
        network,
        federation,
        {"clients": clients},
        device_of(experiment),
        algorithm=experiment.algorithm,
        defence=defence,
        arithmetic=arithmetic_of(experiment),
    )
    own_loops = content["own_loops"] and narrow.is_here()
    return make_host(experiment, network, federation, setting, clients, observers.replaced, own_loops)


def _at_work(experiment: Experiment) -> Experiment:
    """The experiment as a worker computes it: by itself, on its own GPU if it was given one."""
    device = "cuda" if experiment.engine.device == "cuda" else "cpu"
    return dataclasses.replace(
        experiment, engine=dataclasses.replace(experiment.engine, name="simulate", device=device)
    )


def arrays(federation: Federation) -> dict[str, Any]:
    """The federation as arrays and plain values; the rows of all clients as one array, since there may be many clients."""
    return {
        "dataset": {f.name: getattr(federation.dataset, f.name) for f in dataclasses.fields(federation.dataset)},
        "rows": federation.holdings.rows,
        "starts": federation.holdings.starts,
        "clusters": federation.clusters,
        "test_groups": federation.test_groups,
        "distributions": federation.distributions,
        "public": federation.public,
        "notes": federation.notes,
        "names": federation.names,
    }


def federation_of(content: dict[str, Any]) -> Federation:
    rest = {k: v for k, v in content.items() if k not in ("dataset", "rows", "starts")}
    return Federation(Dataset(**content["dataset"]), Holdings(content["rows"], content["starts"]), **rest)


def _fresh(attack: Any) -> Any:
    """An attacker as it was before it saw anything."""
    return dataclasses.replace(attack, memory={}) if dataclasses.is_dataclass(type(attack)) else attack


def _coalition(attack: Any) -> set[int]:
    """The clients of an attacker that runs in a client's place."""
    members = parties(attack.vantage)
    if not all(p.startswith("client:") for p in members):
        raise CoveyError(
            f"attack '{attack.name}' runs in a client's place but sees as '{attack.vantage}': with {ELSEWHERE} such an "
            "attacker can only be a client; use engine.name = 'simulate'"
        )
    return {int(p.removeprefix("client:")) for p in members}


def _described(thing: Any) -> dict[str, Any]:
    """The path of its class and the table of its fields, from which an equal object can be built in another process."""
    kind = type(thing)
    what = f"{ELSEWHERE} builds {kind.__name__} anew in its workers, which cannot be"
    path = path_of(kind)
    try:
        importable = kind.__module__ != MAIN and import_path(path, "object") is kind
    except CoveyError:
        importable = False
    if not importable:
        raise CoveyError(f"{what}: define it in a module that they can import, or use engine.name = 'simulate'")
    try:
        fields = {f.name for f in dataclasses.fields(thing)}
        table = {k: v for k, v in config.to_table(thing).items() if k in fields}
        description = {"class": path, "fields": table, "folder": _folder(kind.__module__)}
        if encode(description) and _built(description) == thing:
            return description
    except (CoveyError, ValueError, TypeError, RuntimeError):  # fields that hold arrays do not even compare
        pass
    raise CoveyError(f"{what}: make it a dataclass of values that can cross the wire, or use engine.name = 'simulate'")


def _built(description: dict[str, Any] | None) -> Any:
    if description is None:
        return None
    _search(description["folder"])
    return config.build(import_path(description["class"], "a worker's object"), description["fields"])


def _search(folder: str) -> None:
    if folder not in sys.path:
        sys.path.append(folder)  # last: nothing that is installed gives way to it


def _folder(module: str) -> str:
    """Where Python looks to find the module: a script's folder, say, which workers on this machine see as well."""
    file = Path(sys.modules[module].__file__ or "").resolve()
    return str(file.parents[module.count(".") + (file.name == "__init__.py")])
