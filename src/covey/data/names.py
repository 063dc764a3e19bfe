"""What the name of a dataset stands for: one that covey knows, a path of one's own, or what was handed to `run` in Python."""

from __future__ import annotations

import os
import re
from pathlib import Path

from covey.data.own.rules import TABLES
from covey.data.sources import SOURCES

SILOS = "silos"  # the dataset of experiments whose samples lie with the silos
GIVEN = "given:"  # before the name of data that were handed over in Python: nobody else can load them


def is_path(name: str) -> bool:
    """Whether a name means a file or folder. What covey knows by that name goes first: ./digits is a folder of that name."""
    if name.startswith(GIVEN) or name.partition(":")[0] in SOURCES:
        return False
    if name.lower().endswith((".npz", *TABLES)) or os.sep in name or "/" in name:
        return True
    return bool(name) and ":" not in name and Path(name).expanduser().exists()


def has_clients(name: str) -> bool:
    """Whether a dataset may say itself whose each row is: one of the user's own, or one that is declared so."""
    if name == SILOS:  # also where there is a folder of that name
        return False
    declared = [entry.declared.get("has_clients") for entry in SOURCES.claims(name.partition(":")[0])]
    return any(declared) or is_path(name)


def is_given(name: str) -> bool:
    return name.startswith(GIVEN)


def people_call(name: str) -> str:
    """A dataset in a title: of a path the name of the file or folder, without its ending."""
    if is_given(name):
        return name.removeprefix(GIVEN)
    return Path(name).name.split(".")[0] or name if is_path(name) else name


def file_name(name: str) -> str:
    """The same as a part of a folder's name."""
    called = people_call(name)
    return re.sub(r"[^\w.-]+", "-", called).strip("-.") or "own" if called != name else name.replace(":", "-")
