"""Arguments and options that several commands take, and what the shell completes them with."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer


def presets(incomplete: str) -> list[str]:
    from covey.experiment.presets import PRESETS

    return _beginning(PRESETS, incomplete)


def datasets(incomplete: str) -> list[str]:
    from covey.data.sources import SOURCES

    return _beginning(SOURCES, incomplete)


def papers(incomplete: str) -> list[str]:
    from covey.papers import PAPERS

    return _beginning(PAPERS, incomplete)


def _beginning(names: Iterable[str], start: str) -> list[str]:
    return [name for name in names if name.startswith(start)]


Source = Annotated[
    str,
    typer.Argument(help="A TOML file or the name of a preset (`covey list presets`).", autocompletion=presets),
]
Sets = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Change one key, e.g. `--set training.lr=0.1`; repeatable."),
]
Out = Annotated[
    Path | None, typer.Option("--out", help="Folder for the run; default `runs/<algorithm>-<dataset>-<number>`.")
]
Json = Annotated[bool, typer.Option("--json", help="Print result.json on standard output and nothing else there.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")]
Log = Annotated[
    list[str] | None, typer.Option("--log", metavar="LOGGER", help="Also log to `tensorboard` or `mlflow`; repeatable.")
]
Sweeps = Annotated[
    list[str] | None,
    typer.Option("--sweep", metavar="KEY=A,B,…", help="Run every combination of such values; repeatable."),
]
Device = Annotated[str, typer.Option(help="auto, cpu or cuda.")]
Dataset = Annotated[str, typer.Argument(help="A dataset (`covey data list`), or a path.", autocompletion=datasets)]


def typed(command: str, words: Iterable[str]) -> str:
    """A command as one would type it: double quotes around what holds single ones, where the shell leaves it alone."""
    quoted = (f'"{word}"' if "'" in word and not set(word) & set('"$`\\!') else shlex.quote(word) for word in words)
    return " ".join([command, *quoted])


def comma_separated(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]
