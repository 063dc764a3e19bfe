"""A run's files: written whole or not at all, and JSON that every reader takes.

The keys of a checkpoint lie in a file of their own that only its owner may read.
"""

from __future__ import annotations

import contextlib
import errno
import json
import math
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from covey.errors import CoveyError


def write_atomically(path: Path, data: bytes, mode: int = 0o644) -> None:
    """The file is either the old one or the whole new one, also after a crash or on a full disk."""
    part = path.with_name(f".{path.name}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):
            part.unlink()
        with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
    except OSError as e:
        with contextlib.suppress(OSError):
            part.unlink()
        why = "the disk is full" if e.errno in (errno.ENOSPC, errno.EDQUOT) else (e.strerror or str(e))
        raise CoveyError(f"{path} could not be written: {why}; make room or choose another folder with --out") from e


def save(folder: Path, content: dict[str, Any], keys: dict[str, Any]) -> None:
    """Writes a checkpoint; keys only once, since they do not change during a run."""
    from covey.messages import encode  # it brings torch, which no other file of a run needs

    if keys and not (folder / "keys.bin").exists():
        write_atomically(folder / "keys.bin", encode(keys), mode=0o600)
    write_atomically(folder / "state.bin", encode(content))


def has_checkpoint(folder: Path) -> bool:
    return (folder / "state.bin").is_file()


def remove_checkpoint(folder: Path) -> None:
    for part in ("state.bin", "keys.bin"):
        (folder / part).unlink(missing_ok=True)


def load(folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """(content, keys) of a checkpoint."""
    from covey.messages import decode

    if not has_checkpoint(folder):
        raise CoveyError(f"there is no checkpoint in {folder}: nothing to resume; start the run again with `covey run`")
    keys = folder / "keys.bin"
    try:
        content = decode((folder / "state.bin").read_bytes())
        return content, decode(keys.read_bytes()) if keys.is_file() else {}
    except CoveyError as e:
        raise CoveyError(f"the checkpoint in {folder} is damaged ({e}); start the run again with `covey run`") from e
    except OSError as e:
        raise CoveyError(f"the checkpoint in {folder} cannot be read: {e.strerror}") from e


def append_line(path: Path, record: dict[str, Any]) -> None:
    try:
        with path.open("a", encoding="utf-8") as file:
            file.write(_line(record))
    except OSError as e:
        raise CoveyError(f"{path} could not be written: {e.strerror}; finished rounds are kept") from e


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The complete lines of a metrics file; a last line that was cut off is left out."""
    if not path.is_file():
        return []
    records = []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            records.append(json.loads(line))
        except json.JSONDecodeError:
            break
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
