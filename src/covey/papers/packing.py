"""`runs.tar.xz`: the figures of all runs of a folder that have ended, in one file for another machine.

A pool packs them as it goes on, beside its runs: a machine that is lent may go away at any time, and with it what lies only there.
"""

from __future__ import annotations

import contextlib
import io
import tarfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from covey import files
from covey.errors import CoveyError
from covey.papers.outcome import DIVERGED
from covey.results.folder import CONFIG, METRICS, RESULT

KEPT = (RESULT, METRICS, CONFIG)  # of a run
PACKED = "runs.tar.xz"
EVERY = 30.0  # seconds between two archives of one pool …
SHARE = 0.1  # … or so many that packing takes no more of a core than this


def pack(out: Path) -> Path:
    """The archive, made anew: runs that have ended, and tables that computed without any. Copies are whole."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:xz", preset=1) as archive:
        for folder in sorted((out / "runs").glob("*")):
            if any((folder / end).is_file() for end in (RESULT, DIVERGED)):
                for name in (*KEPT, DIVERGED):
                    _add(archive, folder / name, f"runs/{folder.name}/{name}")
        for table in sorted(out.glob("*.json")):
            _add(archive, table, table.name)
    files.write_atomically(out / PACKED, content.getvalue())
    return out / PACKED


def _add(archive: tarfile.TarFile, path: Path, name: str) -> None:
    """A file as it is now, if it is: of a run that ends just now the records may be replaced by shorter ones."""
    with contextlib.suppress(FileNotFoundError), path.open("rb") as file:
        member, content = archive.gettarinfo(arcname=name, fileobj=file), file.read()
        member.size = len(content)
        archive.addfile(member, io.BytesIO(content))


@contextlib.contextmanager
def packing(out: Path, every: float = EVERY) -> Iterator[Callable[[], None]]:
    """Packs beside what is done in it, from time to time where that has called what this gives: there is more to pack."""
    more, ended = threading.Event(), threading.Event()

    def pack_again() -> None:
        pause = every
        while not ended.wait(pause):
            if more.is_set():
                more.clear()
                begin = time.monotonic()
                with contextlib.suppress(CoveyError, OSError):  # a full disk: the pool's end says so
                    pack(out)
                pause = max(every, (time.monotonic() - begin) / SHARE)

    thread = threading.Thread(target=pack_again, daemon=True, name="packing")
    thread.start()
    try:
        yield more.set
    finally:
        ended.set()
        thread.join()
