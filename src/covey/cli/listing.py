"""`covey list`: what there is, one line each."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from covey.errors import CoveyError, nearest


def list_command(
    what: Annotated[
        str, typer.Argument(help="algorithms, attacks, defences, datasets, models, partitions or presets.")
    ] = "",
) -> None:
    """What there is, one line each."""
    tables = {
        "algorithms": _list_algorithms,
        "attacks": _list_attacks,
        "defences": _list_defences,
        "datasets": _list_datasets,
        "models": _list_models,
        "partitions": _list_partitions,
        "presets": _list_presets,
    }
    if what and what not in tables:
        raise CoveyError(f"there is no list of '{what}'{nearest(what, list(tables))}")
    for name in [what] if what else tables:
        rows = tables[name]()
        if not what:
            print(f"\n{name}")
        width = max((len(left) for left, _ in rows), default=0)
        for left, right in rows:
            print(f"  {left:<{width}}  {right}".rstrip())


def _first_line(thing: Any) -> str:
    return str(getattr(thing, "title", "") or (thing.__doc__ or "").strip().split("\n")[0])


def _list_algorithms() -> list[tuple[str, str]]:
    from covey.algorithms import ALGORITHMS

    return [(name, _first_line(cls)) for name, cls in sorted(ALGORITHMS.items())]


def _list_attacks() -> list[tuple[str, str]]:
    from covey.attacks import ATTACKS

    return [(name, _first_line(cls)) for name, cls in sorted(ATTACKS.items())]


def _list_defences() -> list[tuple[str, str]]:
    from covey.defences import DEFENCES

    return [(name, _first_line(cls)) for name, cls in sorted(DEFENCES.items())]


def _list_partitions() -> list[tuple[str, str]]:
    from covey.data.partitions import PARTITIONS

    return [(name, _first_line(cls)) for name, cls in sorted(PARTITIONS.items())]


def _list_datasets() -> list[tuple[str, str]]:
    from covey.data.sources import SOURCES

    return [(name, source.title) for name, source in sorted(SOURCES.items())]


def _list_models() -> list[tuple[str, str]]:
    from covey.learn.initial import parameters
    from covey.models import MODELS

    def count(name: str, layout: str) -> str:
        shape, kind = {"flat": ((28, 28), "image"), "image": ((32, 32, 3), "image"), "tokens": ((100,), "tokens")}[
            layout
        ]
        return (
            f"{parameters(name, shape, 10, kind):>12,} parameters for {'×'.join(map(str, shape))} inputs and 10 classes"
        )

    return [(name, f"{count(name, spec.layout)}; {spec.title}") for name, spec in MODELS.items()]


def _list_presets() -> list[tuple[str, str]]:
    from covey.experiment.presets import ABOUT, PRESETS

    return [(name, ABOUT[name]) for name in PRESETS]
