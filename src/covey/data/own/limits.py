"""How much a file may claim, and what is said of one that cannot be read."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from covey.errors import CoveyError

MOST = 16 * 2**30  # bytes of one array; less where the machine has less memory


def room() -> int:
    """Bytes that one array may take: half of this machine's memory at most."""
    try:
        return min(MOST, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2)
    except (ValueError, OSError, AttributeError):
        return MOST


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """What a reader raises on a file that is broken or not allowed to be read, as one sentence."""
    try:
        yield
    except CoveyError:
        raise
    except PermissionError as e:
        raise CoveyError(f"{e.filename or path} may not be read by this user: change its permissions") from e
    except Exception as e:
        # zip, numpy, pyarrow and Pillow raise a dozen kinds on damaged files; fuzzing finds another now and then
        raise CoveyError(f"{path} cannot be read ({type(e).__name__}: {str(e)[:200]}): write it again") from e
