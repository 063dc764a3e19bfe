"""A run's files: written whole or not at all, and JSON that every reader takes.

The keys of a checkpoint lie in a file of their own that only its owner may read.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import math
import mmap
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from covey.errors import CoveyError, Damaged

if TYPE_CHECKING:
    from covey.messages import Keep  # it brings torch

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

STATE, BEFORE, KEYS = "state.bin", "state.before.bin", "keys.bin"  # of a checkpoint
OTHERWISE = {  # what to do where a folder has no such file
    "config.toml": "it is not the folder of a run",
    "result.json": "give the folder of a finished run",
    "party.bin": "give one party's folder, as `covey keys make` or `covey keys accept` completed it",
}
CHECKED, CHECKSUM_BYTES = b"CVYSUM1\n", 32
MAPPED = 64 << 20  # bytes from which on a file is mapped, not read at once


def expect(folder: Path, name: str) -> Path:
    """The file of this name, or one sentence; asked by commands before they import all that they need for their work."""
    if not (folder / name).is_file():
        raise CoveyError(f"{folder} holds no {name}: {OTHERWISE[name]}")
    return folder / name


def write_atomically(path: Path, data: bytes | Iterable[bytes | memoryview], mode: int = 0o644) -> None:
    """The file is either the old one or the whole new one, also after a crash or on a full disk. `data` may come in pieces."""
    part = path.with_name(f".{path.name}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):
            part.unlink()
        with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
            for piece in (data,) if isinstance(data, bytes) else data:
                file.write(piece)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
    except OSError as e:
        with contextlib.suppress(OSError):
            part.unlink()
        why = "the disk is full" if e.errno in (errno.ENOSPC, errno.EDQUOT) else (e.strerror or str(e))
        raise CoveyError(f"{path} could not be written: {why}; make room or choose another folder with --out") from e


def lock(path: Path) -> IO[str] | None:
    """The file, locked for this process until it is closed or the process ends; None where another process has it."""
    while True:
        file = path.open("a+", encoding="utf-8")
        try:
            if fcntl is not None:
                fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # unlike flock, not held by forked workers
        except BlockingIOError:
            file.close()
            return None
        if path.exists() and os.path.samestat(os.fstat(file.fileno()), path.stat()):
            file.truncate(0)
            file.write(str(os.getpid()))
            file.flush()
            return file
        file.close()  # its owner removed it between our opening and locking it


def owner(path: Path) -> str:
    """` (process N)` of who holds a lock, where that can be read."""
    with contextlib.suppress(OSError, ValueError):
        return f" (process {int(path.read_text(encoding='utf-8'))})"
    return ""


def write_state(path: Path, value: Any, mode: int = 0o600) -> None:
    """A value of the codec with its checksum: a byte that a disk changed must not become a model."""
    from covey.messages import pieces  # it brings torch, which no other file of a run needs

    data = pieces(value)  # never joined: what many clients remember may lie in a mapped file, and not fit in memory
    write_atomically(path, [CHECKED, _checksum(data), *data], mode)


def read_state(path: Path, keep: Keep | None = None) -> Any:
    """What `write_state` wrote, or older versions did without a checksum; CoveyError where a byte differs.

    `keep`: see `messages.decode`.
    """
    from covey.messages import decode

    data = _mapped(path)
    if data[: len(CHECKED)] == CHECKED:
        checksum, data = data[len(CHECKED) : len(CHECKED) + CHECKSUM_BYTES], data[len(CHECKED) + CHECKSUM_BYTES :]
        if checksum != _checksum([data]):
            raise CoveyError(f"{path} is damaged: its bytes are not those that were written")
    return decode(data, keep=keep)


def _mapped(path: Path) -> memoryview:
    """A file's bytes; a long one's are read as they are asked for."""
    if path.stat().st_size < MAPPED:
        return memoryview(path.read_bytes())
    with path.open("rb") as file:
        return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))


def _checksum(data: Iterable[bytes | memoryview]) -> bytes:
    digest = hashlib.blake2b(digest_size=CHECKSUM_BYTES)
    for piece in data:
        digest.update(piece)
    return digest.digest()


def save(folder: Path, content: dict[str, Any], keys: dict[str, Any]) -> None:
    """Writes a checkpoint and keeps the one before; keys only once, since they do not change during a run."""
    if keys and not (folder / KEYS).exists():
        write_state(folder / KEYS, keys)
    with contextlib.suppress(OSError):  # there is none yet, or no such thing as links: then the last one stands alone
        (folder / BEFORE).unlink(missing_ok=True)
        os.link(folder / STATE, folder / BEFORE)
    write_state(folder / STATE, content, mode=0o644)


def has_checkpoint(folder: Path) -> bool:
    return any((folder / name).is_file() for name in (STATE, BEFORE))


def remove_checkpoint(folder: Path) -> None:
    for part in (STATE, BEFORE, KEYS):
        (folder / part).unlink(missing_ok=True)


def load(folder: Path, keep: Keep | None = None) -> tuple[dict[str, Any], dict[str, Any]]:
    """(content, keys) of a checkpoint; of the one before where the last is damaged, which is said. `keep`: see `read_state`."""
    if not has_checkpoint(folder):
        raise CoveyError(f"there is no checkpoint in {folder}: nothing to resume; start the run again with `covey run`")
    keys = folder / KEYS
    try:
        secrets = read_state(keys) if keys.is_file() else {}
        content = _last_good(folder, keep)
        if not isinstance(content, dict) or not isinstance(secrets, dict):
            raise CoveyError("it holds no table")
        return content, secrets
    except CoveyError as e:
        found = f"the checkpoint in {folder} is damaged ({e})"
        raise Damaged(f"{found}; start the run again with `covey run`", found) from e
    except OSError as e:
        raise CoveyError(f"the checkpoint in {folder} cannot be read: {e.strerror}") from e


def _last_good(folder: Path, keep: Keep | None) -> dict[str, Any]:
    last, before = folder / STATE, folder / BEFORE
    if not before.is_file():
        return read_state(last, keep)  # type: ignore[no-any-return]
    try:
        return read_state(last, keep)  # type: ignore[no-any-return]
    except (CoveyError, FileNotFoundError) as e:
        content: dict[str, Any] = read_state(before, keep)
        why = str(e) if isinstance(e, CoveyError) else f"{last} is missing"
        print(
            f"{why}; going on from the checkpoint before it, after round {content.get('round', '?')}", file=sys.stderr
        )
        return content


def append_line(path: Path, record: dict[str, Any], sync: bool = False) -> None:
    """`sync`: it is on the disk, and not only on its way there, before anything else happens."""
    try:
        with path.open("a", encoding="utf-8") as file:
            file.write(_line(record))
            if sync:
                file.flush()
                os.fsync(file.fileno())
    except OSError as e:
        raise CoveyError(f"{path} could not be written: {e.strerror}; finished rounds are kept") from e


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The complete lines of a metrics file, up to one that was cut off or is none."""
    if not path.is_file():
        return []
    records = []
    for line in path.read_bytes().splitlines():
        try:
            record = json.loads(line)
        except ValueError:
            break
        if not isinstance(record, dict):
            break
        records.append(record)
    return records


def write_lines(path: Path, records: Iterable[dict[str, Any]]) -> None:
    write_atomically(path, "".join(map(_line, records)).encode())


def write_json(path: Path, content: dict[str, Any]) -> None:
    write_atomically(path, (json.dumps(finite(content), indent=1, allow_nan=False) + "\n").encode())


def number(value: object) -> float | None:
    """The value where it is a number one can draw; None for anything else that a file may hold.

    Beyond 1e100 something diverged, and axes would overflow; below 1e-100 is zero.
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        size = float(value)
    except OverflowError:
        return None
    if abs(size) < 1e-100:
        return 0.0
    return size if abs(size) <= 1e100 else None  # NaN fails this too


def finite(value: Any) -> Any:
    """The same tree with None for every number that is infinite or none: JSON has no word for them."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {k: finite(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [finite(v) for v in value]
    return value


def _line(record: dict[str, Any]) -> str:
    return json.dumps(finite(record), separators=(",", ":"), allow_nan=False) + "\n"
