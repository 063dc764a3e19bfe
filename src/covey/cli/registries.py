"""What there is of each kind, by name: read from sources, so that a wrong name is answered before anything heavy is imported."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from covey.names import Registry

# kind -> (family, module, variable) of its registries; imported when they are shown
REGISTRIES = {
    "algorithms": [("", "covey.algorithms", "ALGORITHMS")],
    "attacks": [("", "covey.attacks", "ATTACKS")],
    "defences": [("", "covey.defences", "DEFENCES")],
    "compressions": [("", "covey.compression", "COMPRESSIONS")],
    "encryptions": [
        ("of sums", "covey.crypto.sealing", "SCHEMES"),
        ("of sums, opened together", "covey.crypto.openings", "SCHEMES"),
        ("of rows", "covey.crypto.blinded", "SCHEMES"),
    ],
    "datasets": [("", "covey.data.sources", "SOURCES")],
    "models": [("", "covey.models", "MODELS")],
    "partitions": [("", "covey.data.partitions", "PARTITIONS")],
    "metrics": [("", "covey.metrics", "METRICS")],
}
NAMED = {
    "algorithm": "algorithms",
    "defence": "defences",
    "partition": "partitions",
    "attacks": "attacks",
}  # key -> kind


def registries(kind: str) -> list[tuple[str, Registry]]:
    """(family, registry); only encryptions have families, and one name in two of them is two schemes."""
    return [(family, getattr(import_module(module), name)) for family, module, name in REGISTRIES.get(kind, [])]


def check_names(table: dict[str, Any]) -> None:
    """Refuses a name in an experiment's table that nothing has; all else is for the experiment to judge."""
    for key, kind in NAMED.items():
        values = table.get(key) if isinstance(table.get(key), list) else [table.get(key)]
        for value in values or []:
            name = value.get("name") if isinstance(value, dict) else value
            if isinstance(name, str) and name and ":" not in name:
                for _, registry in registries(kind):
                    registry.entry(name)
