"""Where runs, audits and reproduced tables lie in a folder. Looks at names only; never leaves the folder through a link."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from covey.results.folder import CHECKPOINT, CONFIG, FEDERATION, METRICS, RESULT
from covey.results.status import STATUS

FOLDERS = 20_000  # somebody may point at a home directory: looking ends here, and the page says so
SKIPPED = (CHECKPOINT, "node_modules", "__pycache__")
SEED = re.compile(r"seed-\d+")
OF_A_RUN = frozenset((CONFIG, RESULT, METRICS, FEDERATION))  # all that a report reads


@dataclass(frozen=True)
class Place:
    """A folder with something to show: a run, an audit (`audit.json`), a reproduced table (`NAME.json` beside `NAME.html`), or a
    silo's state (`status.json`).
    """

    kind: str  # run, audit, table, party
    folder: Path
    name: str = ""  # of a table's files
    parts: tuple[Path, ...] = ()  # of a run over seeds: one folder per seed


def places(root: Path) -> Iterator[Place]:
    """Everything under `root` that can be shown, in order of names. A run's own folder is not searched further."""
    waiting, looked = [root], 0
    while waiting and looked < FOLDERS:
        folder = waiting.pop()
        looked += 1
        files, folders = _content(folder)
        seeds = tuple(folder / name for name in sorted(folders) if SEED.fullmatch(name))
        if is_run(files, bool(seeds)):
            yield Place("run", folder, parts=seeds)
            continue
        if STATUS in files:
            yield Place("party", folder)
        if "audit.json" in files:
            yield Place("audit", folder)
        for name in sorted(files):
            stem = name.removesuffix(".json")
            if stem != name and stem != "audit" and f"{stem}.html" in files:
                yield Place("table", folder, stem)
        waiting += [folder / name for name in sorted(folders, reverse=True) if name not in SKIPPED]


def is_run(files: set[str], has_seeds: bool = False) -> bool:
    """A configuration and a sign that something ran with it; or figures alone, which another machine may have sent."""
    ran = OF_A_RUN & files - {CONFIG}
    return (CONFIG in files and (bool(ran) or has_seeds)) or {RESULT, METRICS} <= files


def _content(folder: Path) -> tuple[set[str], set[str]]:
    """(files, folders) by name, without hidden ones and without links."""
    files, folders = set(), set()
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.name.startswith("."):
                    continue
                if entry.is_dir(follow_symlinks=False):
                    folders.add(entry.name)
                elif entry.is_file(follow_symlinks=False):
                    files.add(entry.name)
    except OSError:  # not ours to read, or gone meanwhile
        return set(), set()
    return files, folders
