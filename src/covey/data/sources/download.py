"""Fetching one file: resumed after an interruption, verified, and in place only when it is whole."""

from __future__ import annotations

import hashlib
import http.client
import os
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

from covey.data.sources.files import WantedFile
from covey.errors import CoveyError

Progress = Callable[[str, int, int | None], None]  # (file, bytes so far, bytes in all or None)
BLOCK = 1 << 18
TIMEOUT = 30.0  # seconds without a byte


class Interrupted(Exception):
    """This mirror did not deliver the whole file; what came stays in the .part file."""


def checksum(path: Path, kind: str) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, lambda: hashlib.new(kind, usedforsecurity=False)).hexdigest()


def verified(path: Path, file: WantedFile) -> bool | None:
    """Whether this is the published file; None where no checksum is known."""
    if file.sha256:
        return checksum(path, "sha256") == file.sha256
    if file.md5:
        return checksum(path, "md5") == file.md5
    return None


def fetch(file: WantedFile, folder: Path, progress: Progress | None = None) -> Path:
    """Downloads a file into a folder, from the first mirror that delivers it."""
    target = folder / file.name
    part = folder / (file.name + ".part")
    by_hand = f"put {file.name} into {folder} by hand (from {' or '.join(file.urls)})"
    failures = []
    for url in file.urls:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            resumed = part.exists()
            receive(url, part, file.name, progress)
            if verified(part, file) is False and resumed:
                part.unlink()  # what an earlier attempt left may be the wrong half: once more from the start
                receive(url, part, file.name, progress)
        except (Interrupted, urllib.error.URLError, http.client.HTTPException, TimeoutError, ConnectionError) as error:
            failures.append(f"{url}: {getattr(error, 'reason', None) or error}")
            continue
        except OSError as error:
            raise CoveyError(
                f"cannot write to {folder} ({error.strerror or error}); choose another COVEY_DATA."
            ) from error
        if verified(part, file) is False:
            part.unlink()
            failures.append(f"{url}: the checksum is wrong, the file was discarded")
            continue
        os.replace(part, target)
        return target
    kept = f" ({part.stat().st_size:,} bytes are kept: the next try resumes)" if part.exists() else ""
    raise CoveyError(f"could not download {file.name}: {'; '.join(failures)}{kept}; try again, or {by_hand}.")


def receive(url: str, part: Path, name: str, progress: Progress | None) -> None:
    """Appends to the .part file what is missing, or starts over where the server cannot resume."""
    have = part.stat().st_size if part.exists() else 0
    request = urllib.request.Request(url, headers={"User-Agent": "covey", "Accept-Encoding": "identity"})
    if have:
        request.add_header("Range", f"bytes={have}-")
    try:
        response = urllib.request.urlopen(request, timeout=TIMEOUT)
    except urllib.error.HTTPError as error:
        if error.code == 416 and have:  # nothing is missing, or the part is longer than the file: the checksum tells
            return
        raise
    with response:
        start = f"bytes {have}-"
        resumes = response.status == 206 and response.headers.get("Content-Range", "").startswith(start)
        length = response.headers.get("Content-Length")
        done = have if resumes else 0
        total = done + int(length) if length else None
        with part.open("ab" if resumes else "wb") as stream:
            while block := response.read(BLOCK):
                stream.write(block)
                done += len(block)
                if progress:
                    progress(name, done, total)
    if total is not None and done < total:
        raise Interrupted(f"the connection ended after {done:,} of {total:,} bytes")
