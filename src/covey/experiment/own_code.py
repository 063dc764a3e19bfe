"""Which code that is not covey's an experiment names, told before any of it is imported."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from covey.algorithms import ALGORITHMS
from covey.attacks import ATTACKS
from covey.compression import COMPRESSIONS
from covey.data.partitions import PARTITIONS
from covey.data.sources import SOURCES
from covey.defences import DEFENCES
from covey.experiment.encryptions import FAMILIES
from covey.learn.losses import LOSSES
from covey.metrics import METRICS
from covey.models import MODELS
from covey.names import OURS, Registry, distribution_of

KINDS: dict[str, tuple[Registry, ...]] = {
    "algorithm": (ALGORITHMS,),
    "attacks": (ATTACKS,),
    "defence": (DEFENCES,),
    "compression": (COMPRESSIONS,),
    "evaluation": (METRICS,),
    "partition": (PARTITIONS,),
    "dataset": (SOURCES,),
    "model": (MODELS,),
    "training": (LOSSES,),
    "encryption": tuple(FAMILIES.values()),
}
_PATH = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")


def own_code(table: Mapping[str, Any]) -> list[str]:
    """`package.module:Class (package 1.2)` of everything that the table of an experiment names beyond what covey brings."""
    used = (path for key, registries in KINDS.items() for path in _paths(table.get(key), registries))
    return [f"{path} ({origin or 'of no installed package'})" for path, origin in dict(used).items()]


def _paths(value: Any, registries: tuple[Registry, ...]) -> Iterator[tuple[str, str]]:
    """(path, the distribution that it is from) of the names in a value; the inner tables of a table are looked through, too."""
    inner = value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else ()
    for one in inner:
        yield from _paths(one, registries)
    if not isinstance(value, str):
        return
    names = dict.fromkeys((value, value.partition(":")[0]))
    entries = [entry for registry in registries for name in names for entry in registry.claims(name)]
    if entries:
        yield from ((entry.path, entry.origin) for entry in entries if entry.origin != OURS)
    elif _PATH.fullmatch(value) and value.partition(".")[0] != OURS:
        yield value, distribution_of(value)
