"""`runs.tar.xz`: the figures of all runs of a folder that have ended, in one file for another machine.

A pool packs them as it goes on, beside its runs: a machine that is lent may go away at any time, and with it what lies only there.
Before a pool runs anything, it takes over what an archive holds that lies in its folder: else its first act would be to write an
archive without these runs over theirs. An archive that cannot be read is refused, never replaced.

Which archive was taken over, or written here, is noted in `runs/`: a run of it that somebody removed since shall be computed again,
and not come back. One that was damaged since does: an archive never loses its copy to a file that cannot be read.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import lzma
import re
import tarfile
import threading
import time
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

from covey import files
from covey.errors import CoveyError, printable
from covey.papers.outcome import DIVERGED, read
from covey.results.folder import CONFIG, METRICS, RESULT, RunFolder

KEPT = (RESULT, METRICS, CONFIG)  # of a run
ENDS = (RESULT, DIVERGED)  # either says that it has ended
PACKED = "runs.tar.xz"
KNOWN = ".packed"  # in `runs/`: the digest of the archive that holds nothing new
NOTE = f"runs/{KNOWN}"
EVERY = 30.0  # seconds between two archives of one pool …
SHARE = 0.1  # … or so many that packing takes no more of a core than this

MOST_OF_A_FILE, MOST_IN_ALL = 256 << 20, 16 << 30  # bytes, unpacked: the largest that there were hold a hundredth of it
AT_ONCE = 1 << 20  # bytes
END = bytes(1024)  # of a tar
NAME = r"[^./\\:][^/\\:]*"  # leads nowhere else
RUN = re.compile(rf"runs/({NAME})/({'|'.join(map(re.escape, (*KEPT, DIVERGED)))})")
TABLE = re.compile(rf"{NAME}\.json")  # at the top: what was computed without any run


def pack(out: Path) -> Path:
    """The archive, made anew: runs that have ended, and tables that computed without any. Copies are whole.

    An archive that came meanwhile is taken over first; what it has of a run that goes on here stays in the archive.
    """
    unpack(out, into_begun=False)
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:xz", preset=1) as archive:
        for folder in sorted((out / "runs").glob("*")):
            if _is_whole(folder):
                for name in (*KEPT, DIVERGED):
                    _add(archive, folder / name, f"runs/{folder.name}/{name}")
        for table in sorted(out.glob("*.json")):
            _add(archive, table, table.name)
        _keep(out / PACKED, archive, _begun(out))
    files.write_atomically(out / PACKED, content.getvalue())
    if (out / "runs").is_dir():
        _note(out)
    return out / PACKED


def _add(archive: tarfile.TarFile, path: Path, name: str) -> None:
    """A file as it is now, if it is: of a run that ends just now the records may be replaced by shorter ones."""
    if not (path.is_file() and (RUN.fullmatch(name) or TABLE.fullmatch(name))):
        return
    with contextlib.suppress(FileNotFoundError), path.open("rb") as file:
        member, content = archive.gettarinfo(arcname=name, fileobj=file), file.read()
        member.size = len(content)
        archive.addfile(member, io.BytesIO(content))


def _keep(old: Path, archive: tarfile.TarFile, runs: Collection[str]) -> None:
    if not (runs and old.is_file()):
        return
    with tarfile.open(old, "r:xz") as known:
        for member in known:
            run, content = RUN.fullmatch(member.name), known.extractfile(member)
            if run and run[1] in runs and content is not None:
                archive.addfile(member, content)


def unpack(out: Path, into_begun: bool = True) -> int:
    """Takes over what an archive in this folder holds and the folder does not, or only damaged; how many runs these were.

    `into_begun`: also runs that were begun here and broken off, which nobody goes on with meanwhile.
    """
    archive, folders = out / PACKED, [path for path in (out / "runs").glob("*") if path.is_dir()]
    if not archive.is_file():
        return 0
    here = {folder.name for folder in folders if _is_whole(folder)}
    damaged = {folder.name for folder in folders if _has_ended(folder)} - here
    # Of an archive that is known here, what is not there was removed; where nothing at all is left, it was not meant.
    known = bool(folders) and _noted(out)
    if known and not damaged:
        return 0
    _check(archive)
    fresh = _take_over(archive, out, here | (set() if into_begun else _begun(out)), damaged if known else None)
    (out / "runs").mkdir(exist_ok=True)
    _note(out)
    return fresh


def _check(path: Path) -> None:
    """Refuses an archive that is not whole, or that no pool can have packed, before a byte of it is written."""
    remedy = "this pool would write its own in its place, so move it away, or choose another --out"
    try:
        _read_through(path)
        with tarfile.open(path, "r:xz") as archive:
            odd = next(
                (one.name for one in archive if not (one.isdir() or one.name == NOTE or _is_expected(one))), None
            )
    except (EOFError, lzma.LZMAError, tarfile.TarError) as e:
        raise CoveyError(f"{path} is damaged ({e}): {remedy}") from e
    if odd is not None:
        raise CoveyError(f"{path} holds '{printable(odd, 200)}', which no pool packs: {remedy}")


def _read_through(path: Path) -> None:
    """xz has a checksum of all; a tar that breaks off, tarfile takes for a shorter one."""
    size, end = 0, b""
    with lzma.open(path) as stream:
        while piece := stream.read(AT_ONCE):
            size, end = size + len(piece), (end + piece)[-len(END) :]
            if size > MOST_IN_ALL:
                raise tarfile.TarError(f"it unpacks to more than {MOST_IN_ALL >> 30} GiB")
    if end != END:
        raise tarfile.TarError("it breaks off")


def _is_expected(member: tarfile.TarInfo) -> bool:
    """A file, of a name that leads nowhere else, and of a size that such files have."""
    named = RUN.fullmatch(member.name) or TABLE.fullmatch(member.name)
    return bool(named) and member.type in (tarfile.REGTYPE, tarfile.AREGTYPE) and member.size <= MOST_OF_A_FILE


def _take_over(path: Path, out: Path, here: Collection[str], only: Collection[str] | None) -> int:
    """All runs but those that stay as they are `here`, or `only` these. What says that a run has ended comes last: broken off, all
    that lacks it is taken over the next time.
    """
    fresh = set[str]()
    for ends in (False, True):
        with tarfile.open(path, "r:xz") as archive:
            for member in archive:
                run, place = RUN.fullmatch(member.name), out / member.name
                known = run[1] in here or (only is not None and run[1] not in only) if run else place.exists()
                if known or ends != bool(run and run[2] in ENDS):
                    continue
                content = archive.extractfile(member)
                if content is not None and member.name != NOTE:  # no folder
                    files.write_atomically(place, content.read())
                    fresh |= {run[1]} if run and ends else set()
    return len(fresh)


def _begun(out: Path) -> set[str]:
    return {path.name for path in (out / "runs").glob("*") if path.is_dir() and not _has_ended(path)}


def _has_ended(folder: Path) -> bool:
    return any((folder / end).is_file() for end in ENDS)


def _is_whole(folder: Path) -> bool:
    """Whether it holds a run that has ended, and that can be read."""
    try:
        return read(RunFolder(folder)) is not None
    except CoveyError:
        return False


def _note(out: Path) -> None:
    files.write_atomically(out / "runs" / KNOWN, _digest(out / PACKED).encode())


def _noted(out: Path) -> bool:
    note = out / "runs" / KNOWN
    return note.is_file() and note.read_bytes() == _digest(out / PACKED).encode()


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "blake2b").hexdigest()


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
